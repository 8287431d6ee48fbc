"""Compaction: fewer files, and no more history than retention asks for."""
