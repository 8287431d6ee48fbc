"""`tidelake subscribe`: the contents of a collection and then its changes, as a stream of complete times."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from tidelake import open_lake
from tidelake.cli.engine import chosen_engine, starting_spark
from tidelake.cli.options import (
    CONFIG,
    ConfigOption,
    EngineOption,
    JsonOption,
    NameArgument,
    SkipErrorsOption,
    WhereOption,
)
from tidelake.cli.render import printable, say
from tidelake.cli.rows import names_in, spark_errors, with_bytes
from tidelake.cli.times import check_number, read_time, seconds_of, shown_time
from tidelake.errors import OptionRefused
from tidelake.spark.interrupt import on_interrupt

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidelake.lake import LakeCollection
    from tidelake.query.answer import Answer
    from tidelake.read.subscription import Progress, Subscription

_TERMINATED = 128 + signal.SIGTERM


def subscribe(
    name: NameArgument,
    as_of: Annotated[
        str | None,
        typer.Option(
            "--as-of",
            metavar="TIME",
            callback=check_number,
            help="The time of the contents, which are printed first; by default, the last sealed time. For reclocked "
            "collections, also a timestamp such as 2026-11-23T10:00:00Z.",
        ),
    ] = None,
    after: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            callback=check_number,
            help="Print only the changes after this time: usually the last one that an earlier call completed.",
        ),
    ] = None,
    no_snapshot: Annotated[
        bool, typer.Option("--no-snapshot", help="Leave out the contents: begin with the changes after their time.")
    ] = False,
    columns: Annotated[str | None, typer.Option(help="The columns to read, separated by commas.")] = None,
    where: WhereOption = None,
    until: Annotated[
        str | None,
        typer.Option(metavar="TIME", callback=check_number, help="End after this time."),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            min=1, help="End once so many sealed times with updates have been printed, each of them completely."
        ),
    ] = None,
    wait: Annotated[
        str | None,
        typer.Option(help="How long to wait for the next time to be sealed, such as 90s or 1h; by default not at all."),
    ] = None,
    poll: Annotated[str, typer.Option(help="How often to check for newly sealed times.")] = "1s",
    lease: Annotated[
        str,
        typer.Option(help="How long this command's hold lasts if the command is killed, or nobody reads its output."),
    ] = "1h",
    hold: Annotated[
        str | None,
        typer.Option(
            metavar="TOKEN",
            help="Continue from this hold, and move it forward. A new token is printed on standard error, and this "
            "one is then used up.",
        ),
    ] = None,
    no_hold: Annotated[
        bool, typer.Option("--no-hold", help="Write nothing to the store: compaction can then forget unread changes.")
    ] = False,
    skip_errors: SkipErrorsOption = False,
    engine: EngineOption = None,
    config: ConfigOption = CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Print the contents of a collection, and then its changes, one complete time after another.

    With --json, the lines are a recorded stream, which `tidelake replay` reads. A time is complete once a line with
    `progress` says so. To continue where an earlier call ended, pass `--after` with the last time that it completed: in
    the JSON lines, the last `upper` minus 1.
    """
    _check_together(as_of, after, no_snapshot, hold, no_hold)
    from tidelake.store.holds import LEASE_MS_MAX  # imported late: this import takes as long as the rest of the command

    year_s = LEASE_MS_MAX / 1000
    wait_s = 0.0 if wait is None else seconds_of("--wait", wait, max_s=year_s)
    poll_s, lease_s = seconds_of("--poll", poll), seconds_of("--lease", lease, max_s=year_s)
    collection = open_lake(config, skip_invalid=True, read_only=no_hold).collection(name)
    mints_times = collection.settings.mints_times
    start, last = (
        None if text is None else read_time(option, text, name, mints_times)
        for option, text in (("--after" if after is not None else "--as-of", after or as_of), ("--until", until))
    )
    held = None if hold is None else collection.capability(hold)
    if held is not None:
        say(f"the hold's new token: {held.token}")
        # Only this call uses up the old token. If the command dies before it has printed the new one, the old one is
        # still valid.
        held.renew()
    takes_snapshot, wanted = after is None and hold is None and not no_snapshot, names_in(columns)
    session = None
    if chosen_engine(collection, engine) == "spark":
        begin = start if held is None or start is not None else held.since
        session = starting_spark(
            collection, wanted, lambda times: times.start(begin, takes_snapshot, wait is not None, until=last)
        )
    with _terminable(), nullcontext() if session is None else spark_errors("subscribe", name, where):
        subscription: Subscription[Any] = collection.subscribe(
            session,
            start,
            takes_snapshot,
            wanted,
            where,
            skip_errors,
            wait_s=wait_s,
            poll_s=poll_s,
            until=last,
            lease=timedelta(seconds=lease_s),
            capability=held,
            purpose="tidelake subscribe",
        )
        with subscription:
            begin = subscription.token
            lower, token = begin + 1 if after is not None or hold is not None else 0, None
            if not takes_snapshot and _is_sealed(collection, begin):
                token = begin
                if not lower:
                    _print_start(begin, as_json, subscription.renew)
                    lower = begin + 1
            token = _print_all(collection, subscription, token, lower, limit, as_json)
        if held is not None and token is not None:
            held.downgrade(token)
    if token is None:
        say(f"{name}: {shown_time(begin, mints_times)} is not sealed yet; --after {begin} continues")
    else:
        say(f"{name}: complete through {shown_time(token, mints_times)}; --after {token} continues")


def _check_together(as_of: str | None, after: str | None, no_snapshot: bool, hold: str | None, no_hold: bool) -> None:
    """Refuse options that cannot be combined.

    Raises:
        OptionRefused: two options say where to begin, or what is held.
    """
    if after is not None and as_of is not None:
        raise OptionRefused("--after and --as-of both say where to begin", "leave one of them out")
    if after is not None and no_snapshot:
        raise OptionRefused("--after already leaves out the contents", "leave out --no-snapshot")
    if hold is not None and (as_of is not None or no_hold or no_snapshot):
        raise OptionRefused("--hold says where to continue", "leave out --as-of, --no-snapshot and --no-hold")


def _print_all(
    collection: LakeCollection,
    subscription: Subscription[Any],
    token: int | None,
    lower: int,
    limit: int | None,
    as_json: bool,
) -> int | None:
    """Print all batches; return the last time that is complete, which is `token` if there is no batch."""
    from tidelake.protocol.recorded_lines import recorded_times

    left = limit
    on_interrupt("no time is complete yet" if token is None else f"complete through {token}; --after {token} continues")
    for updates, progress in subscription:
        rows = _rows_of(collection, updates, progress)
        for time, lines in recorded_times(rows, lower, progress.through, progress.closed):
            has_updates = _print_time(time, lines, as_json, subscription.renew)
            token, lower = time, time + 1
            on_interrupt(f"complete through {time}; --after {time} continues")
            if left is not None and has_updates:
                left -= 1
                if not left:
                    return token
    return token


def _is_sealed(collection: LakeCollection, time: int) -> bool:
    upper = collection.upper
    return upper is None or time < upper


def _print_start(time: int, as_json: bool, renew: Callable[[], None]) -> None:
    """Print only that a time is complete, without updates: a later call can then continue even if nothing follows."""
    from tidelake.protocol.recorded_lines import recorded_times

    for through, lines in recorded_times((), 0, time):
        _print_time(through, lines, as_json, renew)


def _print_time(time: int, lines: Iterator[str], as_json: bool, renew: Callable[[], None]) -> bool:
    """Print the lines of one time, the statement of its progress last; return whether it has updates.

    The hold is renewed after each line, because whoever reads the lines may be slow.
    """
    from tidelake.protocol.json_values import parse, to_text

    has_updates = False
    for line in lines:
        is_updates = line.startswith('{"updates"')
        has_updates |= is_updates
        if as_json:
            sys.stdout.write(f"{line}\n")
        elif is_updates:
            for data, at, diff in parse(line)["updates"]:
                sys.stdout.write(f"{at}  {diff:+d}  {printable(to_text(data))}\n")
                renew()
        else:
            sys.stdout.write(f"{time}  complete\n")
        renew()
    sys.stdout.flush()
    return has_updates


def _rows_of(
    collection: LakeCollection, updates: DataFrame | Answer, progress: Progress
) -> Iterator[tuple[int, dict[str, Any], int]]:
    """Yield the updates in order as `(time, data, diff)`; bytes become `{"b64": …}`."""
    if progress.is_empty:
        return
    from tidelake.query.answer import Answer
    from tidelake.store.layout import DIFF, TIME

    kinds = {column.name: column.type for column in collection.columns}
    if isinstance(updates, Answer):
        rows = _rows_of_answer(collection, updates)
    else:
        rows = _rows_of_frame(updates)
    for row in rows:
        time, diff = row.pop(TIME), row.pop(DIFF)
        yield time, with_bytes(row, kinds, lambda text: {"b64": text}), diff


def _rows_of_answer(collection: LakeCollection, updates: Answer) -> Iterator[dict[str, Any]]:
    import pyarrow as pa

    from tidelake.query.values import json_rows
    from tidelake.store.layout import TIME

    columns = collection.columns
    for batch in updates.batches([TIME, *(name for name in updates.columns if name != TIME)]):
        yield from json_rows(pa.Table.from_batches([batch]), columns)


def _rows_of_frame(updates: DataFrame) -> Iterator[dict[str, Any]]:
    from pyspark.sql import functions as F

    from tidelake.decode.landing import ROW_TEXT
    from tidelake.protocol.json_values import parse
    from tidelake.store.layout import DIFF, TIME

    names = [f"`{name}`" for name in updates.columns if name not in (TIME, DIFF)]
    text = F.to_json(F.struct(*names), ROW_TEXT).alias("_data")
    for row in updates.select(TIME, text, DIFF).orderBy(TIME, "_data", DIFF).toLocalIterator():
        yield {**parse(row[1]), TIME: row[0], DIFF: row[2]}


@contextmanager
def _terminable() -> Iterator[None]:
    """Make SIGTERM end the block as an error would, so that the hold is dropped."""

    def end(number: int, frame: FrameType | None) -> NoReturn:
        raise SystemExit(_TERMINATED)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)
