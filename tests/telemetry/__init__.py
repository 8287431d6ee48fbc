"""Data for monitoring: metrics, traces, logs and alerts."""
