"""Tests of `tidelake.topic`."""
