"""Tests of `tidelake.codec`."""
