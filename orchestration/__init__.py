"""Wires collections, jobs and schedules together; the only room that reads the environment."""
