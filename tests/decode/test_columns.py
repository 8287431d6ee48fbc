"""Temporary columns of `tidelake.decode` are declared, each with its type and meaning."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import tidelake.decode
from tidelake.decode import columns
from tidelake.decode.debezium import columns as debezium_columns
from tidelake.store import layout

PACKAGE = Path(tidelake.decode.__file__).parent
OWN_NAMES = {"_corrupt", "_data"}
"""A field inside a parsed value, and the single column of statements that a user has entered."""


def named_columns(path: Path) -> set[str]:
    """The temporary columns whose names a file writes out instead of using the declared constants."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return {text.partition(".")[0] for text in texts if re.fullmatch(r"_[a-z][a-z_]*(\.[a-z0-9_]+)*", text)}


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_decode_uses_only_declared_columns(path: Path) -> None:
    if path.name != "columns.py":
        assert named_columns(path) - OWN_NAMES == set()


@pytest.mark.parametrize("module", [columns, debezium_columns])
def test_a_column_is_declared_once_and_is_not_a_column_of_a_table(module: object) -> None:
    names = [value for name, value in vars(module).items() if name.isupper() and isinstance(value, str)]
    assert len(names) == len(set(names)) > 5
    assert not {layout.TIME, layout.DIFF, layout.RUN, layout.POSITION, layout.UNAVAILABLE, layout.ERROR} & set(names)
