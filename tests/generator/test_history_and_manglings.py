"""The messages of each family, and each way to mangle them."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Hashable
from dataclasses import fields
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.generator.topics import CODEC, make, messages, read, records
from tidelake.codec.avro import AvroCodec, ConfluentCodec
from tidelake.errors import ArgumentRefused, CodecError, GeneratorRefused
from tidelake.generator.encoder import Encoder
from tidelake.generator.events import EVENT_SCHEMA, EventHistory
from tidelake.generator.generate import Generated, generate
from tidelake.generator.history import History
from tidelake.generator.mangle import shuffle
from tidelake.generator.options import GenerateOptions
from tidelake.generator.orders import RECORD_SCHEMA
from tidelake.generator.truth import contents_at
from tidelake.model import events as debezium
from tidelake.model import keyed
from tidelake.protocol.message import Progress, Updates


def history_of(family: Any, seed: int = 1, **more: Any) -> History:
    return History(family, 4_000, 100, Random(seed), **{"keys": 200, **more})


def batches(made: Generated) -> list[Updates]:
    return [message for message in messages(made) if isinstance(message, Updates)]


def statements(made: Generated) -> list[Progress]:
    return [message for message in messages(made) if isinstance(message, Progress)]


def facts(made: Generated) -> Counter[Any]:
    return Counter(
        (CODEC.identity(data), time, diff) for message in batches(made) for data, time, diff in message.batch
    )


@pytest.mark.parametrize("family", ["plain", "append_only", "upsert"])
@pytest.mark.parametrize("updates", [1, 20, 94, 95, 96, 4_000])
def test_a_history_has_exactly_the_requested_number_of_distinct_updates(family: Any, updates: int) -> None:
    history = History(family, updates, 100, Random(updates), keys=30)
    assert len(history.updates) == len({(row, time) for row, time, _ in history.updates}) == updates
    assert len({CODEC.identity(row) for row in history.rows}) == len(history.rows)
    times = [time for _, time, _ in history.updates]
    assert times == sorted(times)
    assert len(set(times)) == min(updates, 95)
    assert set(times) <= set(range(100))


def test_a_plain_history_inserts_deletes_replaces_and_reinserts_but_never_falls_below_zero() -> None:
    history = history_of("plain")
    held: Counter[int] = Counter()
    gone: set[int] = set()
    came_back = 0
    for row, _, diff in history.updates:
        came_back += row in gone
        held[row] += diff
        assert held[row] >= 0
        gone = gone - {row} if held[row] else gone | {row}
    diffs = Counter(diff for _, _, diff in history.updates)
    assert came_back > 50 and len(gone) > 500
    assert diffs[1] > diffs[2] > 0 and diffs[-1] > diffs[-2] > 0 and {3, 4, 5, -3} < diffs.keys()
    live_ids = Counter(history.rows[row]["id"] for row, count in held.items() if count)
    assert set(live_ids.values()) == {1} and len(live_ids) <= 200


def test_a_plain_history_falls_below_zero_only_on_request(tmp_path: Path) -> None:
    made = make(tmp_path, negative=0.5)
    least = [pc.min(contents_at(made.updates_path, time)["_diff"]).as_py() for time in range(0, 40, 5)]
    assert min(least) < 0


def test_updates_are_distinct_even_if_one_time_has_more_of_them_than_there_are_keys() -> None:
    history = History("plain", 500, 1, Random(0), keys=3)
    assert len({row for row, _, _ in history.updates}) == 500


def test_an_append_only_history_has_positive_diffs_and_repeats_rows() -> None:
    history = history_of("append_only")
    assert min(diff for _, _, diff in history.updates) == 1
    assert max(Counter(row for row, _, _ in history.updates).values()) > 1
    assert {row["id"] for row in history.rows} <= set(range(200))


def test_an_upsert_history_sets_replaces_and_deletes_one_row_per_key() -> None:
    history = history_of("upsert")
    keyed_statements = [
        keyed.KeyedStatement(history.rows[row]["id"], row, time, diff) for row, time, diff in history.updates
    ]
    assert not keyed.breaches(keyed_statements)
    assert {diff for _, _, diff in history.updates} == {1, -1}
    at_once = Counter((statement.key, statement.time) for statement in keyed_statements)
    assert max(at_once.values()) == 2
    live: dict[Hashable, Hashable] = {}
    replaced = 0
    for statement in sorted(keyed_statements, key=lambda statement: statement.position):
        if statement.diff > 0:
            live[statement.key] = statement.value
            replaced += at_once[statement.key, statement.time] == 2
        else:
            assert live.pop(statement.key) == statement.value
    assert replaced > 500
    assert len(live) > 50


def test_the_contents_of_an_upsert_topic_are_those_of_the_keyed_model(tmp_path: Path) -> None:
    made = make(tmp_path, family="upsert")
    keyed_statements = [
        keyed.KeyedStatement(row["id"], repr(row), time, diff)
        for row in pq.read_table(made.updates_path).to_pylist()
        for time, diff in [(row.pop("_time"), row.pop("_diff"))]
    ]
    for as_of in range(0, 40, 7):
        rows = contents_at(made.updates_path, as_of).to_pylist()
        assert {row.pop("_diff") for row in rows} <= {1}
        assert {row["id"]: repr(row) for row in rows} == keyed.contents(keyed_statements, as_of)


def test_change_events_follow_a_database_and_change_some_rows_more_than_once_at_the_same_time() -> None:
    history = EventHistory("debezium", 4_000, 100, Random(1), keys=200)
    assert len(history.updates) == len({(event, time) for event, time, _ in history.updates}) == 4_000
    assert len({AvroCodec(EVENT_SCHEMA).identity(row) for row in history.rows}) == len(history.rows)
    rows: dict[int, Any] = {}
    touched: Counter[Any] = Counter()
    seen = Counter(history.rows[event]["op"] for event, _, _ in history.updates)
    moved = 0
    for event, time, diff in history.updates:
        before, after = (history.rows[event][name] for name in ("before", "after"))
        assert diff == 1
        if before is not None:
            assert rows.pop(before["id"]) == before
            touched[before["id"], time] += 1
        if after is not None:
            assert after["id"] not in rows
            rows[after["id"]] = after
        moved += before is not None and after is not None and before["id"] != after["id"]
    assert min(seen.values()) > 400 and moved > 50 and 100 < len(rows) <= 200
    assert max(touched.values()) > 1


@pytest.mark.parametrize("key", [None, lambda row: row[0]], ids=["without a key", "with a key"])
def test_the_contents_of_an_event_topic_are_those_of_the_model(tmp_path: Path, key: Any) -> None:
    made = make(tmp_path, family="debezium")

    def row_of(row: Any) -> Any:
        return None if row is None else (row["id"], repr(row))

    events = [
        debezium.Event(row_of(row["before"]), row_of(row["after"]), row["_time"])
        for row in pq.read_table(made.updates_path).to_pylist()
    ]
    assert key is None or not debezium.breaches(events, key)
    for as_of in range(0, 40, 7):
        found = {
            row_of(row): diff
            for row in contents_at(made.updates_path, as_of).to_pylist()
            for diff in [row.pop("_diff")]
        }
        expected = (
            debezium.summed_contents(events, as_of) if key is None else debezium.keyed_contents(events, as_of, key)
        )
        assert found == expected


def test_an_event_with_a_negative_diff_is_quarantined_and_holds_its_time_back(tmp_path: Path) -> None:
    made = make(tmp_path, family="debezium", breach_at=(5,), writers=2)
    assert made.truth.quarantined == {"event_diff": 2}
    assert made.truth.upper == 5


def test_orders_hold_values_that_are_easy_to_get_wrong() -> None:
    rows = history_of("append_only").rows
    assert {row["customer"] for row in rows} >= {"", "李雷", "naïve 🐟", "émile", "e\u0301mile"}
    assert {type(row["price"]) for row in rows} == {int, type(None)}
    assert {None if row["note"] is None else next(iter(row["note"])) for row in rows} == {None, "string", "long"}
    assert {len(row["tags"]) for row in rows} == {0, 1, 2, 3}
    assert {None, ""} <= {tag for row in rows for tag in row["tags"]}
    assert {None} < {row["shipping"] and row["shipping"]["postcode"] for row in rows}
    assert min(int.from_bytes(row["amount"], "big", signed=True) for row in rows) < 0


def test_the_encoder_writes_the_same_bytes_as_the_codec() -> None:
    history = history_of("plain")
    encoder = Encoder(CODEC, "avro", 1)
    encoder.add_rows(history.rows)
    updates = [(history.rows[row], time, diff) for row, time, diff in history.updates]
    assert encoder.message(Updates(history.updates)) == CODEC.encode(Updates(updates))
    for statement in (Progress([0], [9], [(3, 2**40), (4, 1)]), Progress([3], [], []), Progress([], [], [])):
        assert encoder.message(statement) == CODEC.encode(statement)
    framed = Encoder(CODEC, "confluent", 70_001)
    framed.add_rows(history.rows)
    confluent = ConfluentCodec(lambda _: RECORD_SCHEMA)
    assert framed.message(Updates(history.updates)) == confluent.encode(Updates(updates), 70_001)


def test_redundant_writers_repeat_everything_in_different_batches(tmp_path: Path) -> None:
    made = make(tmp_path, writers=3)
    assert set(facts(made).values()) == {3}
    assert len({len(message.batch) for message in batches(made)}) > 3
    covered = Counter(time for statement in statements(made) for time in range(40) if statement.covers(time))
    assert set(covered.values()) == {3}
    assert len({repr(statement) for statement in statements(made)}) > len(statements(made)) / 2


def test_shards_send_each_update_once_and_state_one_count(tmp_path: Path) -> None:
    alone, sharded = make(tmp_path / "a"), make(tmp_path / "b", shards=3)
    assert facts(sharded) == facts(alone)
    covered = Counter(time for statement in statements(sharded) for time in range(40) if statement.covers(time))
    assert covered == Counter(range(40))


def test_a_share_of_the_messages_is_repeated(tmp_path: Path) -> None:
    plain, copied = make(tmp_path / "a"), make(tmp_path / "b", copies=0.25)
    values = Counter(records(copied)["value"].to_pylist())
    assert set(values) == set(records(plain)["value"].to_pylist())
    assert Counter(values.values()) == {1: len(values) - round(len(values) / 4), 2: round(len(values) / 4)}


def test_a_share_of_the_updates_is_repeated_inside_their_message(tmp_path: Path) -> None:
    made = make(tmp_path, copies_inside=0.3)
    inside = [
        len(message.batch) - len({(CODEC.identity(data), time) for data, time, _ in message.batch})
        for message in batches(made)
    ]
    assert 120 < sum(inside) < 240
    assert set(facts(made).values()) == {1, 2}


def test_a_window_limits_how_far_a_message_moves() -> None:
    moved = shuffle(range(1_000), Random(1), "window", 9)
    assert sorted(moved) == list(range(1_000)) != moved
    assert max(abs(place - origin) for place, origin in enumerate(moved)) in range(4, 10)
    far = shuffle(range(1_000), Random(1), "full", 9)
    assert sorted(far) == list(range(1_000)) and max(abs(place - origin) for place, origin in enumerate(far)) > 500
    assert shuffle(range(5), Random(1), "none", 9) == list(range(5))


def test_split_progress_statements_overlap_and_cover_the_same_times(tmp_path: Path) -> None:
    whole, split = make(tmp_path / "a"), make(tmp_path / "b", split=1.0)
    assert len(statements(split)) > 2 * len(statements(whole)) - 5
    covered = Counter(time for statement in statements(split) for time in range(40) if statement.covers(time))
    assert set(covered) == set(range(40)) and max(covered.values()) > 1


def test_unsealed_times_have_updates_but_no_progress_statement(tmp_path: Path) -> None:
    made = make(tmp_path, unsealed_times=10, empty_times=0.0, shards=2)
    assert {time for _, time, _ in facts(made)} == set(range(40))
    assert not any(statement.covers(30) for statement in statements(made))
    assert made.truth.upper == 30


def test_late_messages_are_copies_at_the_very_end(tmp_path: Path) -> None:
    made = make(tmp_path, late=7, undecodable=5, shuffle="full")
    values = records(made)["value"].to_pylist()
    assert all(value in values[:-7] for value in values[-7:])


@pytest.mark.parametrize("encoding", ["avro", "confluent"])
def test_undecodable_messages_are_of_every_kind(tmp_path: Path, encoding: str) -> None:
    made = make(tmp_path, encoding=encoding, undecodable=50)
    reasons = read(made).bad
    assert reasons.total() == 50
    expected = {"undecodable", "bytes_left_over"}
    assert set(reasons) == (expected if encoding == "avro" else expected | {"wrong_magic_byte", "unknown_schema_id"})


def test_malformed_messages_are_of_every_kind(tmp_path: Path) -> None:
    assert read(make(tmp_path, malformed=12)).bad == {
        "zero_diff": 2,
        "bad_interval": 2,
        "negative_time": 2,
        "negative_count": 2,
        "duplicate_count": 2,
        "count_outside_interval": 2,
    }


def test_contradictions_come_before_everything_else(tmp_path: Path) -> None:
    made = make(tmp_path, conflicting_diff_at=(9,), conflicting_count_at=(8,), over_count_at=(7,), shuffle="full")
    first = messages(made)[:3]
    assert [getattr(message, "batch", None) and message.batch[0].time for message in first] == [9, None, 7]  # type: ignore[union-attr]
    assert [(error.kind, error.time) for error in made.truth.held_back] == [
        ("over_count", 7),
        ("conflicting_count", 8),
        ("conflicting_diff", 9),
    ]


def test_stragglers_lie_beyond_every_progress_statement_and_are_not_in_the_truth(tmp_path: Path) -> None:
    made = make(tmp_path, far_future=3)
    assert {time for _, time, _ in facts(made) if time >= 40} == set(made.truth.far_future)
    assert pq.read_metadata(made.updates_path).num_rows == 600


def test_an_update_that_breaks_the_envelope_is_announced_and_counted_with_all_its_copies(tmp_path: Path) -> None:
    made = make(tmp_path, family="append_only", breach_at=(5,), writers=2)
    assert [diff for _, _, diff in facts(made).elements() if diff < 0] == [-1, -1]
    assert made.truth.quarantined == {"append_only_diff": 2}
    at = sum(1 for _, time, _ in facts(made) if time == 5)
    assert {statement.counts[5] for statement in statements(made) if statement.covers(5)} == {at}


def test_a_breach_gives_an_order_two_values_at_one_time_with_or_without_other_updates(tmp_path: Path) -> None:
    made = make(tmp_path, family="upsert", breach_at=(5, 11), updates=3, times=12, writers=2)
    values = Counter((data["id"], time) for message in batches(made) for data, time, diff in message.batch if diff > 0)
    assert sum(count == 4 for count in values.values()) == 2
    assert made.truth.quarantined == {}
    assert made.truth.upper == 5


@pytest.mark.parametrize(
    ("choices", "text"),
    [
        ({"name": "a/b"}, "name is 'a/b'"),
        ({"name": ""}, "name is ''"),
        ({"name": "_hidden"}, "name is"),
        ({"copies": 1.1}, "copies is 1.1"),
        ({"copies": True}, "copies is True"),
        ({"copies": float("nan")}, "copies is nan"),
        ({"updates": 0}, "updates is 0"),
        ({"times": 1.0}, "times is 1.0"),
        ({"writers": 0}, "writers is 0"),
        ({"shards": -1}, "shards is -1"),
        ({"close": 1}, "close is 1"),
        ({"family": "merge"}, "plain, append_only, upsert, debezium"),
        ({"shuffle": "half"}, "none, window, full"),
        ({"encoding": "json"}, "avro, confluent"),
        ({"schema_id": 2**31}, "schema_id"),
        ({"breach_at": (1,)}, "the family `plain` and `breach_at`"),
        ({"over_count_at": [1]}, "over_count_at is"),
        ({"over_count_at": (-1,)}, "over_count_at is"),
        ({"family": "append_only", "negative": 0.1}, "the family `append_only` and `negative`"),
        ({"family": "upsert", "negative": 0.1}, "the family `upsert` and `negative`"),
        ({"close": True, "unsealed_times": 1}, "`close` and `unsealed_times`"),
        ({"close": True, "far_future": 1}, "`close` and `far_future`"),
        ({"times": 5, "unsealed_times": 6}, "unsealed_times"),
        ({"updates": 2, "over_count_at": (1, 2, 3)}, "3 different times must have an update"),
    ],
)
def test_invalid_options_are_refused_by_name_with_a_hint(choices: dict[str, Any], text: str) -> None:
    with pytest.raises((ArgumentRefused, GeneratorRefused), match="hint: ") as refused:
        GenerateOptions(**{"name": "orders", **choices})
    assert text in str(refused.value)


@pytest.mark.parametrize("time", [35, 40, 99])
def test_a_time_without_a_progress_statement_cannot_be_contradicted(tmp_path: Path, time: int) -> None:
    options = GenerateOptions(name="orders", times=40, unsealed_times=5, conflicting_diff_at=(time,))
    with pytest.raises(GeneratorRefused, match=f"time {time} cannot be contradicted"):
        generate(options, tmp_path / "topics", tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("unsealed", "text"),
    [
        (39, "progress is stated only for the times from 0 to 0\nhint: choose one of these times"),
        (40, "progress is stated for none of the times from 0 to 39\nhint: reduce unsealed_times"),
    ],
)
def test_a_refused_contradiction_names_the_times_that_can_have_one(tmp_path: Path, unsealed: int, text: str) -> None:
    options = GenerateOptions(name="orders", times=40, unsealed_times=unsealed, conflicting_diff_at=(7,))
    with pytest.raises(GeneratorRefused) as refused:
        generate(options, tmp_path / "topics", tmp_path)
    assert text in str(refused.value)


def test_the_help_of_every_option_is_a_sentence() -> None:
    assert all(option.metadata["help"].endswith(".") for option in fields(GenerateOptions))


def test_options_can_be_imported_without_pyarrow_and_fastavro() -> None:
    code = "import sys, tidelake.generator.options; sys.exit('pyarrow' in sys.modules or 'fastavro' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_generator_imports_neither_spark_nor_delta_rs() -> None:
    code = "import sys, tidelake.generator.generate; sys.exit('pyspark' in sys.modules or 'deltalake' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_message_made_to_be_bad_is_never_good_by_chance(tmp_path: Path) -> None:
    made = make(tmp_path, updates=1, times=1, undecodable=200)
    good = 0
    for value in records(made)["value"].to_pylist():
        try:
            CODEC.decode(value)
            good += 1
        except CodecError:
            pass
    assert good == 2
