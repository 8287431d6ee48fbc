"""Validates a DataFrame against a suite, in a context that leaves behind nothing but the Data Docs."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from expectations.data_docs import (
    RESULTS_KEPT,
    RUN_NAME,
    SITE,
    Notes,
    newest_result,
    results_folder,
    site_config,
    store_config,
    suite_file,
    write_notes,
)
from expectations.harmless import make_harmless
from expectations.offline import make_readable_offline
from expectations.published import local_docs
from tidelake.report.files import ReportPlace

if TYPE_CHECKING:
    import pandas as pd
    from great_expectations import ExpectationSuite
    from great_expectations.core.batch_definition import BatchDefinition
    from great_expectations.data_context.data_context.ephemeral_data_context import EphemeralDataContext
    from pyspark.sql import DataFrame as SparkFrame

_VALUES_SHOWN = 20


@dataclass(frozen=True)
class Verdict:
    """The result of one expectation."""

    check: str
    passed: bool
    rows: int
    """Number of rows that were checked."""
    failed: int
    times: list[int] = field(default_factory=list)
    """The first times that failed."""
    problem: str | None = None
    """Why the expectation could not be checked at all."""
    observed: str | None = None
    """The value that was compared, if the expectation is about one value of a column or table."""
    examples: list[str] = field(default_factory=list)
    """Some of the values that failed, if they may be shown."""
    note: str | None = None
    """Says that the verdict is an earlier one, or why there is no verdict."""


def judge(
    frame: pd.DataFrame | SparkFrame,
    suite: ExpectationSuite,
    place: ReportPlace | None = None,
    notes: Notes | None = None,
    results_kept: int = RESULTS_KEPT,
    values_shown: int = _VALUES_SHOWN,
) -> list[Verdict]:
    """Validate a DataFrame, and write the result into the Data Docs if there is a folder for them.

    Args:
        frame: a pandas DataFrame, see `result_frame`, or a Spark DataFrame with the contents of a collection.
        suite: the expectations.
        place: the folder of the Data Docs, on a disk or in an object store; if None, nothing is written.
        notes: further text for the page of this result.
        results_kept: maximum number of results of this suite, including this one.
        values_shown: maximum number of values that a result shows for an expectation that is not met.

    Raises:
        OSError, StoreUnreadable: the Data Docs cannot be written.

    Cost: importing the library takes a few seconds, once per process; a few thousand rows take a tenth of a second.
    """
    if place is not None:
        with local_docs(place, suite.name, results_kept) as folder:
            return _judge(frame, suite, folder, notes, values_shown)
    return _judge(frame, suite, None, notes, values_shown)


def _judge(
    frame: pd.DataFrame | SparkFrame,
    suite: ExpectationSuite,
    data_docs: Path | None,
    notes: Notes | None,
    values_shown: int,
) -> list[Verdict]:
    import great_expectations as gx
    from great_expectations.data_context.types.resource_identifiers import ExpectationSuiteIdentifier

    context = _context(data_docs)
    batch = _batch_definition(context, frame, suite.name)
    definition = context.validation_definitions.add_or_update(
        gx.ValidationDefinition(name=suite.name, data=batch, suite=context.suites.add_or_update(suite))
    )
    checkpoint = context.checkpoints.add_or_update(
        gx.Checkpoint(
            name=suite.name,
            validation_definitions=[definition],
            actions=[],
            result_format={"result_format": "SUMMARY", "partial_unexpected_count": values_shown},
        )
    )
    run = gx.RunIdentifier(run_name=RUN_NAME, run_time=datetime.now(UTC))
    outcome = checkpoint.run(batch_parameters={"dataframe": frame}, run_id=run)
    if data_docs is not None:
        for file in (newest_result(data_docs, suite.name), suite_file(data_docs, suite.name)):
            make_harmless(file, hides_values=values_shown == 0)
        pages: Any = [*outcome.run_results, ExpectationSuiteIdentifier(suite.name)]
        context.build_data_docs(site_names=[SITE], resource_identifiers=pages)
        write_notes(data_docs, suite.name, notes or Notes())
        make_readable_offline(data_docs, suite.name)
    (validation,) = outcome.run_results.values()
    return [_verdict(frame, result) for result in validation.results]


def _batch_definition(
    context: EphemeralDataContext, frame: pd.DataFrame | SparkFrame, name: str
) -> BatchDefinition[Any]:
    import pandas as pd

    if isinstance(frame, pd.DataFrame):
        recount = context.data_sources.add_or_update_pandas(name="recount").add_dataframe_asset(name=name)
        return recount.add_batch_definition_whole_dataframe("by time")
    contents = context.data_sources.add_or_update_spark(name="contents", persist=False).add_dataframe_asset(name=name)
    return contents.add_batch_definition_whole_dataframe("at upper")


def _context(data_docs: Path | None) -> EphemeralDataContext:
    import great_expectations as gx
    from great_expectations.data_context.types.base import (
        DataContextConfig,
        InMemoryStoreBackendDefaults,
        ProgressBarsConfig,
    )

    stores = InMemoryStoreBackendDefaults()
    if data_docs is not None:
        # The library removes pages from its index if their suite or result is not stored.
        suites = suite_file(data_docs, "any").parent
        stores.stores[stores.expectations_store_name] = store_config("ExpectationsStore", suites)
        results = results_folder(data_docs)
        stores.stores[stores.validation_results_store_name] = store_config("ValidationResultsStore", results)
    return gx.get_context(
        mode="ephemeral",
        project_config=DataContextConfig(
            store_backend_defaults=stores,
            data_docs_sites={} if data_docs is None else {SITE: site_config(data_docs)},
            analytics_enabled=False,
            progress_bars=ProgressBarsConfig(globally=False),
        ),
    )


def _verdict(frame: pd.DataFrame | SparkFrame, result: Any) -> Verdict:
    import pandas as pd

    check = str(result.expectation_config.meta["check"])
    numbers = result.result or {}
    raised = _raised_in(result.exception_info)
    if raised is not None:
        return Verdict(check, False, 0, 0, problem=raised)
    if not numbers and not result.success:
        return Verdict(check, False, 0, 0, problem="the library gives no reason")
    times, examples = [], [str(value) for value in numbers.get("partial_unexpected_list") or []]
    if isinstance(frame, pd.DataFrame):  # for a recount, the times that failed say more than the values that failed
        places = numbers.get("partial_unexpected_index_list") or []
        times, examples = [int(frame["time"].iloc[place]) for place in places], []
    observed = numbers.get("observed_value")
    return Verdict(
        check=check,
        passed=bool(result.success),
        rows=int(numbers.get("element_count") or 0),
        failed=int(numbers.get("unexpected_count") or 0),
        times=times,
        observed=None if observed is None else f"the observed value is {observed}",
        examples=examples,
    )


def _raised_in(info: Any) -> str | None:
    """Return the first line of the error that an expectation raised; the library nests errors by metric."""
    if not isinstance(info, dict):
        return None
    if "raised_exception" not in info:
        return next((text for inner in info.values() if (text := _raised_in(inner)) is not None), None)
    if not info["raised_exception"]:
        return None
    lines = str(info.get("exception_message")).strip().splitlines()
    return lines[0] if lines else "an error without a message"
