"""What the jobs share: a report for every collection, and a `main` that spark-submit can call."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, is_dataclass
from pathlib import Path
from typing import Any

import structlog
from pyspark.sql import SparkSession

from tidelake.configuration import CollectionSettings, Settings, check_topics, load_settings
from tidelake.delta.catalog import Catalog, Collection
from tidelake.delta.engines import engine_fact
from tidelake.delta.layout import Store
from tidelake.delta.message_schemas import with_schema
from tidelake.delta.new_topics import ask_for_new_topics
from tidelake.delta.session import start_session
from tidelake.errors import StepFailed, TidelakeError

log = structlog.get_logger("tidelake")


@dataclass
class Report:
    """What a job did, by collection.

    `results` has what each collection's step returned, `errors` why a collection stopped; a collection may have both,
    when it went on for a while. Other collections are not stopped by it.
    """

    job: str
    results: dict[str, Any] = field(default_factory=dict)
    errors: dict[str, TidelakeError] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether every collection went through."""
        return not self.errors

    def as_json(self) -> dict[str, Any]:
        """The same as JSON values."""
        return {
            "job": self.job,
            "ok": self.ok,
            "results": {name: to_json(result) for name, result in self.results.items()},
            "errors": {name: str(error) for name, error in self.errors.items()},
        }


Step = Callable[[SparkSession, Collection, CollectionSettings, Report], Any]
"""One collection's share of a job; it returns a result, and may put one into the report before it stops."""


def run_step(spark: SparkSession, settings: Settings, job: str, step: Step) -> Report:
    """Check all settings, then take one collection after the other.

    Raises:
        ConfigurationError: a setting is wrong; nothing was written.
    """
    check_topics(settings)
    catalog = Catalog(Store(settings.store))
    catalog.check(settings.collections)
    unreachable = ask_for_new_topics(catalog, settings)
    report = Report(job)
    for one in settings.collections:
        try:
            if one.name in unreachable:
                raise unreachable[one.name]
            collection = catalog.open_or_create(with_schema(spark, catalog, one))
            report.results[one.name] = step(spark, collection, one, report)
        except TidelakeError as error:
            log.error(f"{job} stopped", collection=one.name, error=type(error).__name__, reason=str(error))
            report.errors[one.name] = error
        except Exception as error:  # an engine's own: it stops this collection, and is told, like ours
            log.exception(f"{job} stopped", collection=one.name)
            report.errors[one.name] = StepFailed(job, one.name, type(error).__name__, engine_fact(error))
    return report


def run_main(
    run: Callable[[SparkSession, Settings], Report], description: str, argv: Sequence[str] | None = None
) -> int:
    """Read the arguments, run the job, print its report as JSON; 0 when every collection went through."""
    parser = argparse.ArgumentParser(description=description)
    default = Path(os.environ.get("TIDELAKE_CONFIG") or "collections.yaml")
    parser.add_argument("--config", type=Path, default=default, help="the collections.yaml to use")
    parser.add_argument("--collection", action="append", default=[], help="only this collection; may be repeated")
    given = parser.parse_args(argv)
    log_to_stderr()
    try:
        settings = load_settings(given.config).only(tuple(given.collection))
        report = run(start_session(), settings)
    except TidelakeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(json.dumps(report.as_json(), indent=2))
    return 0 if report.ok else 1


def log_to_stderr() -> None:
    """Keep standard output for the report."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))


def to_json(value: Any) -> Any:
    """Reports as JSON values: dataclasses as objects, errors as their text."""
    if is_dataclass(value) and not isinstance(value, type):
        return {name: to_json(one) for name, one in asdict_shallow(value).items()}
    if isinstance(value, BaseException):
        return str(value)
    if isinstance(value, dict):
        return {str(name): to_json(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(one) for one in value]
    return value


def asdict_shallow(value: Any) -> dict[str, Any]:
    """A dataclass's fields, not copied; `asdict` would take errors apart."""
    return {name: getattr(value, name) for name in value.__dataclass_fields__}
