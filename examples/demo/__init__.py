"""The demo: topics of every family go through the real jobs and are compared with their ground truth: `make run`."""
