"""Tidelake beside what a user would pick instead: one run, interleaved, with counters; `python -m benchmarks`."""
