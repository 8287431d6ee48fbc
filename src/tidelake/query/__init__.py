"""Reads contents, differences and changes with DuckDB, without a JVM, and runs SQL with DuckDB or Spark."""
