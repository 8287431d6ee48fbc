"""Tests of the room `ingest`."""
