"""`tidelake ingest`, `seal`, `validate`, `compact`, `current` and `run`: the jobs as commands."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidelake.cli.application import find_jobs
from tidelake.cli.debug import is_debugging
from tidelake.cli.options import CONFIG, ConfigOption, JsonOption, NamesArgument
from tidelake.cli.progress import Working, working
from tidelake.cli.render import print_json, printable, say
from tidelake.cli.times import seconds_of
from tidelake.errors import OptionRefused
from tidelake.read.words import counted

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from tidelake.settings.lake import Settings


def ingest(names: NamesArgument = None, config: ConfigOption = CONFIG, as_json: JsonOption = False) -> None:
    """Read the topics up to their ends, in bounded ticks that each commit rows and offsets together."""
    run_steps(["ingest"], names, config, as_json)


def seal(names: NamesArgument = None, config: ConfigOption = CONFIG, as_json: JsonOption = False) -> None:
    """Move upper as far as the stored updates match the announced counts."""
    run_steps(["seal"], names, config, as_json)


def validate(
    names: NamesArgument = None,
    full: Annotated[
        bool, typer.Option("--full", help="Recount everything that compaction has kept, as the nightly job does.")
    ] = False,
    config: ConfigOption = CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Recount, independently of seal, the times that were sealed since the last validation."""
    run_steps(["validate_full" if full else "validate"], names, config, as_json)


def compact(
    names: NamesArgument = None,
    full: Annotated[
        bool, typer.Option("--full", help="Merge all sealed rows into one set of files, as the nightly job does.")
    ] = False,
    config: ConfigOption = CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Move `since` as the retention rule says, and merge data files within the budget of the job `tick`."""
    run_steps(["compact_full" if full else "compact"], names, config, as_json)


def current(
    names: NamesArgument = None,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Write all rows, not only those that changed.")] = False,
    config: ConfigOption = CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Bring the plain tables of the contents up to upper, unless data below upper is damaged.

    Only what has changed is written. Collections that share a timeline are brought to the same time.
    """
    run_steps(["current_full" if rebuild else "current"], names, config, as_json)


def run(
    names: NamesArgument = None,
    with_current: Annotated[
        bool, typer.Option("--current", help="Also bring the `current` tables up to upper, as the hourly job does.")
    ] = False,
    parallel: Annotated[
        int | None,
        typer.Option(
            min=1, max=64, help="How many collections to work on at a time; by default the setting `parallel`, or 1."
        ),
    ] = None,
    linger: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="Keep running for this long, such as 4m or 90s: poll the topics, and ingest and seal what arrives.",
        ),
    ] = None,
    config: ConfigOption = CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Ingest, seal, validate new times, and merge within a budget: what the scheduled job `tick` does.

    If a step fails, its collection stops there, and the others continue. If only its topic has a problem, messages that
    were already read are still sealed.
    """
    steps = ["ingest", "seal", "validate", "compact"]
    if linger is not None and with_current:
        raise OptionRefused("--linger and --current cannot be combined", "run `tidelake current` on its own")
    linger_s = None if linger is None else seconds_of("--linger", linger)
    run_steps([*steps, "current"] if with_current else steps, names, config, as_json, parallel, linger_s)


def run_steps(
    steps: Sequence[str],
    names: Sequence[str] | None,
    config: Path,
    as_json: bool,
    parallel: int | None = None,
    linger_s: float | None = None,
) -> None:
    """Run steps for some or all collections, and print a line for each step of a collection.

    With `linger_s`, keep running for that long, and repeat the steps of a tick whenever messages arrive.

    Raises:
        ConfigurationError: a setting is wrong; nothing was written.
        typer.Exit: with status 1, if a collection stopped.
    """
    from tidelake.settings.lake import load_settings

    settings = load_settings(config).only(tuple(names or ()))
    if parallel is not None:
        settings = settings.model_copy(update={"parallel": parallel})
    find_jobs()
    with working("starting Spark", len(steps) * len(settings.collections) if linger_s is None else None) as work:
        from jobs import tick
        from jobs.linger import linger
        from jobs.logs import log_to
        from tidelake.spark.session import start_session
        from tidelake.telemetry.start import start_telemetry
        from tidelake.telemetry.steps import stop_listening

        shown = _Shown(settings, work, as_json)
        start_telemetry(os.environ)
        try:
            with log_to(shown.hear, is_debugging()):
                session = start_session(jar_sets=settings.jar_sets)
                if linger_s is None:
                    report = tick.run_steps(session, settings, steps, shown)
                else:
                    report = linger(session, settings, linger_s, shown)
        finally:
            stop_listening()
    if as_json:
        print_json(report.as_json())
    for name, error in report.errors.items():
        from tidelake.runbook.page import with_reference

        say(printable(f"error: {name}: {with_reference(error)}"))
    if not report.ok:
        raise typer.Exit(1)


_NOT_SHOWN = frozenset({"event", "level", "collection", "fact", "step", "lower"})


class _Shown:
    """Shows the progress of the steps on the terminal."""

    def __init__(self, settings: Settings, work: Working, as_json: bool) -> None:
        self._mints = {collection.name: collection.mints_times for collection in settings.collections}
        self._work, self._as_json = work, as_json
        self._steps_begun = 0
        self._messages: dict[str, int] = {}

    def begins(self, step: str, name: str) -> None:
        """Show which step begins."""
        self._work.show(f"{name}: {step}", self._steps_begun)
        self._steps_begun += 1

    def ended(self, step: str, name: str, result: Any) -> None:
        """Print what a step did."""
        from tidelake.cli.job_results import sentence_of

        if not self._as_json:
            with self._work.paused():
                typer.echo(printable(f"{name}: {sentence_of(step, result, self._mints[name])}"))

    def hear(self, event: MutableMapping[str, Any]) -> None:
        """Show how many messages an ingest has read so far, and print warnings."""
        name = event.get("collection")
        if event["event"] == "ingested":
            self._messages[str(name)] = self._messages.get(str(name), 0) + event["messages"]
            self._work.show(f"{name}: ingest, {counted(self._messages[str(name)], 'message')}")
        elif event["level"] in ("warning", "error") and not event["event"].endswith(" stopped"):
            others = [f"{key} {value}" for key, value in event.items() if key not in _NOT_SHOWN]
            parts = [str(part) for part in (name, event["event"], event.get("fact"), ", ".join(others)) if part]
            with self._work.paused():
                say(printable(f"{event['level']}: {': '.join(parts)}"))
