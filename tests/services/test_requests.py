"""The number of requests to an object store is small, and the same for old and new collections."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.lakes.lake import progress, updates
from tests.lakes.raw_lake import RawLake
from tests.services.counted_lake import CountedLake, Requests, forget_process
from tests.services.faulty_proxy import faulty_proxy
from tests.services.object_store import ObjectStore
from tidelake.compact.compaction import FAN_IN, CompactReport
from tidelake.errors import DamagedLog
from tidelake.read.status import CollectionStatus
from tidelake.storage import blobs
from tidelake.storage.location import Location
from tidelake.store import runs
from tidelake.store.acknowledged import ACKED
from tidelake.store.commit import OpenTable, maintain
from tidelake.store.dead_notes import DEAD
from tidelake.store.followed import forget_all
from tidelake.store.head_start import forget_swept
from tidelake.store.layout import new_run
from tidelake.store.state import HAS_LATE, HAS_QUARANTINE
from tidelake.store.table_log import check_log, checkpoints, entry_path

pytestmark = [pytest.mark.spark, pytest.mark.services]

TICK, SEAL, STATUS = 40, 20, 6
"""The budgets of ingest and seal together, of a seal without copies, and of a status."""
SMALL_TABLES = 2
"""The requests that a status adds if both `quarantine` and `late` have rows."""
COMMIT, CHECKPOINT = 3, 16
"""The requests of a commit without files, and those that every 32nd commit adds for a checkpoint and the cleanup."""
COMPACT, SWEEP = 20, 35
"""The requests of a compaction without merges, and those that it adds if it sweeps all tables."""
MERGE, MERGED_FILE = 20, 22
"""The requests that a merge adds to a compaction, and those that it adds for each file of its runs."""
VALIDATE, RECOUNTED_FILE = 28, 12
"""The requests of a validation, and those that it adds for each file with new times."""
LOG_ENTRY, LOG_CHECKPOINT = 2, 12
"""The requests that delta-rs adds for each entry since the newest checkpoint, and for the checkpoint."""
CLUSTER = 44
"""The requests that a tick adds on a cluster, whose executors put the files."""


@pytest.fixture(scope="module")
def lake(
    tmp_path_factory: pytest.TempPathFactory, spark: SparkSession, object_store: ObjectStore
) -> Iterator[CountedLake]:
    """A plain collection after its first tick. Tests that change more than its age use one of their own."""
    with faulty_proxy(object_store.endpoint) as running:
        settings = object_store.settings(endpoint=running.endpoint)
        made = CountedLake(tmp_path_factory.mktemp("counted"), spark, running, settings)
        made.tick()
        yield made


@pytest.fixture
def own(tmp_path: Path, spark: SparkSession, object_store: ObjectStore, lake: CountedLake) -> CountedLake:
    """A collection of one test, before its first tick, behind the same proxy."""
    return CountedLake(tmp_path, spark, lake.proxy, object_store.settings(endpoint=lake.proxy.endpoint))


def test_ticks_and_statuses_stay_within_their_budgets_whatever_the_age_of_the_collection(
    lake: CountedLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    young = lake.tick()
    lake.lengthen_logs(3)
    monkeypatch.setattr("tidelake.store.commit._CHECKPOINT_EVERY_COMMITS", 4)
    lake.lengthen_logs(2)
    monkeypatch.undo()
    old = lake.tick()
    for ingested, sealed in (young, old):
        assert len(sealed) <= SEAL, sealed.served
        assert len(ingested) + len(sealed) <= TICK, (ingested.served, sealed.served)
        assert (ingested.verbs, sealed.verbs) == (young[0].verbs, young[1].verbs)
    status = lake.count(lake.status)
    assert len(status) <= STATUS, status.served
    assert not status.lists_of_files
    idle = lake.count(lake.lake.ingest), lake.count(lake.lake.seal)
    assert [count.verbs for count in idle] == [{"list": 6}, {"list": 7}], "an idle collection is only listed"


@pytest.mark.sweep
def test_a_compaction_without_merges_is_within_its_budget_whatever_is_dead(lake: CountedLake) -> None:
    progress = lake.lake.collection.paths.progress

    def compact() -> Requests:
        lake.tick()
        return lake.count(lambda: lake.lake.compact(full=False))

    def swept() -> Requests:
        forget_swept()
        return compact()

    compact()
    forget_swept()
    lake.lake.compact(full=False)  # this sweep confirms what the first one has announced
    sweep, young = swept(), compact()
    for number in range(300):
        folder = f"_run={new_run('pending', 0)}"
        blobs.write(progress / folder / "part-0.parquet", b"")
        blobs.write(progress / DEAD / f"1-{number:032x}.json", json.dumps([folder]).encode())
    old = compact()
    assert old.verbs == young.verbs == {"list": len(young)}
    assert len(young) <= COMPACT, young.served
    assert len(swept()) >= 300, "the notes of an earlier release are read once"
    assert swept().verbs == sweep.verbs
    assert len(sweep) <= COMPACT + SWEEP, sweep.served
    lake.tick()
    first = lake.count_afresh(lambda: lake.lake.compact(full=False))
    assert not [request.target for request in first.served if f"/catalog/{DEAD}/" in request.target], "nothing is swept"


@pytest.mark.sweep
def test_a_validation_takes_requests_for_what_it_reads_whatever_the_age_of_the_collection(
    own: CountedLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def validate(files: int) -> Requests:
        for _ in range(files):
            own.tick()
        log = own.lake.collection.paths.updates
        newest = max((version_of(checkpoint) for checkpoint in checkpoints(log)), default=-1)
        entries = OpenTable(log).version - newest
        validated = own.count(own.lake.validate)
        budget = VALIDATE + RECOUNTED_FILE * files + LOG_ENTRY * entries + (LOG_CHECKPOINT if newest >= 0 else 0)
        assert len(validated) <= budget, validated.served
        of_files = [request.target for request in validated.served if "/updates/_run=" in request.target]
        assert len(of_files) <= RECOUNTED_FILE * files, of_files
        return validated

    for files in (2, 1, 4):
        validate(files)
    old = []
    for commits in (3, 40):
        own.lengthen_logs(commits)
        monkeypatch.setattr("tidelake.store.commit._CHECKPOINT_EVERY_COMMITS", 1)
        own.lengthen_logs(1)
        monkeypatch.setattr("tidelake.store.commit._CHECKPOINT_EVERY_COMMITS", 10**6)
        old.append(validate(2).verbs)
    monkeypatch.undo()
    assert old[0] == old[1], "what the checkpoint has replaced does not matter"


def version_of(checkpoint: Location) -> int:
    return int(checkpoint.name.partition(".")[0])


@pytest.mark.sweep
def test_a_merge_takes_requests_for_the_files_of_its_runs_whatever_the_age_of_the_collection(own: CountedLake) -> None:
    own.tick()
    own.lake.compact(full=False)  # this one also sweeps
    for files in (FAN_IN, FAN_IN + 2):
        while len(live_runs(own)) < files:
            own.tick()
        reports: list[CompactReport] = []
        merged = own.count(lambda: reports.append(own.lake.compact(full=False)))  # noqa: B023
        assert (reports[0].merges, len(reports[0].merged_runs)) == (1, files)
        assert len(merged) <= COMPACT + MERGE + MERGED_FILE * files, merged.served
        own.lengthen_logs(20)


def live_runs(lake: CountedLake) -> set[str]:
    """The live runs of `updates`, each of which has one small file."""
    return {file.run for file in lake.lake.table.files()}


@pytest.mark.sweep
def test_a_seal_after_several_ticks_of_ingest_is_within_its_budget(lake: CountedLake) -> None:
    lake.tick()
    for _ in range(5):
        lake.send()
        lake.lake.ingest()
    sealed = lake.count(lake.lake.seal)
    assert lake.status().upper == lake.times
    assert len(sealed) <= SEAL, sealed.served


def test_a_checkpoint_takes_the_same_number_of_requests_whatever_the_length_of_the_log(
    lake: CountedLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelake.store.commit._CHECKPOINT_EVERY_COMMITS", 4)
    monkeypatch.setattr("tidelake.store.table_log.RETENTION_S", -5)
    lake.lengthen_logs(1)
    path = lake.lake.collection.paths.updates
    counts = []
    for _ in range(13):
        opened = OpenTable(path, may_be_stale=True)

        def commit_and_maintain(table: OpenTable = opened) -> None:
            table.commit({})
            maintain(path)

        counts.append(len(lake.count(commit_and_maintain)))
    assert sorted(counts)[:9] == [COMMIT] * 9
    assert max(counts) <= COMMIT + CHECKPOINT
    forget_all()
    assert OpenTable(path).seq == opened.seq + 1
    assert check_log(path) <= 10, "old entries are deleted"


def test_a_new_process_needs_no_more_requests_for_a_status_if_the_logs_are_longer(lake: CountedLake) -> None:
    lake.tick()
    young = lake.count_afresh(lake.status)
    lake.lengthen_logs(7)
    lake.tick()
    old = lake.count_afresh(lake.status)
    for status in (young, old):
        assert len(status) <= STATUS, "\n".join(request.target for request in status.served)
        assert not status.lists_of_files


@pytest.mark.sweep
@pytest.mark.parametrize("processes", [1, 2])
def test_the_first_tick_of_new_processes_is_within_the_budget(
    lake: CountedLake, processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = []
    for _ in range(2):
        lake.lengthen_logs(7)
        monkeypatch.setattr("tidelake.store.commit._CHECKPOINT_EVERY_COMMITS", 10**6)  # no checkpoint is due
        lake.tick()
        lake.send()
        ingested = lake.count_afresh(lake.lake.ingest)
        sealed = lake.count_afresh(lake.lake.seal) if processes > 1 else lake.count(lake.lake.seal)
        assert len(ingested) + len(sealed) <= TICK, (ingested.served, sealed.served)
        monkeypatch.undo()
        counts.append((ingested.verbs, sealed.verbs))
    assert counts[0] == counts[1], "the length of the logs does not matter"
    assert lake.status().upper == lake.times


@pytest.mark.sweep
def test_without_its_head_start_a_new_process_opens_each_log_once(lake: CountedLake) -> None:
    lake.send()
    remove_head_starts(lake)
    ingested = lake.count_afresh(lake.lake.ingest)
    sealed = lake.count(lake.lake.seal)
    assert len(sealed) <= SEAL, sealed.served
    remove_head_starts(lake)
    status = lake.count_afresh(lake.status)
    assert not status.lists_of_files
    for step in (ingested, status):
        opened = [request.target for request in step.served if request.target.endswith("/_delta_log/")]
        assert len(opened) == len(set(opened))
        entries = sum(request.verb == "get" for request in step.served)
        assert len(step) - entries <= TICK


@pytest.mark.sweep
@pytest.mark.parametrize("damage", [b"", b"not a ZIP file", b"PK\x03\x04 cut"])
def test_a_damaged_head_start_is_not_used(lake: CountedLake, damage: bytes) -> None:
    lake.tick()
    blob = head_start(lake)
    blobs.replace(blob, damage)
    status = status_afresh(lake)
    assert (status.upper, status.damaged) == (lake.times, None)


def test_nothing_in_a_head_start_is_believed(lake: CountedLake) -> None:
    lake.tick()
    blob = head_start(lake)
    upper = b'"upper","version":%d' % lake.times
    replaced = 0
    packed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(blobs.read(blob))) as archive, zipfile.ZipFile(packed, "w") as other:
        for name in archive.namelist():
            data = archive.read(name)
            replaced += upper in data
            other.writestr(name, data.replace(upper, b'"upper","version":999'))
    assert replaced
    blobs.replace(blob, packed.getvalue())
    assert status_afresh(lake).upper == lake.times
    blobs.replace(blob, packed.getvalue())
    lake.send()
    lake.count_afresh(lake.lake.ingest)
    lake.count_afresh(lake.lake.seal)
    assert status_afresh(lake).upper == lake.times


@pytest.mark.sweep
def test_a_tick_of_a_new_process_names_a_lost_entry_in_spite_of_its_head_start(own: CountedLake) -> None:
    own.tick()
    path = own.lake.collection.paths.updates
    blobs.delete(entry_path(path, OpenTable(path).version))
    forget_process()
    own.send()
    with pytest.raises(DamagedLog, match="its entry is missing"):
        own.lake.ingest()


@pytest.mark.sweep
def test_a_new_process_sees_what_came_after_its_head_start_and_finishes_what_was_not_acknowledged(
    own: CountedLake,
) -> None:
    own.tick()
    own.lengthen_logs(3)
    path = own.lake.collection.paths.updates
    newest = OpenTable(path).version
    (marker,) = [name for name in blobs.list_names(path / ACKED) if name.startswith(f"{newest:020d}-")]
    blobs.delete(path / ACKED / marker)
    own.send()
    ingested = own.count_afresh(own.lake.ingest)
    listed = [request.target for request in ingested.served if request.verb == "list" and "/updates/" in request.target]
    assert "start-after" in listed[0], "the markers and the log are listed together"
    assert check_log(path) == newest + 2
    assert marker in blobs.list_names(path / ACKED)
    own.lake.seal()
    assert own.status().upper == own.times


def status_afresh(lake: CountedLake) -> CollectionStatus:
    forget_process()
    return lake.status()


def head_start(lake: CountedLake) -> Location:
    store = lake.lake.collection.paths.store
    (name,) = blobs.list_names(store.head_starts)
    return store.head_starts / name


def remove_head_starts(lake: CountedLake) -> None:
    folder = lake.lake.collection.paths.store.head_starts
    blobs.delete_all(folder / name for name in blobs.list_names(folder))


@pytest.mark.sweep
def test_reclocked_ticks_stay_within_the_budget(
    tmp_path: Path, spark: SparkSession, object_store: ObjectStore, lake: CountedLake
) -> None:
    raw = RawLake(tmp_path, spark)
    raw.has_own_store = False
    raw.document |= object_store.settings(endpoint=lake.proxy.endpoint)
    raw.configure()
    raw.put({"id": 1, "page": "a"})
    raw.run()
    counts = []
    for number in range(2, 4):
        raw.put({"id": number, "page": "b"})
        counts.append(lake.count(raw.run))
    assert [len(count) <= TICK for count in counts] == [True, True], counts
    assert counts[0].verbs == counts[1].verbs
    assert [row["id"] for row in raw.rows()] == [1, 2, 3]


@pytest.mark.sweep
def test_a_status_looks_at_quarantine_and_late_only_if_they_have_rows(own: CountedLake) -> None:
    own.tick()
    assert flags_of(own) == (False, False)
    own.lake.send(b"\x07 not a message", updates(((9, 9), 0, 1)), progress([own.times], [own.times], {}))
    own.lake.run()
    assert flags_of(own) == (True, True)
    status = own.status()
    assert (status.quarantine, status.late) == (1, 1)
    counted = own.count(own.status)
    assert len(counted) <= STATUS + SMALL_TABLES - 1, counted.served


def flags_of(lake: CountedLake) -> tuple[bool, bool]:
    table = lake.lake.table
    return table.may_have(HAS_QUARANTINE), table.may_have(HAS_LATE)


@pytest.mark.sweep
def test_a_cluster_puts_files_under_their_final_names(lake: CountedLake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.tick()  # so that this process has seen the collection, whatever an earlier test made it forget
    monkeypatch.setattr(runs, "runs_here", lambda _: False)
    lake.send()
    ingested = lake.count(lake.lake.ingest)
    puts = [request.target for request in ingested.served if request.verb == "put"]
    assert any("uploadId" in target for target in puts), puts
    assert not any("_temporary" in target and target.endswith(".parquet") for target in puts), puts
    sealed = lake.count(lake.lake.seal)
    assert len(ingested) + len(sealed) <= TICK + CLUSTER, ingested.served
    assert lake.status().upper == lake.times
    assert sum(lake.lake.contents(lake.times - 1).values()) == 2 * lake.times
