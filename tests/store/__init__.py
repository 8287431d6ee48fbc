"""Tests of `tidelake.store`."""
