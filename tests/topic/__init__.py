"""Tests of the room `topic`."""
