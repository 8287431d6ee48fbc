"""`tidelake rename`, `drop` and `gc`, and where orphaned collections are shown. These tests do not start a JVM."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.lake import check_lake
from tests.cli.commands import call, invoke, run
from tests.report.published import configure, publish
from tidelake import open_lake
from tidelake.catalog.catalog import Catalog
from tidelake.errors import (
    ArgumentRefused,
    CapabilityForeign,
    CollectionDropped,
    CollectionRenamed,
    ConfigurationError,
    NameTaken,
    UnknownCollection,
)
from tidelake.protocol.iso_times import iso_to_the_second
from tidelake.settings.lake import load_settings
from tidelake.store.layout import Store
from tidelake.telemetry.lake_metrics import lake_samples

READS = [(command, "prices") for command in ("read", "explain", "path", "late")]
"""Commands that can read a collection only until it is dropped."""


@pytest.fixture
def config(tmp_path: Path) -> str:
    """The settings of a store with the collections `prices` and `visits`."""
    file = configure(tmp_path, "prices", "visits")
    for collection in open_lake(file).collections():
        Catalog(Store(tmp_path / "store")).open_or_create(collection.settings.spec())
    return str(file)


def without(config: str, name: str, other: str | None = None) -> None:
    """Remove a collection from the settings, or rename it there."""
    document = json.loads(Path(config).read_text())
    block = document["collections"].pop(name)
    if other is not None:
        document["collections"][other] = block
    Path(config).write_text(json.dumps(document))


def test_a_renamed_collection_must_have_its_new_name_in_the_settings(config: str) -> None:
    before = open_lake(config).collection("prices").path
    said = invoke("rename", "prices", "costs", "--config", config).stderr
    assert "'prices' is now called 'costs'" in said and "call it costs, too" in said
    with pytest.raises(CollectionRenamed, match="'prices' was renamed to 'costs'\nhint: use the new name, in the"):
        check_lake(load_settings(Path(config)))
    with pytest.raises(CollectionRenamed):
        check_lake(load_settings(Path(config)).only(("prices",)))
    check_lake(load_settings(Path(config)).only(("visits",)))
    without(config, "prices", "costs")
    assert check_lake(load_settings(Path(config))).known == {"costs", "visits"}
    assert open_lake(config).collection("costs").path == before
    document = json.loads(Path(config).read_text())
    document["collections"]["prices"] = document["collections"]["costs"]  # both names: `prices` is a new collection
    Path(config).write_text(json.dumps(document))
    assert check_lake(load_settings(Path(config))).known == {"costs", "visits"}


def test_whoever_uses_an_earlier_name_is_told_the_new_one(config: str) -> None:
    said = invoke("rename", "prices", "costs", "--config", config).stderr
    assert "is no longer updated" not in said  # nothing was published
    for words in (*READS, ("holds", "prices")):
        with pytest.raises(CollectionRenamed, match="'prices' was renamed to 'costs'\nhint: use the new name, in the"):
            call(*words, "--config", config)
    publish(Catalog(Store(Path(config).parent / "store")), "visits")
    said = invoke("rename", "visits", "clicks", "--config", config).stderr
    assert "the table that was published as 'visits' is no longer updated; `tidelake current clicks` makes" in said
    shown = " ".join(call("status", "--config", config).split())
    assert "● prices: renamed to 'costs'; until the settings use this name, jobs refuse 'prices'" in shown


def test_whoever_uses_a_dropped_collection_is_told_when_it_was_dropped(config: str) -> None:
    subscribed = open_lake(config).collection("prices")
    before = subscribed.stored()
    call("rename", "visits", "clicks", "--config", config)
    for name in ("prices", "clicks"):
        call("drop", name, "--apply", "--config", config)
    entry = Catalog(Store(before.paths.store.root)).dropped("prices")
    assert entry is not None and entry.entry.dropped is not None
    at = iso_to_the_second(entry.entry.dropped.at_ms)
    for words in READS:
        with pytest.raises(CollectionDropped, match=f"'prices' was dropped at {at}\nhint: `tidelake history prices`"):
            call(*words, "--config", config)
    with pytest.raises(CollectionDropped, match="'visits', which was renamed to 'clicks', was dropped at "):
        call("path", "visits", "--config", config)
    for command in ("rename prices costs", "rename visits costs", "drop visits --apply"):
        with pytest.raises(CollectionDropped):
            call(*command.split(), "--config", config)
    shown = " ".join(call("status", "--config", config).split())
    assert f"● prices: dropped at {at}; the next ingest creates a new collection" in shown
    Catalog(before.paths.store).open_or_create(subscribed.settings.spec())
    with pytest.raises(
        CollectionDropped, match=rf"\(id {before.entry.id}\) was dropped at {at}\nhint: another collection"
    ):
        Catalog(before.paths.store).publish(before)


def test_invalid_renames_are_refused(config: str) -> None:
    for name in ("Prices", "", "../x", "a" * 64):
        with pytest.raises(ArgumentRefused, match="which is not a valid name\nhint: use lower-case letters"):
            call("rename", "prices", name, "--config", config)
    with pytest.raises(NameTaken):
        call("rename", "prices", "visits", "--config", config)
    with pytest.raises(UnknownCollection):
        call("rename", "orders", "costs", "--config", config)
    assert json.loads(call("rename", "prices", "costs", "--json", "--config", config)) == {
        "name": "costs",
        "earlier_name": "prices",
    }


def test_a_collection_that_the_settings_no_longer_name_is_orphaned_and_can_be_dropped(config: str) -> None:
    assert json.loads(call("status", "--json", "--config", config))["orphaned"] == []
    without(config, "visits")
    (orphaned,) = json.loads(call("status", "--json", "--config", config))["orphaned"]
    assert orphaned["name"] == "visits" and len(orphaned["id"]) == 32
    shown = " ".join(call("status", "--config", config).split())
    assert "visits: orphaned: the settings do not name it; name it, or drop it: `tidelake drop visits --apply`" in shown
    assert "visits" not in call("status", "prices", "--config", config)
    samples = [(sample.metric.name, sample.values) for sample in lake_samples(open_lake(config), 0.0)]
    assert [labels for name, labels in samples if name.endswith("collection_orphaned")] == [("visits",)]
    call("drop", "visits", "--apply", "--config", config)
    assert json.loads(call("status", "--json", "--config", config))["orphaned"] == []


def test_a_drop_first_shows_what_would_be_deleted(config: str) -> None:
    held = open_lake(config).collection("prices").acquire(purpose="report")
    said = invoke("drop", "prices", "--config", config).stderr
    assert "prices: 0 stored statements, 0 bytes; drop it: tidelake drop prices --apply" in said
    assert f"held by 'report' ({held.id})" in said and "the settings still name it" in said
    found = json.loads(call("drop", "prices", "--json", "--config", config))
    assert (found["rows"], found["dropped"]) == (0, False)
    assert len(open_lake(config).collection("prices").holds()) == 1
    assert json.loads(call("drop", "prices", "--apply", "--json", "--config", config))["dropped"] is True
    with pytest.raises(UnknownCollection):
        open_lake(config).collection("prices").holds()
    assert "prices: dropped (0 stored" in invoke("drop", "prices", "--apply", "--config", config).stderr
    call("release", "prices", held.token, "--config", config)
    with pytest.raises(UnknownCollection):
        call("drop", "orders", "--config", config)


def test_the_history_shows_renames_and_the_drop_even_if_the_settings_no_longer_have_the_name(config: str) -> None:
    call("rename", "prices", "costs", "--config", config)
    call("rename", "costs", "old_costs", "--config", config)
    (first, second) = json.loads(call("history", "old_costs", "--kind", "renamed", "--json", "--config", config))[
        "events"
    ]
    assert first["what"] == "'prices' was renamed to 'costs'"
    assert (second["name_before"], second["name"]) == ("costs", "old_costs")
    call("drop", "old_costs", "--apply", "--config", config)
    events = json.loads(call("history", "old_costs", "--json", "--config", config))["events"]
    kinds = [event["kind"] for event in events]
    assert kinds[0] == "created" and kinds.count("renamed") == 2 and kinds.count("dropped") == 1
    with pytest.raises(ConfigurationError, match="orders"):
        call("history", "orders", "--config", config)
    with pytest.raises(UnknownCollection):  # an earlier name of the dropped collection
        call("history", "prices", "--config", config)


def purposes(config: str, name: str) -> list[str]:
    return [held["purpose"] for held in json.loads(call("holds", name, "--json", "--config", config))["holds"]]


def test_holds_on_a_collection_that_the_settings_do_not_name_are_listed_renewed_and_released(config: str) -> None:
    visits = open_lake(config).collection("visits")
    first, second, third = (visits.acquire(purpose=purpose) for purpose in ("first", "second", "third"))
    without(config, "visits")

    def renewed_at() -> int:
        return next(held.renewed_at_ms for held in open_lake(config).holds("visits") if held.id == third.id)

    before = renewed_at()
    assert sorted(purposes(config, "visits")) == ["first", "second", "third"]
    assert "third" in call("holds", "visits", "--config", config)
    while renewed_at() == before:
        assert "the lease is renewed" in invoke("hold", "visits", "--renew", third.token, "--config", config).stderr
    assert invoke("release", "visits", first.token, "--config", config).stderr == "visits: the hold is released\n"
    assert sorted(purposes(config, "visits")) == ["second", "third"]
    call("drop", "visits", "--apply", "--config", config)
    assert sorted(purposes(config, "visits")) == ["second", "third"]
    call("hold", "visits", "--renew", third.token, "--config", config)
    assert "held on the dropped collection" in invoke("release", "visits", second.token, "--config", config).stderr
    assert open_lake(config).release("visits", third.token)
    assert purposes(config, "visits") == []


def test_after_a_rename_holds_have_the_new_name_even_before_the_settings_do(config: str) -> None:
    token = open_lake(config).collection("prices").acquire(purpose="report").token
    call("rename", "prices", "costs", "--config", config)
    assert purposes(config, "costs") == ["report"]
    for words in (("hold", "prices", "--renew", token), ("release", "prices", token), ("release", "cots", token)):
        with pytest.raises(CapabilityForeign, match="its token belongs to the collection 'costs', not to '"):
            call(*words, "--config", config)
    call("hold", "costs", "--renew", token, "--config", config)
    call("release", "costs", token, "--config", config)
    assert purposes(config, "costs") == []
    with pytest.raises(ConfigurationError, match="there is no collection of this name"):
        call("holds", "cots", "--config", config)


def test_an_invalid_block_does_not_keep_a_hold_from_being_released(config: str) -> None:
    token = open_lake(config).collection("prices").acquire().token
    document = json.loads(Path(config).read_text())
    for block in document["collections"].values():
        block["family"] = "unknown"
    Path(config).write_text(json.dumps(document))
    call("hold", "prices", "--renew", token, "--config", config)
    call("release", "prices", token, "--config", config)
    assert purposes(config, "prices") == []


def test_gc_shows_what_it_deletes_and_why_the_rest_stays(config: str) -> None:
    held = open_lake(config).collection("prices").acquire(purpose="report")
    call("drop", "prices", "--apply", "--config", config)
    without(config, "visits")
    result = invoke("gc", "--dry-run", "--config", config)
    assert f"held by 'report' ({held.id})" in result.stdout and "orphaned" in result.stdout
    assert "would go: 0 bytes in 0 places" in result.stderr
    found = json.loads(call("gc", "--json", "--config", config))
    kinds = {(item["kind"], item["name"], item["goes"]) for item in found["items"]}
    assert {("dropped", "prices", False), ("orphaned", "visits", False)} <= kinds
    assert (found["dry_run"], found["tombstones"], found["bytes_gone"]) == (False, 0, 0)


def times_of(folder: Path) -> dict[Path, int]:
    """When each file and folder was last changed; a folder changes whenever a name appears or disappears in it."""
    return {path: path.stat().st_mtime_ns for path in (folder, *folder.rglob("*"))}


def test_a_dry_run_of_gc_writes_nothing_not_even_for_a_moment(config: str, tmp_path: Path) -> None:
    call("drop", "prices", "--apply", "--config", config)
    call("gc", "--config", config)  # notes what is dead
    before = times_of(tmp_path)
    found = json.loads(call("gc", "--dry-run", "--json", "--config", config))
    assert times_of(tmp_path) == before
    assert {item["kind"] for item in found["items"]} == {"dropped", "dead_runs"}


def test_the_commands_do_not_start_a_jvm_or_import_spark_or_pandas(config: str) -> None:
    code = (
        "import sys\n"
        "from typer.testing import CliRunner\n"
        "from tidelake.cli.app import app\n"
        "for words in (['gc', '--dry-run'], ['rename', 'prices', 'costs'], ['drop', 'costs', '--apply'], ['gc']):\n"
        f"    done = CliRunner().invoke(app, [*words, '--config', {config!r}])\n"
        "    assert done.exit_code == 0, done.output\n"
        "print([name for name in ('pyspark', 'pandas') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


def test_errors_exit_with_2_and_name_their_page(config: str) -> None:
    done = run("rename", "prices", "visits", "--config", config)
    assert done.returncode == 2 and done.stderr.endswith("see: tidelake errors NameTaken\n")
