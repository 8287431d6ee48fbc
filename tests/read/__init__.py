"""Tests of the room `read`."""
