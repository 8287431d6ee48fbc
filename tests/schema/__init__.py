"""Tests of `tidelake.schema`."""
