"""Differential dataflow's published reader, in Rust: a separate process that times itself."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

from benchmarks.measure import Measured, Samples
from benchmarks.peers.places import BUILT, HINT

READER = "differential dataflow's reader"
_PROGRAM = BUILT / "differential" / "release" / "differential-reader"


def measure(samples: Samples, times: int, seconds_max: float, say: Callable[[str], None]) -> None:
    """Measure the reader on `times` progress statements in reverse order.

    If the reader exceeds the time limit, record the limit instead.
    """
    if not _PROGRAM.exists():
        samples.absent[READER] = f"not built: {HINT} on a machine with cargo"
        return
    try:
        done = subprocess.run(
            [str(_PROGRAM), str(times), "reversed"], capture_output=True, text=True, timeout=seconds_max, check=True
        )
    except subprocess.TimeoutExpired:
        samples.of[READER] = [Measured(seconds_max, seconds_max)]
        samples.cut = f"{READER} was stopped after {seconds_max:.0f} s, and would have taken longer"
    else:
        seconds, cpu_s = map(float, done.stdout.split())
        samples.of[READER] = [Measured(seconds, cpu_s)]
    say(f"  {READER}: {samples.of[READER][0].seconds:.2f} s")
