"""Run options with the name of an unknown collection. No JVM is started."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from dagster import Failure

from assets.names import Names
from assets.options import RunOptions
from assets.steps import options_of

NAMES = Names("lakes")


def test_a_misspelt_collection_fails_the_run_with_an_error_that_suggests_the_nearest_name() -> None:
    def read(*collections: str) -> RunOptions:
        lake = SimpleNamespace(settings=SimpleNamespace(names=("prices", "visits")))
        resources = {NAMES.resource: lake, NAMES.options: RunOptions(collections=list(collections))}
        context: Any = SimpleNamespace(resources=SimpleNamespace(**resources))
        return options_of(context, NAMES)

    assert read().selects("visits")
    assert not read("prices").selects("visits")
    with pytest.raises(Failure, match="collections is 'prcies', which is not a collection of this lake") as caught:
        read("visits", "prcies")
    assert "did you mean 'prices'?" in str(caught.value.description)
    assert not caught.value.allow_retries
