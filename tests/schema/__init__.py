"""Tests of the room `schema`."""
