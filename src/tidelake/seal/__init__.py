"""Seal: compares what is announced with what is counted, and moves upper."""
