"""Where Tidelake is installed: a checkout, or a wheel; and the folder that holds its jars and logs."""

from __future__ import annotations

import os
from pathlib import Path

HOME_VARIABLE = "TIDELAKE_HOME"
_ROOT = Path(__file__).resolve().parents[3]
CHECKOUT = _ROOT if (_ROOT / "pyproject.toml").is_file() and (_ROOT / "jars.lock").is_file() else None
"""The folder of the checkout that this package runs from; None if the package was installed from a wheel."""

PACKAGED_JOBS = Path(__file__).resolve().parents[1] / "app" / "jobs"
"""The folder of the jobs in a wheel; it does not exist in a checkout."""


def home() -> Path:
    """Return the folder with `.jars` and `.logs`.

    It is the folder that `TIDELAKE_HOME` names, or else the checkout, or else `tidelake` in the user's cache folder.
    """
    if named := os.environ.get(HOME_VARIABLE):
        return Path(named).absolute()
    if CHECKOUT is not None:
        return CHECKOUT
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tidelake"


def jars_lock() -> Path:
    """Return the file that lists the jars, with the sha256 of each; a wheel contains a copy."""
    return (CHECKOUT or Path(__file__).resolve().parent) / "jars.lock"
