"""Compares Tidelake with its alternatives in interleaved rounds, and counts jobs, rows and bytes.

`python -m benchmarks` runs it.
"""
