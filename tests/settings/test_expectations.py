"""Expectations in the settings: an invalid one is refused when the settings load, with file and line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tidelake.errors import ConfigurationError
from tidelake.settings.collection import CollectionSettings
from tidelake.settings.lake import load_settings

SCHEMA = "{type: record, name: data, fields: [{name: id, type: long}, {name: price, type: ['null', int]}]}"
EVENTS = (
    "{type: record, name: event, fields: ["
    "{name: before, type: ['null', {type: record, name: row, fields: [{name: id, type: long}]}]}, "
    "{name: after, type: ['null', row]}]}"
)


def load(tmp_path: Path, expectations: str, collection: str = f"family: plain\n    schema: {SCHEMA}") -> Any:
    file = tmp_path / "collections.yaml"
    file.write_text(
        f"collections:\n  orders:\n    topic: orders\n    {collection}\n    expectations:\n{expectations}",
        encoding="utf-8",
    )
    return load_settings(file).collection("orders")


def test_names_are_made_from_columns_and_types_and_arguments_are_kept(tmp_path: Path) -> None:
    settings: CollectionSettings = load(
        tmp_path,
        "      - {type: expect_column_values_to_not_be_null, column: id, blocking: true}\n"
        "      - {type: expect_column_values_to_be_between, column: price, min_value: 0, mostly: 0.9,\n"
        "         severity: warning, description: prices are not negative}\n"
        "      - {type: expect_compound_columns_to_be_unique, column_list: [id, price], name: rows_are_unique}\n"
        "      - {type: expect_table_row_count_to_be_between, min_value: 1}\n",
    )
    assert [(own.name, own.blocking, own.severity) for own in settings.expectations] == [
        ("id_values_to_not_be_null", True, "critical"),
        ("price_values_to_be_between", False, "warning"),
        ("rows_are_unique", False, "critical"),
        ("table_row_count_to_be_between", False, "critical"),
    ]
    assert settings.expectations[1].arguments == {"column": "price", "min_value": 0, "mostly": 0.9}
    assert settings.expectations[1].text == "prices are not negative"
    assert settings.expectations[0].text == "column values to not be null: column 'id'"


@pytest.mark.parametrize(
    ("written", "line", "problem", "fix"),
    [
        (
            "- {type: expect_column_values_to_not_be_nul, column: id}",
            7,
            "expectations.0.type: is not a type of expectation: 'expect_column_values_to_not_be_nul'",
            "did you mean expect_column_values_to_not_be_null",
        ),
        (
            "- type: expect_column_values_to_not_be_null\n        columm: id",
            8,
            "expectations.0.columm: is not an argument of expect_column_values_to_not_be_null",
            "did you mean column",
        ),
        (
            "- type: expect_column_values_to_not_be_null\n        column: prize",
            8,
            "expectations.0.column: is not a column of the table: 'prize'",
            "did you mean price",
        ),
        ("- {type: expect_column_values_to_not_be_null}", 7, "expectations.0.column: is missing", "give the argument"),
        ("- expect_column_values_to_not_be_null", 7, "expectations.0: names no type", "write `type: expect_…`"),
        (
            "- {type: expect_compound_columns_to_be_unique, column_list: [id, prize]}",
            7,
            "expectations.0.column_list: is not a column of the table: 'prize'",
            "did you mean price",
        ),
        (
            "- {type: expect_column_values_to_be_unique, column: id, severity: error}",
            7,
            "expectations.0.severity: input should be 'critical' or 'warning', not 'error'",
            "see docs/reports.md",
        ),
        (
            "- {type: expect_column_values_to_be_unique, column: id, severity: warning, blocking: true}",
            7,
            "expectations.0.blocking: is true, but a warning never blocks",
            "leave out",
        ),
        (
            "- {type: expect_column_values_to_be_unique, column: id}\n"
            "      - {type: expect_column_values_to_be_unique, column: id, mostly: 0.5}",
            8,
            "expectations.1: has the same name as another expectation: id_values_to_be_unique",
            "give one of them a `name`",
        ),
        (
            "- {type: expect_column_values_to_be_unique, column: id, name: frontier_moves}",
            7,
            "expectations.0: has the name of another check: frontier_moves",
            "give it another `name`",
        ),
        ("- {type: expect_column_values_to_be_unique, column: id, name: No!}", 7, "name: is not a name: 'No!'", "use"),
    ],
)
def test_an_invalid_expectation_is_refused_with_its_line(
    tmp_path: Path, written: str, line: int, problem: str, fix: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(tmp_path, f"      {written}\n")
    text = str(caught.value)
    assert f"collections.yaml, line {line}: " in text
    assert problem in text and fix in text


def test_a_list_is_required(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="expectations: is not a list"):
        load(tmp_path, "      type: expect_column_values_to_be_unique\n")
    assert load(tmp_path, "      []\n").expectations == ()


def test_the_columns_are_those_of_the_contents(tmp_path: Path) -> None:
    unique = "      - {{type: expect_column_values_to_be_unique, column: {}}}\n"
    events = f"family: debezium\n    schema: {EVENTS}"
    assert load(tmp_path, unique.format("id"), events).expectations
    assert load(tmp_path, unique.format("_diff")).expectations
    with pytest.raises(ConfigurationError, match="not a column of the table: 'before'"):
        load(tmp_path, unique.format("before"), events)
    many = ", ".join(f"{{name: c{number}, type: int}}" for number in range(30))
    wide = f"family: plain\n    schema: {{type: record, name: data, fields: [{many}]}}"
    with pytest.raises(ConfigurationError, match=r"'zzz'\nhint: the table has 31 columns, such as c0, c1, c2"):
        load(tmp_path, unique.format("zzz"), wide)
    # The source may add columns, so whether this one exists is only known when the contents are judged.
    growing = (
        f"family: append_only\n    framing: reclock\n    format: json\n    evolution: additive\n    schema: {SCHEMA}"
    )
    assert load(tmp_path, unique.format("later"), growing).expectations


def test_neither_settings_nor_status_import_the_library(tmp_path: Path) -> None:
    (tmp_path / "topics" / "orders").mkdir(parents=True)
    text = "      - {type: expect_column_values_to_be_unique, column: id}\n"
    load(tmp_path, text)
    file = tmp_path / "collections.yaml"
    file.write_text(f"store: {tmp_path}/store\ntopics: {tmp_path}/topics\n{file.read_text()}", encoding="utf-8")
    program = (
        "import sys; from tidelake import open_lake; print(open_lake(sys.argv[1]).status()); "
        "print({'great_expectations', 'pandas', 'jinja2', 'altair', 'pyspark'} & set(sys.modules))"
    )
    shown = subprocess.run([sys.executable, "-c", program, str(file)], capture_output=True, text=True, check=True)
    assert shown.stdout.splitlines() == ["{'orders': None}", "set()"]
