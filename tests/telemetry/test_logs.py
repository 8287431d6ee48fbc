"""The log of jobs: text or JSON, on standard error and in a file, without the values of variables."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from tidelake.errors import ConfigurationError
from tidelake.telemetry.logs import configure_logs


@pytest.fixture(autouse=True)
def reset() -> Iterator[None]:
    yield
    structlog.reset_defaults()


def fail() -> None:
    """Log an error raised in a frame that has a secret in a local variable."""
    password = "-".join(["planted", "secret"])
    try:
        raise ValueError(len(password))
    except ValueError:
        structlog.get_logger("tidelake").exception("stopped", collection="orders")


def test_a_line_of_json_has_its_time_level_event_and_values(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs({"TIDELAKE_LOG_FORMAT": "json"})
    structlog.get_logger("tidelake").info("sealed", collection="orders", lower=3, upper=5, offsets={"orders": {0: 7}})
    captured = capsys.readouterr()
    assert captured.out == ""
    line = json.loads(captured.err)
    assert line.pop("timestamp").endswith("Z")
    values = {"collection": "orders", "lower": 3, "upper": 5, "offsets": {"orders": {"0": 7}}}
    assert line == {"event": "sealed", "level": "info", **values}


@pytest.mark.parametrize("format", ["text", "json"])
def test_a_traceback_shows_no_values_of_variables(format: str, capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs({"TIDELAKE_LOG_FORMAT": format})
    fail()
    logged = capsys.readouterr().err
    assert "ValueError" in logged and "orders" in logged
    assert "planted-secret" not in logged
    assert (len(logged.splitlines()) == 1) == (format == "json")


def test_a_file_gets_the_same_lines_as_standard_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "tidelake.log"
    file.write_text("an earlier line\n", encoding="utf-8")
    stream = configure_logs({"TIDELAKE_LOG_FILE": str(file)})
    structlog.get_logger("tidelake").info("sealed", collection="orders")
    stream.close()
    earlier, line = file.read_text(encoding="utf-8").splitlines()
    assert earlier == "an earlier line"
    assert capsys.readouterr().err == f"{line}\n"
    assert "sealed" in line and "orders" in line and "\x1b" not in line


def test_a_wrong_format_and_a_file_that_cannot_be_opened_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"TIDELAKE_LOG_FORMAT is 'xml'.*\nhint: write `text` or `json`"):
        configure_logs({"TIDELAKE_LOG_FORMAT": "xml"})
    with pytest.raises(ConfigurationError, match=r"TIDELAKE_LOG_FILE names .*, which cannot be opened: "):
        configure_logs({"TIDELAKE_LOG_FILE": str(tmp_path / "none" / "log")})
