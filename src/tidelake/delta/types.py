"""How a record schema lands: Arrow and Delta types, the schema that Spark decodes with, and the way between them.

A column whose union has several branches lands as a struct with one nullable field for each branch. Spark would merge
some branches (`int` with `long`) and number the rest, so each branch is decoded as a record of one field that bears the
branch's name: a record's bytes are its field's bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from tidelake.delta.conditions import any_of
from tidelake.delta.layout import DIFF, ERROR, POSITION, RUN, TIME, UNAVAILABLE
from tidelake.errors import SchemaRefused

AvroType = Any
"""A parsed Avro schema: a name, a list of branches, or a mapping with `type`."""

ROW_TEXT = {"ignoreNullFields": "false", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}
"""How Spark writes a row as JSON for people: nulls too, timestamps in UTC."""

_PRIMITIVES: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_DECIMAL_BYTES_KEPT = 8
"""Of a decimal of at most 18 digits Spark's decoder keeps so many bytes, the last ones, and says nothing."""
_DECIMAL_DIGITS_EXACT = 19
_LOGICAL: dict[tuple[str, str], pa.DataType] = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): pa.timestamp("us", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
}


_Check = Callable[[Column], Column]


@dataclass(frozen=True)
class Landing:
    """One Avro type on its way into a table."""

    arrow: pa.DataType
    decoding: AvroType
    """What Spark decodes with; it reads the same bytes."""
    project: Callable[[Column], Column] | None = None
    """From what Spark decodes to what is stored; None where they are the same."""
    not_text: _Check | None = None
    """True where a string inside is not UTF-8, which Spark's decoder lets through; None where there is no string."""
    beyond: _Check | None = None
    """True where a decimal inside has too many digits, which was decoded with more; None where there is none."""
    fields: tuple[tuple[str, Landing], ...] = ()
    """Of a record, how each of its fields lands."""

    @property
    def broken(self) -> _Check | None:
        """True where either is; never null. None where nothing has to be asked."""
        return _any_of([(lambda value: value, check) for check in (self.not_text, self.beyond)])


@dataclass
class _Names:
    """The named types seen so far, and fresh names for decoding: Avro's bytes do not hold names."""

    defined: dict[str, AvroType] = field(default_factory=dict)
    used: int = 0

    def fresh(self) -> str:
        self.used += 1
        return f"n{self.used}"


def land_record(record_schema: AvroType) -> Landing:
    """How the whole record lands; its Arrow type is a struct of the table's data columns.

    Raises:
        SchemaRefused: naming the column and the reason.
    """
    return _land(record_schema, _Names(), "data", "")


def data_fields(record_schema: AvroType) -> list[pa.Field]:
    """The table's data columns."""
    return list(land_record(record_schema).arrow)


_SYSTEM = (pa.field(TIME, pa.int64()), pa.field(DIFF, pa.int64()))
"""First in every table, so that the one column with statistics is `_time`: see docs/decisions/statistics.md."""


_POSITIONED = (
    pa.field(POSITION, pa.list_(pa.int64())),
    pa.field(UNAVAILABLE, pa.list_(pa.string())),
    pa.field(ERROR, pa.string()),
)
"""What the positioned form needs beside them; see `tidelake.delta.positioned`."""


def updates_schema(record_schema: AvroType, positioned: bool = False) -> pa.Schema:
    """The schema of `updates/`: `_time`, `_diff`, the form's own, the data's columns, the partition column `_run`."""
    more = _POSITIONED if positioned else ()
    return pa.schema([*_SYSTEM, *more, *data_fields(record_schema), pa.field(RUN, pa.string())])


def late_schema(record_schema: AvroType) -> pa.Schema:
    """The schema of `late/`: a statement about a sealed time, and where it was read."""
    source = [pa.field("_topic", pa.string()), pa.field("_partition", pa.int32()), pa.field("_offset", pa.int64())]
    return pa.schema([*_SYSTEM, *data_fields(record_schema), *source, pa.field(RUN, pa.string())])


def spark_schema(schema: pa.Schema) -> StructType:
    """The same columns without `_run`, as Spark types."""
    kept = pa.schema([one for one in schema if one.name != RUN])
    return from_arrow_schema(kept)


def _land(kind: AvroType, names: _Names, column: str, namespace: str) -> Landing:
    if isinstance(kind, str):
        if kind in _PRIMITIVES:
            return _leaf(_PRIMITIVES[kind], kind)
        full = kind if kind in names.defined else f"{namespace}.{kind}"
        if full in names.defined:
            return _land(names.defined[full], names, column, namespace)
        raise SchemaRefused(column, f"the type '{kind}' is not known")
    if isinstance(kind, list):
        return _land_union(kind, names, column, namespace)
    inner = kind["type"]
    if inner in {"record", "enum", "fixed"}:
        return _land_named(kind, names, column, namespace)
    if inner == "array":
        return _land_array(kind, names, column, namespace)
    if isinstance(inner, str) and inner in _PRIMITIVES:
        return _land_logical(kind, inner, column)
    if inner == "map":
        raise SchemaRefused(column, "maps cannot be compared or grouped")
    return _land(inner, names, column, namespace)


def _leaf(arrow: pa.DataType, decoding: AvroType) -> Landing:
    if pa.types.is_string(arrow) and decoding == "string":
        return Landing(arrow, decoding, not_text=lambda value: ~F.is_valid_utf8(value))
    return Landing(arrow, decoding)


def _land_logical(kind: AvroType, inner: str, column: str) -> Landing:
    logical = str(kind.get("logicalType", ""))
    if logical == "decimal" and inner == "bytes":
        return _land_decimal(kind, {"type": inner}, may_be_long=True)
    if logical.startswith("local-timestamp"):
        raise SchemaRefused(column, "a timestamp without a zone needs a table protocol that not every reader knows")
    if (inner, logical) in _LOGICAL:
        return Landing(_LOGICAL[inner, logical], {"type": inner, "logicalType": logical})
    return _leaf(_PRIMITIVES[inner], inner)


def _land_decimal(kind: AvroType, decoding: dict[str, Any], may_be_long: bool) -> Landing:
    """A decimal; one that may have more bytes than Spark's decoder keeps is decoded as if it had more digits."""
    precision, scale = int(kind["precision"]), int(kind.get("scale", 0))
    arrow, decoded = pa.decimal128(precision, scale), precision
    project = beyond = None
    if may_be_long and precision < _DECIMAL_DIGITS_EXACT:
        decoded, bound = _DECIMAL_DIGITS_EXACT, Decimal(10) ** (precision - scale)

        def project(value: Column) -> Column:
            return value.try_cast(f"decimal({precision}, {scale})")

        def beyond(value: Column) -> Column:
            return F.abs(value) >= F.lit(bound)

    logical = {"logicalType": "decimal", "precision": decoded, "scale": scale}
    return Landing(arrow, decoding | logical, project, beyond=beyond)


def _land_named(kind: AvroType, names: _Names, column: str, namespace: str) -> Landing:
    name, space = str(kind.get("name", "")), str(kind.get("namespace", namespace))
    full = name if "." in name or not space else f"{space}.{name}"
    names.defined[full] = kind
    space = full.rpartition(".")[0]
    if kind["type"] == "enum":
        return Landing(pa.string(), {"type": "enum", "name": names.fresh(), "symbols": kind["symbols"]})
    if kind["type"] == "fixed":
        decoding = {"type": "fixed", "name": names.fresh(), "size": kind["size"]}
        if kind.get("logicalType") == "decimal":
            return _land_decimal(kind, decoding, may_be_long=int(kind["size"]) > _DECIMAL_BYTES_KEPT)
        return Landing(pa.binary(), decoding)
    fields = [(str(one["name"]), _land(one["type"], names, f"{column}.{one['name']}", space)) for one in kind["fields"]]
    return Landing(
        arrow=pa.struct([pa.field(name, landing.arrow) for name, landing in fields]),
        decoding={
            "type": "record",
            "name": names.fresh(),
            "fields": [{"name": name, "type": landing.decoding} for name, landing in fields],
        },
        project=_project_struct(fields),
        not_text=_any_of([(_field(name), landing.not_text) for name, landing in fields]),
        beyond=_any_of([(_field(name), landing.beyond) for name, landing in fields]),
        fields=tuple(fields),
    )


def _land_array(kind: AvroType, names: _Names, column: str, namespace: str) -> Landing:
    items = _land(kind["items"], names, f"{column}[]", namespace)
    project = items.project
    return Landing(
        arrow=pa.list_(items.arrow),
        decoding={"type": "array", "items": items.decoding},
        project=None if project is None else lambda value: F.transform(value, project),
        not_text=_any_item(items.not_text),
        beyond=_any_item(items.beyond),
    )


def _land_union(branches: list[AvroType], names: _Names, column: str, namespace: str) -> Landing:
    real = [(_branch_name(one), one) for one in branches if one != "null"]
    if not real:
        raise SchemaRefused(column, "null alone is not a type of a column")
    optional = len(real) < len(branches)
    if len(real) == 1:
        landing = _land(real[0][1], names, column, namespace)
        decoding = (
            [landing.decoding if one != "null" else "null" for one in branches] if optional else [landing.decoding]
        )
        return Landing(landing.arrow, decoding, landing.project, landing.not_text, landing.beyond)
    if len({name.lower() for name, _ in real}) < len(real):
        raise SchemaRefused(column, "two branches of a union have one name")
    landed = iter([(name, _land(one, names, f"{column}.{name}", namespace)) for name, one in real])
    pairs: list[tuple[str, Landing]] = []
    decoding = []
    for one in branches:
        if one == "null":
            decoding.append("null")
            continue
        name, landing = next(landed)
        pairs.append((name, landing))
        field_of_branch = {"name": name, "type": landing.decoding}
        decoding.append({"type": "record", "name": names.fresh(), "fields": [field_of_branch]})

    branches_of = [_branch(index, name) for index, (name, _) in enumerate(pairs)]

    def project(value: Column) -> Column:
        columns = [
            (branch(value) if landing.project is None else landing.project(branch(value))).alias(name)
            for branch, (name, landing) in zip(branches_of, pairs, strict=True)
        ]
        return F.when(value.isNotNull(), F.struct(*columns))

    return Landing(
        arrow=pa.struct([pa.field(name, landing.arrow) for name, landing in pairs]),
        decoding=decoding,
        project=project,
        not_text=_any_of([(one, landing.not_text) for one, (_, landing) in zip(branches_of, pairs, strict=True)]),
        beyond=_any_of([(one, landing.beyond) for one, (_, landing) in zip(branches_of, pairs, strict=True)]),
    )


def _branch_name(kind: AvroType) -> str:
    if isinstance(kind, str):
        return kind.rpartition(".")[2]
    if kind["type"] in {"record", "enum", "fixed"}:
        return str(kind["name"]).rpartition(".")[2]
    return str(kind["type"])


def _project_struct(fields: list[tuple[str, Landing]]) -> Callable[[Column], Column] | None:
    if all(landing.project is None for _, landing in fields):
        return None

    def project(value: Column) -> Column:
        columns = [
            (value[name] if landing.project is None else landing.project(value[name])).alias(name)
            for name, landing in fields
        ]
        return F.when(value.isNotNull(), F.struct(*columns))

    return project


def _field(name: str) -> Callable[[Column], Column]:
    return lambda value: value[name]


def _branch(index: int, name: str) -> Callable[[Column], Column]:
    return lambda value: value[f"member{index}"][name]


def _any_of(parts: Sequence[tuple[Callable[[Column], Column], _Check | None]]) -> _Check | None:
    """Whether the check of any part of a value holds; never null."""
    checks = [(part, check) for part, check in parts if check is not None]
    if not checks:
        return None
    return lambda value: any_of(F.coalesce(check(part(value)), F.lit(False)) for part, check in checks)


def _any_item(check: _Check | None) -> _Check | None:
    """Whether the check of any item of a list holds."""
    if check is None:
        return None
    return lambda value: F.exists(value, lambda one: F.coalesce(check(one), F.lit(False)))
