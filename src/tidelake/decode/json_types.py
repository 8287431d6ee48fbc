"""Reads records and arrays from JSON by combining the forms of their parts; see `json_scalars`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidelake.decode.json_scalars import Expression, JsonForm
from tidelake.decode.types import spark_type
from tidelake.errors import SchemaRefused
from tidelake.schema.types import scalar_of
from tidelake.spark.conditions import any_of


def json_form(kind: Any, column: str) -> JsonForm:
    """Return the form of a resolved Avro type without null.

    Raises:
        SchemaRefused: the type cannot be represented in JSON.
    """
    match kind["type"]:
        case "record":
            return record_form(kind, column)
        case "array":
            return _array_form(kind, column)
        case _:
            return spark_type(scalar_of(kind)).json(kind, column)


def record_form(kind: Any, column: str = "") -> JsonForm:
    """Return the form of a record; unknown names are ignored."""
    fields = [
        _Field(field["name"], field["type"], f"{column}.{field['name']}" if column else field["name"])
        for field in kind["fields"]
    ]

    def stored(value: Column) -> Column:
        columns = (field.form.stored(value[field.name]).alias(field.name) for field in fields)
        return F.when(value.isNotNull(), F.struct(*columns))

    def not_text(value: Column) -> Column:
        return F.coalesce(*(field.form.not_text(value[field.name]) for field in fields if field.form.not_text))

    def name_count(value: Column) -> Column:
        return reduce(lambda total, count: total + count, (field.name_count(value[field.name]) for field in fields))

    def with_quoted(value: Column, quoted: Column) -> Column:
        columns = (field.with_quoted(value, quoted).alias(field.name) for field in fields)
        return F.when(value.isNotNull(), F.struct(*columns))

    variant_ddl = _struct_ddl((field.name, field.form.variant_ddl) for field in fields)
    quoted_ddl = _struct_ddl((field.name, field.form.quoted_ddl) for field in fields)
    return JsonForm(
        ddl=_struct_ddl((field.name, field.form.ddl) for field in fields) or "",
        stored=stored,
        problem=_first(fields, lambda field: field.problem),
        suspect=_any((field.name, field.form.suspect) for field in fields),
        variant_ddl=variant_ddl,
        not_text=None if variant_ddl is None else not_text,
        name_count=name_count,
        has_point=_any((field.name, field.form.has_point) for field in fields),
        quoted_ddl=quoted_ddl,
        with_quoted=None if quoted_ddl is None else with_quoted,
    )


class _Field:
    """One field of a record: how it is read, and whether it may be null."""

    def __init__(self, name: str, kind: Any, column: str) -> None:
        branches = kind if isinstance(kind, list) else [kind]
        types = [branch for branch in branches if branch != "null"]
        if len(types) > 1:
            raise SchemaRefused(column, "JSON does not say which type of a union a value has")
        self.name, self.column, self.nullable = name, column, len(types) < len(branches)
        self.form = json_form(types[0], column)

    @property
    def problem(self) -> Expression | None:
        """`<reason> <column>` if the field's value does not fit, or is missing and must not be; else null.

        None if every value is good.
        """
        type_problem = self.form.problem
        if self.nullable:
            return type_problem

        def problem(value: Column) -> Column:
            missing = F.when(value.isNull(), F.lit(f"missing_field {self.column}"))
            return missing if type_problem is None else F.coalesce(missing, type_problem(value))

        return problem

    def name_count(self, value: Column) -> Column:
        """Count the field's own name, if it has a value, and the names inside the value."""
        inside = self.form.name_count
        count = F.lit(1) if inside is None else F.lit(1) + inside(value)
        return F.when(value.isNotNull(), count).otherwise(F.lit(0))

    def with_quoted(self, record: Column, quoted: Column) -> Column:
        """Return the field's value in a record, in which the parts that were read again replace the earlier ones."""
        value = record[self.name]
        return self.form.with_quoted(value, quoted[self.name]) if self.form.with_quoted else value


def _struct_ddl(fields: Iterable[tuple[str, str | None]]) -> str | None:
    types = [f"`{name}`: {ddl}" for name, ddl in fields if ddl is not None]
    return f"struct<{', '.join(types)}>" if types else None


def _first(fields: Iterable[_Field], part: Callable[[_Field], Expression | None]) -> Expression | None:
    checks = [(field.name, check) for field in fields if (check := part(field)) is not None]
    if not checks:
        return None
    return lambda value: F.when(value.isNotNull(), F.coalesce(*(check(value[name]) for name, check in checks)))


def _any(parts: Iterable[tuple[str, Expression | None]]) -> Expression | None:
    checks = [(name, check) for name, check in parts if check is not None]
    if not checks:
        return None
    return lambda value: any_of(check(value[name]) for name, check in checks)


def _array_form(kind: Any, column: str) -> JsonForm:
    item = _Field("item", kind["items"], f"{column}[]")
    form, problem = item.form, item.problem
    suspect, not_text, has_point = form.suspect, form.not_text, form.has_point
    name_count, with_quoted = form.name_count, form.with_quoted
    return JsonForm(
        ddl=f"array<{form.ddl}>",
        stored=lambda value: F.transform(value, form.stored),
        problem=None if problem is None else _first_item(problem),
        suspect=None if suspect is None else lambda value: F.coalesce(F.exists(value, suspect), F.lit(False)),
        variant_ddl=None if form.variant_ddl is None else f"array<{form.variant_ddl}>",
        not_text=None if not_text is None else _first_item(not_text),
        name_count=None
        if name_count is None
        else lambda value: F.aggregate(F.transform(value, name_count), F.lit(0), lambda total, count: total + count),
        has_point=None if has_point is None else lambda value: F.coalesce(F.exists(value, has_point), F.lit(False)),
        quoted_ddl=None if form.quoted_ddl is None else f"array<{form.quoted_ddl}>",
        with_quoted=None if with_quoted is None else lambda value, quoted: F.zip_with(value, quoted, with_quoted),
    )


def _first_item(text: Expression) -> Expression:
    """Return the first non-null text among the items of an array; null if there is none."""
    return lambda value: F.get(F.filter(F.transform(value, text), lambda item: item.isNotNull()), F.lit(0))
