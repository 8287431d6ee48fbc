"""Generates a CDCv2 file topic from a seed, and writes its ground truth to a separate folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

from tidelake.codec.avro import AvroCodec, ConfluentCodec
from tidelake.errors import GeneratorRefused
from tidelake.generator.contradictions import CONFLICTING_COUNT, CONFLICTING_DIFF, OVER_COUNT
from tidelake.generator.encoder import Encoder
from tidelake.generator.events import EVENT_SCHEMA, EventHistory
from tidelake.generator.garbage import Garbage
from tidelake.generator.history import History
from tidelake.generator.options import Family, GenerateOptions
from tidelake.generator.orders import RECORD_SCHEMA
from tidelake.generator.stream import Stream, missing_statements
from tidelake.generator.topic_writer import TopicContents, check_is_empty, read_contents, write_topic
from tidelake.generator.truth import HeldBack, Part, Truth, counts_between, read_truth, updates_table, write_truth
from tidelake.generator.writers import Span
from tidelake.protocol.message import Progress, Updates
from tidelake.storage.location import Location, Place, locate

BREACHES = {"append_only": "append_only_diff", "debezium": "event_diff"}
"""The quarantine reason of a breach, for each family that allows no negative diff."""

_FAR_FUTURE = 2**50

Report = Callable[[str, int, int], None]
"""Receives the name of a step, the amount done, and the total."""


@dataclass(frozen=True)
class Generated:
    """Where the files were written, and the topic's ground truth."""

    topic: Location
    schema_path: Path
    updates_path: Path
    truth_path: Path
    truth: Truth

    def as_json(self) -> dict[str, Any]:
        """Return the paths and the ground truth as JSON values."""
        paths = {name: str(value) for name, value in vars(self).items() if isinstance(value, Location | Path)}
        return {**paths, "truth": self.truth.model_dump(mode="json")}


def generate(options: GenerateOptions, topics: Place, out: Path, progress: Report | None = None) -> Generated:
    """Write the topic `<topics>/<name>`, and with it `<out>/<name>.avsc`, `.truth.parquet` and `.truth.json`.

    Args:
        options: describes the topic; the same options give the same bytes.
        topics: the folder of topics, on a disk or in an object store; created if it is missing.
        out: the folder for the record schema and the ground truth; not inside the topic's folder.
        progress: see `Report`.

    Raises:
        GeneratorRefused: the topic is not empty, or cannot be continued; a chosen time is outside the history; `out`
            is inside the topic.

    Cost: the history and the topic's new part are held in memory. 200,000 updates, which two writers
    and copies turn into 520,000, take 7 s on one core.
    """
    report = progress or (lambda step, done, total: None)
    topic = locate(topics) / options.name
    schema_path, updates_path, truth_path = (
        out / f"{options.name}.{ending}" for ending in ("avsc", "truth.parquet", "truth.json")
    )
    if topic.is_local and topic.local.resolve() in (out.resolve(), *out.resolve().parents):
        raise GeneratorRefused(
            f"{out} is inside the topic {topic}, where a reader expects every file to hold records",
            "choose a different folder",
        )
    contents, before = _read_topic(options, topic, truth_path)
    span = _span(options, before)

    def chance(purpose: str) -> Random:
        return Random(f"{options.seed}/{len(before.parts) if before else 0}/{purpose}")

    report("history", 0, options.updates)
    history = (EventHistory if options.family == "debezium" else History)(
        options.family,
        options.updates,
        options.times,
        chance("history"),
        keys=options.keys,
        empty_times=options.empty_times,
        negative=options.negative,
        needed=options.times_needed,
        first_time=span.start,
        first_id=before.next_id if before else 0,
        first_number=before.rows if before else 0,
    )
    report("history", options.updates, options.updates)
    table = updates_table(history.rows, history.updates, updates_path if before else None)
    missing = counts_between(updates_path, before.stated_upper, before.end) if before else []
    repairs = missing_statements(before.stated_upper, before.end, missing) if before else []
    far_future = _FAR_FUTURE + (len(before.far_future) if before else 0)
    stream = Stream(options, history, span, repairs, far_future, chance)
    schema = schema_of(options.family)
    codec = AvroCodec(schema)
    encoder = Encoder(codec, options.encoding, options.schema_id)
    encoder.add_rows(history.rows)
    garbage = Garbage(_decode(codec, options), options.encoding, options.schema_id, chance("garbage"))
    values = stream.values(encoder, garbage)
    write_topic(
        topic,
        values,
        contents,
        options.partitions,
        options.messages_per_file,
        lambda done: report("topic", done, len(values)),
    )
    truth = _truth(options, before, span, history, stream, garbage, len(values))
    write_truth((schema_path, schema), (updates_path, table), (truth_path, truth.model_dump(mode="json")))
    return Generated(topic, schema_path, updates_path, truth_path, truth)


def schema_of(family: Family) -> dict[str, Any]:
    """Return the record schema of the topics of a family."""
    return EVENT_SCHEMA if family == "debezium" else RECORD_SCHEMA


def _read_topic(options: GenerateOptions, topic: Location, truth_path: Path) -> tuple[TopicContents, Truth | None]:
    """Return the contents of the topic, and its ground truth if this call continues the topic.

    Raises:
        GeneratorRefused: the topic is not empty, or cannot be continued.
    """
    if not options.append:
        check_is_empty(topic)
    contents = read_contents(topic)
    if not contents.messages:
        return contents, None
    before = read_truth(truth_path)
    fixed = (before.family, before.encoding, before.schema_id)
    refusals = (
        (
            before.messages != contents.messages,
            f"differs from its ground truth in the number of messages: {contents.messages}, not {before.messages}",
        ),
        (before.close_stated, "is closed, so nothing can be added"),
        (fixed != (options.family, options.encoding, options.schema_id), f"has family, encoding and schema id {fixed}"),
        (bool(options.close and before.far_future), "has updates in the far future, so it cannot be closed"),
    )
    for refused, problem in refusals:
        if refused:
            raise GeneratorRefused(
                f"the topic {topic} cannot be continued with these options: it {problem}",
                "write a topic with another name",
            )
    return contents, before


def _span(options: GenerateOptions, before: Truth | None) -> Span:
    """Return the times of the history, and how far progress is stated.

    Raises:
        GeneratorRefused: no progress statement covers a time that is to be held back.
    """
    start = before.end if before else 0
    end = start + options.times
    sealed = end - options.unsealed_times
    for time in options.times_held_back:
        if not start <= time < sealed:
            stated = f"progress is stated only for the times from {start} to {sealed - 1}"
            fix = "choose one of these times"
            if sealed == start:
                stated = f"progress is stated for none of the times from {start} to {end - 1}"
                fix = "reduce unsealed_times"
            raise GeneratorRefused(f"time {time} cannot be contradicted: {stated}", fix)
    return Span(start, sealed, end, options.close)


def _decode(codec: AvroCodec, options: GenerateOptions) -> Callable[[bytes], object]:
    if options.encoding == "avro":
        return codec.decode
    schema = schema_of(options.family)
    return ConfluentCodec(lambda schema_id: schema if schema_id == options.schema_id else None).decode


def _truth(
    options: GenerateOptions,
    before: Truth | None,
    span: Span,
    history: History,
    stream: Stream,
    garbage: Garbage,
    messages: int,
) -> Truth:
    """Summarise the topic after this call."""
    batches = [message.batch for message in stream.messages if isinstance(message, Updates)]
    breach = BREACHES.get(options.family)
    breached = {(row, time) for row, time, _ in stream.breaches} if breach else set()
    quarantined = garbage.reasons.copy()
    if breach and breached:
        quarantined[breach] += sum(any(update[:2] in breached for update in batch) for batch in batches)
    quarantined.update(before.quarantined if before else {})
    held_back = [
        *(before.held_back if before else ()),
        *(HeldBack(time=time, kind=CONFLICTING_DIFF) for time in options.conflicting_diff_at),
        *(HeldBack(time=time, kind=CONFLICTING_COUNT) for time in options.conflicting_count_at),
        *(HeldBack(time=time, kind=OVER_COUNT) for time in options.over_count_at),
        *(HeldBack(time=time, kind="envelope_breach") for time in options.breach_at),
    ]
    chosen = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(options).items()}
    part = Part(options=chosen, first_time=span.start, end=span.end, updates=len(history.updates))
    return Truth(
        name=options.name,
        family=options.family,
        encoding=options.encoding,
        schema_id=options.schema_id,
        upper=min([span.sealed, *(entry.time for entry in held_back)]),
        closed=options.close and not held_back,
        close_stated=options.close,
        stated_upper=span.sealed,
        end=span.end,
        held_back=tuple(sorted(held_back, key=lambda entry: (entry.time, entry.kind))),
        updates=len(history.updates) + (before.updates if before else 0),
        updates_stated=sum(map(len, batches)) + (before.updates_stated if before else 0),
        messages=messages + (before.messages if before else 0),
        progress_messages=sum(isinstance(message, Progress) for message in stream.messages)
        + (before.progress_messages if before else 0),
        null_records=options.nulls + (before.null_records if before else 0),
        quarantined=dict(sorted(quarantined.items())),
        far_future=(before.far_future if before else ()) + stream.far_future,
        rows=history.first_number + len(history.rows),
        next_id=history.next_id,
        parts=(*(before.parts if before else ()), part),
    )
