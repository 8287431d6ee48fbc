"""The command line: parses options, calls `tidelake.lake`, and prints results. Heavy imports come late."""

from tidelake.cli.app import main

__all__ = ["main"]
