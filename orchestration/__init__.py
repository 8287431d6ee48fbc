"""Dagster's code location: assets, checks, jobs, schedules and sensors, as the environment variables choose them."""
