"""Dagster's code location: assets, checks, jobs, schedules and sensors. Only this room reads the environment."""
