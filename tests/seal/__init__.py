"""Tests of `tidelake.seal`."""
