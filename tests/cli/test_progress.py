"""Progress is shown only on standard error, and only if that is a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

_SHOW = """
import sys, time
from tidelake.cli.progress import working
with working("first", 4) as work:
    work.show("second [b]step[/b]", 2)
    time.sleep(0.3)
    with work.paused():
        print("a result", flush=True)
"""


def shown(**variables: str) -> tuple[str, str]:
    """The output of a process on standard output, and on a terminal that is its standard error."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "80"} | variables
    with subprocess.Popen(
        [sys.executable, "-c", _SHOW], env=environment, stdout=subprocess.PIPE, stderr=theirs, text=True
    ) as process:
        os.close(theirs)
        printed = b""
        try:
            while data := os.read(ours, 65_536):
                printed += data
        except OSError:  # the other end of the terminal is closed
            pass
        out, _ = process.communicate(timeout=60)
    os.close(ours)
    assert process.returncode == 0, printed
    return out, printed.decode()


def test_a_terminal_shows_a_bar_and_the_cursor_is_restored() -> None:
    out, terminal = shown()
    assert out == "a result\n"
    assert "second [b]step[/b]" in terminal
    assert "2/4" in terminal
    assert terminal.rstrip("\r\n").endswith("\x1b[?25h") or terminal.rindex("\x1b[?25h") > terminal.rindex("\x1b[?25l")


def test_a_terminal_that_cannot_redraw_a_line_and_a_pipe_show_nothing() -> None:
    assert shown(TERM="dumb") == ("a result\n", "")
    done = subprocess.run([sys.executable, "-c", _SHOW], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("a result\n", "")


def test_the_bar_has_no_colours_if_the_environment_says_so() -> None:
    assert "\x1b[3" not in shown(NO_COLOR="1")[1]
