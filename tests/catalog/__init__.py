"""Tests of `tidelake.catalog`."""
