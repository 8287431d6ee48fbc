"""Tests of the room `seal`."""
