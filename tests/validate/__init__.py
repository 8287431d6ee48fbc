"""Tests of `tidelake.validate`."""
