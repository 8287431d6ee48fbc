"""Data for monitoring: metrics of the lake and of each step, traces, and logs."""
