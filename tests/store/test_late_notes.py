"""Notes about late statements never outnumber the statements, and are read without a JVM."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.lakes.lake import NAME, RECORD
from tidelake.catalog.catalog import Catalog
from tidelake.protocol.order import INT64_MAX
from tidelake.read.status import read_status
from tidelake.settings.collection import CollectionSpec
from tidelake.store import proofs
from tidelake.store.commit import OpenTable
from tidelake.store.decision import Count
from tidelake.store.entry import Collection
from tidelake.store.files import read_rows, write_run
from tidelake.store.late_notes import CONTRADICTED_RUN, LateNotes, kind_of, note_late_counts, settles
from tidelake.store.layout import PROGRESS_SCHEMA, PROOFS_SCHEMA, TIME, Store
from tidelake.store.proofs import Proven, read_proven
from tidelake.store.runs import append_run

TIMES = 1_000


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    """One collection, with proofs that say that each time before `TIMES` was sealed with one update."""
    catalog = Catalog(Store(tmp_path))
    catalog.open_or_create(CollectionSpec(NAME, "cdcv2", "none", RECORD))
    prove(catalog.find(NAME), dict.fromkeys(range(TIMES), 1))
    return catalog


def prove(collection: Collection, counts: dict[int, int], at_ms: int = 1, decision: str | None = None) -> None:
    proof = {"kind": "sealed", "copies": 0, "decision": decision, "at_ms": at_ms}
    rows = [proof | {TIME: time, "announced": count, "counted": count} for time, count in counts.items()]
    path = collection.paths.proofs
    table = pa.Table.from_pylist(rows, schema=PROOFS_SCHEMA)
    append_run(path, "proof", lambda run: write_run(path, run, table), 0)


def say(catalog: Catalog, *statements: tuple[int, int | None, dict[int, int]], offset: int = 7) -> bool:
    """Note late statements `(lower, upper, counts)`, each in a message of its own."""
    rows = [
        {
            "topic": NAME,
            "partition": 0,
            "offset": at,
            "lower": [lower],
            "upper": [] if upper is None else [upper],
            "count_times": list(counts),
            "count_values": list(counts.values()),
        }
        for at, (lower, upper, counts) in enumerate(statements, start=offset)
    ]
    pending = pa.Table.from_pylist(rows, schema=PROGRESS_SCHEMA)
    return note_late_counts(catalog.find(NAME), pending, TIMES, closed=False)


def noted(catalog: Catalog) -> list[dict[str, Any]]:
    path = catalog.find(NAME).paths.proofs
    files = [file for file in OpenTable(path).files() if kind_of(file.run) == CONTRADICTED_RUN]
    rows: list[dict[str, Any]] = read_rows(path, files, PROOFS_SCHEMA).to_pylist()
    return rows


def decide(catalog: Catalog, time: int) -> None:
    catalog.decide(NAME, Count(time=time, count=1, reason="tested"))


def test_a_statement_that_contradicts_every_sealed_time_gets_one_note_however_often_it_arrives(
    catalog: Catalog,
) -> None:
    everything: tuple[int, int, dict[int, int]] = (0, TIMES, {})
    assert say(catalog, everything, everything)
    assert say(catalog, everything, offset=90)
    (row,) = noted(catalog)
    assert (row[TIME], row["counted"], len(row["detail"]) < 1_000) == (0, TIMES, True)
    notes = LateNotes(catalog.find(NAME))
    assert (notes.contradictions, notes.undecided) == (TIMES, TIMES)
    listed = notes.first(100)
    assert [(note.time, note.stated, note.published, note.offset) for note in listed] == [
        (t, 0, 1, 7) for t in range(20)
    ]
    assert listed[-1].fact == (
        f"time 19 is stated to have 0 updates, but was sealed with 1 (topic '{NAME}', partition 0, offset 7), "
        "and the counts of 980 further times are contradicted"
    )
    assert [note.time for note in notes.first(3)] == [0, 1, 2]
    status = read_status(catalog.find(NAME))
    assert (status.late_contradicted, status.late_undecided, len(status.late_evidence)) == (TIMES, TIMES, 10)


def test_statements_that_differ_only_beyond_the_listed_times_get_separate_notes(catalog: Catalog) -> None:
    assert say(catalog, (0, TIMES, {}), (0, TIMES, {TIMES - 1: 2}))
    assert [row["counted"] for row in noted(catalog)] == [TIMES, TIMES]
    assert LateNotes(catalog.find(NAME)).contradictions == 2 * TIMES


def test_settling_every_listed_time_settles_the_statement(catalog: Catalog) -> None:
    assert say(catalog, (0, TIMES, {}))
    for time in range(1, 20):
        decide(catalog, time)
    notes = LateNotes(catalog.find(NAME))
    # As long as a listed time is open, the last listed time stands for all times that are not listed.
    assert (notes.undecided, [note.time for note in notes.first(5, undecided=True)]) == (TIMES - 18, [0, 19])
    (first,) = notes.at(0)
    assert settles(catalog.find(NAME), first, 0, 1, None)
    assert not settles(catalog.find(NAME), first, 0, 0, None)
    assert notes.at(20) == []
    decide(catalog, 0)
    notes = LateNotes(catalog.find(NAME))
    assert (notes.contradictions, notes.undecided, notes.first(5, undecided=True)) == (TIMES, 0, [])


def test_a_redundant_statement_leaves_no_note_and_only_the_proofs_that_it_covers_are_read(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []

    def noting(*arguments: Any) -> pa.Table:
        rows = read_rows(*arguments)
        read.append(rows.num_rows)
        return rows

    monkeypatch.setattr(proofs, "read_rows", noting)
    assert say(catalog, (5, 7, {5: 1, 6: 1}), (TIMES - 1, TIMES + 9, {TIMES - 1: 1}))
    assert not say(catalog, (TIMES, TIMES + 9, {}))
    assert (read, noted(catalog)) == ([3], [])


def test_for_each_time_the_newest_proof_counts_whichever_file_holds_it(catalog: Catalog) -> None:
    collection = catalog.find(NAME)
    prove(collection, {3: 5, INT64_MAX: 1}, at_ms=9, decision="counted again")
    prove(collection, {3: 4}, at_ms=8)
    proven = read_proven(collection.paths.proofs, [(2, 4), (INT64_MAX, INT64_MAX + 1)])
    assert proven == {
        2: Proven(1, 1, 0, None),
        3: Proven(5, 5, 0, "counted again"),
        INT64_MAX: Proven(1, 1, 0, "counted again"),
    }
    many = [(time, time + 1) for time in range(0, 400, 2)]
    assert set(range(0, 399, 2)) <= set(read_proven(collection.paths.proofs, many)) <= set(range(399))
    assert read_proven(collection.paths.proofs, []) == {}
