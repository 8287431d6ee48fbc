"""New columns of a schema, and why schemas with any other change are refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tidelake.errors import SchemaRefused
from tidelake.schema.avro import resolved_schema
from tidelake.schema.connect import landing_record, row_schema_of_connect
from tidelake.schema.evolution import Values, added_fields, landed_fields, new_fields, separate_writers

TEXT = ["null", "string"]
MONEY = {"type": "record", "name": "shop.money", "fields": [{"name": "cents", "type": "long"}]}


def record(*fields: tuple[str, Any] | dict[str, Any]) -> dict[str, Any]:
    columns = [field if isinstance(field, dict) else {"name": field[0], "type": field[1]} for field in fields]
    return {"type": "record", "name": "row", "namespace": "shop", "fields": columns}


def names(fields: Sequence[dict[str, Any]]) -> list[str]:
    return [field["name"] for field in fields]


KNOWN = record(("id", "long"), ("net", ["null", MONEY]))


def test_a_new_column_may_refer_by_name_to_a_type_that_another_column_defines() -> None:
    writer = record(("id", "long"), ("net", ["null", MONEY]), ("gross", ["null", "shop.money"]), ("all", TEXT))
    fresh = new_fields(Values(KNOWN), writer)
    assert names(fresh) == ["gross", "all"]
    grown = Values(KNOWN).with_fields(fresh)
    resolved_schema(dict(grown.record))  # no name is defined twice
    again = record(*writer["fields"], ("paid", ["null", "shop.money"]))
    resolved_schema(dict(grown.with_fields(new_fields(grown, again)).record))
    assert new_fields(grown, writer) == ()


@pytest.mark.parametrize(
    ("writer", "column", "reason"),
    [
        (record(("id", "long"), ("net", ["null", MONEY]), ("n", "int")), "n", "cannot be null and has no default"),
        (record(("id", "long"), ("gross", ["null", MONEY])), "gross", "new, but 'net' is missing"),
        (record(("id", "string"), ("net", ["null", MONEY])), "id", "a different type"),
        (record(("net", ["null", MONEY])), "id", "not written, cannot be null"),
        (record(("id", "long"), ("net", ["null", MONEY]), ("Key", TEXT)), "Key", "from keys or metadata"),
        (record(("id", "long"), ("net", ["null", MONEY]), ("ID", TEXT)), "ID", "clashes with 'id'"),
    ],
)
def test_a_change_that_is_not_additive_is_refused_and_the_column_is_reported(
    writer: dict[str, Any], column: str, reason: str
) -> None:
    with pytest.raises(SchemaRefused, match=reason) as refused:
        new_fields(Values(KNOWN, elsewhere=("key",)), writer)
    assert refused.value.column == column


def test_a_new_column_with_a_default_is_nullable_and_a_narrower_type_is_not_a_change() -> None:
    writer = record(("id", "int"), ("net", ["null", MONEY]), {"name": "n", "type": "int", "default": 1})
    assert new_fields(Values(KNOWN), writer) == ({"name": "n", "type": ["null", {"type": "int"}]},)


def test_topics_of_one_collection_may_each_add_columns_of_their_own() -> None:
    writers = {1: record(("id", "long"), ("a", TEXT)), 2: record(("id", "long"), ("b", TEXT))}
    known = Values(record(("id", "long")), may_lack=("a", "b"))
    result = separate_writers(known, writers, True, lambda writer: writer)
    assert names(result.values.record["fields"]) == ["id", "a", "b"] and set(result.usable) == {1, 2}
    strict = separate_writers(Values(record(("id", "long"))), writers, True, lambda writer: writer)
    assert names(strict.values.record["fields"]) == ["id", "a"]
    assert "'b' is refused: it is new, but 'a' is missing" in strict.refused[2]
    fixed = separate_writers(Values(record(("id", "long"))), writers, False, lambda writer: writer)
    assert set(fixed.refused) == {1, 2}


def test_a_column_that_was_dropped_before_does_not_turn_a_later_new_column_into_a_rename() -> None:
    older, dropped = record(("id", "long"), ("a", TEXT)), record(("id", "long"))
    writers = {1: older, 2: dropped, 3: record(("id", "long"), ("b", TEXT))}
    result = separate_writers(Values(older), writers, True, lambda writer: writer)
    assert names(result.values.record["fields"]) == ["id", "a", "b"] and not result.refused
    # If the first two change places, `b` may be a rename of `a`: the writer without `a` is then older than the one with
    # `a`, so nothing shows that `a` was dropped.
    reordered = {1: dropped, 2: older, 3: record(("id", "long"), ("b", TEXT))}
    assert set(separate_writers(Values(older), reordered, True, lambda writer: writer).refused) == {3}


def test_columns_of_change_events_keep_the_names_of_connects_types() -> None:
    decimal = {
        "type": "struct",
        "name": "io.debezium.data.VariableScaleDecimal",
        "optional": True,
        "fields": [{"field": "scale", "type": "int32"}, {"field": "value", "type": "bytes"}],
    }
    columns = [{"field": "id", "type": "int32"}, {"field": "big", **decimal}]
    day = {"field": "day", "type": "int32", "optional": True, "name": "io.debezium.time.Date"}
    known = Values(row_schema_of_connect({"type": "struct", "fields": columns}), of_changes=True)
    writer = row_schema_of_connect({"type": "struct", "fields": [*columns, day, {**decimal, "field": "bigger"}]})
    grown = known.with_fields(new_fields(known, writer))
    assert names(landing_record(grown.record)["fields"]) == ["id", "big", "day", "bigger"]
    assert [field["type"][1]["type"] for field in landed_fields(grown, ["day", "bigger"])] == ["int", "string"]
    wider = row_schema_of_connect({"type": "struct", "fields": [{"field": "id", "type": "int64"}, columns[1]]})
    with pytest.raises(SchemaRefused, match="'id' is refused: it is written as a different type"):
        new_fields(known, wider)
    assert new_fields(Values(wider, of_changes=True), known.record) == ()


def test_settings_may_list_columns_in_any_order_and_omit_those_that_were_added_later() -> None:
    table = record(("id", "long"), ("a", TEXT), ("b", TEXT))
    assert names(added_fields(table, record(("c", TEXT), ("a", TEXT), ("id", "long")), added=("b",))) == ["c"]
    with pytest.raises(SchemaRefused, match="'b' is refused: it is missing"):
        added_fields(table, record(("id", "long"), ("a", TEXT)), added=())
