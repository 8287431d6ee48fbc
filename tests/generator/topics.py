"""Reads a generated topic with the package's codec and reader."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tidelake.codec.avro import AvroCodec, ConfluentCodec
from tidelake.errors import CodecError, MalformedMessage
from tidelake.generator.events import events_table
from tidelake.generator.generate import BREACHES, Generated, generate, schema_of
from tidelake.generator.options import GenerateOptions
from tidelake.generator.orders import RECORD_SCHEMA, orders_table
from tidelake.protocol.antichain import Antichain
from tidelake.protocol.message import Message, Updates
from tidelake.protocol.reader import Reader

CODEC = AvroCodec(RECORD_SCHEMA)


def make(root: Path, name: str = "orders", progress: Any = None, **choices: Any) -> Generated:
    """Generate a small topic in the test's own folder."""
    small: dict[str, Any] = {"updates": 600, "times": 40, "keys": 50, "updates_per_message": 20}
    return generate(GenerateOptions(name=name, **{**small, **choices}), root / "topics", root, progress)


def records(made: Generated) -> pa.Table:
    """The topic's records, in the order in which they were written."""
    paths = sorted(made.topic.local.iterdir())
    return pa.concat_tables([pq.read_table(path) for path in paths]).sort_by([("timestamp", "ascending")])


def decode_of(made: Generated) -> Callable[[bytes | None], Message | None]:
    """The function that decodes this topic's values."""
    schema = schema_of(made.truth.family)
    if made.truth.encoding == "avro":
        return AvroCodec(schema).decode
    return ConfluentCodec(lambda schema_id: schema if schema_id == made.truth.schema_id else None).decode


def messages(made: Generated) -> list[Message]:
    """The messages that can be used, in the order in which they were written."""
    return read(made).messages


@dataclass
class Read:
    """The result of reading a whole topic."""

    reader: Reader
    messages: list[Message] = field(default_factory=list)
    published: list[Any] = field(default_factory=list)
    errors: Counter[tuple[str, Any]] = field(default_factory=Counter)
    bad: Counter[str] = field(default_factory=Counter)
    nulls: int = 0

    @property
    def upper(self) -> tuple[Any, ...]:
        """The final frontier."""
        return self.reader.frontier.elements


def read(made: Generated) -> Read:
    """Feed a topic to the core's reader, without the updates that break the rule of the topic's family."""
    decode = decode_of(made)
    result = Read(Reader(Antichain.of(0), AvroCodec(schema_of(made.truth.family)).identity))
    for value in records(made)["value"].to_pylist():
        try:
            message = decode(value)
        except (CodecError, MalformedMessage) as error:
            result.bad[error.reason if isinstance(error, CodecError) else error.kind] += 1
            continue
        if message is None:
            result.nulls += 1
            continue
        result.messages.append(message)
        if made.truth.family in BREACHES and isinstance(message, Updates):
            good = [update for update in message.batch if update.diff > 0]
            if len(good) < len(message.batch):
                result.bad[BREACHES[made.truth.family]] += 1
            if not good:
                continue
            message = Updates(good)
        received = result.reader.receive(message)
        result.published += received.updates
        result.errors.update((error.kind, error.time) for error in received.errors)
    return result


def as_rows(published: list[Any]) -> list[tuple[Any, ...]]:
    """Published updates in the form of the truth's rows, sorted."""
    rows = [data for data, _, _ in published]
    table = events_table(rows) if rows and "after" in rows[0] else orders_table(rows)
    table = table.append_column("_time", pa.array([time for _, time, _ in published], pa.int64()))
    return sorted_rows(table.append_column("_diff", pa.array([diff for _, _, diff in published], pa.int64())))


def true_rows(made: Generated, upper: int) -> list[tuple[Any, ...]]:
    """The true updates before a time, sorted."""
    return sorted_rows(pq.read_table(made.updates_path, filters=[("_time", "<", upper)]))


def sorted_rows(table: pa.Table) -> list[tuple[Any, ...]]:
    """Rows in an order that depends only on their values."""
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


def assert_reads_as_the_truth_says(made: Generated) -> Read:
    """Check that the reader publishes exactly the true updates, up to the predicted time, with the predicted errors."""
    result, truth = read(made), made.truth
    assert result.upper == (() if truth.closed else (truth.upper,))
    assert as_rows(result.published) == true_rows(made, truth.end if truth.closed else truth.upper)
    assert dict(result.bad) == truth.quarantined
    assert result.nulls == truth.null_records
    expected = {(error.kind, error.time) for error in truth.held_back if error.kind != "envelope_breach"}
    assert set(result.errors) == expected
    batches = [message for message in result.messages if isinstance(message, Updates)]
    assert sum(len(message.batch) for message in batches) == truth.updates_stated
    assert len(result.messages) - len(batches) == truth.progress_messages
    assert records(made).num_rows == truth.messages
    return result
