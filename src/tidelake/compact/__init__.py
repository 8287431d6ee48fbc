"""Compaction: fewer files, and no more history than the retention rule requires."""
