"""`tidelake replay`: runs recorded streams through the reader, or through the jobs and their tables."""

from __future__ import annotations

import logging
import sys
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidelake.cli.application import find_jobs
from tidelake.cli.places import check_local
from tidelake.cli.render import say
from tidelake.errors import TidelakeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Engine(StrEnum):
    """The engine that `replay` runs a stream through: the reader, or the jobs."""

    memory = "memory"
    delta = "delta"


def replay(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Recorded streams, as JSON lines.")],
    engine: Annotated[
        Engine, typer.Option(help="memory: the reader; delta: a topic, the ingest and seal jobs, and their tables.")
    ] = Engine.memory,
    store: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER", help="Keep the output of --engine delta in this new folder, instead of removing it."
        ),
    ] = None,
) -> None:
    """Run recorded streams through the reader or the jobs, and print one JSON line for each input line."""
    from tidelake.protocol.json_values import to_text
    from tidelake.protocol.replay import replay_file

    if store is not None:
        check_local("--store", store)
    failed: list[Path] = []
    streams = _read_streams(files, failed)
    if engine is Engine.delta:
        outputs = _replay_through_delta(list(streams), None if store is None else Path(store), failed)
    else:
        _check_no_store(store)
        outputs = (output for file, lines in streams for output in replay_file(lines, str(file)))
    for output in outputs:
        sys.stdout.write(to_text(output))
        sys.stdout.write("\n")
    sys.stdout.flush()
    if failed:
        raise typer.Exit(1)


def _read_streams(files: list[Path], failed: list[Path]) -> Iterator[tuple[Path, list[bytes]]]:
    """Yield the lines of each file. If a file cannot be read, print the error, and add the file to `failed`."""
    from tidelake.protocol.replay import split_lines

    for file in files:
        try:
            yield file, split_lines(file.read_bytes())
        except OSError as error:
            say(f"error: {file} cannot be read: {error.strerror}")
            failed.append(file)


def _check_no_store(store: str | None) -> None:
    from tidelake.errors import OptionRefused

    if store is not None:
        raise OptionRefused("a replay in memory keeps nothing", "leave out --store, or add --engine delta")


def _replay_through_delta(
    streams: list[tuple[Path, list[bytes]]], store: Path | None, failed: list[Path]
) -> Iterator[dict[str, Any]]:
    """Run each stream through the real jobs. If one fails, print the error, add its file to `failed`, and continue."""
    from tidelake.generator.recorded_stream import Pipeline, make_streams, replay_through
    from tidelake.spark.session import LOG, start_session

    ingest, seal = _jobs()
    with TemporaryDirectory(prefix="tidelake-replay-") as scratch, _no_log():
        settings = make_streams(store or Path(scratch), len(streams))
        if store is not None:
            for (file, _), stream_settings in zip(streams, settings, strict=True):
                say(f"{stream_settings.file}: {stream_settings.collections[0].name} is {file}")
        say(f"starting Spark, which logs to {LOG} …")
        pipeline = Pipeline.for_tiny_data(start_session(), ingest, seal)
        for (file, lines), stream_settings in zip(streams, settings, strict=True):
            try:
                yield from replay_through(pipeline, stream_settings, lines, str(file))
            except TidelakeError as error:
                say(f"error: {error}")
                failed.append(file)


def _jobs() -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return the `run` functions of ingest and seal."""
    find_jobs()
    from jobs import ingest, seal

    return ingest.run, seal.run


@contextmanager
def _no_log() -> Iterator[None]:
    """Keep the jobs' log messages out of the output: their results are printed, and their errors are raised."""
    import structlog

    is_configured, before = structlog.is_configured(), structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        yield
    finally:
        if is_configured:
            structlog.configure(**before)
        else:
            structlog.reset_defaults()
