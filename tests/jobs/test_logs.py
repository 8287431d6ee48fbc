"""The jobs' log goes to a listener for a while, and afterwards to where it went before."""

from __future__ import annotations

import pytest
import structlog

from jobs.logs import Event, log_to
from tidelake.storage.notices import warn


def test_once_a_listener_is_gone_a_warning_does_not_go_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    structlog.reset_defaults()
    heard: list[Event] = []
    with log_to(heard.append):
        warn("inside")
    warn("afterwards")
    captured = capsys.readouterr()
    assert [event["event"] for event in heard] == ["inside"]
    assert (captured.out, "afterwards" in captured.err) == ("", True)
    structlog.reset_defaults()
