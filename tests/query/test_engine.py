"""What happens to the database of a read that is interrupted, and what a read that fails says. No JVM is started."""

from __future__ import annotations

import signal
from pathlib import Path
from threading import Timer, main_thread
from time import monotonic

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from tidelake.cli.rows import spark_errors
from tidelake.errors import ReadFailed
from tidelake.query.answer import Answer
from tidelake.query.engine import Engine

SLOW = "SELECT max(hash(a.range * b.range)) FROM range(150000) a, range(100000) b"
"""A query that takes at least half a minute."""


@pytest.mark.parametrize("statement", [SLOW, f"CREATE TEMP TABLE kept AS {SLOW}"])
def test_ctrl_c_ends_a_query_and_removes_its_temporary_files(statement: str) -> None:
    # If a shell starts the tests in the background, it may have made them ignore this signal.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    engine = Engine()
    (spilled,) = engine.table("SELECT value FROM duckdb_settings() WHERE name = 'temp_directory'").column(0).to_pylist()
    assert Path(spilled).is_dir()
    main = main_thread().ident
    assert main is not None
    timer = Timer(0.3, signal.pthread_kill, (main, signal.SIGINT))
    timer.start()
    started = monotonic()
    with pytest.raises(KeyboardInterrupt):
        engine.run(statement) if statement.startswith("CREATE") else engine.table(statement)
    assert monotonic() - started < 20
    assert not Path(spilled).exists()


def test_a_failed_read_is_not_described_as_a_failed_step() -> None:
    with Engine() as engine:
        answer = Answer(engine, "SELECT error('no space') AS id", pa.schema([("id", pa.string())]), "orders")
        with pytest.raises(ReadFailed, match=r"^read of 'orders' failed: InvalidInputException: .*no space") as error:
            answer.table()
    assert "commit" not in str(error.value) and "log" not in str(error.value)
    failed = pytest.raises(ReadFailed, match=r"^changes of 'orders' failed: .*\nhint: the collection is not affected; ")
    with failed, spark_errors("changes", "orders", None):
        raise PySparkException("Java heap space")
