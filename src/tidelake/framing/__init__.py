"""Framings: how it is known what is complete, and what is a copy."""
