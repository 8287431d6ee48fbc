"""Ingest: each tick reads a bounded range of offsets, and makes one commit."""
