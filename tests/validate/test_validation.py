"""What a recount must report as damage, and what it must not.

Also: the small tables stay in a few files, and a fenced writer cannot commit.
"""

from __future__ import annotations

import shutil
import time as clock
from pathlib import Path

import pyarrow as pa
import pytest
import yaml
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from jobs import validate
from tests.lakes.lake import NAME, Lake, progress, updates
from tests.lakes.places import Stores
from tests.lakes.published import table_of
from tidelake.catalog.evolution import with_newest_columns
from tidelake.cli.app import app
from tidelake.compact.small_tables import merge_small_files
from tidelake.errors import DamagedTable, Fenced, VersionCleanedUp
from tidelake.plugins.framing import framing_of
from tidelake.storage import blobs
from tidelake.store.commit import EPOCH, OpenTable, maintain
from tidelake.store.entry import Collection
from tidelake.store.files import write_run
from tidelake.store.layout import PROOFS_SCHEMA
from tidelake.store.proof_log import read_proof_log
from tidelake.store.table_log import LOG
from tidelake.validate import validation

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("any_store")]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession, stores: Stores) -> Lake:
    # Files are not verified; otherwise the name of a file and the date would determine which error is found first.
    lake = Lake(stores.hold(tmp_path_factory.mktemp("sealed")), spark, verify_every_days=0)
    lake.send(updates((1, 1, 1), (2, 2, 5)), progress([0], [3], {1: 1, 2: 1}))
    lake.run()
    assert not lake.validate().damaged
    assert lake.current().ok
    return lake


@pytest.fixture
def sealed(prepared: Lake, any_store: Path) -> Lake:
    """A lake with two sealed times, validated and shown in `current`."""
    return prepared.copy(any_store / "sealed")


@pytest.fixture
def lake(any_store: Path, spark: SparkSession) -> Lake:
    """A plain collection on an empty topic."""
    return Lake(any_store, spark)


def smuggle(lake: Lake, *rows: tuple[int, int, int]) -> None:
    """Commit rows `(time, diff, id)` below `upper`, which ingest would never do."""
    table = pa.table(
        {
            "_time": [row[0] for row in rows],
            "_diff": [row[1] for row in rows],
            "id": [row[2] for row in rows],
            "price": pa.array([None] * len(rows), pa.int32()),
        }
    )
    path = lake.collection.paths.updates
    OpenTable(path).commit({}, write_run(path, "ingest-smuggled", table))


def shown(lake: Lake) -> list[tuple[int, int]]:
    """`current` as Spark's own Delta reader reads it."""
    rows = lake.spark.read.format("delta").load(str(table_of(lake.collection))).collect()
    return sorted((row["id"], row["_diff"]) for row in rows)


@pytest.mark.sweep
def test_current_has_the_contents_before_upper_and_is_not_rebuilt_before_upper_moves(sealed: Lake) -> None:
    assert shown(sealed) == [(1, 1), (2, 5)]
    assert sealed.current().results[NAME].published is False
    sealed.send(updates((1, 3, -1)), progress([3], [4], {3: 1}))
    sealed.run()
    rebuilt = sealed.current().results[NAME]
    assert (rebuilt.as_of, rebuilt.rows, rebuilt.published) == (3, 1, True)
    assert shown(sealed) == [(2, 5)]


def test_a_row_below_upper_that_was_not_announced_is_reported_as_damage_and_blocks_current(sealed: Lake) -> None:
    smuggle(sealed, (1, 1, 77))
    report = sealed.validate(full=True)
    assert report.damaged
    assert report.mismatches[0] == "time 1: distinct updates: 1 announced and 1 counted, but 2 in the table"
    sealed.send(progress([3], [5]))
    sealed.run()
    assert isinstance(sealed.current().errors[NAME], DamagedTable)
    assert shown(sealed) == [(1, 1), (2, 5)]


@pytest.mark.sweep
def test_current_that_was_built_on_damage_is_rebuilt_once_the_damage_is_repaired(sealed: Lake) -> None:
    sealed.send(progress([3], [5]))
    sealed.run()
    smuggle(sealed, (1, 1, 77))
    assert sealed.current(rebuild=True).ok  # the damage has not been found yet
    assert shown(sealed) == [(1, 1), (2, 5), (77, 1)]
    assert sealed.validate(full=True).damaged
    OpenTable(sealed.collection.paths.updates).commit({}, [], ["ingest-smuggled"])
    assert not sealed.validate().damaged
    rebuilt = sealed.current().results[NAME]
    assert (rebuilt.as_of, rebuilt.published) == (4, True)
    assert shown(sealed) == [(1, 1), (2, 5)]
    assert not sealed.current().results[NAME].published


def test_a_changed_multiplicity_is_found_by_the_sum_of_all_diffs(sealed: Lake) -> None:
    smuggle(sealed, (2, 4, 2))
    assert not sealed.validate().damaged  # nothing was sealed after the last validation, so nothing is recounted
    report = sealed.validate(full=True)
    assert report.mismatches[-1] == "all diffs before 3 add up to 10, not to 6"
    assert [mismatch.partition(" hash to ")[0] for mismatch in report.hash_mismatches] == [
        "times 0 to 2: the statements",
        "the contents before 3",
    ]


@pytest.mark.sweep
def test_compaction_before_the_first_recount_is_not_reported_as_damage(tmp_path: Path, spark: SparkSession) -> None:
    lake = Lake(tmp_path, spark, keep=0)
    for start in (0, 10, 20):
        lake.send(
            updates((1, start + 1, 1), (2, start + 2, 1)), progress([start], [start + 10], {start + 1: 1, start + 2: 1})
        )
        lake.run()
        lake.compact()
        assert not lake.validate(full=start == 20).damaged
    lake.send(updates((1, 31, 1)), progress([30], [40], {31: 1}))
    lake.run()
    report = lake.validate(full=True)
    assert (report.damaged, report.diff_sum_found, report.diff_sum_recorded) == (False, 7, 7)


@pytest.mark.sweep
def test_a_closed_stream_stays_undamaged_however_often_it_is_validated(lake: Lake) -> None:
    lake.send(updates((1, 1, 1), (2, 2, 1)), progress([0], [5], {1: 1, 2: 1}))
    lake.run()
    assert not lake.validate(full=True).damaged
    lake.send(updates((3, 7, 1)), progress([5], [], {7: 1}))
    assert lake.run().closed
    for full in (False, True, True, False, True):
        assert lake.validate(full=full).mismatches == []


def test_a_file_that_cannot_be_read_is_reported_as_damage_and_recorded(sealed: Lake) -> None:
    (file,) = sealed.table.files()
    blobs.write(sealed.collection.paths.updates / file.path, b"PAR1 no more")
    assert not validate.run_full(sealed.spark, sealed.settings).ok
    damaged = read_proof_log(sealed.collection).damaged or ""
    assert "cannot be read" in damaged
    assert file.path in damaged


@pytest.mark.parametrize("contents", [b"", None], ids=["emptied", "missing"])
def test_a_validation_of_new_times_names_a_damaged_file(sealed: Lake, contents: bytes | None) -> None:
    before = {file.path for file in sealed.table.files()}
    sealed.send(updates((3, 5, 1)), progress([3], [9], {5: 1}))
    sealed.run()
    (path,) = {file.path for file in sealed.table.files()} - before
    blobs.delete(sealed.table.path / path)
    if contents is not None:
        blobs.write(sealed.table.path / path, contents)
    report = sealed.validate()
    assert (report.lower, report.damaged) == (3, True)
    assert path in report.mismatches[0]
    assert path in (read_proof_log(sealed.collection).damaged or "")


def test_a_validation_notices_that_other_readers_find_other_files(
    sealed: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {file.path for file in sealed.table.files()}
    sealed.send(updates((3, 5, 1)), progress([3], [9], {5: 1}))
    sealed.run()
    (path,) = {file.path for file in sealed.table.files()} - before
    all_files = OpenTable.files
    with monkeypatch.context() as broken:  # as if this process had lost an entry
        broken.setattr(OpenTable, "files", lambda table: [file for file in all_files(table) if file.path != path])
        report = sealed.validate()
    assert report.damaged
    assert "delta-rs and Tidelake find different files" in report.mismatches[0]
    assert path in report.mismatches[0]


def test_a_version_that_was_cleaned_up_before_it_was_validated_is_not_damage(
    sealed: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def clean_up(collection: Collection) -> Collection:
        for _ in range(70):
            OpenTable(sealed.table.path).commit({}, [])
            maintain(sealed.table.path)
        return with_newest_columns(collection)

    sealed.send(updates((3, 5, 1)), progress([3], [9], {5: 1}))
    sealed.run()
    with monkeypatch.context() as slow:
        slow.setattr("tidelake.store.table_log.RETENTION_S", -5)
        slow.setattr(validation, "with_newest_columns", clean_up)
        with pytest.raises(
            VersionCleanedUp, match="can no longer be validated: the log was cleaned up in the meantime"
        ):
            validation.validate(sealed.spark, sealed.collection)
    assert read_proof_log(sealed.collection).damaged is None
    assert not [name for name in blobs.list_names(sealed.table.path / LOG) if name.startswith(".torn")]
    assert not sealed.validate().damaged


def test_a_table_that_vanished_is_never_recreated(sealed: Lake) -> None:
    blobs.delete_folder(sealed.collection.paths.updates)
    with pytest.raises(DamagedTable, match="there is no table"):
        sealed.ingest()
    assert not blobs.list_names(sealed.collection.paths.updates)


def test_a_validation_recounts_only_what_was_sealed_after_the_previous_validation(sealed: Lake) -> None:
    sealed.send(updates((3, 5, 1)), progress([3], [9], {5: 1}))
    sealed.run()
    report = sealed.validate()
    assert (report.lower, report.upper, [row["time"] for row in report.times]) == (3, 9, [5])
    assert list(framing_of(sealed.collection.entry.framing).proofs(sealed.collection, 3)) == [5]


@pytest.mark.sweep
def test_proofs_stay_in_a_few_files_and_keep_every_row(lake: Lake) -> None:
    for time in range(20):
        lake.send(updates((time, time, 1)), progress([time], [time + 1], {time: 1}))
        lake.run()
        if time % 3 == 0:
            lake.validate()
    before = framing_of(lake.collection.entry.framing).proofs(lake.collection, 0)
    assert len(before) == 20
    path = lake.collection.paths.proofs
    assert merge_small_files(path, PROOFS_SCHEMA, 0) == 1
    assert len(OpenTable(path).files()) < 16
    assert framing_of(lake.collection.entry.framing).proofs(lake.collection, 0) == before
    assert read_proof_log(lake.collection).validated_upper == 19
    assert not lake.validate(full=True).damaged


def test_a_fenced_writer_cannot_commit_anything(lake: Lake) -> None:
    lake.ingest()
    stale = lake.collection
    lake.catalog.fence(NAME, None)
    lake.send(updates((1, 1, 1)))
    from tidelake.ingest.tick import ingest_tick
    from tidelake.topic.files import FileTopic

    with pytest.raises(Fenced):
        ingest_tick(lake.spark, stale, lake.settings.collections[0], [FileTopic(lake.topic)])
    assert lake.table.files() == []
    for small in (stale.paths.progress, stale.paths.proofs, stale.paths.quarantine, stale.paths.late):
        with pytest.raises(Fenced):
            OpenTable(small).commit({}, epoch=stale.entry.epoch)
    assert (lake.table.value(EPOCH), lake.ingest().updates_stored) == (1, 1)


def test_a_fence_that_was_left_unfinished_is_finished_when_the_collection_is_next_opened(lake: Lake) -> None:
    lake.ingest()
    lake.catalog.update(NAME, lambda entry: entry.model_copy(update={"epoch": 7}))
    lake.send(updates((1, 1, 1)))
    assert lake.ingest().updates_stored == 1
    assert lake.table.value(EPOCH) == 7


@pytest.mark.sweep
def test_a_clock_that_is_set_back_hides_no_damage(sealed: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not sealed.validate().damaged
    smuggle(sealed, (1, 1, 77))
    now = clock.time()
    monkeypatch.setattr("tidelake.validate.validation.clock.time", lambda: now - 3600)
    assert sealed.validate(full=True).damaged
    assert read_proof_log(sealed.collection).damaged


def test_status_shows_the_other_collections_if_one_cannot_be_read(sealed: Lake) -> None:
    document = yaml.safe_load(sealed.file.read_text(encoding="utf-8"))
    document["collections"]["others"] = document["collections"][NAME] | {"topic": "others"}
    sealed.file.write_text(yaml.safe_dump(document), encoding="utf-8")
    blobs.delete_folder(sealed.collection.paths.quarantine)
    result = CliRunner().invoke(app, ["status", "--config", str(sealed.file)])
    assert result.exit_code == 1
    assert "not ingested yet" in result.stdout
    assert "UNREADABLE" in result.stdout
    assert f"error: {NAME}: " in result.stderr
    assert "hint:" in result.stderr


@pytest.mark.parametrize("name", ["a*b", "a[x]b"])
def test_the_characters_of_a_pattern_in_a_path_stand_for_themselves(
    tmp_path: Path, spark: SparkSession, name: str
) -> None:
    lake = Lake(tmp_path / name, spark)
    lake.send(updates((1, 1, 1), (2, 2, 5)), progress([0], [3], {1: 1, 2: 1}))
    lake.run()
    # The first pattern would find this folder as well; the second would find none.
    shutil.copytree(tmp_path / name, tmp_path / "a-b")
    for full in (False, True):
        report = lake.validate(full)
        assert (report.damaged, report.diff_sum_recorded) == (False, 6)
    assert lake.contents(2) == {(1, None): 1, (2, None): 5}
    assert lake.current().ok
