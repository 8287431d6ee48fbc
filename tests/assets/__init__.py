"""Tests of `assets`."""
