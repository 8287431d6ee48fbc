"""Writes the list of types of expectations that settings may name: `python -m expectations.types_of_gx`.

The list has each type of Great Expectations that the library's Spark engine can judge on a single table.
"""

from __future__ import annotations

import json
from typing import Any

from tidelake.settings.expectations import TYPES_FILE

_NOT_WRITTEN = frozenset(
    {
        "batch_id",
        "catch_exceptions",
        "description",
        "id",
        "meta",
        "notes",
        "rendered_content",
        "result_format",
        "severity",
        "windows",
    }
)
"""Arguments that Tidelake sets, or that concern only how the library works."""
_OF_TWO_SOURCES = frozenset({"expect_query_results_to_match_comparison"})
"""Types that compare two data sources."""


def types_of_gx() -> dict[str, Any]:
    """Return the version of the library, and the arguments of each type."""
    import great_expectations as gx
    from great_expectations.expectations import core
    from great_expectations.expectations.expectation import Expectation
    from great_expectations.expectations.registry import (
        get_expectation_impl,
        list_registered_expectation_implementations,
    )

    types = {}
    for name in sorted(list_registered_expectation_implementations()):
        kind: type[Expectation] = get_expectation_impl(name)
        if kind.__module__.startswith(core.__name__) and name not in _OF_TWO_SOURCES and _runs_on_spark(kind):
            fields = {field: info for field, info in kind.__fields__.items() if field not in _NOT_WRITTEN}
            required = sorted(field for field, info in fields.items() if info.required)
            types[name] = {"all": sorted(fields), "required": required}
    return {"great_expectations": gx.__version__, "types": types}


def _runs_on_spark(kind: Any) -> bool:
    """Return whether every metric of an expectation has a provider for Spark."""
    from great_expectations.expectations.registry import _registered_metrics

    if hasattr(kind, "_validate_spark"):  # such an expectation compares column types without a metric
        return True
    map_metric = getattr(kind, "map_metric", None)
    metrics = [f"{map_metric}.condition"] if map_metric else list(getattr(kind, "metric_dependencies", ()) or ())
    return all("SparkDFExecutionEngine" in _registered_metrics.get(name, {}).get("providers", {}) for name in metrics)


def main() -> None:
    """Write the list."""
    TYPES_FILE.write_text(json.dumps(types_of_gx(), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
