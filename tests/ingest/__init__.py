"""Tests of `tidelake.ingest`."""
