"""The Debezium scripts: what CDCv2 messages and reclocked records do to the contents, command by command."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.lakes.record_scripts import open_script
from tests.lakes.scripts import Case, read_cases, replay
from tests.sweeps import some_of_each_kind

pytestmark = pytest.mark.spark

CASES = list(read_cases("debezium"))


@pytest.mark.parametrize("case", some_of_each_kind(CASES))
def test_a_debezium_script_gets_the_answers_written_in_it(tmp_path: Path, spark: SparkSession, case: Case) -> None:
    assert replay(tmp_path, spark, case.lines, open_script) == case.lines


def test_titles_of_debezium_scripts_are_unique() -> None:
    assert len({case.title for case in CASES}) == len(CASES) > 10
