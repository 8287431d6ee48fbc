"""Tests of `tidelake.read`."""
