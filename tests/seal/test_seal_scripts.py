"""The seal scripts: what is sealed, what waits and what is refused, command by command."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.lakes.scripts import Case, read_cases, replay
from tests.sweeps import some_of_each_kind

pytestmark = pytest.mark.spark

CASES = list(read_cases("seal"))


@pytest.mark.parametrize("case", some_of_each_kind(CASES, every=None))
def test_a_seal_script_gets_the_answers_written_in_it(tmp_path: Path, spark: SparkSession, case: Case) -> None:
    assert replay(tmp_path, spark, case.lines) == case.lines


def test_no_title_of_a_seal_script_appears_twice() -> None:
    assert len({case.title for case in CASES}) == len(CASES) > 15
