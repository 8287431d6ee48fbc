"""The base of all jobs: one report for all collections, and a `main` for spark-submit."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

import structlog
from pyspark.sql import SparkSession

from jobs.lake import check_lake
from jobs.logs import log_to_stderr
from jobs.parallel import TimedOut, for_each
from tidelake.errors import StepFailed, TidelakeError, TookTooLong
from tidelake.runbook.page import with_reference
from tidelake.settings.collection import CollectionSettings
from tidelake.settings.lake import Settings, load_settings
from tidelake.spark.engine_errors import engine_fact
from tidelake.spark.interrupt import interruptible, is_interrupted
from tidelake.spark.jar_error import JarError
from tidelake.spark.session import start_session
from tidelake.storage import blobs
from tidelake.store.entry import Collection
from tidelake.store.head_start import leave_head_start
from tidelake.telemetry.start import start_telemetry
from tidelake.telemetry.steps import stop_listening

log = structlog.get_logger("tidelake")


@dataclass
class Report:
    """The result of a job, by collection.

    `results` holds what each step returned; `errors` says why a collection stopped. A collection that stopped after
    part of the work has both. No collection stops another one.
    """

    job: str
    results: dict[str, Any] = field(default_factory=dict)
    errors: dict[str, TidelakeError] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether no collection stopped."""
        return not self.errors

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {
            "job": self.job,
            "ok": self.ok,
            "results": {name: to_json(result) for name, result in self.results.items()},
            "errors": {name: str(error) for name, error in self.errors.items()},
        }


Step = Callable[[Collection, CollectionSettings, Report], Any]
"""The work of a job on one collection. It returns a result, and may add to the report before it stops.

An error that the work adds to the report is kept, even if the work then raises another error."""


def run_step(spark: SparkSession, settings: Settings, job: str, step: Step) -> Report:
    """Check all settings, then run a step on every collection.

    Raises:
        ConfigurationError: a setting is wrong; nothing was written.
    """
    lake = check_lake(settings)
    names = [collection.name for collection in settings.collections]
    report = Report(job)

    def work(name: str) -> None:
        try:
            collection = lake.open(spark, name)
            try:
                report.results[name] = step(collection, settings.collection(name), report)
            finally:
                leave_head_start(collection)
        except Exception as error:  # like Tidelake's own errors, an engine's error stops only this collection
            report.errors.setdefault(name, stopped_by(error, job, name))

    for name, late in for_each(spark, settings.store, names, work, settings.parallel, settings.collection_limit_s):
        if late is not None:
            report.errors[name] = timed_out(late, job, name)
    ended = {name: report.results[name] for name in names if name in report.results}
    return Report(job, ended, {name: report.errors[name] for name in names if name in report.errors})


def stopped_by(error: Exception, job: str, name: str) -> TidelakeError:
    """Log why a collection stopped, and return the error for the report.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed; the error is its consequence.
    """
    if is_interrupted():
        raise KeyboardInterrupt from error
    if isinstance(error, TidelakeError):
        log.error(f"{job} stopped", collection=name, error=type(error).__name__, reason=str(error))
        return error
    refused = blobs.spark_error(error)
    if refused is not None:
        log.error(f"{job} stopped", collection=name, error=type(refused).__name__, reason=str(refused), exc_info=error)
        return refused
    failed = StepFailed(job, name, type(error).__name__, engine_fact(error))
    log.error(f"{job} stopped", collection=name, error=failed.kind, reason=failed.detail, exc_info=error)
    return failed


def timed_out(late: TimedOut, job: str, name: str) -> TidelakeError:
    """Log that a collection stopped because it took too long, and return the error for the report."""
    return stopped_by(TookTooLong(job, name, "limit", str(late)), job, name)


def run_main(
    run: Callable[[SparkSession, Settings], Report], description: str, argv: Sequence[str] | None = None
) -> int:
    """Parse the arguments, run the job, and print its report as JSON.

    Returns:
        The exit status: 0 if no collection stopped, 1 if at least one did, 2 if nothing was run. Ctrl-C ends the
        process with 130.
    """
    parser = argparse.ArgumentParser(description=description)
    default = Path(os.environ.get("TIDELAKE_CONFIG") or "collections.yaml")
    parser.add_argument("--config", type=Path, default=default, help="the collections.yaml to use")
    parser.add_argument("--collection", action="append", default=[], help="only this collection; may be repeated")
    parser.add_argument("--debug", action="store_true", help="print tracebacks, which otherwise go to a file")
    arguments = parser.parse_args(argv)
    try:
        log_to_stderr(arguments.debug)
        start_telemetry(os.environ)
        with interruptible():
            settings = load_settings(arguments.config).only(tuple(arguments.collection))
            report = run(start_session(jar_sets=settings.jar_sets), settings)
    except (TidelakeError, JarError) as error:
        print(f"error: {with_reference(error)}", file=sys.stderr)
        return 2
    finally:
        stop_listening()
    print(json.dumps(report.as_json(), indent=2))
    return 0 if report.ok else 1


def to_json(value: Any) -> Any:
    """Return a report as JSON values: dataclasses become objects, and errors become their text."""
    if hasattr(value, "as_json"):
        return to_json(value.as_json())
    if is_dataclass(value) and not isinstance(value, type):
        return {item.name: to_json(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, BaseException):
        return str(value)
    if isinstance(value, dict):
        return {str(name): to_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    return value
