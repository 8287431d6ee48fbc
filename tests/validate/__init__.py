"""Tests of the room `validate`."""
