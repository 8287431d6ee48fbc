"""The landing of a record schema: its Arrow and Delta types, Spark's schema for decoding, and the conversion.

The conversion turns what Spark decodes into what is stored.

A column whose union has several branches lands as a struct with one nullable field for each branch. Spark would merge
some branches (`int` with `long`), and would name the others by their numbers. So each branch is decoded as a record
whose only field has the branch's name: such a record has the bytes of its field.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from tidelake.decode.types import spark_type
from tidelake.errors import SchemaRefused
from tidelake.schema.types import PRIMITIVES, ZONELESS, Family, scalar_type
from tidelake.spark.conditions import any_of
from tidelake.store.table_schema import scalar_arrow_type

AvroType = Any
"""A parsed Avro schema: a name, a list of branches, or a mapping with `type`."""

ROW_TEXT = {"ignoreNullFields": "false", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}
"""Options with which Spark writes a row as JSON for people: nulls included, timestamps in UTC."""


_Check = Callable[[Column], Column]


@dataclass(frozen=True)
class Landing:
    """The decoding and the stored form of one Avro type."""

    arrow: pa.DataType
    decoding: AvroType
    """The Avro type that Spark decodes with; it reads the bytes of the original type."""
    project: Callable[[Column], Column] | None = None
    """Converts the decoded value to the stored one; None if they are the same."""
    not_text: _Check | None = None
    """Whether a string in the value is invalid UTF-8, which Spark would accept; None if the type has no string."""
    too_large: _Check | None = None
    """Whether a decimal in the value, decoded as a wider type, has too many digits; None if no decimal is widened."""
    fields: tuple[tuple[str, Landing], ...] = ()
    """The landings of a record's fields."""

    @property
    def broken(self) -> _Check | None:
        """Whether either check holds, never null; None if there is nothing to check."""
        return _any_of([(lambda value: value, check) for check in (self.not_text, self.too_large)])


@dataclass
class _Names:
    """The named types seen so far, and fresh names for decoding: Avro's bytes do not hold names."""

    defined: dict[str, AvroType] = field(default_factory=dict)
    used: int = 0

    def fresh(self) -> str:
        self.used += 1
        return f"n{self.used}"


def land_record(record_schema: AvroType) -> Landing:
    """Return the landing of the whole record; its Arrow type is a struct of the table's data columns.

    Raises:
        SchemaRefused: a table cannot hold a column; the error names the column and the reason.
    """
    return _land(record_schema, _Names(), "data", "")


def _land(kind: AvroType, names: _Names, column: str, namespace: str) -> Landing:
    if isinstance(kind, str):
        if kind in PRIMITIVES:
            return _land_scalar({"type": kind}, kind)
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
    if isinstance(inner, str) and inner in PRIMITIVES:
        if str(kind.get("logicalType", "")).startswith(ZONELESS):
            raise SchemaRefused(column, "a timestamp without a zone needs a table protocol that not every reader knows")
        return _land_scalar(kind, inner)
    if inner == "map":
        raise SchemaRefused(column, "maps cannot be compared or grouped")
    return _land(inner, names, column, namespace)


def _land_scalar(kind: AvroType, decoding: AvroType) -> Landing:
    """Return the landing of a scalar type; `decoding` is the type for Spark, without its logical type."""
    scalar = scalar_type(kind["type"], str(kind.get("logicalType", "")))
    digits = (int(kind["precision"]), int(kind.get("scale", 0))) if scalar.family is Family.DECIMAL else ()
    arrow = scalar_arrow_type(scalar, *digits)
    form = spark_type(scalar).avro(kind)
    if form.properties:
        decoding = {**({"type": decoding} if isinstance(decoding, str) else decoding), **form.properties}
    return Landing(arrow, decoding, form.project, form.not_text, form.too_large)


def _land_named(kind: AvroType, names: _Names, column: str, namespace: str) -> Landing:
    name, space = str(kind.get("name", "")), str(kind.get("namespace", namespace))
    full = name if "." in name or not space else f"{space}.{name}"
    names.defined[full] = kind
    space = full.rpartition(".")[0]
    if kind["type"] == "enum":
        return _land_scalar(kind, {"type": "enum", "name": names.fresh(), "symbols": kind["symbols"]})
    if kind["type"] == "fixed":
        return _land_scalar(kind, {"type": "fixed", "name": names.fresh(), "size": kind["size"]})
    fields = [
        (str(part["name"]), _land(part["type"], names, f"{column}.{part['name']}", space)) for part in kind["fields"]
    ]
    return Landing(
        arrow=pa.struct([pa.field(name, landing.arrow) for name, landing in fields]),
        decoding={
            "type": "record",
            "name": names.fresh(),
            "fields": [{"name": name, "type": landing.decoding} for name, landing in fields],
        },
        project=_project_struct(fields),
        not_text=_any_of([(_field(name), landing.not_text) for name, landing in fields]),
        too_large=_any_of([(_field(name), landing.too_large) for name, landing in fields]),
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
        too_large=_any_item(items.too_large),
    )


def _land_union(branches: list[AvroType], names: _Names, column: str, namespace: str) -> Landing:
    real = [(_branch_name(branch), branch) for branch in branches if branch != "null"]
    if not real:
        raise SchemaRefused(column, "a column cannot have null as its only type")
    optional = len(real) < len(branches)
    if len(real) == 1:
        landing = _land(real[0][1], names, column, namespace)
        decoding = (
            [landing.decoding if branch != "null" else "null" for branch in branches]
            if optional
            else [landing.decoding]
        )
        return Landing(landing.arrow, decoding, landing.project, landing.not_text, landing.too_large)
    if len({name.lower() for name, _ in real}) < len(real):
        raise SchemaRefused(column, "two branches of a union have the same name")
    landed = iter([(name, _land(branch, names, f"{column}.{name}", namespace)) for name, branch in real])
    pairs: list[tuple[str, Landing]] = []
    decoding = []
    for branch in branches:
        if branch == "null":
            decoding.append("null")
            continue
        name, landing = next(landed)
        pairs.append((name, landing))
        field_of_branch = {"name": name, "type": landing.decoding}
        decoding.append({"type": "record", "name": names.fresh(), "fields": [field_of_branch]})

    accessors = [_branch(index, name) for index, (name, _) in enumerate(pairs)]

    def project(value: Column) -> Column:
        columns = [
            (access(value) if landing.project is None else landing.project(access(value))).alias(name)
            for access, (name, landing) in zip(accessors, pairs, strict=True)
        ]
        return F.when(value.isNotNull(), F.struct(*columns))

    return Landing(
        arrow=pa.struct([pa.field(name, landing.arrow) for name, landing in pairs]),
        decoding=decoding,
        project=project,
        not_text=_any_of([(access, landing.not_text) for access, (_, landing) in zip(accessors, pairs, strict=True)]),
        too_large=_any_of([(access, landing.too_large) for access, (_, landing) in zip(accessors, pairs, strict=True)]),
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
    """Return a check that holds if the check of any part of a value holds; its result is never null."""
    checks = [(part, check) for part, check in parts if check is not None]
    if not checks:
        return None
    return lambda value: any_of(F.coalesce(check(part(value)), F.lit(False)) for part, check in checks)


def _any_item(check: _Check | None) -> _Check | None:
    """Return a check that holds if the check of any item of a list holds."""
    if check is None:
        return None
    return lambda value: F.exists(value, lambda item: F.coalesce(check(item), F.lit(False)))
