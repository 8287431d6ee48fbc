"""Ctrl-C: a command ends within two seconds, with exit status 130 and one line, whatever it is doing.

PySpark's own handler cancels its jobs over the connection that the interrupted call is using, which garbles the
response to that call: the interrupt then looks like a Spark failure.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn

STATUS = 130
"""The exit status of an interrupted command."""
_LINE = "interrupted: committed work is kept, and the next run resumes from there\n"
_UNWIND_S = 1.0
"""The time that the command is given to end on its own and to remove its temporary files."""
_JVM_END_S = 0.5
"""The time that the JVM is then given to end."""
_SHOW_CURSOR = b"\x1b[?25h"


class _State:
    """The handler of this process. At most one block is interruptible at a time."""

    is_handled = False
    is_interrupted = False
    terminal = 2
    line = _LINE
    leaving = threading.Lock()


def is_interrupted() -> bool:
    """Return whether Ctrl-C was pressed: errors that are raised from then on are its consequences."""
    return _State.is_interrupted


@contextmanager
def interruptible() -> Iterator[None]:
    """Handle Ctrl-C inside the block, which is a whole command.

    The first Ctrl-C ends the JVM and raises KeyboardInterrupt. If the block has not ended after a second, because a
    library does not return, the process ends anyway. If Ctrl-C is pressed again, the process ends at once.
    Nothing is half-written: a commit either exists or does not, however the process ends. But what the block does at
    its end may be missing: a hold that it did not release stays until its lease ends.

    Outside the main thread, and if Ctrl-C is ignored, as in a background job, nothing is changed.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before == signal.SIG_IGN or _State.is_handled:
        yield
        return
    _State.is_handled, _State.terminal, _State.line = True, os.dup(2), _LINE
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    # The interpreter writes to the pipe as soon as the signal arrives; a handler would wait until a library returns.
    wakeup = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGINT, _interrupt)
    threading.Thread(target=_watch, args=(reader,), name="interrupt", daemon=True).start()
    try:
        yield
    finally:
        if _State.is_interrupted:
            _leave()
        signal.set_wakeup_fd(wakeup)
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)
        os.close(writer)
        os.close(_State.terminal)
        _State.is_handled = False


def on_interrupt(text: str) -> None:
    """Set what the command prints if it is interrupted; for commands that do not resume by themselves."""
    _State.line = f"interrupted: {text}\n"


def keep_handler() -> None:
    """Restore the handler after PySpark has replaced it; outside of `interruptible`, do nothing."""
    if _State.is_handled and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    if _State.is_interrupted:
        _leave()
    _State.is_interrupted = True
    logging.disable()  # whatever is reported from here on is a consequence
    sys.unraisablehook = lambda _: None
    threading.excepthook = lambda _: None
    _end_jvm()
    raise KeyboardInterrupt


def _watch(reader: int) -> None:
    """Wait for Ctrl-C, give the main thread time to end, and end the process."""
    while numbers := os.read(reader, 64):
        if signal.SIGINT in numbers:
            threading.Event().wait(_UNWIND_S)
            _State.is_interrupted = True
            _leave()
    os.close(reader)


def _leave() -> NoReturn:
    """End the process and its JVM."""
    if _State.leaving.acquire(blocking=False):
        with suppress(OSError, ValueError):
            sys.stdout.flush()
        with suppress(OSError):
            os.write(_State.terminal, (_SHOW_CURSOR if os.isatty(_State.terminal) else b"") + _State.line.encode())
        jvm = _end_jvm()
        if jvm is not None:
            try:
                jvm.wait(_JVM_END_S)
            except subprocess.TimeoutExpired:
                jvm.kill()
        os._exit(STATUS)
    while True:  # another thread is already ending the process
        threading.Event().wait()


def _end_jvm() -> subprocess.Popen[Any] | None:
    """Tell the JVM to end, and return its process; None if this process has started none."""
    context = sys.modules.get("pyspark.core.context")
    gateway = None if context is None else context.SparkContext._gateway
    jvm: subprocess.Popen[Any] | None = getattr(gateway, "proc", None)  # with spark-submit, the JVM is the parent
    if jvm is not None and jvm.poll() is None:
        jvm.terminate()
    return jvm
