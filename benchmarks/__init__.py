"""Compares Tidelake with its alternatives in one interleaved run, and counts jobs, rows and bytes.

`python -m benchmarks` runs it.
"""
