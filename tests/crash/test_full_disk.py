"""A full disk stops the work with a clear error, and everything published stays true."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.crash.harness import Nursery
from tests.crash.lives import Lives
from tests.lakes.lake import NAME
from tests.sweeps import seeds
from tidelake.errors import Indeterminate
from tidelake.storage.location import locate
from tidelake.store.commit import OpenTable, create_table
from tidelake.store.files import write_run
from tidelake.store.table_log import check_log

SCHEMA = pa.schema([("_time", pa.int64()), ("_run", pa.string())])


@contextmanager
def files_at_most(size: int) -> Iterator[None]:
    """Inside the `with` block, no file that this process writes grows beyond `size` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("size", [0, 100, 600])
def test_a_log_entry_that_does_not_fit_is_not_a_commit(tmp_path: Path, size: int) -> None:
    path = locate(tmp_path) / "t"
    create_table(path, SCHEMA)
    files = write_run(path, "r1", pa.table({"_time": [1]}))
    with files_at_most(size), pytest.raises(Indeterminate, match="File too large"):
        OpenTable(path).commit({"upper": 5}, files)
    assert OpenTable(path).version == 0
    assert OpenTable(path).commit({"upper": 5}, files).version == 1
    assert check_log(path) == 2


@pytest.mark.parametrize("size", [0, 4, 300])
def test_a_run_that_does_not_fit_is_not_in_the_log(tmp_path: Path, size: int) -> None:
    path = locate(tmp_path) / "t"
    create_table(path, SCHEMA)
    with files_at_most(size), pytest.raises(OSError, match="File too large"):
        write_run(path, "r1", pa.table({"_time": [1]}))
    OpenTable(path).commit({}, write_run(path, "r2", pa.table({"_time": [2]})))
    assert [file.run for file in OpenTable(path).files()] == ["r2"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A separate file system of 64 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False).returncode:
        pytest.skip("mounting a small disk needs root")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


@pytest.mark.spark
@pytest.mark.sweep
@pytest.mark.parametrize("seed", seeds())
def test_a_full_disk_stops_the_work_and_the_next_run_continues(
    small_disk: Path, tmp_path: Path, spark: SparkSession, nursery: Nursery, seed: int
) -> None:
    lives = Lives(small_disk, spark, nursery, seed, words=tmp_path)
    stopped = set()
    for bytes_left in range(0, 160 * 1024, 16 * 1024):
        for message in lives.fill_up(bytes_left):
            if "step" in message and not message["report"]["ok"]:
                stopped.add(message["step"])
                assert "o space left" in message["report"]["errors"][NAME], message["report"]
    assert {"ingest", "seal"} <= stopped
