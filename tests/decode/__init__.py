"""Tests of `tidelake.decode`."""
