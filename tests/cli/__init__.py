"""The command line, as a person or a program calls it."""
