"""Tests of the room `spark`."""
