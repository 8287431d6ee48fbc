"""Reads contents, differences and changes with DuckDB, in this process and without a JVM; runs SQL over collections."""
