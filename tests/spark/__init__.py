"""Tests of `tidelake.spark`."""
