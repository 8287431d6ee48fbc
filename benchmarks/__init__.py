"""Compares Tidelake with its alternatives: one run, interleaved, with counters; `python -m benchmarks`."""
