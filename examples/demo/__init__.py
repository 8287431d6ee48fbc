"""The demo: topics of every family through the real jobs, compared with their own truth. `make run` starts it."""
