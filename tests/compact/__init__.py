"""Tests of `tidelake.compact`."""
