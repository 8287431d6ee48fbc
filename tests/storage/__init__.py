"""Tests of `tidelake.storage`."""
