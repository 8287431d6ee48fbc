"""`tidelake init`: writes the settings of a collection from the first messages of its topic."""

from tidelake.cli.init.command import init

__all__ = ["init"]
