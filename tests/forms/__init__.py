"""Tests of `tidelake.forms`."""
