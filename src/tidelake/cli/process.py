"""The command line as a process of its own."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.abc import MetaPathFinder
from types import ModuleType

from tidelake.cli.app import main

_WITHOUT_PANDAS = frozenset(["status"])
"""Commands for which Arrow does without pandas. They never start Spark, which may need conversions to pandas."""


class _ArrowWithoutPandas(MetaPathFinder):
    """Tells Arrow that pandas is not installed.

    The first time that Arrow converts a Python value to a scalar or an array, it imports pandas, which takes as long as
    a whole `status`. If pandas is not installed, Arrow works without it. Plug-ins may import pandas, and so may Arrow
    when a plug-in calls it.
    """

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if name == "pandas" and _importer() in {"pyarrow", "tidelake"}:
            raise ModuleNotFoundError("Arrow does without pandas here", name=name)


def _importer() -> str:
    """Return the package whose code is importing a module; compiled code is not on the stack, so its caller counts."""
    frame = sys._getframe(1)
    while frame.f_back and (frame.f_globals["__name__"] == __name__ or "importlib" in frame.f_globals["__name__"]):
        frame = frame.f_back
    return str(frame.f_globals["__name__"]).partition(".")[0]


def run() -> None:
    """Run a command, and end the process as soon as its output is written.

    Without this, a library's native thread that is still running while the interpreter shuts down can abort the process
    after everything is done and printed: 1 in 25 runs of `tidelake repair` had the exit status -6.
    """
    # Pydantic would look for plug-ins of its own in every installed package; Tidelake's models need none.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    if _command() in _WITHOUT_PANDAS:
        sys.meta_path.insert(0, _ArrowWithoutPandas())
    status = 0
    try:
        main()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(ValueError, BrokenPipeError):  # the stream was closed, or its reader has gone
            stream.flush()
    os._exit(status)


def _command() -> str | None:
    return next((argument for argument in sys.argv[1:] if not argument.startswith("-")), None)
