"""`python -m tidelake.cli`."""

from tidelake.cli.process import run

run()
