"""`explain` and the state of a collection: each way in which a time can wait, be contradicted, or be proven."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.cli.commands import call, invoke
from tests.lakes.lake import NAME, Lake, encode, progress, updates
from tests.lakes.raw_lake import RawLake
from tests.lakes.shared_times import RECLOCKED, SharedTimes
from tidelake import open_lake
from tidelake.protocol.binding import Binding
from tidelake.read.explain import Explanation
from tidelake.read.status import CollectionStatus
from tidelake.store.bindings import append_binding

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def pitfalls(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Lake:
    """A collection with a different mistake, or a harmless repetition, at each time."""
    lake = Lake(tmp_path_factory.mktemp("pitfalls"), spark)
    lake.send(
        updates((0, 0, 1), (0, 0, 1)),  # a copy inside a message
        updates((1, 1, 1)),
        updates((2, 2, 1)),
        updates(((3, 1), 3, 1), ((3, 1), 3, 2)),  # two diffs of one update
        updates((4, 4, 1), (40, 4, 1)),  # more updates than announced
        updates((5, 5, 1)),
        updates((6, 6, 1)),
        updates((7, 7, 1)),
        updates((8, 8, 0)),  # a diff of zero
        updates((9, -1, 1)),  # a negative time
    )
    lake.send(
        progress([0], [2], {0: 1, 1: 1}),
        progress([1], [3], {1: 1, 2: 2}),  # overlaps the previous statement; an update at time 2 is missing
        progress([3], [5], {3: 1, 4: 1}),
        progress([5], [6], {5: 1}),
        progress([5], [6], {5: 2}),  # two counts
        progress([6], [7], {6: 1}),
        progress([6], [7]),  # the count 0, because time 6 is not listed
        progress([7], [9], {7: 1, 8: 1}),
        progress([20], [30], {25: 1}),  # ahead of the frontier
    )
    lake.run()
    return lake


def explained(lake: Lake, time: int | None = None) -> Explanation:
    return open_lake(lake.file).collection(NAME).explain(time)


def status_of(lake: Lake) -> CollectionStatus:
    status = open_lake(lake.file).collection(NAME).status()
    assert status is not None
    return status


@pytest.mark.parametrize(
    ("time", "state", "numbers", "fact"),
    [
        (0, "sealed", (1, 1, 0), "by the seal from 0 to 2: 1 announced, 1 counted"),
        (1, "sealed", (1, 1, 0), "not recounted yet"),
        (2, "waiting", (2, 1, 0), "2 announced, 1 stored: 1 update is missing"),
        (3, "contradicted", (1, 1, 1), "is stated with diff 1 and with diff 2"),
        (4, "contradicted", (1, 2, 0), "time 4 has more distinct updates than announced: 2 instead of 1"),
        (5, "contradicted", (2, 1, 0), "time 5 is announced with different counts: 1 and 2"),
        (6, "contradicted", (1, 1, 0), "time 6 is announced with different counts: 0 and 1"),
        (7, "complete", (1, 1, 0), "1 announced, 1 stored"),
        (
            8,
            "waiting",
            (1, 0, 0),
            "is about it: topic 'prices', partition 0, offset 8, zero_diff",
        ),
        (15, "not announced", (None, 0, 0), "no progress statement that was read covers it; 0 updates stored"),
        (25, "waiting", (1, 0, 0), "offset 18: 1 update at this time, in a statement about the times from 20 to 30"),
        (26, "complete", (0, 0, 0), "0 announced, 0 stored"),
    ],
)
def test_each_pitfall_is_explained_with_its_numbers(
    pitfalls: Lake, time: int, state: str, numbers: tuple[int | None, int, int], fact: str
) -> None:
    found = explained(pitfalls, time)
    assert (found.state, (found.announced, found.counted, found.copies)) == (state, numbers)
    assert fact in "\n".join(found.facts)
    if time > 2:
        assert "an earlier time must be sealed first: time 2: 2 announced, 1 stored" in found.facts


def test_the_first_waiting_time_is_explained_by_default(pitfalls: Lake) -> None:
    found = explained(pitfalls)
    assert (found.time, found.state) == (2, "waiting")
    assert [statement["offset"] for statement in found.statements] == [11]
    assert found.next_steps[-1] == "tidelake resolve count prices --time 2 --count N --reason …"
    shown = call("explain", NAME, "--config", str(pitfalls.file))
    assert "prices, time 2: waiting" in shown
    assert "announced by topic 'prices', partition 0, offset 11: 2 updates at this time" in shown
    as_json = json.loads(call("explain", NAME, "--time", "2", "--json", "--config", str(pitfalls.file)))
    assert (as_json["announced"], as_json["counted"]) == (2, 1)


def test_a_decision_explains_the_time_that_it_sealed(pitfalls: Lake, tmp_path: Path) -> None:
    lake = pitfalls.copy(tmp_path / "decided")
    lake.decide("one was lost", time=2, count=1)
    assert explained(lake, 2).announced == 1
    assert explained(lake, 2).state == "complete"
    lake.seal()
    found = explained(lake, 2)
    assert (found.state, found.announced, found.counted) == ("sealed", 1, 1)
    assert "1 by decision, 1 counted" in found.facts[0]
    assert any(fact.endswith("one was lost") for fact in found.facts)
    lake.validate()
    assert "recounted independently; 1 validation has found no difference so far" in explained(lake, 2).facts


@pytest.mark.sweep
def test_a_late_contradiction_is_part_of_the_explanation(lake: Lake) -> None:
    lake.send(updates((1, 1, 1)), progress([0], [3], {1: 1}))
    lake.run()
    lake.send(progress([1], [2], {1: 7}))
    lake.run()
    found = explained(lake, 1)
    assert any("is stated to have 7 updates, but was sealed with 1" in fact for fact in found.facts)
    assert found.next_steps == ["tidelake late prices"]


def test_the_explanation_of_a_time_below_since_says_so(tmp_path: Path, spark: SparkSession) -> None:
    lake = Lake(tmp_path, spark, keep=1)
    lake.send(updates((1, 1, 1)), progress([0], [9], {1: 1}))
    lake.run()
    lake.compact()
    assert "reads begin at since, 8" in explained(lake, 1).facts[-1]


def test_a_time_that_was_merged_before_any_validation_is_not_called_recounted(
    tmp_path: Path, spark: SparkSession
) -> None:
    def recount_of(time: int) -> list[str]:
        return [fact for fact in explained(lake, time).facts if "recounted" in fact]

    lake = Lake(tmp_path, spark, keep=1)
    lake.send(updates((1, 1, 1)), progress([0], [3], {1: 1}))
    lake.run()
    lake.validate()
    lake.send(updates((2, 4, 1)), progress([3], [9], {4: 1}))
    lake.run()
    lake.compact()
    merged = ["never recounted: compaction merged it with other times before the next validation"]
    assert [recount_of(time) for time in (4, 8)] == [merged, merged]
    lake.send(updates((3, 9, 1)), progress([9], [10], {9: 1}))
    lake.run()
    assert recount_of(9) == ["not recounted yet: the next validation recounts it"]
    lake.validate(full=True)
    recounted = ["recounted independently; 2 validations have found no difference so far"]
    assert [recount_of(time) for time in (2, 4, 8, 9)] == [recounted, merged, merged, recounted]


def test_a_minted_time_is_explained_by_its_binding(tmp_path: Path, spark: SparkSession) -> None:
    lake = RawLake(tmp_path, spark)
    lake.put({"id": 1, "page": "a"}, {"id": 2, "page": "b"})
    lake.ingest()
    time = lake.times[-1].time
    found = explained(lake, time)
    assert (found.state, found.counted) == ("sealed", 2)
    assert "2 records, 2 rows" in found.facts[0]
    assert "prices:0 before offset 2" in found.facts[1]
    assert explained(lake).time == time
    for later in (time + 1, time + 86_400_000):
        found = explained(lake, later)
        assert (found.state, found.facts[0]) == (
            "not read",
            f"no tick has minted it: upper is {time + 1}, and the next tick of ingest mints a time from there on",
        )
    assert "the contents are empty" in explained(lake, time - 1).facts[0]


def test_a_minted_time_without_records_is_explained_as_empty(tmp_path: Path) -> None:
    lake = SharedTimes(tmp_path, idle=RECLOCKED)
    assert append_binding(lake.catalog.find("idle").paths.bindings, Binding(time=5, lower=0), epoch=0)
    lake.seal(idle=6)
    found = lake.lake.collection("idle").explain()
    assert (found.time, found.state) == (5, "sealed")
    assert found.facts[1].startswith("no record had been read: the contents are empty; a binding says")


# --- the state in a sentence


def test_a_lost_update_is_reported_and_needs_attention(lake: Lake) -> None:
    lake.send(updates((1, 1, 1)), progress([0], [9], {1: 1, 5: 8}), updates((5, 5, 1)))
    lake.run()
    status = status_of(lake)
    assert status.sentence.startswith("waiting at time 5: 8 announced, 1 stored; upper has not moved for ")
    assert (status.state, status.needs_somebody) == ("waiting at time 5", True)
    assert status.waits_for == "7 updates at time 5, or a decision about the count"
    assert status.as_json()["waiting"]["times"][0] == {
        "time": 5,
        "announced": 8,
        "counted": 1,
        "missing": 7,
        "decided": False,
    }
    config = ("--config", str(lake.file))
    shown = invoke("status", *config)
    assert shown.exit_code == 1
    assert "waiting at time 5: 8 announced, 1 stored" in shown.stdout
    assert "`tidelake explain prices`" in shown.stdout
    assert invoke("status", "--check", *config).stdout.splitlines()[-1] == "collections that need attention: 1 of 1"


@pytest.mark.sweep
def test_a_lost_update_is_reported_even_if_columns_are_nested(tmp_path: Path, spark: SparkSession) -> None:
    tags = {"name": "tags", "type": {"type": "array", "items": "string"}}
    schema = {"type": "record", "name": "item", "fields": [{"name": "id", "type": "long"}, tags]}
    lake = Lake(tmp_path, spark, schema=schema)
    update = {"data": {"id": 1, "tags": ["a"]}, "time": 1, "diff": 1}
    lake.send(encode([update, update], schema), progress([0], [9], {1: 8}))
    lake.run()
    assert status_of(lake).sentence.startswith("waiting at time 1: 8 announced, 1 stored; upper has not moved for ")
    assert "8 announced, 1 stored" in " ".join(explained(lake, 1).facts)


def test_an_update_that_may_still_be_unread_needs_no_attention_yet(lake: Lake) -> None:
    lake.send(progress([0], [9], {5: 2}))
    lake.run()
    lake.send(updates((5, 5, 1), (6, 5, 1)))
    status = status_of(lake)
    assert status.sentence.endswith("; 1 message unread")
    assert (status.state, status.verdict.severity) == ("waiting at time 5", "warning")


def test_an_ingest_that_was_never_sealed_is_not_in_order(lake: Lake) -> None:
    lake.send(updates((1, 1, 1)), progress([0], [9], {1: 1}))
    lake.ingest()
    status = status_of(lake)
    assert (status.state, status.waits_for) == ("not sealed yet", "the next seal")
    assert status.sentence == "not sealed yet: complete before 9, sealed before 0; the next seal moves upper"
    assert explained(lake).state == "complete"
    lake.seal()
    assert status_of(lake).sentence == "in order, definite in [0, 9)"


def test_a_missing_data_file_is_reported_as_damage_with_exit_status_1(lake: Lake) -> None:
    lake.send(updates((1, 1, 1)), progress([0], [9], {1: 1}))
    lake.run()
    for file in lake.collection.paths.updates.local.rglob("*.parquet"):
        file.unlink()
    shown = invoke("status", "--config", str(lake.file))
    assert shown.exit_code == 1
    assert "DAMAGED files: the file" in shown.stdout


@pytest.mark.sweep
def test_updates_that_nothing_announces_are_counted_in_the_sentence(lake: Lake) -> None:
    lake.send(updates((1, 1, 1), (2, 9, 1)), progress([0], [9], {1: 1}))
    lake.run()
    status = status_of(lake)
    assert status.sentence == "in order, definite in [0, 9); 1 row at or after upper"
    assert not status.needs_somebody
    assert call("status", "--check", "--config", str(lake.file)) == "collections that need attention: 0 of 1\n"


@pytest.mark.sweep
def test_a_decided_time_does_not_hide_a_problem(lake: Lake) -> None:
    lake.send(updates((1, 1, 1)), progress([0], [3], {1: 1}), progress([3], [5], {4: 1}), progress([3], [5], {4: 2}))
    lake.run()
    lake.send(progress([1], [2], {1: 7}))
    lake.run()
    lake.decide("counted again", time=4, count=1)
    status = status_of(lake)
    assert (status.state, status.needs_somebody) == ("contradicted by late facts", True)
