"""Tests of the room `protocol`."""
