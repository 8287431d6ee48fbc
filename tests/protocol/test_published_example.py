"""The protocol's published example, as lines of `replay` and as Avro JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tidelake.codec.avro import AvroCodec
from tidelake.codec.json import AvroJsonCodec
from tidelake.model.sums import SumCollection
from tidelake.protocol.antichain import Antichain
from tidelake.protocol.message import Progress, Update
from tidelake.protocol.reader import Reader
from tidelake.protocol.replay import replay_file, split_lines

FOLDER = Path(__file__).parents[2] / "examples" / "published"
SCHEMA = {
    "type": "record",
    "name": "data",
    "fields": [{"name": "id", "type": "long"}, {"name": "price", "type": ["null", "int"]}],
}
CONTENTS: dict[int, dict[Any, int]] = {3: {}, 4: {(5, 12): 1}, 5: {(5, 10): 1}, 6: {}, 9: {}}


def read_lines(name: str) -> list[bytes]:
    return split_lines((FOLDER / name).read_bytes())


def test_replay_ends_at_time_10_with_the_published_contents() -> None:
    outputs = list(replay_file(read_lines("replay.jsonl"), "replay.jsonl"))
    assert [output["frontier"] for output in outputs] == [[0], [0], [0], [0], [3], [10]]
    assert not any(output["errors"] for output in outputs)
    collection = SumCollection(Antichain.of(0))
    for output in outputs:
        collection.append([((data["id"], data["price"]), time, diff) for data, time, diff in output["updates"]])
        collection.seal(Antichain(output["frontier"]))
    for time, contents in CONTENTS.items():
        assert collection.read(time) == contents


@pytest.mark.parametrize("backwards", [False, True])
def test_the_avro_json_lines_read_the_same_forwards_and_backwards(backwards: bool) -> None:
    codec, avro = AvroJsonCodec(SCHEMA), AvroCodec(SCHEMA)
    reader = Reader(Antichain.of(0), avro.identity)
    published: list[Update] = []
    for line in reversed(read_lines("stream.avro.jsonl")) if backwards else read_lines("stream.avro.jsonl"):
        message = codec.decode(line)
        assert codec.encode(message) == line
        assert avro.decode(avro.encode(message)) == message
        published += reader.receive(message).updates
    assert reader.frontier == Antichain.of(10)
    for time, contents in CONTENTS.items():
        sums: dict[tuple[Any, Any], int] = {}
        for data, at, diff in published:
            assert isinstance(at, int)
            if at <= time:
                key = (data["id"], data["price"])
                sums[key] = sums.get(key, 0) + diff
        assert {key: count for key, count in sums.items() if count} == contents


def test_the_last_statement_of_the_example_has_counts_at_three_times() -> None:
    message = AvroJsonCodec(SCHEMA).decode(read_lines("stream.avro.jsonl")[-1])
    assert message == Progress([3], [10], [(4, 1), (5, 2), (6, 1)])
