"""Dagster's code location: assets, checks, jobs, schedules and sensors. Only this package reads the environment."""
