"""How a collection's columns grow: which of a schema's columns are new, and why a schema that does more is refused.

Only new columns that may be null appear, behind those that are there, and every earlier row is null in them. Nothing
that is there ever changes: no type, no name, no key.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tidelake.column_types import column_types
from tidelake.connect_types import landing_record, travels, without_references
from tidelake.errors import SchemaRefused
from tidelake.resolution import WIDER, resolve
from tidelake.schema import resolved_schema

Record = Mapping[str, Any]
Field = dict[str, Any]


@dataclass(frozen=True)
class Values:
    """What is known of the values of a collection's records.

    Args:
        record: their columns; of change events those of a row, with Connect's names of types.
        of_changes: whether `record` is such a row.
        elsewhere: columns of the table that values do not have: those of keys and metadata.
        may_lack: columns that a schema may be without and have new ones all the same. Without any other column it may
            not: one that is gone while another is new looks like one that was renamed.
    """

    record: Record
    of_changes: bool = False
    elsewhere: Collection[str] = ()
    may_lack: Collection[str] = ()

    def with_fields(self, fields: Collection[Field]) -> Values:
        """The same with new columns."""
        return replace(self, record={**self.record, "fields": [*self.record["fields"], *fields]})


def check_written(values: Values, writer: Record) -> None:
    """See to it that what `writer` writes can be read as the known columns; columns beyond them are not looked at.

    Raises:
        SchemaRefused: naming the first column that cannot be had, or would lose something, and why.
    """
    if not values.of_changes:
        resolve(dict(values.record), dict(writer))
        return
    found = dict(travels(writer))
    for name, ours in travels(values.record):
        if name not in found:
            if not ours.nullable:
                raise SchemaRefused(name, "it is not written any more, and may not be null")
            continue
        theirs = found[name]
        widens = ours.turn == theirs.turn == "as_is" and (theirs.raw, ours.raw) in WIDER
        if theirs.landing != ours.landing and not widens:
            raise SchemaRefused(name, "it is written as another type, which does not widen to the collection's")


def new_fields(values: Values, writer: Record, checks_types: bool = True) -> tuple[Field, ...]:
    """The columns of `writer` that are not known yet, as columns that may be null.

    Args:
        values: what is known.
        writer: the record that was written.
        checks_types: whether known columns have to fit, too; those of JSON are judged value by value.

    Raises:
        SchemaRefused: naming the first column by which the schema is not additive, and why.

    >>> def of(**fields):
    ...     return {"type": "record", "name": "r", "fields": [{"name": one, "type": fields[one]} for one in fields]}
    >>> new_fields(Values(of(id="long")), of(id="int", note=["null", "string"]))
    ({'name': 'note', 'type': ['null', {'type': 'string'}]},)
    >>> new_fields(Values(of(id="long", note=["null", "string"])), of(id="long", remark=["null", "string"]))
    Traceback (most recent call last):
    tidelake.errors.SchemaRefused: column 'remark' is refused: it is new while 'note' is gone, as if it had another name
    """
    known = [one["name"] for one in values.record["fields"]]
    there = {one["name"] for one in writer["fields"]}
    fields = standalone_fields(writer, values.of_changes)
    added = [
        {"name": one["name"], "type": _nullable(one, "default" in stated)}
        for one, stated in zip(fields, writer["fields"], strict=True)
        if one["name"] not in known
    ]
    gone = [name for name in known if name not in there and name not in values.may_lack]
    if added and gone:
        raise SchemaRefused(added[0]["name"], f"it is new while '{gone[0]}' is gone, as if it had another name")
    kept = [one for one in fields if one["name"] in known]
    if checks_types and (kept or not added):
        check_written(values, {**writer, "fields": kept})
    taken = {one.lower() for one in values.elsewhere}
    for one in added:
        if one["name"].lower() in taken:
            raise SchemaRefused(one["name"], "it is new, and a column of this name is there that values do not have")
    landed_fields(values.with_fields(added), [one["name"] for one in added])
    return tuple(added)


def landed_fields(values: Values, names: Collection[str]) -> list[Field]:
    """Some columns as a table has them.

    Raises:
        SchemaRefused: a table cannot have one of them.
    """
    record = dict(values.record)
    landed = landing_record(record) if values.of_changes else record
    return [_with_own_names(one) for one in resolved_schema(landed)["fields"] if one["name"] in names]


def grow(values: Values, writers: Iterable[Callable[[], Record]], checks_types: bool = True) -> Values:
    """What is known with the columns that several schemas add, each where it is additive.

    A column that an earlier schema had, and a later one lacks without any new one, was dropped: from then on schemas
    may be without it and bring others.

    Args:
        values: what is known.
        writers: what was written, in the order in which it came up; each may raise that it is none.
        checks_types: see `new_fields`.
    """
    had: set[str] = set()
    for row_of in writers:
        try:
            writer = row_of()
            fresh = new_fields(values, writer, checks_types)
        except SchemaRefused:  # whoever sorts the schemas says so, once all columns are known
            continue
        there = {one["name"] for one in writer["fields"]}
        dropped = () if fresh else had - there
        values = replace(values.with_fields(fresh), may_lack=(*values.may_lack, *dropped))
        had |= there
    return values


@dataclass(frozen=True)
class Sorted:
    """What becomes of several writers' schemas."""

    values: Values
    """With all columns that they add."""
    usable: dict[int, Any]
    refused: dict[int, str]
    """Why the others cannot be used: one clause that names the column."""


def sort_writers(values: Values, writers: Mapping[int, Any], grows: bool, row_of: Callable[[Any], Record]) -> Sorted:
    """Tell apart which schemas' records can be read as the collection's, and let it grow by what they add.

    Args:
        values: what is known.
        writers: by id, what was written, in the order in which it came up.
        grows: whether new columns are taken in; else one that adds some is as `check_written` says.
        row_of: from such a schema to the record of the values.
    """
    if grows:
        values = grow(values, (partial(row_of, one) for one in writers.values()))
    usable, refused = {}, {}
    for schema_id, one in writers.items():
        try:
            if grows:
                new_fields(values, row_of(one))
            else:
                check_written(values, row_of(one))
            usable[schema_id] = one
        except SchemaRefused as error:
            refused[schema_id] = error.fact()
    return Sorted(values, usable, refused)


def added_fields(record: Record, wished: Record, added: Collection[str]) -> tuple[Field, ...]:
    """The columns that settings add to a table.

    Args:
        record: the table's columns.
        wished: those that the settings ask for, in any order.
        added: columns of the table that settings need not name, as they have appeared later.

    Raises:
        SchemaRefused: naming the first column by which they differ otherwise.
    """
    ours = {one.name: one for one in column_types(dict(record))}
    theirs = {one.name: one for one in column_types(dict(wished))}
    for name, one in ours.items():
        if name not in theirs:
            if name not in added:
                raise SchemaRefused(name, "it is missing, and a column stays")
        elif theirs[name] != one:
            raise SchemaRefused(name, "it has another type, or another way with null, than in the collection")
    fresh = [name for name in theirs if name not in ours]
    for name in fresh:
        if not theirs[name].nullable:
            raise SchemaRefused(name, "it is new and may not be null, and earlier rows have no value of it")
    fields = [_with_own_names(one) for one in resolved_schema(dict(wished))["fields"] if one["name"] in fresh]
    resolved_schema({**record, "fields": [*record["fields"], *fields]})
    return tuple(fields)


def standalone_fields(record: Record, of_changes: bool) -> list[Field]:
    """The columns of a record, each with all its types in it, and with names that no other column's types have."""
    if of_changes:
        return without_references(record)
    return [_with_own_names(one) for one in resolved_schema(dict(record))["fields"]]


def _nullable(field: Field, has_default: bool) -> Any:
    kind = field["type"]
    branches = kind if isinstance(kind, list) else [kind]
    if any(one in ("null", {"type": "null"}) for one in branches):
        return kind
    if not has_default:
        raise SchemaRefused(
            field["name"], "it is new, may not be null and has no default, and earlier rows have no value of it"
        )
    return ["null", *branches]


def _with_own_names(field: Field) -> Field:
    """A resolved column whose records, enums and fixed types are named after it, wherever else they were used."""
    used = 0

    def named(kind: Any) -> Any:
        nonlocal used
        if isinstance(kind, list):
            return [named(one) for one in kind]
        if not isinstance(kind, dict):
            return kind
        own = dict(kind)
        if "name" in own:
            used += 1
            own["name"] = f"tidelake.{field['name']}{used}.{str(own['name']).rpartition('.')[2]}"
        if "items" in own:
            own["items"] = named(own["items"])
        if "fields" in own:
            own["fields"] = [{**one, "type": named(one["type"])} for one in own["fields"]]
        return own

    return {"name": field["name"], "type": named(field["type"])}
