"""`tidelake doctor`: whether this machine and a lake are ready, and what to do if not."""

from tidelake.cli.doctor.command import doctor

__all__ = ["doctor"]
