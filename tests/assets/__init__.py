"""Tests of the room `assets`."""
