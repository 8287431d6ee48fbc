"""Topics as Debezium wrote them from a real PostgreSQL, with the tables' own contents at several moments.

`python -m tests.captures.record` records them again; its docstring describes them.
"""
