"""Every row of the table of bad input, from the topic to status, quarantine and checks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

from tests.lakes.bad_input import NESTED, check_extremes, check_refused, failing_checks, status_of
from tests.lakes.lake import NAME, RECORD, Lake, progress, updates
from tidelake.errors import TopicGap
from tidelake.store.quarantine import quarantine_rows

pytestmark = pytest.mark.spark

GOOD = updates((1, 1, 1))


def test_undecodable_bytes_wrong_magic_bytes_unknown_schema_ids_and_trailing_bytes_are_quarantined(
    tmp_path: Path, spark: SparkSession
) -> None:
    lake = Lake(tmp_path, spark, encoding="confluent", schema_ids={7: RECORD})
    header = b"\x00" + (7).to_bytes(4, "big")
    bad = {
        "undecodable": header + GOOD[:-1],
        "wrong_magic_byte": b"\x01" + header[1:] + GOOD,
        "unknown_schema_id": b"\x00\x00\x00\x00\x08" + GOOD,
        "bytes_left_over": header + GOOD + b"x",
    }
    lake.send(*bad.values(), header + GOOD, header + progress([0], [5], {1: 1}))
    assert lake.run().upper == 5
    assert lake.contents(4) == {(1, None): 1}
    quarantined = [
        (row["topic"], row["partition"], row["offset"], row["value"]) for row in quarantine_rows(lake.collection)
    ]
    assert quarantined == [(NAME, 0, offset, value) for offset, value in enumerate(bad.values())]
    status = status_of(lake)
    assert (status.quarantine, status.quarantine_reasons) == (4, dict.fromkeys(bad, 1))
    assert failing_checks(lake) == {"quarantine_is_explained"}


@pytest.mark.sweep
def test_contradictions_of_the_protocol_wait_for_decisions(lake: Lake) -> None:
    lake.send(updates((1, 1, 1), ((2, 20), 3, 1), ((2, 20), 3, 2)), updates((4, 5, 1)))
    lake.send(progress([0], [9], {1: 1, 3: 1, 5: 1}), progress([5], [6], {5: 2}))
    assert lake.run().upper == 3
    notes = {contradiction["time"]: contradiction["detail"] for contradiction in status_of(lake).contradictions}
    assert notes[3].endswith('diff 1 and with diff 2; its data: {"id":2,"price":20}')
    assert "announced with different counts: 1 and 2" in notes[5]
    assert lake.contents(2) == {(1, None): 1}
    assert failing_checks(lake) == {"nothing_is_contradicted"}
    lake.decide(time=3, discard={"data": {"id": 2, "price": 20}, "diff": 2})
    lake.decide(time=5, count=1)
    assert lake.seal().upper == 9
    assert status_of(lake).contradictions == []
    assert failing_checks(lake) == set()


@pytest.mark.sweep
def test_a_missing_file_a_jump_in_offsets_and_a_shorter_topic_are_gaps(lake: Lake) -> None:
    file, aside = lake.topic / "0.jsonl", lake.root / "aside"
    lake.send(GOOD, progress([0], [2], {1: 1}))
    assert lake.run().upper == 2
    file.rename(aside)
    with pytest.raises(TopicGap, match=r"'prices', partition 0: offsets 0 to 1 are missing"):
        lake.ingest()
    assert "offsets 0 to 1 are missing" in status_of(lake).topic_gaps[0]
    aside.rename(file)
    before = file.read_text()
    lake.send(updates((2, 2, 1)), progress([2], [4], {2: 1}), at=5)
    with pytest.raises(TopicGap, match=r"'prices', partition 0: offsets 2 to 4 are missing"):
        lake.ingest()
    assert status_of(lake).lag_messages == 5
    lake.decide(accept_gap=(NAME, 0, 2, 5))
    assert lake.run().upper == 4
    assert status_of(lake).topic_gaps == []
    file.write_text(before)
    with pytest.raises(TopicGap, match=r"'prices', partition 0: offsets 5 to 6 are missing"):
        lake.ingest()
    assert "offsets 5 to 6 are missing" in status_of(lake).topic_gaps[0]
    assert lake.contents(3) == {(1, None): 1, (2, None): 1}
    assert failing_checks(lake) == set()


def test_extreme_values_are_stored_and_numbers_beyond_int64_are_quarantined(
    tmp_path: Path, spark: SparkSession
) -> None:
    check_extremes(Lake(tmp_path, spark, schema=NESTED))


def block(**changes: Any) -> dict[str, Any]:
    """The settings of one collection."""
    return {"family": "plain", "topic": NAME, "schema": RECORD, **changes}


def written(collections: dict[str, Any]) -> str:
    """A `collections.yaml`."""
    return yaml.safe_dump({"store": "store", "topics": "topics", "collections": collections}, sort_keys=False)


def fields(*kinds: tuple[str, Any]) -> dict[str, Any]:
    """A record schema."""
    return {"type": "record", "name": "data", "fields": [{"name": name, "type": kind} for name, kind in kinds]}


INVALID_CONFIGURATIONS = {
    "an unknown key": (written({NAME: block(kepe="all")}), "collections.prices.kepe: is not a known key"),
    "a bad schema": (written({NAME: block(schema=fields(("id", "lnog")))}), "collections.prices.schema: "),
    "a missing topic": (written({NAME: block(topic="nowhere")}), "the topic 'nowhere' has no folder"),
    "two collections with one name": (
        written({NAME: block()}) + written({NAME: block()}).partition("collections:\n")[2],
        "the key 'prices' is given twice",
    ),
}
SCHEMAS_THAT_CANNOT_LAND = {
    "map columns": (fields(("tags", {"type": "map", "values": "string"})), "column 'tags' is refused: maps"),
    "zoneless timestamps": (
        fields(("at", {"type": "long", "logicalType": "local-timestamp-millis"})),
        "column 'at' is refused: it is a timestamp",
    ),
    "column names that clash in case": (fields(("Id", "long"), ("id", "long")), "it clashes with 'Id'"),
    "column names that clash with system columns": (fields(("_time", "long")), "column '_time' is refused: names"),
}


def in_kafka(text: str) -> str:
    """The same collections with topics in Kafka; a call to the broker would give a different error."""
    block = text.replace("family: plain\n", "family: plain\n    source: kafka\n")
    return "kafka: {bootstrap_servers: '127.0.0.1:1', request_timeout_s: 1}\n" + block


INVALID_CONFIGURATIONS_IN_KAFKA = {
    f"{name}, in Kafka": (in_kafka(text), message)
    for name, (text, message) in INVALID_CONFIGURATIONS.items()
    if name != "a missing topic"  # only a broker knows that a topic is missing
}


@pytest.mark.parametrize(
    ("text", "message"),
    [*INVALID_CONFIGURATIONS.values(), *INVALID_CONFIGURATIONS_IN_KAFKA.values()],
    ids=[*INVALID_CONFIGURATIONS, *INVALID_CONFIGURATIONS_IN_KAFKA],
)
def test_an_invalid_configuration_is_refused(
    tmp_path: Path,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    text: str,
    message: str,
) -> None:
    check_refused(tmp_path, spark, monkeypatch, capsys, text, message)


@pytest.mark.parametrize("placed", [str, in_kafka], ids=["in files", "in Kafka"])
@pytest.mark.parametrize(("schema", "message"), SCHEMAS_THAT_CANNOT_LAND.values(), ids=SCHEMAS_THAT_CANNOT_LAND)
def test_map_columns_zoneless_timestamps_and_column_names_that_clash_are_refused(
    tmp_path: Path,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    schema: dict[str, Any],
    message: str,
    placed: Callable[[str], str],
) -> None:
    check_refused(tmp_path, spark, monkeypatch, capsys, placed(written({NAME: block(schema=schema)})), message)
