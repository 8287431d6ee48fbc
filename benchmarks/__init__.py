"""Compares Tidelake with its alternatives in one interleaved run, with counters: `python -m benchmarks`."""
