"""A process with its own JVM that runs an order repeatedly: `python -m tests.crash.whole_run ORDER`."""

from __future__ import annotations

import json
import sys

from tests.crash.victim import live
from tidelake.spark.session import start_session

if __name__ == "__main__":
    session = start_session("whole-run", "local[2]", {"spark.sql.shuffle.partitions": "2"})
    live(json.loads(sys.argv[1]), session)
