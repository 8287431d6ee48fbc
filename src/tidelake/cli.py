"""The command line: look at collections, read them, decide, make topics, replay streams. Heavy imports come late."""

from __future__ import annotations

import base64
import importlib
import inspect
import json
import logging
import re
import sys
import time as clock
from contextlib import contextmanager
from dataclasses import fields
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, get_origin, get_type_hints

import typer

from tidelake.cli_options import CONFIG, ConfigOption, JsonOption
from tidelake.cli_topic import app as topic_app
from tidelake.errors import CapabilityError, CommitError, TidelakeError
from tidelake.order import INT64_MAX, INT64_MIN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console

    from tidelake.column_types import ColumnType
    from tidelake.configuration import CollectionSettings, Settings
    from tidelake.delta.catalog import Catalog, Collection, Decision, Entry
    from tidelake.delta.snapshot import Snapshot
    from tidelake.delta.status import CollectionStatus

app = typer.Typer(
    name="tidelake",
    help="Change-data topics become definite Delta tables: exact AS OF every time in [since, upper).",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

app.add_typer(topic_app, name="topic")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The collection's name.")]
_ROWS_SHOWN = 20
_TIMES_SHOWN = 5
_ROWS_MAX = 2**31 - 1
_OFFSETS = re.compile(r"(?s)(.+):(\d{1,19}):(\d{1,19})(?:-(\d{1,19}))?", re.ASCII)


class Engine(StrEnum):
    """What `replay` runs a stream through."""

    memory = "memory"
    delta = "delta"


@app.command()
def status(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Only these collections.")] = None,
    config: ConfigOption = CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Show since, upper, rows, pending rows, lag and quarantine of each collection. Starts no JVM."""
    from tidelake.configuration import load_settings

    settings = load_settings(config).only(tuple(names or ()))
    found: dict[str, CollectionStatus | None] = {}
    unreadable: dict[str, str] = {}
    for one in settings.collections:
        with _told_if_unreadable(one.name, unreadable):
            found[one.name] = _status_of(settings, one.name)
    if as_json:
        shown: dict[str, Any] = {name: None if one is None else one.as_json() for name, one in found.items()}
        _print_json({"collections": shown | {name: {"error": text} for name, text in unreadable.items()}})
    else:
        _print_status(found, unreadable)
    if unreadable:
        raise typer.Exit(1)


@app.command()
def read(
    name: NameArgument,
    as_of: Annotated[
        int | None,
        typer.Option("--as-of", min=INT64_MIN, max=INT64_MAX, help="A time in [since, upper); by default the last."),
    ] = None,
    columns: Annotated[str | None, typer.Option(help="Which columns, with commas between them.")] = None,
    where: Annotated[str | None, typer.Option(help="A Spark SQL predicate on the data's columns.")] = None,
    limit: Annotated[
        int | None, typer.Option(min=0, max=_ROWS_MAX, help="At most so many rows (20 unless --json).")
    ] = None,
    skip_errors: Annotated[
        bool, typer.Option("--skip-errors", help="Leave out keys whose newest value could not be decoded.")
    ] = False,
    config: ConfigOption = CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Show the contents of a collection AS OF a time; `_diff` says how often a row is there."""
    from tidelake.column_types import contents_types
    from tidelake.delta.session import start_session
    from tidelake.delta.snapshot import snapshot, unknown_texts
    from tidelake.json_values import to_text

    collection = _find(config, name)
    wanted = list(dict.fromkeys(one.strip() for one in columns.split(",") if one.strip())) if columns else []
    rows_max = limit if limit is not None else (None if as_json else _ROWS_SHOWN)
    _say("starting Spark …")
    session = start_session()
    with _spark_errors_named(name, where):
        taken = snapshot(session, collection, as_of, wanted, where, skip_errors)
        rows = _rows_of(taken, rows_max)
        total = taken.contents.count() if rows_max is not None and not as_json else None
        lacking, named = unknown_texts(taken)
    about = {"name": name, "as_of": taken.as_of, "since": taken.since, "upper": None if taken.closed else taken.upper}
    entry = collection.entry
    kinds = {one.name: one.type for one in contents_types(entry.envelope, entry.record_schema, entry.framing)}
    if as_json:
        shown = [_with_bytes(row, kinds, lambda text: {"b64": text}) for row in rows]
        typer.echo(to_text(about | {"closed": taken.closed, "version": taken.version, "rows": shown}))
    else:
        shown = [_with_bytes(row, kinds, base64.b64decode) for row in rows]
        _print_rows(f"{name} AS OF {taken.as_of}", taken.contents.columns, shown)
        if total is not None and total > len(rows):
            _say(f"{len(rows)} of {total} rows; --limit shows more")
    if lacking:
        rows_lack = "1 row lacks" if lacking == 1 else f"{lacking} rows lack"
        _say(f"{rows_lack} values that nobody has stated, which are null here: {'; '.join(named)}")


@app.command()
def resolve(
    name: NameArgument,
    reason: Annotated[
        str | None, typer.Option(help="Why; every report that shows the decision says it. Only --withdraw needs none.")
    ] = None,
    time: Annotated[
        int | None,
        typer.Option(
            min=0, max=INT64_MAX, help="The time that does not seal, or a sealed one that `tidelake late` shows."
        ),
    ] = None,
    count: Annotated[
        int | None, typer.Option(min=0, max=INT64_MAX, help="How many distinct updates it has, whatever was said.")
    ] = None,
    discard: Annotated[
        str | None, typer.Option(help='A statement without effect: {"data": {…}, "diff": 1}. Needs --time.')
    ] = None,
    accept_gap: Annotated[
        str | None, typer.Option(help="Offsets that will not come back: TOPIC:PARTITION:FROM-TO (TO is not in it).")
    ] = None,
    accept_topic: Annotated[
        str | None, typer.Option(help="A topic that was made anew, or was cut short: go on with what is there.")
    ] = None,
    quarantined: Annotated[
        str | None,
        typer.Option(
            help="A quarantined message that is seen to: TOPIC:PARTITION:OFFSET, or FROM-TO (TO is not in it)."
        ),
    ] = None,
    withdraw: Annotated[
        bool,
        typer.Option(
            "--withdraw",
            help="Take back what was decided. Needs --time of an open time, or --quarantined.",
        ),
    ] = False,
    config: ConfigOption = CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Decide what a stream cannot: store a standing rule that the next ingest or seal applies. Starts no JVM."""
    from tidelake.configuration import load_settings
    from tidelake.delta.catalog import Catalog
    from tidelake.delta.layout import Store

    settings = load_settings(config)
    one = settings.collection(name)
    catalog = Catalog(Store(settings.store))
    _check_what_is_decided(reason, time, count, discard, accept_gap, accept_topic, quarantined, withdraw)
    if withdraw:
        entry = _withdraw(catalog, name, time, quarantined)
    elif quarantined is not None:
        entry = catalog.decide(name, _acknowledgement(catalog.find(name), (reason or "").strip(), quarantined))
    else:
        made = _decision(catalog.find(name), one, reason or "", time, count, discard, accept_gap, accept_topic)
        entry = catalog.decide(name, made)
    if as_json:
        _print_json({"name": name, "decisions": [one.model_dump(exclude_none=True) for one in entry.decisions]})
    else:
        done = "withdrawn" if withdraw else _what_is_done(entry.decisions[-1], catalog.find(name))
        typer.echo(f"{name}: {done}; the collection has {len(entry.decisions)} decision(s).")


@app.command()
def quarantine(
    name: NameArgument,
    limit: Annotated[int, typer.Option(min=0, help="At most so many messages.")] = _ROWS_SHOWN,
    config: ConfigOption = CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Show the messages that could not be used, why, and where they are in the topic. Starts no JVM."""
    from tidelake.delta.layout import RUN
    from tidelake.delta.quarantine import explanation_of, quarantine_rows

    collection = _find(config, name)
    rows = quarantine_rows(collection)
    for row in rows:
        row["explained"] = explanation_of(row, collection.entry.decisions)
    rows.sort(key=lambda row: row["explained"] is not None)  # what somebody still has to see to comes first
    unexplained = sum(row["explained"] is None for row in rows)
    shown = [{key: value for key, value in row.items() if key != RUN} for row in rows[:limit]]
    if as_json:
        _print_json({"name": name, "messages": len(rows), "unexplained": unexplained, "rows": shown})
        return
    columns = ["topic", "partition", "offset", "reason", "detail", "times", "value", "explained"]
    _print_rows(f"{name}: quarantine", columns, shown)
    if len(rows) > len(shown):
        _say(f"{len(shown)} of {len(rows)} messages; --limit shows more")


@app.command()
def times(
    name: NameArgument,
    limit: Annotated[int, typer.Option(min=0, help="At most so many times, the newest.")] = _ROWS_SHOWN,
    config: ConfigOption = CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Show the times of a re-clocked collection, each with the offsets that it stands for. Starts no JVM."""
    from tidelake.delta.bindings import read_bindings
    from tidelake.delta.commit import OpenTable
    from tidelake.errors import RuleBroken

    collection = _find(config, name)
    if collection.entry.framing != "reclock":
        raise RuleBroken(
            f"the times of '{name}' are stated by its topic", "only collections with `framing: reclock` mint times"
        )
    bound = read_bindings(collection, OpenTable(collection.paths.updates))
    rows = [one.as_json() for one in bound[len(bound) - min(limit, len(bound)) :]]
    if as_json:
        _print_json({"name": name, "times": len(bound), "rows": rows})
        return
    _print_rows(f"{name}: times", ["time", "offsets", "records", "rows", "quarantined", "at_ms"], rows)
    if len(bound) > len(rows):
        _say(f"the newest {len(rows)} of {len(bound)} times; --limit shows more")


@app.command()
def late(
    name: NameArgument,
    limit: Annotated[int, typer.Option(min=0, help="At most so many contradictions.")] = _ROWS_SHOWN,
    config: ConfigOption = CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Show what was stated about times after they were sealed, and does not agree with them. Starts no JVM."""
    from tidelake.delta.evidence import LateNotes, late_verdicts
    from tidelake.json_values import to_text

    collection = _find(config, name)
    verdicts, notes = late_verdicts(collection), LateNotes(collection)
    shown = [one.as_json() for one in notes.first(limit)]
    if as_json:
        about = {"name": name, "statements": verdicts, "contradictions": notes.contradictions, "rows": shown}
        typer.echo(to_text(about))
        return
    columns = ["kind", "time", "data", "stated", "published", "more", "topic", "partition", "offset", "decision"]
    _print_rows(f"{name}: late contradictions", columns, shown)
    _say(_late_note(verdicts))
    if notes.contradictions > len(shown):
        _say(f"{len(shown)} of {notes.contradictions} contradictions; --limit shows more that are listed")


def generate(**choices: Any) -> None:
    """Write a CDCv2 file topic from a seeded history, mangled as you like, and its own truth beside it."""
    from tidelake.generator.generate import generate as write_topic
    from tidelake.generator.options import GenerateOptions

    topics, out, as_json = choices.pop("topics"), choices.pop("out"), choices.pop("as_json")
    chosen: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in choices.items()
    }
    written = write_topic(
        GenerateOptions(**chosen),
        topics,
        out,
        None if as_json else lambda step, done, of: _say(f"{step}: {done:,} of {of:,}"),
    )
    if as_json:
        _print_json(written.as_json())
    else:
        typer.echo(f"{topics / chosen['name']}: written; its schema and truth are in {out}")


def _add_generate() -> None:
    """Make a command of `generate` with one option for each field of `GenerateOptions`, help and default included."""
    from tidelake.generator.options import GenerateOptions

    hints = get_type_hints(GenerateOptions)
    parameters = [
        inspect.Parameter(
            "topics",
            inspect.Parameter.KEYWORD_ONLY,
            annotation=Annotated[Path, typer.Option("--topics", help="The folder of topics.")],
            default=Path("data/topics"),
        ),
        inspect.Parameter(
            "out",
            inspect.Parameter.KEYWORD_ONLY,
            annotation=Annotated[Path, typer.Option("--out", help="Where the record schema and the truth go.")],
            default=Path("data"),
        ),
        inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, annotation=JsonOption, default=False),
    ]
    for one in fields(GenerateOptions):
        kind = list[int] if get_origin(hints[one.name]) is tuple else hints[one.name]
        flag = f"--{one.name.replace('_', '-')}"
        option = (
            typer.Argument(metavar="NAME", help=one.metadata["help"])
            if one.name == "name"
            else typer.Option(flag, help=one.metadata["help"])
        )
        default = inspect.Parameter.empty if one.name == "name" else [] if kind == list[int] else one.default
        parameters.append(
            inspect.Parameter(
                one.name, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[kind, option], default=default
            )
        )
    generate.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    generate.__annotations__ = {one.name: one.annotation for one in parameters}
    app.command()(generate)


_add_generate()


@app.command()
def replay(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Recorded streams, JSON lines.")],
    engine: Annotated[
        Engine, typer.Option(help="memory: the reader; delta: a topic, the ingest and seal jobs, and their tables.")
    ] = Engine.memory,
    store: Annotated[
        Path | None, typer.Option(help="Keep what --engine delta makes in this fresh folder, instead of removing it.")
    ] = None,
) -> None:
    """Run recorded streams through the reader; one JSON line out for each line in."""
    from tidelake.json_values import to_text
    from tidelake.replay import replay_file

    failed: list[Path] = []
    streams = _read_streams(files, failed)
    if engine is Engine.delta:
        outputs = _replay_through_delta(list(streams), store, failed)
    else:
        _check_no_store(store)
        outputs = (output for file, lines in streams for output in replay_file(lines, str(file)))
    for output in outputs:
        sys.stdout.write(to_text(output))
        sys.stdout.write("\n")
    sys.stdout.flush()
    if failed:
        raise typer.Exit(1)


def main() -> None:
    """Run the command line; a known error is its text on standard error and a status, never a traceback."""
    try:
        app()
    except (CommitError, CapabilityError) as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(1)
    except TidelakeError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(2)
    except BrokenPipeError:  # the reader of our output has gone, as `head` does
        sys.stderr.close()
        sys.exit(0)
    except OSError as error:
        typer.echo(f"error: {error}\nhint: see that the file is there, and may be read and written", err=True)
        sys.exit(1)


def _read_streams(files: list[Path], failed: list[Path]) -> Iterator[tuple[Path, list[bytes]]]:
    """The lines of each file; one that cannot be read is told, and added to `failed`."""
    from tidelake.replay import split_lines

    for file in files:
        try:
            yield file, split_lines(file.read_bytes())
        except OSError as error:
            _say(f"error: {file} cannot be read: {error.strerror}")
            failed.append(file)


def _check_no_store(store: Path | None) -> None:
    from tidelake.errors import RuleBroken

    if store is not None:
        raise RuleBroken("a replay in memory keeps nothing", "leave out --store, or add --engine delta")


def _replay_through_delta(
    streams: list[tuple[Path, list[bytes]]], store: Path | None, failed: list[Path]
) -> Iterator[dict[str, Any]]:
    """Run each stream through the real jobs; one that stops is told, added to `failed`, and stops no other."""
    from tidelake.delta.replay import Pipeline, make_streams, replay_through
    from tidelake.delta.session import start_session

    ingest, seal = _job("ingest"), _job("seal")
    with TemporaryDirectory(prefix="tidelake-replay-") as scratch, _no_log():
        settings = make_streams(store or Path(scratch), len(streams))
        if store is not None:
            for (file, _), one in zip(streams, settings, strict=True):
                _say(f"{one.file}: {one.collections[0].name} is {file}")
        _say("starting Spark …")
        pipeline = Pipeline.of_tiny(start_session(), ingest, seal)
        for (file, lines), one in zip(streams, settings, strict=True):
            try:
                yield from replay_through(pipeline, one, lines, str(file))
            except TidelakeError as error:
                _say(f"error: {error}")
                failed.append(file)


def _job(name: str) -> Callable[..., Any]:
    """The `run` of a job. Jobs are run from the checkout and never installed, so they are looked for there."""
    from tidelake.errors import RuleBroken

    checkout = Path(__file__).parents[2]
    if not (checkout / "jobs" / f"{name}.py").is_file():
        raise RuleBroken(f"there is no folder `jobs` in {checkout}", "install Tidelake from its checkout: make setup")
    if str(checkout) not in sys.path:
        sys.path.append(str(checkout))
    run: Callable[..., Any] = importlib.import_module(f"jobs.{name}").run
    return run


@contextmanager
def _no_log() -> Iterator[None]:
    """Keep what the jobs log out of the output: what they find is told, and what stops them is raised."""
    import structlog

    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        yield
    finally:
        structlog.configure(**before)


@contextmanager
def _told_if_unreadable(name: str, unreadable: dict[str, str]) -> Iterator[None]:
    """Note what cannot be read of a collection, so that the others are still shown."""
    import pyarrow as pa
    from deltalake.exceptions import DeltaError

    try:
        yield
    except TidelakeError as error:
        unreadable[name] = str(error)
    except (OSError, pa.ArrowException, DeltaError) as error:
        fact = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        unreadable[name] = (
            f"the store cannot be read: {fact}\nhint: mend what is said about the file, or restore the store's folder "
            "from a copy; run nothing that writes before"
        )


def _find(config: Path, name: str) -> Collection:
    """A collection that settings name, as its catalog has it."""
    from tidelake.configuration import load_settings
    from tidelake.delta.catalog import Catalog
    from tidelake.delta.layout import Store

    settings = load_settings(config)
    settings.collection(name)
    return Catalog(Store(settings.store)).find(name)


def _status_of(settings: Settings, name: str) -> CollectionStatus | None:
    """The status of a configured collection; None while it has not been ingested once."""
    from tidelake.delta.catalog import Catalog
    from tidelake.delta.layout import Store
    from tidelake.delta.status import read_status
    from tidelake.delta.topic import open_topics

    one = settings.collection(name)
    catalog = Catalog(Store(settings.store))
    if name not in {entry.name for entry in catalog.entries()}:
        return None
    collection = catalog.find(name)
    return read_status(collection, one.family, open_topics(one, collection.entry.decisions))


def _check_what_is_decided(
    reason: str | None,
    time: int | None,
    count: int | None,
    discard: str | None,
    accept_gap: str | None,
    accept_topic: str | None,
    quarantined: str | None,
    withdraw: bool,
) -> None:
    """Check that the options belong together."""
    from tidelake.errors import RuleBroken

    new = (count, discard, accept_gap, accept_topic, None if withdraw else quarantined, True if withdraw else None)
    if sum(one is not None for one in new) != 1:
        raise RuleBroken(
            "nothing, or more than one thing, is decided",
            "give one of --count, --discard, --accept-gap, --accept-topic, --quarantined, --withdraw",
        )
    if all(one is None for one in (accept_gap, accept_topic, quarantined, time)):
        raise RuleBroken("no time is given", "give --time T beside --count, --discard or --withdraw")
    if (accept_gap is not None or accept_topic is not None) and time is not None:
        raise RuleBroken("a gap has no time", "leave out --time beside --accept-gap and --accept-topic")
    if quarantined is not None and time is not None:
        raise RuleBroken("a message is named by its place", "leave out --time beside --quarantined")
    if not withdraw and not (reason or "").strip():
        raise RuleBroken("the reason is missing or empty", "give --reason: every report repeats it")


def _is_sealed(collection: Collection, time: int) -> bool:
    from tidelake.delta.commit import OpenTable
    from tidelake.delta.values import CLOSED, UPPER

    table = OpenTable(collection.paths.updates)
    return bool(table.value(CLOSED)) or time < (table.value(UPPER) or 0)


def _what_is_done(decision: Decision, collection: Collection) -> str:
    if decision.time is not None and _is_sealed(collection, decision.time):
        return "settled. What is published stays as it is"
    return "decided. The next run applies it"


def _check_settles_late(collection: Collection, time: int, count: int | None, discard: dict[str, Any] | None) -> None:
    """Take a decision about a sealed time only where it says again what was published, against a late fact."""
    from tidelake.delta.evidence import LateNotes, settles
    from tidelake.errors import RuleBroken

    if not any(settles(collection, one, time, count, discard) for one in LateNotes(collection).at(time)):
        raise RuleBroken(
            f"time {time} of '{collection.name}' is sealed already, and no late statement contradicts it so",
            "what is sealed is never changed; "
            f"a statement that `tidelake late {collection.name}` shows can be discarded, "
            "and a count that it shows be settled by the published one",
        )


def _withdraw(catalog: Catalog, name: str, time: int | None, quarantined: str | None) -> Entry:
    """Take back what was decided; refused where there is nothing, or the time is sealed."""
    from tidelake.errors import RuleBroken

    collection = catalog.find(name)
    if quarantined is not None:
        place = _offsets(quarantined)
        known = [one.quarantined for one in collection.entry.decisions if one.quarantined is not None]
        if place not in known:
            named = ", ".join(f"{topic}:{partition}:{start}-{end}" for topic, partition, start, end in known)
            raise RuleBroken(
                f"nothing is decided about '{quarantined}' of '{collection.name}'",
                f"decided: {named or 'none'}; name it as it was decided",
            )
        return catalog.withdraw_acknowledgement(name, place)
    assert time is not None
    _check_withdrawal(collection, time)
    return catalog.withdraw(name, time)


def _offsets(text: str) -> tuple[str, int, int, int]:
    """Read `TOPIC:PARTITION:OFFSET`, or `TOPIC:PARTITION:FROM-TO`, as topic, partition, first and end."""
    from tidelake.errors import RuleBroken

    match = _OFFSETS.fullmatch(text)
    if match is not None:
        topic, partition, start = match.group(1), int(match.group(2)), int(match.group(3))
        end = start + 1 if match.group(4) is None else int(match.group(4))
        if start < end <= INT64_MAX:
            return topic, partition, start, end
    raise RuleBroken(
        f"'{text}' is no place", "write TOPIC:PARTITION:OFFSET or TOPIC:PARTITION:FROM-TO, e.g. orders:0:7"
    )


def _acknowledgement(collection: Collection, reason: str, quarantined: str) -> Decision:
    """Say that quarantined messages are seen to; refused where none of them is there without an explanation."""
    from tidelake.delta.catalog import Decision
    from tidelake.delta.quarantine import explanation_of, quarantine_rows
    from tidelake.errors import RuleBroken

    decided = Decision(quarantined=_offsets(quarantined), reason=reason, at_ms=int(clock.time() * 1000))
    rows = quarantine_rows(collection, ["topic", "partition", "offset", "times"])
    unseen = [row for row in rows if explanation_of(row, collection.entry.decisions) is None]
    if not any(explanation_of(row, [decided]) for row in unseen):
        raise RuleBroken(
            f"no quarantined message of '{collection.name}' is at '{quarantined}', or it is explained already",
            f"`tidelake quarantine {collection.name}` shows what is there",
        )
    return decided


def _check_withdrawal(collection: Collection, time: int) -> None:
    from tidelake.errors import RuleBroken

    if _is_sealed(collection, time):
        raise RuleBroken(f"time {time} of '{collection.name}' is sealed already", "what is sealed is never changed")
    times = sorted({one.time for one in collection.entry.decisions if one.time is not None})
    if time not in times:
        decided = ", ".join(map(str, times)) or "none"
        raise RuleBroken(f"nothing is decided about time {time} of '{collection.name}'", f"decided times: {decided}")


def _decision(
    collection: Collection,
    settings: CollectionSettings,
    reason: str,
    time: int | None,
    count: int | None,
    discard: str | None,
    accept_gap: str | None,
    accept_topic: str | None,
) -> Decision:
    """Check what was asked for, and that it can still have an effect."""
    from tidelake.delta.acceptance import read_changed_topic, read_gap
    from tidelake.delta.catalog import Decision
    from tidelake.delta.statements import read_statement
    from tidelake.errors import RuleBroken

    if time is not None and collection.entry.framing == "reclock":
        raise RuleBroken(
            f"'{collection.name}' mints its times itself, and each is sealed by the tick that reads it",
            "nothing waits for a decision; a quarantined message is seen to by --quarantined",
        )
    statement = None if discard is None else read_statement(collection.entry.record_schema, discard)
    if time is not None and _is_sealed(collection, time):
        _check_settles_late(collection, time, count, statement)
    elif time is not None and count is not None:
        _check_count_helps(collection, time)
    return Decision(
        time=time,
        count=count,
        discard=statement,
        accept_gap=None if accept_gap is None else read_gap(collection, settings, accept_gap),
        accept_topic=None if accept_topic is None else read_changed_topic(collection, settings, accept_topic),
        reason=reason.strip(),
        at_ms=int(clock.time() * 1000),
    )


def _check_count_helps(collection: Collection, time: int) -> None:
    """Refuse a count where one update has two diffs, or a key two values: it does not say which of them holds."""
    from tidelake.delta.status import read_proof_log
    from tidelake.errors import TWO_VALUES, ConflictingDiff, RuleBroken

    if any(one.time == time and one.discard is not None for one in collection.entry.decisions):
        return
    noted = [one["detail"] for one in read_proof_log(collection).blocked if one["time"] == time]
    diffs = any(detail.startswith(f"{ConflictingDiff.kind}:") for detail in noted)
    if diffs or any(TWO_VALUES in detail for detail in noted):
        what = "one update has two diffs" if diffs else "a key has two values"
        raise RuleBroken(
            f"at time {time} {what}, and a count does not say which one holds",
            'leave one statement out first: --discard \'{"data": {…}, "diff": 1}\'',
        )


@contextmanager
def _spark_errors_named(name: str, where: str | None) -> Iterator[None]:
    """Name what Spark met while it read: an error of the predicate's own making, or anything else."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    from tidelake.errors import RuleBroken, StepFailed

    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        java = getattr(error, "java_exception", None)
        fact = str(error if java is None else java.toString()).split("\n", maxsplit=1)[0]
        state = (error.getSqlState() or "") if isinstance(error, PySparkException) else ""
        if where is not None and state.startswith(("22", "P0")):  # the data make it fail, or it says so itself
            raise RuleBroken(f"the predicate {where!r} fails: {fact}", "make it hold or not for every row") from error
        raise StepFailed("read", name, type(error).__name__, fact) from error


def _rows_of(taken: Snapshot, rows_max: int | None) -> list[dict[str, Any]]:
    """The rows in order, as the JVM writes them: Python has no year 10000 and no number of 38 digits in JSON."""
    from pyspark.sql import functions as F

    from tidelake.delta.types import ROW_TEXT
    from tidelake.json_values import parse

    names = [f"`{one}`" for one in taken.contents.columns]
    rows = taken.contents.orderBy(*names)
    rows = rows if rows_max is None else rows.limit(rows_max)
    return [parse(row[0]) for row in rows.select(F.to_json(F.struct(*names), ROW_TEXT)).collect()]


def _with_bytes(row: dict[str, Any], kinds: dict[str, ColumnType], made: Callable[[str], Any]) -> dict[str, Any]:
    """The same row with `made(base64 text)` where a column, or a part of it, is bytes."""
    from tidelake.column_types import map_bytes

    return {name: map_bytes(kinds[name], value, made) if name in kinds else value for name, value in row.items()}


def _say(text: str) -> None:
    """Tell a person, beside the output."""
    typer.echo(text, err=True)


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, default=_json_default))


def _json_default(value: Any) -> Any:
    if isinstance(value, bytes | bytearray):
        return {"b64": base64.b64encode(value).decode("ascii")}
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _print_rows(title: str, columns: list[str], rows: list[dict[str, Any]]) -> None:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=title, box=box.SIMPLE_HEAD)
    for column in columns:
        table.add_column(column, justify="right" if column in {"_diff", "offset", "partition"} else "left")
    for row in rows:
        table.add_row(*(escape(_cell(row[column])) for column in columns))
    _console().print(table)


def _console() -> Console:
    """The terminal; wide enough for a table where the output goes to a file or a pipe."""
    from rich.console import Console

    return Console() if sys.stdout.isatty() else Console(width=160)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bytes | bytearray):
        shown = bytes(value[:16]).hex(" ")
        return shown if len(value) <= 16 else f"{shown} … ({len(value)} bytes)"
    return _nested_cell(value) if isinstance(value, dict | list) else getattr(value, "text", str(value))


def _nested_cell(value: Any) -> str:
    """JSON for a person: numbers as they came, letters of all alphabets as they are."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_nested_cell(name)}: {_nested_cell(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_nested_cell, value)) + "]"
    return getattr(value, "text", None) or json.dumps(value, default=_json_default, ensure_ascii=False)


def _print_status(found: dict[str, CollectionStatus | None], unreadable: dict[str, str]) -> None:
    from rich import box
    from rich.table import Table

    table = Table(title="collections", box=box.SIMPLE_HEAD)
    for column in ("name", "family", "since", "upper", "rows", "pending", "lag", "late", "quarantine", "state"):
        table.add_column(column, justify="left" if column in {"name", "family", "state"} else "right")
    notes: list[str] = []
    for name, one in found.items():
        if one is None:
            table.add_row(name, *[""] * 8, "not ingested yet")
            continue
        table.add_row(
            name,
            one.family,
            "unreadable" if one.since is None else str(one.since),
            "closed" if one.closed else str(one.upper),
            f"{one.rows:,}",
            f"{one.pending:,}",
            "?" if one.lag_messages is None else f"{one.lag_messages:,} messages",
            f"{one.late:,}",
            f"{one.quarantine:,}",
            _state(one),
        )
        notes += [f"{name}: {text}" for text in _notes(one)]
    for name in unreadable:
        table.add_row(name, *[""] * 8, "UNREADABLE")
    _console().print(table)
    for note in notes:
        typer.echo(note)
    for name, text in unreadable.items():
        _say(f"error: {name}: {text}")


def _state(one: CollectionStatus) -> str:
    if one.damaged:
        return "DAMAGED below upper"
    if one.topic_problem:
        return "topic cannot be read"
    if one.topic_gaps:
        return "a gap in the topic"
    undecided = [c for c in one.contradictions if not c["decided"]]
    if undecided:
        return f"held back at time {undecided[0]['time']}"
    if one.contradictions:
        time = one.contradictions[0]["time"]
        return f"decided at time {time}, next seal {'applies it' if time in one.decided_counts else 'counts the rest'}"
    if one.late_undecided:
        return "contradicted late"
    if one.late_problem:
        return "late facts cannot be read"
    if one.keys_in_error:
        return f"{one.keys_in_error} {'key' if one.keys_in_error == 1 else 'keys'} in error"
    return "in order"


def _late_note(verdicts: dict[str, int]) -> str:
    """How many late statements there are of each verdict, in words."""
    words = {
        "copy": "copies",
        "contradiction": "contradict what was published",
        "settled": "settled by decision",
        "untold": "about times that compaction has taken together",
        "late": "not compared yet",
    }
    told = [f"{count:,} {words[verdict]}" for verdict, count in verdicts.items() if count]
    return f"late statements: {', '.join(told) or 'none'}"


def _notes(one: CollectionStatus) -> list[str]:
    notes = [f"damaged: {one.damaged}"] if one.damaged else []
    notes += [one.topic_problem] if one.topic_problem else []
    notes += one.topic_gaps
    notes += [one.late_problem] if one.late_problem else []
    notes += [f"{c['detail']}{' (decided)' if c['decided'] else ''}" for c in one.contradictions[:5]]
    notes += [
        f"time {time}: a statement is left out; if the rest is not as many as announced, decide how many: --count N"
        for time in sorted({c["time"] for c in one.contradictions if c["decided"]} - set(one.decided_counts))
    ]
    if one.late:
        notes.append(_late_note(one.late_verdicts))
    if one.late_contradicted:
        decided = one.late_contradicted - one.late_undecided
        settled = f", {decided} of them settled by decision" if decided else ""
        notes.append(
            f"late contradictions: {one.late_contradicted}{settled}; what was published stays; "
            f"see `tidelake late {one.name}`"
        )
    notes += [f"key in error: {text}" for text in one.keys_in_error_first[:_TIMES_SHOWN]]
    if one.keys_in_error > _TIMES_SHOWN:
        notes.append(
            f"keys in error: {one.keys_in_error} in all; reads refuse them, or leave them out by --skip-errors"
        )
    if one.quarantine:
        reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(one.quarantine_reasons.items()))
        explained = one.quarantine - sum(one.quarantine_unexplained.values())
        seen = f", {explained} of them explained" if explained else ""
        notes.append(f"quarantine: {reasons}{seen}; see `tidelake quarantine {one.name}`")
    if one.sealed_by_decision:
        times = "; ".join(f"time {row['time']}: {row['reason']}" for row in one.sealed_by_decision[:_TIMES_SHOWN])
        more = len(one.sealed_by_decision) - _TIMES_SHOWN
        notes.append(f"sealed by decision: {times}{f'; and {more} more' if more > 0 else ''}")
    return notes


if __name__ == "__main__":
    main()
