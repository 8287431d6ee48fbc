"""Decodes message bytes to columns, on the JVM, with a reason for every value that cannot be used."""
