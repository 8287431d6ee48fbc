"""A process that only forks victims: `python -m tests.crash.nursery`. For each line of input, it prints a JSON line.

It has imported everything that a job needs, so a child forked from it is ready within milliseconds. But it has called
neither Spark nor delta-rs, so its children share nothing except the JVM that they all attach to.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

import deltalake  # noqa: F401
import fastavro  # noqa: F401
import pandas  # noqa: F401
import pyarrow.parquet  # noqa: F401
import pyspark.sql.pandas.types  # noqa: F401

from tests.crash.held.life import live_held
from tests.crash.victim import attach, live


def fork_victim(order: dict[str, Any]) -> int:
    """Fork a victim that carries out an order; its output goes to a file next to the file of its messages."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        output = os.open(Path(order["said"]).with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(output, 1)
        os.dup2(output, 2)
        if order.get("holds"):
            live_held(order, attach() if order["has_session"] else None)
        else:
            live(order, attach(order.get("compiled", False)))
        status = 0
    except BaseException:  # no error may lead a forked child back into the parent's loop
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)


def main() -> None:
    """Serve until the input ends."""
    for line in sys.stdin:
        order = json.loads(line)
        if "wait" in order:
            _, status = os.waitpid(order["wait"], 0)
            answer = os.waitstatus_to_exitcode(status)
        else:
            answer = fork_victim(order)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
