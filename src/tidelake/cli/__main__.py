"""`python -m tidelake.cli`."""

from tidelake.cli.app import main

main()
