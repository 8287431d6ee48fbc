"""Runs in Pathway's own environment: `run.py SOURCE FOLDER` prints time and memory as JSON. Imports are not timed."""

import json
import resource
import sys
import time

import pathway as pw


class Update(pw.Schema):  # type: ignore[misc]
    """One decoded update."""

    key: int
    customer: str
    price: float
    quantity: int
    place: str
    at: int
    change: int


def main() -> None:
    """Read, write and persist the updates."""
    source, folder = sys.argv[1:]
    updates = pw.io.jsonlines.read(source, schema=Update, mode="static", name="updates")
    pw.io.csv.write(updates, f"{folder}/out.csv")
    backend = pw.persistence.Backend.filesystem(f"{folder}/persisted")
    cpu, start = time.process_time(), time.perf_counter()
    pw.run(persistence_config=pw.persistence.Config(backend), monitoring_level=pw.MonitoringLevel.NONE)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(json.dumps({"seconds": seconds, "cpu_s": cpu, "peak_mb": peak_mb}))


if __name__ == "__main__":
    main()
