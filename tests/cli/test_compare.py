"""`tidelake compare`: its exit status is 1 only if two collections differ, never if something failed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.cli.commands import TIDELAKE, run
from tests.golden.shown import unpack


@pytest.mark.parametrize(
    ("variable", "text"),
    [("JAVA_HOME", "JAVA_GATEWAY_EXITED"), ("SPARK_HOME", "No such file or directory")],
    ids=["an unknown error", "an error of the system"],
)
def test_a_comparison_that_fails_is_not_taken_for_a_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, text: str
) -> None:
    config = unpack(tmp_path)
    monkeypatch.setenv(variable, str(tmp_path / "nowhere"))
    failed = run("compare", config, "upsert", config, "upsert")
    error = failed.stderr.partition("\nerror: ")[2]
    assert text in error
    assert "\nhint: " in error
    assert (failed.returncode, failed.stdout) == (2, "")


@pytest.mark.spark
@pytest.mark.sweep
def test_a_comparison_whose_result_nobody_reads_is_taken_neither_for_equality_nor_for_a_difference(
    tmp_path: Path,
) -> None:
    config = str(unpack(tmp_path))
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [*TIDELAKE, "compare", config, "upsert", config, "upsert"],
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
            check=False,
        )
    finally:
        os.close(writer)
    assert done.returncode == 2, done.stderr
    assert "error" not in done.stderr
