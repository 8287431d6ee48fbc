"""Job events go to one logger while a step runs, and afterwards to their previous destination."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import structlog

from assets.story import events_sent_to


@pytest.fixture
def log() -> Iterator[logging.Logger]:
    logger = logging.getLogger("tests.story")
    logger.setLevel(logging.DEBUG)
    yield logger
    structlog.reset_defaults()


def test_events_are_logged_at_their_level_without_their_collection(
    log: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    jobs = structlog.get_logger("tidelake")  # like the jobs' logger, which is made at import
    with events_sent_to(log):
        jobs.info("ingested", collection="prices", messages=3000)
        jobs.warning("a partition was added", partition="prices:1")
        try:
            raise ValueError("torn")
        except ValueError:
            jobs.exception("stopped")
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", "ingested: messages=3,000"),
        ("WARNING", "a partition was added: partition=prices:1"),
        ("ERROR", "stopped"),
    ]
    assert caplog.records[-1].exc_info


def test_afterwards_events_go_where_they_went_before(
    log: logging.Logger, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),  # as in the demo, which shows only errors
        processors=[structlog.processors.KeyValueRenderer()],
        logger_factory=structlog.PrintLoggerFactory(),
    )
    jobs = structlog.get_logger("tidelake")

    def fail() -> None:
        with events_sent_to(log):
            jobs.info("inside")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    jobs.info("too quiet")
    jobs.error("after")
    assert [record.getMessage() for record in caplog.records] == ["inside"]
    assert capsys.readouterr().out == "event='after'\n"
