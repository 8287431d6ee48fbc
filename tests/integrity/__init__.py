"""Tests of `tidelake.integrity`."""
