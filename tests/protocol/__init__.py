"""Tests of `tidelake.protocol`."""
