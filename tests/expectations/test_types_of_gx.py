"""The list of types of expectations agrees with the installed library."""

from __future__ import annotations

import json

from expectations.types_of_gx import types_of_gx
from tidelake.settings.expectations import TYPES_FILE, known_types


def test_the_table_is_that_of_the_installed_library() -> None:
    table = json.loads(TYPES_FILE.read_text(encoding="utf-8"))
    assert table == types_of_gx(), "run `python -m expectations.types_of_gx`"
    assert len(known_types()) > 45
    assert known_types()["expect_column_values_to_not_be_null"] == {
        "all": ["column", "condition_parser", "mostly", "row_condition"],
        "required": ["column"],
    }
