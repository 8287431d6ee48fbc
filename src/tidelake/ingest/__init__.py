"""Ingest: a bounded range of offsets becomes one commit."""
