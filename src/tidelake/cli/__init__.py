"""The command line: parses options, calls `tidelake.lake`, and prints results. Slow imports are inside functions."""

from tidelake.cli.app import main

__all__ = ["main"]
