"""What monitoring reads: metrics, traces, logs and alerts."""
