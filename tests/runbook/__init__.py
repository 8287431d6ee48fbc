"""Tests of the error pages."""
