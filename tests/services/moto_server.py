"""moto's server, with its own clock and one put at a time: `python -m tests.services.moto_server CLOCK OPTION …`.

The file CLOCK says by how many seconds the server's clock differs from the machine's. On its own, moto checks whether
a name is free, and stores the object only later: two puts that require the same name to be free could both succeed.
"""

from __future__ import annotations

import sys
import threading
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import moto.s3.models
import moto.s3.responses
from moto.core.utils import utcnow
from moto.s3.responses import S3Response
from moto.server import main


def run(clock: Path, options: list[str]) -> None:
    """Serve until the process is stopped."""

    def now() -> datetime:
        return utcnow() + timedelta(seconds=float(clock.read_text(encoding="ascii")))

    one_at_a_time, put = threading.Lock(), S3Response.put_object

    def put_object(response: S3Response) -> Any:
        with one_at_a_time:
            return put(response)

    vars(moto.s3.models)["utcnow"] = now
    vars(moto.s3.responses)["S3Response"].put_object = put_object
    main(options)


if __name__ == "__main__":
    run(Path(sys.argv[1]), sys.argv[2:])
