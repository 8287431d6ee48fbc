"""Tests of `tidelake.model`."""
