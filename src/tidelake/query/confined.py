"""Confines SQL: it may read the lake's collections and call functions of their values, and nothing else.

DuckDB's own parser says what a text contains. Whatever is not known to be harmless is refused, and the error names
it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from string import ascii_lowercase, ascii_uppercase
from typing import Any

import duckdb

from tidelake.query.functions import ACCEPTED, BY_NAME, BY_PLACE, OF_THE_SESSION, ORDERED, OVER_ROWS, TABLES, UNBOUNDED

CHARACTERS_MAX = 100_000
"""Maximum length of the text of a query or predicate."""
PARTS_MAX = 100
"""Maximum number of parts of a name: DuckDB needs quadratic time to resolve the name, and cannot be interrupted."""
_CLASSES = """BETWEEN CASE CAST COLLATE COLUMN_REF COMPARISON CONJUNCTION CONSTANT FUNCTION LAMBDA OPERATOR
    POSITIONAL_REFERENCE STAR SUBQUERY TYPE WINDOW"""
_EXPRESSIONS = frozenset(_CLASSES.split())
_OF_SEVERAL_ROWS = {
    "WINDOW": "calls a function over several rows",
    "SUBQUERY": "contains a subquery",
    "STAR": "contains *, which is not accepted",
    "POSITIONAL_REFERENCE": "refers to a column by its position",
}
"""By class, what a query may contain but a predicate may not, as errors describe it."""
_KINDS = """ASCENDING BASE_TABLE CTE_NODE DESCENDING DISTINCT_MODIFIER EMPTY EXPRESSION_LIST JOIN LIMIT_MODIFIER
    LIMIT_PERCENT_MODIFIER ORDER_DEFAULT ORDER_MODIFIER PIVOT RECURSIVE_CTE_NODE SELECT_NODE SET_OPERATION_NODE
    SUBQUERY TABLE_FUNCTION"""
_NODES = frozenset(_KINDS.split())
_TABLE_NODES = frozenset({"BASE_TABLE", "EMPTY", "EXPRESSION_LIST", "JOIN", "PIVOT", "SUBQUERY", "TABLE_FUNCTION"})
_FUNCTION_NAME = "function_name"
"""The argument that names an aggregate for the functions in `BY_NAME`; without it, the second argument names it."""
_TO_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)
_SELECT_DEFAULTS: Mapping[str, Any] = {
    "modifiers": [],
    "group_expressions": [],
    "group_sets": [],
    "where_clause": None,
    "having": None,
    "sample": None,
    "qualify": None,
}


class Refused(Exception):
    """A text is not accepted.

    Args:
        problem: what is wrong, as a clause whose subject is the text: `calls 'random', which is not accepted`.
    """

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem


@dataclass(frozen=True)
class Parsed:
    """The names that an accepted text refers to."""

    tables: tuple[str, ...]
    """The names of tables as written, each once, without those that the query itself defines."""
    names: frozenset[str]
    """Every part of each column's name, in lower case."""
    takes_all_columns: bool
    """Whether the text can use columns that it does not name: in `*`, a natural join, a pivot, a row, or `t(a, b)`."""


def parse_query(connection: duckdb.DuckDBPyConnection, query: str) -> Parsed:
    """Parse a query.

    Raises:
        Refused: it is not one query, or contains something that is not accepted.
    """
    return _checked(_statement(connection, query)["node"])


def parse_predicate(connection: duckdb.DuckDBPyConnection, where: str, columns: Collection[str] = ()) -> Parsed:
    """Parse a condition on the columns of a row.

    Args:
        connection: a database.
        where: the condition.
        columns: the columns; a word such as `user` means a column of that name if there is one, because DuckDB looks
            for columns first.

    Raises:
        Refused: it is not one expression over columns, or contains something that is not accepted.
    """
    node = _statement(connection, f"SELECT\n{where}\n")["node"]
    is_plain = node["type"] == "SELECT_NODE" and all(node[name] == value for name, value in _SELECT_DEFAULTS.items())
    if not is_plain or node["from_table"]["type"] != "EMPTY" or node["cte_map"]["map"]:
        raise Refused("is more than a condition")
    if len(node["select_list"]) != 1:
        raise Refused("is more than one condition")
    (expression,) = node["select_list"]
    if expression["alias"]:
        raise Refused("gives its result a name, or is incomplete")
    for part in _dicts(expression):
        if part.get("class") in _OF_SEVERAL_ROWS:
            raise Refused(_OF_SEVERAL_ROWS[part["class"]])
        if part.get("class") == "FUNCTION" and part["function_name"].lower() in OVER_ROWS | ORDERED:
            raise Refused("calls a function over several rows")
        if part.get("class") == "FUNCTION" and part["function_name"].lower() in UNBOUNDED:
            raise Refused(f"calls '{part['function_name'].lower()}', whose result has no bound on its size")
    return _checked(expression, frozenset(map(_folded, columns)))


def _statement(connection: duckdb.DuckDBPyConnection, query: str) -> dict[str, Any]:
    if len(query) > CHARACTERS_MAX:
        raise Refused(f"has {len(query)} characters, more than {CHARACTERS_MAX}")
    try:
        rows = connection.execute("SELECT json_serialize_sql(?)", [query]).fetchall()
        parsed = json.loads(rows[0][0])
    except (duckdb.Error, RecursionError, ValueError) as error:
        raise Refused(f"cannot be parsed: {_first_line(error)}") from error
    if parsed["error"]:
        if parsed["error_type"] == "parser":
            raise Refused(f"is invalid: {_first_line(parsed['error_message'])}")
        raise Refused("is not a query: only SELECT is accepted")
    if len(parsed["statements"]) != 1:
        raise Refused("has several statements" if parsed["statements"] else "is empty")
    statement: dict[str, Any] = parsed["statements"][0]
    if statement["named_param_map"]:
        raise Refused("has a parameter; write the value out")
    return statement


def _checked(tree: Any, columns: frozenset[str] = frozenset()) -> Parsed:
    """Check each part of a tree, and return what the tree refers to; `columns` are known only for a predicate."""
    tables: list[str] = []
    names: set[str] = set()
    takes_all = False
    for part in _dicts(tree):
        kind, node = part.get("class"), part.get("type")
        if kind is not None:
            if kind not in _EXPRESSIONS:
                raise Refused(f"contains {kind.lower()}, which is not accepted")
            takes_all |= kind == "STAR"
            _check_expression(part, columns)
            if kind == "COLUMN_REF":
                if len(part["column_names"]) > PARTS_MAX:
                    raise Refused(f"has a name of {len(part['column_names'])} parts, more than {PARTS_MAX}")
                names.update(name.lower() for name in part["column_names"])
        elif isinstance(node, str):
            if node not in _NODES and not _is_value_type(part):
                raise Refused(f"contains {node.lower().replace('_', ' ')}, which is not accepted")
            if node in _TABLE_NODES:
                _check_table(part)
            if node == "JOIN":
                takes_all |= part["ref_type"] == "NATURAL"
                names.update(name.lower() for name in part["using_columns"])
            takes_all |= node == "PIVOT"
            if node == "BASE_TABLE":
                tables.append(part["table_name"])
                takes_all |= bool(part["column_name_alias"])
        if part.get("sample") is not None:
            raise Refused("takes a sample, which is different each time")
    # The name or alias of a table, used as a value, is a struct of all of its columns.
    takes_all |= bool(names & ({name.lower() for name in tables} | _aliases(tree)))
    return Parsed(tuple(dict.fromkeys(_tables_outside(tree))), frozenset(names), takes_all)


def _tables_outside(tree: Any) -> Iterator[str]:
    """Find the names of tables, except where a surrounding `with` certainly defines the table.

    As in DuckDB, a part of `with` sees the parts before it; only the second half of a recursive part sees the part
    itself.
    """
    waiting: list[tuple[Any, frozenset[str]]] = [(tree, frozenset())]
    while waiting:
        part, defined = waiting.pop()
        if isinstance(part, list):
            waiting.extend((each, defined) for each in part)
        if not isinstance(part, dict):
            continue
        if part.get("type") == "BASE_TABLE" and _folded(part["table_name"]) not in defined:
            yield part["table_name"]
        inside = defined
        for entry in (part.get("cte_map") or {}).get("map", ()):
            waiting.append((entry["value"], inside))
            inside |= {_folded(entry["key"])}
        for name, value in part.items():
            if name == "right" and part.get("type") == "RECURSIVE_CTE_NODE":
                waiting.append((value, inside | {_folded(part["cte_name"])}))
            elif name != "cte_map":
                waiting.append((value, inside))


def _folded(name: str) -> str:
    """Return a name as DuckDB compares it; `str.lower` would also turn a few letters outside ASCII into ASCII ones."""
    return name.translate(_TO_LOWER)


def _aliases(tree: Any) -> set[str]:
    return {
        part["alias"].lower()
        for part in _dicts(tree)
        if part.get("class") is None and part.get("type") in _TABLE_NODES and part.get("alias")
    }


def _check_expression(part: Mapping[str, Any], columns: frozenset[str]) -> None:
    kind = part["class"]
    if schema := part.get("schema") or part.get("catalog"):
        raise Refused(f"names the schema '{schema}', but functions and types must be written without one")
    if kind in ("FUNCTION", "WINDOW"):
        name = part["function_name"].lower()
        if name not in ACCEPTED:
            raise Refused(f"calls '{name}', which is not accepted")
        if name in BY_NAME:
            _check_called_by_name(name, part["arguments"])
        if name in ORDERED and kind == "FUNCTION" and not part["order_bys"]["orders"]:
            raise Refused(f"calls '{name}' without an order: write {name}(… order by …)")
        if kind == "WINDOW" and not part["orders"]:
            _check_unordered_window(name, part)
    if kind == "COLUMN_REF" and len(part["column_names"]) == 1:
        (name,) = part["column_names"]
        if name.lower() not in OF_THE_SESSION - columns:
            return
        raise Refused(f"uses '{name}', which depends on the clock or the session; write t.{name} for a column of t")


def _check_called_by_name(name: str, arguments: Sequence[Mapping[str, Any]]) -> None:
    """Check the name of the aggregate that a function is to apply to a list.

    The aggregate may depend on the order of its values, because those of a list have an order.
    """
    named = [argument for argument in arguments if argument["name"].lower() == _FUNCTION_NAME]
    is_unpacked = any(argument["expression"]["type"] == "OPERATOR_UNPACK" for argument in arguments)
    called = next(iter(named or arguments[1:2]), None)
    literal = called and called["expression"].get("literal")
    if is_unpacked or not literal or literal["kind"] != "STRING":
        raise Refused(f"calls '{name}' with a computed function: write {name}(…, 'sum'), for example")
    if literal["text"].lower() not in OVER_ROWS | ORDERED:
        raise Refused(f"calls '{literal['text']}', which is not accepted")


def _check_unordered_window(name: str, part: Mapping[str, Any]) -> None:
    if name in ORDERED | BY_PLACE and not part["arg_orders"]:
        raise Refused(f"calls '{name}' without an order: write {name}(…) over (order by …)")
    if any(part[bound].endswith("_ROWS") for bound in ("start", "end")):
        raise Refused(f"calls '{name}' over rows without an order: write over (order by … rows …)")


def _check_table(part: Mapping[str, Any]) -> None:
    node = part["type"]
    if node == "BASE_TABLE":
        if part["schema_name"] or part["catalog_name"]:
            where = ".".join(filter(None, (part["catalog_name"], part["schema_name"], part["table_name"])))
            raise Refused(f"reads '{where}', which is not a collection")
        if part["at_clause"] is not None:
            raise Refused("reads a table at a version; the time of all tables is chosen with the query")
    if node == "JOIN" and part["ref_type"] == "POSITIONAL":
        raise Refused("joins rows by their positions, which mean nothing")
    if node == "TABLE_FUNCTION":
        name = part["function"]["function_name"].lower()
        if name not in TABLES:
            raise Refused(f"calls '{name}', which is not accepted")


def _is_value_type(part: Mapping[str, Any]) -> bool:
    """Return whether a mapping describes a type or a value, which says nothing about what is read."""
    return "id" in part or "type_info" in part or "literal" in part


def _dicts(tree: Any) -> Iterator[dict[str, Any]]:
    waiting = [tree]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            yield part
            waiting.extend(part.values())
        elif isinstance(part, list):
            waiting.extend(part)


def _first_line(error: object) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
