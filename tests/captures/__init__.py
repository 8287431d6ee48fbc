"""Topics as Debezium wrote them from a real PostgreSQL server, with the contents of the tables at several moments.

`python -m tests.captures.record` records them again; the docstring of that module describes them.
"""
