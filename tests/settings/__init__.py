"""Tests of `tidelake.settings`."""
