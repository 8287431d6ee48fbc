"""Seal: what is announced and counted becomes a new upper."""
