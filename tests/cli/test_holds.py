"""`tidelake hold`, `holds` and `release`, and where holds are shown. These tests do not start a JVM."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.commands import call, invoke, run
from tests.lakes.held import HeldLake
from tests.lakes.lake import NAME
from tidelake.cli.job_results import sentence_of
from tidelake.compact.compaction import CompactReport
from tidelake.errors import ArgumentRefused, CapabilityDropped, CapabilityForeign, OptionRefused, SinceError


@pytest.fixture
def lake(tmp_path: Path) -> HeldLake:
    """A collection without rows, sealed up to 10."""
    return HeldLake.create(tmp_path, upper=10)


def hold(lake: HeldLake, *options: str) -> str:
    return call("hold", NAME, *options, "--config", str(lake.file)).strip()


def listed(lake: HeldLake) -> list[dict[str, object]]:
    holds: list[dict[str, object]] = json.loads(call("holds", NAME, "--json", "--config", str(lake.file)))["holds"]
    return holds


def test_a_hold_prints_a_token_that_releases_it(lake: HeldLake) -> None:
    result = invoke("hold", NAME, "--at", "4", "--lease", "2h", "--purpose", "report", "--config", str(lake.file))
    token = result.stdout.strip()
    assert "every time at or after 4 stays readable" in result.stderr
    (held,) = listed(lake)
    assert (held["id"], held["purpose"], held["since"], held["lease_s"]) == (token.split(".")[1], "report", 4, 7200.0)
    assert lake.compact() == 4
    call("hold", NAME, "--renew", token, "--config", str(lake.file))
    call("release", NAME, token, "--config", str(lake.file))
    assert (listed(lake), lake.compact()) == ([], 9)
    with pytest.raises(CapabilityDropped):
        call("release", NAME, token, "--config", str(lake.file))


def test_releasing_a_hold_of_a_dropped_collection_says_so(lake: HeldLake) -> None:
    tokens = [hold(lake), hold(lake)]
    lake.catalog.drop(NAME)
    lake.catalog.open_or_create(lake.collection.settings.spec())
    config = ("--config", str(lake.file))
    with pytest.raises(CapabilityForeign, match="was dropped; another collection is now called 'prices'"):
        call("hold", NAME, "--renew", tokens[0], *config)
    for token in tokens:
        assert (
            "released; it was held on the dropped collection of this name"
            in invoke("release", NAME, token, *config).stderr
        )


def test_holds_are_shown_as_a_table(lake: HeldLake) -> None:
    result = invoke("holds", NAME, "--config", str(lake.file))
    assert "nobody holds a time of 'prices'" in result.stderr
    token = hold(lake, "--at", "4", "--purpose", "report")
    shown = call("holds", NAME, "--config", str(lake.file))
    for text in (token.split(".")[1], "report", "4"):
        assert text in shown
    assert token.split(".")[2] not in shown


def test_the_pin_of_a_hold_is_shown_with_its_cost(lake: HeldLake) -> None:
    held = lake.collection.acquire(at=4, purpose="subscription")
    hold(lake, "--at", "5")
    held.pin(2, to=4)
    first, second = listed(lake)
    assert (first["pinned_seq"], first["pinned_bytes"], second["pinned_seq"]) == (2, 0, None)
    assert "0 bytes" in call("holds", NAME, "--config", str(lake.file))


def test_a_hold_in_json_has_the_token(lake: HeldLake) -> None:
    document = json.loads(hold(lake, "--json", "--lease", "90s"))
    assert (document["name"], document["since"], document["lease_s"]) == (NAME, 9, 90.0)
    assert document["token"].split(".")[1] == document["id"]


def test_arguments_that_make_no_sense_are_refused(lake: HeldLake) -> None:
    for lease in ("0s", "400d"):
        with pytest.raises(OptionRefused, match=r"--lease is .*, but must be more than 0 s and at most 31,622,400 s"):
            hold(lake, "--lease", lease)
    for lease in ("1ms", "1w", "90", "soon"):
        with pytest.raises(OptionRefused, match="which is not a number with one of the units s, m, h and d"):
            hold(lake, "--lease", lease)
    with pytest.raises(OptionRefused, match="--renew changes neither the time nor the purpose"):
        hold(lake, "--renew", "a.b.c", "--at", "3")
    with pytest.raises(ArgumentRefused, match="but a token has three parts"):
        call("release", NAME, "nonsense", "--config", str(lake.file))
    with pytest.raises(OptionRefused, match="the topic of 'prices' states times as numbers"):
        hold(lake, "--at", "2026-11-23T10:00:00Z")
    lake.compact(keep=3)
    with pytest.raises(SinceError):
        hold(lake, "--at", "6")
    assert listed(lake) == []


def test_releasing_a_capability_that_is_gone_exits_with_1_and_names_its_page(lake: HeldLake) -> None:
    done = run("release", NAME, f"{lake.stored.entry.id}.0123.4567", "--config", lake.file)
    assert done.returncode == 1
    assert done.stderr.endswith("see: tidelake errors CapabilityUnknown\n")


def test_status_and_explain_say_why_since_does_not_move(lake: HeldLake) -> None:
    assert "since stays" not in call("status", "--config", str(lake.file))
    lake.collection.acquire(at=4, purpose="report")
    assert "since stays" not in call("status", "--config", str(lake.file))
    lake.compact()
    lake.collection.acquire(at=4)
    reason = "since stays at 4: held by 'report' ("
    assert reason in " ".join(call("status", "--config", str(lake.file)).split())
    status = json.loads(call("status", "--json", "--config", str(lake.file)))["collections"][NAME]
    assert status["held"].startswith(reason) and status["held"].endswith(" and 1 more")
    explained = call("explain", NAME, "--time", "4", "--config", str(lake.file))
    assert reason in explained and f"next: tidelake holds {NAME}" in explained
    assert reason not in call("explain", NAME, "--time", "5", "--config", str(lake.file))


def test_a_compaction_says_why_since_does_not_move() -> None:
    held = "since stays at 4: held by 'report' (0123)"
    assert sentence_of("compact", CompactReport((4,), held=held), False) == f"compact: nothing to merge; {held}"
    report = CompactReport((4,), held=held, merges=1, runs_before=8, runs_after=1)
    assert sentence_of("compact_full", report, False) == f"compact: 8 runs became 1; {held}"
