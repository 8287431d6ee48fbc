"""The command line: it parses options, calls the door, and renders. Heavy imports come late."""

from tidelake.cli.app import main

__all__ = ["main"]
