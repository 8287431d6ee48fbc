"""moto's server with a clock of its own: `python -m tests.services.moto_server CLOCK OPTION …`.

The file CLOCK says by how many seconds the server's clock differs from that of the machine.
"""

from __future__ import annotations

import sys
from datetime import datetime, timedelta
from pathlib import Path

import moto.s3.models
from moto.core.utils import utcnow
from moto.server import main


def run(clock: Path, options: list[str]) -> None:
    """Serve until the process is stopped."""

    def now() -> datetime:
        return utcnow() + timedelta(seconds=float(clock.read_text(encoding="ascii")))

    vars(moto.s3.models)["utcnow"] = now
    main(options)


if __name__ == "__main__":
    run(Path(sys.argv[1]), sys.argv[2:])
