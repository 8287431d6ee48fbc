"""Schema evolution of a collection: finds the new columns of a schema, and refuses schemas that change more.

New columns are nullable and come after the existing ones; every earlier row is null in them. The type and the
name of an existing column never change, nor does the key.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tidelake.errors import SchemaRefused
from tidelake.schema.avro import resolved_schema
from tidelake.schema.columns import column_types
from tidelake.schema.connect import landing_record, wire_types, without_references
from tidelake.schema.resolution import resolve
from tidelake.schema.types import is_promotion

Record = Mapping[str, Any]
Field = dict[str, Any]


@dataclass(frozen=True)
class Values:
    """The columns that come from the values of a collection's records.

    Args:
        record: the columns; for change events those of a row, with Connect's type names.
        of_changes: whether `record` is the row of change events.
        elsewhere: columns of the table that come from keys and metadata, not from values.
        may_lack: the only columns that a schema with new columns may lack. If another column is missing, it may have
            been renamed to a new one.
    """

    record: Record
    of_changes: bool = False
    elsewhere: Collection[str] = ()
    may_lack: Collection[str] = ()

    def with_fields(self, fields: Collection[Field]) -> Values:
        """Return the same values with new columns."""
        return replace(self, record={**self.record, "fields": [*self.record["fields"], *fields]})


def check_written(values: Values, writer: Record) -> None:
    """Check that records of `writer` can be read as the known columns.

    Further columns are ignored in change events, and refused in all other records.

    Raises:
        SchemaRefused: names the first column that cannot be read, or would lose data, and the reason.
    """
    if not values.of_changes:
        resolve(dict(values.record), dict(writer))
        return
    written = dict(wire_types(writer))
    for name, ours in wire_types(values.record):
        if name not in written:
            if not ours.nullable:
                raise SchemaRefused(name, "it is missing, but cannot be null")
            continue
        theirs = written[name]
        widens = ours.conversion == theirs.conversion == "as_is" and is_promotion(theirs.name, ours.name)
        if theirs.landing != ours.landing and not widens:
            raise SchemaRefused(name, "it is written as a different type, which does not widen to the collection's")


def new_fields(values: Values, writer: Record, checks_types: bool = True) -> tuple[Field, ...]:
    """Return the new columns of `writer`, as nullable columns.

    Args:
        values: the known columns.
        writer: the writer's record.
        checks_types: whether to check the types of known columns as well; in JSON they are checked value by value.

    Raises:
        SchemaRefused: names the first column that makes the schema non-additive, and the reason.

    >>> def of(**fields):
    ...     return {"type": "record", "name": "r", "fields": [{"name": name, "type": fields[name]} for name in fields]}
    >>> new_fields(Values(of(id="long")), of(id="int", note=["null", "string"]))
    ({'name': 'note', 'type': ['null', {'type': 'string'}]},)
    >>> new_fields(Values(of(id="long", note=["null", "string"])), of(id="long", remark=["null", "string"]))
    Traceback (most recent call last):
    tidelake.errors.SchemaRefused: column 'remark' is refused: it is new, but 'note' is missing, so it may be a rename
    """
    known = [field["name"] for field in values.record["fields"]]
    written = {field["name"] for field in writer["fields"]}
    fields = standalone_fields(writer, values.of_changes)
    added = [
        {"name": field["name"], "type": _nullable(field, "default" in stated)}
        for field, stated in zip(fields, writer["fields"], strict=True)
        if field["name"] not in known
    ]
    missing = [name for name in known if name not in written and name not in values.may_lack]
    if added and missing:
        raise SchemaRefused(added[0]["name"], f"it is new, but '{missing[0]}' is missing, so it may be a rename")
    existing = [field for field in fields if field["name"] in known]
    if checks_types and (existing or not added):
        check_written(values, {**writer, "fields": existing})
    taken = {name.lower() for name in values.elsewhere}
    for field in added:
        if field["name"].lower() in taken:
            raise SchemaRefused(
                field["name"],
                "it is new in the values, but the table already has a column of this name, from keys or metadata",
            )
    landed_fields(values.with_fields(added), [field["name"] for field in added])
    return tuple(added)


def landed_fields(values: Values, names: Collection[str]) -> list[Field]:
    """Return the columns in `names`, with the types of a table.

    Raises:
        SchemaRefused: a table cannot have one of these columns.
    """
    record = dict(values.record)
    landed = landing_record(record) if values.of_changes else record
    return [_with_own_names(field) for field in resolved_schema(landed)["fields"] if field["name"] in names]


def grow(values: Values, writers: Iterable[Callable[[], Record]], checks_types: bool = True) -> Values:
    """Add the new columns of several schemas; a non-additive schema adds no columns.

    A column counts as dropped once a schema that adds no columns lacks it. All later schemas may lack the column, and
    still add columns.

    Args:
        values: the known columns.
        writers: functions that return the writers' records, oldest first; each may refuse its schema.
        checks_types: see `new_fields`.
    """
    had: set[str] = set()
    for row_of in writers:
        try:
            writer = row_of()
            fresh = new_fields(values, writer, checks_types)
        except SchemaRefused:  # `separate_writers` reports it, once all columns are known
            continue
        written = {field["name"] for field in writer["fields"]}
        dropped = () if fresh else had - written
        values = replace(values.with_fields(fresh), may_lack=(*values.may_lack, *dropped))
        had |= written
    return values


@dataclass(frozen=True)
class SeparatedWriters:
    """The schemas of several writers, usable and refused."""

    values: Values
    """The known columns, with those that the schemas add."""
    usable: dict[int, Any]
    refused: dict[int, str]
    """Why a schema cannot be used, by schema id: a clause that names the column."""


def separate_writers(
    values: Values, writers: Mapping[int, Any], evolves: bool, row_of: Callable[[Any], Record]
) -> SeparatedWriters:
    """Separate usable schemas from refused ones, and add the columns that usable schemas add.

    Args:
        values: the known columns.
        writers: the writers' schemas by id, oldest first.
        evolves: whether new columns are added; if not, `check_written` ignores or refuses them.
        row_of: returns the record of the values, given a schema.
    """
    if evolves:
        values = grow(values, (partial(row_of, writer) for writer in writers.values()))
    usable, refused = {}, {}
    for schema_id, writer in writers.items():
        try:
            if evolves:
                new_fields(values, row_of(writer))
            else:
                check_written(values, row_of(writer))
            usable[schema_id] = writer
        except SchemaRefused as error:
            refused[schema_id] = error.fact
    return SeparatedWriters(values, usable, refused)


def added_fields(record: Record, requested: Record, added: Collection[str]) -> tuple[Field, ...]:
    """Return the columns that settings add to a table.

    Args:
        record: the table's columns.
        requested: the columns that the settings ask for, in any order.
        added: the names of columns that the table got after its creation; settings do not have to name them.

    Raises:
        SchemaRefused: names the first column that the settings remove or change, or that is new and cannot be added.
    """
    ours = {column.name: column for column in column_types(dict(record))}
    theirs = {column.name: column for column in column_types(dict(requested))}
    for name, column in ours.items():
        if name not in theirs:
            if name not in added:
                raise SchemaRefused(name, "it is missing, but a column cannot be removed")
        elif theirs[name] != column:
            raise SchemaRefused(name, "its type or its nullability differs from the collection's")
    fresh = [name for name in theirs if name not in ours]
    for name in fresh:
        if not theirs[name].nullable:
            raise SchemaRefused(name, "it is new and cannot be null, but earlier rows have no value for it")
    fields = [_with_own_names(field) for field in resolved_schema(dict(requested))["fields"] if field["name"] in fresh]
    resolved_schema({**record, "fields": [*record["fields"], *fields]})
    return tuple(fields)


def standalone_fields(record: Record, of_changes: bool) -> list[Field]:
    """Return the columns of a record, each self-contained: its named types have names of their own."""
    if of_changes:
        return without_references(record)
    return [_with_own_names(field) for field in resolved_schema(dict(record))["fields"]]


def _nullable(field: Field, has_default: bool) -> Any:
    kind = field["type"]
    branches = kind if isinstance(kind, list) else [kind]
    if any(branch in ("null", {"type": "null"}) for branch in branches):
        return kind
    if not has_default:
        raise SchemaRefused(
            field["name"], "it is new, cannot be null and has no default, but earlier rows have no value for it"
        )
    return ["null", *branches]


def _with_own_names(field: Field) -> Field:
    """Return a resolved column. Its records, enums and fixed types are named after it, even if also used elsewhere."""
    used = 0

    def named(kind: Any) -> Any:
        nonlocal used
        if isinstance(kind, list):
            return [named(branch) for branch in kind]
        if not isinstance(kind, dict):
            return kind
        own = dict(kind)
        if "name" in own:
            used += 1
            own["name"] = f"tidelake.{field['name']}{used}.{str(own['name']).rpartition('.')[2]}"
        if "items" in own:
            own["items"] = named(own["items"])
        if "fields" in own:
            own["fields"] = [{**inner, "type": named(inner["type"])} for inner in own["fields"]]
        return own

    return {"name": field["name"], "type": named(field["type"])}
