"""Tests of the room `codec`."""
