"""The Debezium family: events are counted, and rows are read, in any order of arrival and after any merge."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.lakes.change_events import EVENT, events, progress, row
from tests.lakes.lake import NAME, Lake, encode
from tests.model.histories import history
from tests.sweeps import swept
from tidelake.errors import ConfigurationError
from tidelake.model.events import Event
from tidelake.read.snapshot import snapshot
from tidelake.store.proof_log import read_proof_log

pytestmark = pytest.mark.spark


def lake_of(root: Path, spark: SparkSession, key: str | None = None, **more: Any) -> Lake:
    if key is not None:
        more["key"] = key
    return Lake(root, spark, family="debezium", schema=EVENT, **more)


def keep(lake: Lake, distance: int) -> None:
    """Change the setting `keep` to a distance before upper."""
    changed = tuple(collection.model_copy(update={"keep": distance}) for collection in lake.settings.collections)
    lake.settings = lake.settings.model_copy(update={"collections": changed})


_KEYS, _NAMES = ["id", None], ["with a key", "without a key"]
WITHOUT_A_KEY = pytest.mark.parametrize("changes", swept(_KEYS, [None]), ids=_NAMES, indirect=True)
"""Tests with and without a key. Only those without a key run every day; the daily generated stream has a key."""


@pytest.fixture(params=_KEYS, ids=_NAMES)
def changes(request: pytest.FixtureRequest, tmp_path: Path, spark: SparkSession) -> Lake:
    """A collection of change events: with a key in one case, without a key in the other."""
    return lake_of(tmp_path, spark, request.param)


@pytest.mark.sweep  # scripts and a generated stream cover it every day
def test_rows_follow_their_changes_and_events_are_counted(changes: Lake) -> None:
    changes.send(events((None, (1, 10), 1), (None, (2, 5), 1)), events(((1, 10), (1, 20), 2), ((2, 5), None, 3)))
    changes.send(events(((1, 10), (1, 20), 2)), progress([0], [9], {1: 2, 2: 1, 3: 1}))
    sealed = changes.run()
    assert (sealed.upper, sealed.copies_cancelled, sealed.contradictions) == (9, 1, [])
    changes.send(events(((1, 20), (1, 30), 9)))
    changes.ingest()
    changes.send(events(((1, 20), (1, 30), 9)), progress([9], [12], {9: 1}))
    assert changes.run().copies_cancelled == 1
    assert changes.contents(1) == {(1, 10): 1, (2, 5): 1}
    assert changes.contents(2) == {(1, 20): 1, (2, 5): 1}
    assert changes.contents(3) == {(1, 20): 1}
    assert changes.contents(11) == {(1, 30): 1}
    assert not changes.validate(full=True).damaged
    changes.compact()
    assert not changes.validate(full=True).damaged
    assert changes.contents(2) == {(1, 20): 1, (2, 5): 1}


@WITHOUT_A_KEY
def test_the_last_of_several_changes_of_a_row_at_one_time_wins(changes: Lake) -> None:
    changes.send(events((None, (1, 10), 1)))
    changes.send(events(((1, 10), (1, 20), 4), ((1, 20), (1, 30), 4), (None, (7, 7), 4), ((7, 7), None, 4)))
    changes.send(events(((1, 30), (1, 40), 5), ((1, 40), (1, 30), 5)))
    changes.send(progress([0], [9], {1: 1, 4: 4, 5: 2}))
    sealed = changes.run()
    assert (sealed.upper, sealed.contradictions) == (9, [])
    assert changes.contents(4) == {(1, 30): 1}
    assert changes.contents(5) == {(1, 30): 1}


@pytest.mark.sweep  # a script covers it every day
def test_a_change_of_a_key_moves_its_row(changes: Lake) -> None:
    changes.send(events((None, (1, 10), 1), (None, (2, 10), 1)), events(((1, 10), (3, 10), 2), ((2, 10), (1, 10), 2)))
    changes.send(progress([0], [9], {1: 2, 2: 2}))
    changes.run()
    assert changes.contents(2) == {(3, 10): 1, (1, 10): 1}


@pytest.mark.parametrize("until", swept(["they are read", "they are merged"], ["they are read"]))
def test_the_row_before_may_hold_only_the_key_if_the_settings_say_so(
    tmp_path: Path, spark: SparkSession, until: str
) -> None:
    lake = lake_of(tmp_path, spark, "id", before="key")
    lake.send(events((None, (1, 10), 1), (None, (2, 5), 1)), events(((1, None), (1, 20), 2), ((2, None), None, 3)))
    lake.send(events(((8, None), (8, 80), 3)), progress([0], [9], {1: 2, 2: 1, 3: 2}))
    lake.run()
    assert lake.contents(3) == {(1, 20): 1, (8, 80): 1}
    lake.send(events(((1, None), (1, None), 9), (None, (8, 81), 9)), progress([9], [10], {9: 2}))
    lake.run()
    # The update to null has an effect, and it does not matter that the second event has no `before`.
    assert lake.contents(9) == {(1, None): 1, (8, 81): 1}
    if until == "they are read":
        return
    assert not lake.validate(full=True).damaged
    keep(lake, 1)
    lake.compact()
    assert lake.contents(9) == {(1, None): 1, (8, 81): 1}
    assert sum(file.rows for file in lake.table.files()) == 2


@pytest.mark.sweep
def test_several_events_of_a_key_have_no_order_if_before_holds_only_the_key(
    tmp_path: Path, spark: SparkSession
) -> None:
    lake = lake_of(tmp_path, spark, "id", before="key")
    lake.send(events((None, (1, 10), 1)), events((None, (2, 5), 3), ((2, None), None, 3)), events((None, (1, 10), 1)))
    lake.send(progress([0], [9], {1: 1, 3: 2}))
    sealed = lake.run()
    assert sealed.upper == 3
    assert [(error.kind, error.time) for error in sealed.contradictions] == [("envelope_breach", 3)]
    inserted = {"data": {"before": None, "after": row((2, 5)), "op": "c"}, "diff": 1}
    (note,) = [entry["detail"] for entry in read_proof_log(lake.collection).blocked]
    assert '{"before":null,"after":{"id":2,"price":5}} and {"before":{"id":2,"price":null},"after":null}' in note
    lake.decide(time=3, discard=inserted)
    lake.decide(time=3, count=1)
    assert lake.seal().upper == 9
    assert lake.contents(8) == {(1, 10): 1}
    assert not lake.validate(full=True).damaged


def test_before_may_only_be_set_with_a_key_and_never_changes(tmp_path: Path, spark: SparkSession) -> None:
    with pytest.raises(ConfigurationError, match=r"prices\.before.*only allowed for change events that have a key"):
        lake_of(tmp_path, spark, before="key")
    lake_of(tmp_path, spark, "id", before="key").ingest()
    with pytest.raises(ConfigurationError, match=r"created with `before: key`"):
        lake_of(tmp_path, spark, "id").ingest()


def test_two_rows_of_a_key_that_differ_only_in_a_nested_null_are_a_breach(tmp_path: Path, spark: SparkSession) -> None:
    inside = {
        "name": "p",
        "type": {
            "type": "record",
            "name": "P",
            "fields": [
                {"name": "a", "type": ["null", "int"]},
                {"name": "b", "type": ["null", "int"]},
                {"name": "list", "type": {"type": "array", "items": ["null", "int"]}},
            ],
        },
    }
    value = {"type": "record", "name": "Value", "fields": [{"name": "id", "type": "long"}, inside]}
    schema = {**EVENT, "fields": [{"name": "before", "type": ["null", value]}, *EVENT["fields"][1:]]}
    lake = Lake(tmp_path, spark, family="debezium", key="id", schema=schema)

    def message(time: int, before: Any, *after: Any) -> bytes:
        def row_of(parts: Any) -> Any:
            return None if parts is None else {"id": 1, "p": {"a": parts[0], "b": parts[1], "list": parts[2]}}

        batch = [
            {"data": {"before": row_of(before), "after": row_of(parts), "op": str(index)}, "time": time, "diff": 1}
            for index, parts in enumerate(after)
        ]
        return encode(batch, schema)

    lake.send(message(1, (5, None, []), (5, 5, [])), message(1, None, (None, 5, [])))
    lake.send(message(2, (5, 5, [1, None]), (6, 6, [])), message(2, None, (5, 5, [None, 1])))
    lake.send(progress([0], [9], {1: 2, 2: 2}))
    assert [(error.kind, error.time) for error in lake.run().contradictions] == [
        ("envelope_breach", 1),
        ("envelope_breach", 2),
    ]


@pytest.mark.sweep
def test_a_merge_of_some_runs_handles_the_last_possible_time(tmp_path: Path, spark: SparkSession) -> None:
    lake = lake_of(tmp_path, spark, "id", keep=1)
    last = 2**63 - 1
    for time in range(9):
        lake.send(events((None, (time, 1), time)))
        lake.ingest()
    lake.send(
        events((None, (77, 1), 3), (None, (78, 1), last)),
        progress([0], [9], {time: 1 + (time == 3) for time in range(9)}),
    )
    lake.run()
    before = lake.contents(8)
    lake.compact(full=False)
    assert len(lake.table.files()) < 10
    assert lake.contents(8) == before


def test_without_a_key_equal_rows_are_summed(tmp_path: Path, spark: SparkSession) -> None:
    lake = lake_of(tmp_path, spark)
    lake.send(events((None, (1, 10), 1), (None, (2, 5), 1, 2)), events((None, (1, 10), 2)))
    lake.send(events(((2, 5), None, 3)), progress([0], [9], {1: 2, 2: 1, 3: 1}))
    lake.run()
    assert lake.contents(2) == {(1, 10): 2, (2, 5): 2}
    assert lake.contents(3) == {(1, 10): 2, (2, 5): 1}
    assert [
        tuple(record) for record in snapshot(spark, lake.collection, 3, ["price"], "id = 1").contents.collect()
    ] == [(10, 2)]


@WITHOUT_A_KEY
def test_storage_after_compaction_is_bounded_by_the_number_of_rows(changes: Lake) -> None:
    for time in range(1, 7):
        changes.send(events(*(((key, time - 1) if time > 1 else None, (key, time), time) for key in range(20))))
    changes.send(events(*(((key, 6), None, 7) for key in range(5))))
    changes.send(progress([0], [10], {**dict.fromkeys(range(1, 7), 20), 7: 5}))
    changes.run()
    before = changes.contents(9)
    keep(changes, 1)
    changes.compact()
    assert sum(file.rows for file in changes.table.files()) == 15
    assert changes.contents(9) == before == {(key, 6): 1 for key in range(5, 20)}
    assert not changes.validate(full=True).damaged


@WITHOUT_A_KEY
def test_an_event_without_rows_or_with_a_negative_diff_waits_in_the_quarantine(changes: Lake) -> None:
    changes.send(events((None, (1, 10), 1)), events((None, None, 3), op="t"), events(((1, 10), (1, 11), 4, -1)))
    changes.send(progress([0], [9], {1: 1, 3: 1, 4: 1}))
    sealed = changes.run()
    assert sealed.upper == 3
    assert changes.quarantined() == [(1, "event_without_rows"), (2, "event_diff")]
    assert [(error.kind, error.time) for error in sealed.contradictions] == [
        ("envelope_breach", 3),
        ("envelope_breach", 4),
    ]
    assert "truncate" in str(sealed.contradictions[0])
    changes.decide(time=3, count=0)
    changes.decide(time=4, count=0)
    healed = changes.seal()
    assert (healed.upper, healed.decided) == (9, 2)
    assert changes.contents(8) == {(1, 10): 1}


@pytest.mark.sweep
def test_a_time_that_leaves_a_key_with_two_rows_waits_until_one_event_is_discarded(
    tmp_path: Path, spark: SparkSession
) -> None:
    lake = lake_of(tmp_path, spark, "id")
    lake.send(events((None, (1, 10), 1)), events(((1, 10), (1, 20), 3), ((1, 10), (1, 30), 3)))
    lake.send(events((None, (5, 5), 6, 2)), progress([0], [9], {1: 1, 3: 2, 6: 1}))
    sealed = lake.run()
    assert sealed.upper == 3
    assert {(error.kind, error.time) for error in sealed.contradictions} == {
        ("envelope_breach", 3),
        ("envelope_breach", 6),
    }
    notes = {entry["time"]: entry["detail"] for entry in read_proof_log(lake.collection).blocked}
    assert notes[3].endswith('; its data: {"id":1,"price":20} and {"id":1,"price":30}')
    discarded = {"data": {"before": row((1, 10)), "after": row((1, 20)), "op": "u"}, "diff": 1}
    lake.decide(time=3, discard=discarded)
    lake.decide(time=3, count=1)
    assert lake.seal().upper == 6
    assert lake.contents(5) == {(1, 30): 1}
    lake.decide(time=6, count=1)
    assert lake.seal().upper == 9
    assert lake.contents(8) == {(1, 30): 1, (5, 5): 1}
    lake.send(events(((1, 10), (1, 20), 3)))
    lake.run()
    lake.compact()
    assert lake.contents(8) == {(1, 30): 1, (5, 5): 1}
    assert not lake.validate(full=True).damaged


@pytest.mark.sweep  # test_generated_streams.py has a case outside the sweeps
@pytest.mark.parametrize(
    ("seed", "key"), swept([(1, "id"), (1, None), (2, "id"), (2, None)], [(1, "id"), (2, None)], unpack=True)
)
def test_a_mangled_history_ends_up_with_the_databases_contents_whatever_is_merged(
    tmp_path: Path, spark: SparkSession, seed: int, key: str | None
) -> None:
    rng = Random(f"debezium {seed}")
    made, contents = history(rng, 12)
    lake = lake_of(tmp_path, spark, key)
    pairs: dict[Hashable, tuple[int, int | None]] = {
        pair: (ord(pair[0]), pair[1])
        for event in made
        for pair in (event.before, event.after)
        if isinstance(pair, tuple)
    }
    shuffled: list[Event] = [*made, *rng.choices(made, k=len(made) // 2)]
    shuffled.sort(key=lambda event: event.time + rng.uniform(0, 4))
    counts = {time: sum(event.time == time for event in made) for time in range(12)}
    uppers = sorted({rng.randint(1, 11), rng.randint(1, 11), 12})
    while shuffled or uppers:
        part, shuffled = shuffled[: len(made) // 2 + 1], shuffled[len(made) // 2 + 1 :]
        for event in part:
            lake.send(events((pairs.get(event.before), pairs.get(event.after), event.time)))
        if uppers:
            lake.send(_progress_up_to(uppers.pop(0), counts))
        lake.run()
        upper = lake.seal().upper
        keep(lake, 3)
        if rng.random() < 0.7:
            lake.compact(full=rng.random() < 0.5)
        for as_of in range(lake.collection.entry.since[0], upper):
            assert lake.contents(as_of) == {pairs[pair]: 1 for pair in contents[as_of]}, (seed, as_of)
    assert lake.seal().upper == 12
    assert not lake.validate(full=True).damaged


def _progress_up_to(upper: int, counts: dict[int, int]) -> bytes:
    return progress([0], [upper], {time: count for time, count in counts.items() if count and time < upper})


@pytest.mark.parametrize(
    ("key", "problem"), [("shop", "no column 'shop'"), ("price", "may be null"), ("before", "no column 'before'")]
)
def test_an_invalid_key_is_refused_before_anything_is_written(
    tmp_path: Path, spark: SparkSession, key: str, problem: str
) -> None:
    with pytest.raises(ConfigurationError, match=problem) as refused:
        lake_of(tmp_path, spark, key)
    assert f"collections.{NAME}.key" in str(refused.value)
    assert not (tmp_path / "store").exists()


def test_a_schema_that_is_not_a_change_event_is_refused(tmp_path: Path, spark: SparkSession) -> None:
    with pytest.raises(ConfigurationError, match="before` and `after") as refused:
        Lake(tmp_path, spark, family="debezium")
    assert f"collections.{NAME}.schema" in str(refused.value)


@pytest.mark.sweep
def test_an_event_that_has_not_arrived_is_not_a_contradiction(tmp_path: Path, spark: SparkSession) -> None:
    lake = lake_of(tmp_path, spark, "id")
    lake.send(events((None, (1, 10), 1)), events(((1, 10), (1, 20), 4), ((1, 30), (1, 40), 4)))
    lake.send(progress([0], [9], {1: 1, 4: 3}))
    sealed = lake.run()
    assert (sealed.upper, sealed.contradictions, sealed.waiting_for) == (4, [], [(4, 3, 2)])
    lake.send(events(((1, 20), (1, 30), 4)))
    assert lake.run().upper == 9
    assert lake.contents(8) == {(1, 40): 1}


@pytest.mark.sweep
def test_compaction_does_not_change_the_contents_at_time_0(changes: Lake) -> None:
    changes.send(events((None, (1, 10), 0)))
    changes.ingest()
    changes.send(events(((1, 10), (1, 20), 0)), progress([0], [3], {0: 2}))
    changes.run()
    changes.compact()
    assert changes.contents(0) == {(1, 20): 1}
    assert not changes.validate(full=True).damaged
    assert len(changes.table.files()) == 1
