"""Tests of the room `forms`."""
