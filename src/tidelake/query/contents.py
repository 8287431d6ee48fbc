"""Reads one collection with DuckDB: its contents AS OF a time, differences, and changes. Needs no JVM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from tidelake.errors import KeysInError, PredicateRefused, hint_for_name
from tidelake.query.answer import Answer, failures, first_line
from tidelake.query.confined import Refused, parse_predicate
from tidelake.query.engine import Engine
from tidelake.query.form import Form
from tidelake.query.forms import contents_types, form_of
from tidelake.query.keyed import updates_of_states
from tidelake.query.names import names_of
from tidelake.query.reads import Reads, Where, engine_for
from tidelake.query.sums import add_up
from tidelake.query.values import json_rows, json_text
from tidelake.read.asked import columns_asked, readable
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection
from tidelake.store.holds import check_time
from tidelake.store.layout import DIFF, ERROR, TIME, UNAVAILABLE

_KEYS_NAMED_MAX = 10
_FIX = "compare the columns with values that you write out; docs/reference/python.md says what a predicate may contain"


@dataclass(frozen=True)
class Contents:
    """Contents AS OF a time; see `read.snapshot.Snapshot`."""

    as_of: int
    since: int
    upper: int
    closed: bool
    version: int
    rows: Answer
    """The requested columns, and `_diff`, which says how many times each row occurs and is never 0."""
    lacking: int = 0
    """Number of rows with a null in place of a value that was never stated."""
    lacking_named: tuple[str, ...] = ()
    """The first few of these rows, each as its key in JSON and the columns that have no value."""


@dataclass(frozen=True)
class KeyCounts:
    """Number of keys that changed between two times."""

    set: int
    """Keys that have a row only at the last time."""
    changed: int
    """Keys that have a row at both times, but not the same row."""
    deleted: int
    """Keys that have a row only at the first time."""


@dataclass(frozen=True)
class Difference:
    """The difference between the contents AS OF two times; see `read.diff.Difference`."""

    first: int
    last: int
    since: int
    upper: int
    closed: bool
    version: int
    rows: Answer
    keys: KeyCounts | None
    """None if the collection has no key, or if a column of the key was not requested."""


@dataclass(frozen=True)
class Updates:
    """The changes of a range of times; see `read.changes.Changes`."""

    after: int | None
    through: int
    since: int
    upper: int
    closed: bool
    version: int
    rows: Answer
    """The requested columns, `_time` bigint and `_diff` bigint, never 0."""
    files_read: int
    rows_read: int


def contents(
    collection: Collection,
    as_of: int | None = None,
    columns: Sequence[str] = (),
    where: str | None = None,
    skip_errors: bool = False,
    table: OpenTable | None = None,
) -> Contents:
    """Read the contents AS OF a time; `LakeCollection.rows` says what the arguments mean and what is raised.

    Cost: the footers of the files are read before this returns, and the rows when they are requested. If the table may
    have keys in error, one more pass over the rows looks for them; likewise for values that were never stated.
    """
    table = table if table is not None else OpenTable(collection.paths.updates)
    times = readable(collection, table)
    at = times.time(as_of)
    form = form_of(collection, table)
    selected = columns_asked(collection, [field.name for field in form.fields], columns)
    engine = engine_for([table])
    reads = Reads(engine, collection, table)
    condition = checked_where(engine, form, where)
    with failures(collection.name, where):
        if not skip_errors:
            refuse_errors(reads, form, at)
        rows = _contents(reads, form, at, selected, condition)
        lacking, named = _unknown(reads, form, at)
    answer = _answer(reads, form, rows, [*selected, DIFF], where)
    return Contents(at, times.since, times.upper, times.closed, table.version, answer, lacking, named)


def _contents(reads: Reads, form: Form, at: int, columns: Sequence[str], where: Where | None) -> str:
    """Return the contents as distinct rows: if `columns` lacks part of the key, equal rows are added up."""
    rows = form.contents(reads, at, columns, where)
    return rows if set(form.key) <= set(columns) else add_up(rows, form.chosen(columns))


def difference(
    collection: Collection,
    first: int,
    last: int,
    columns: Sequence[str] = (),
    where: str | None = None,
    skip_errors: bool = False,
) -> Difference:
    """Read the difference between the contents AS OF two times; see `LakeCollection.rows_between`."""
    table = OpenTable(collection.paths.updates)
    times = readable(collection, table)
    form = form_of(collection, table)
    names = [field.name for field in form.fields]
    selected: list[str] = []
    for argument, time in (("first", first), ("last", last)):
        check_time(argument, time)
        times.time(time)
        selected = columns_asked(collection, names, columns)
    engine = engine_for([table])
    reads = Reads(engine, collection, table)
    condition = checked_where(engine, form, where)
    with failures(collection.name, where):
        if not skip_errors:
            for time in (first, last):
                refuse_errors(reads, form, time)
        rows = _differing(reads, form, (first, last), selected, condition)
    answer = _answer(reads, form, rows, [*selected, DIFF], where)
    key = form.key if set(form.key) <= set(selected) else ()
    with failures(collection.name, where):
        keys = _key_counts(answer, key) if key else None
    return Difference(first, last, times.since, times.upper, times.closed, table.version, answer, keys)


def _differing(reads: Reads, form: Form, times: tuple[int, int], selected: Sequence[str], where: Where | None) -> str:
    """Return the rows of the contents at the last time minus those at the first."""
    fields = form.chosen(selected)
    first, last = times
    signed = f"SELECT {names_of(selected)}, {{sign}}({DIFF}::HUGEINT) AS {DIFF} FROM ({{rows}})"
    if form.is_additive:
        start, end = sorted(times)
        kept = _filtered(form.row_updates(reads, start, end) or "", where)
        return add_up(signed.format(sign="" if start == first else "-", rows=kept), fields)
    after, before = (form.contents(reads, time, selected, where) for time in (last, first))
    both = f"{signed.format(sign='', rows=after)} UNION ALL {signed.format(sign='-', rows=before)}"
    return add_up(both, fields)


def updates(
    collection: Collection,
    after: int | None,
    through: int | None = None,
    columns: Sequence[str] = (),
    where: str | None = None,
    skip_errors: bool = False,
    table: OpenTable | None = None,
) -> Updates:
    """Read the changes of a range of times; see `LakeCollection.updates`."""
    table = table if table is not None else OpenTable(collection.paths.updates)
    times = readable(collection, table)
    end = times.range(after, through)
    form = form_of(collection, table)
    names = [field.name for field in form.fields]
    selected = columns_asked(collection, names, columns)
    engine = engine_for([table])
    reads = Reads(engine, collection, table)
    condition = checked_where(engine, form, where)
    start = times.since if after is None else after
    taken = names_of([TIME, *selected, DIFF])
    with failures(collection.name, where):
        rows = _updates(reads, form, start, end, selected, condition, skip_errors)
        parts = [f"SELECT {taken} FROM ({rows})"]
        if after is None:
            if not skip_errors:
                refuse_errors(reads, form, start)
            initial = _contents(reads, form, start, selected, condition)
            reads.files.update(reads.live(-1, start))
            parts.append(f"SELECT {start}::BIGINT AS {TIME}, {names_of([*selected, DIFF])} FROM ({initial})")
    answer = _answer(reads, form, " UNION ALL ".join(parts), [TIME, *selected, DIFF], where)
    return Updates(
        after,
        end,
        times.since,
        times.upper,
        times.closed,
        table.version,
        answer,
        len(reads.files),
        sum(file.rows for file in reads.files),
    )


def _updates(
    reads: Reads,
    form: Form,
    after: int,
    through: int,
    selected: Sequence[str],
    where: Where | None,
    skip_errors: bool,
) -> str:
    """Return the consolidated updates of a range."""
    summed = form.row_updates(reads, after, through)
    if summed is not None:
        return add_up(_filtered(summed, where), form.chosen(selected), [TIME])
    states = reads.keep(form.states(reads, after, through, not skip_errors))
    reads.files.update(reads.live(-1, after))
    if not skip_errors:
        _refuse_states(reads, form, states)
    names = [field.name for field in form.fields]
    rows = _filtered(updates_of_states(f"SELECT * FROM {states}", form.key, names, after), where)
    return rows if set(names) <= set(selected) else add_up(rows, form.chosen(selected), [TIME])


def _filtered(rows: str, where: Where | None) -> str:
    return rows if where is None else f"SELECT * FROM ({rows}) WHERE ({where.condition}\n)"


def checked_where(engine: Engine, form: Form, where: str | None) -> Where | None:
    """Check, before any row is read, that a predicate is a condition on the columns of the contents.

    Raises:
        PredicateRefused: the predicate is not such a condition; the error says why.
    """
    if where is None:
        return None
    names = [field.name for field in form.fields]
    try:
        parsed = parse_predicate(engine.connection, where, names)
    except Refused as refused:
        raise PredicateRefused(where, refused.problem, _FIX) from refused
    engine.add_table("_empty", pa.schema(form.fields).empty_table())
    try:
        kind = engine.table(f"SELECT (\n{where}\n) AS holds FROM (FROM _empty)").schema.field("holds").type
    except duckdb.Error as error:
        known, said = {name.lower() for name in names}, str(error).lower()
        wrong = next((name for name in sorted(parsed.names - known) if f'"{name}"' in said), "")
        fact = f"'{wrong}' is not a column" if wrong else first_line(error)
        hint = hint_for_name(wrong, names, "the columns are those of `tidelake read` without --columns")
        raise PredicateRefused(where, f"is invalid: {fact}", hint) from error
    if not (pa.types.is_boolean(kind) or pa.types.is_null(kind)):
        raise PredicateRefused(where, f"is not a condition: its type is {kind}", _FIX)
    return Where(where, tuple(name for name in names if name.lower() in parsed.names))


def refuse_errors(reads: Reads, form: Form, at: int) -> None:
    """Raise `KeysInError` if there are keys in error at a time."""
    query = form.errors(reads, at)
    if query is not None:
        _refuse(reads, form, reads.engine.table(query), at)


def _refuse_states(reads: Reads, form: Form, states: str) -> None:
    """If a state is in error, raise `KeysInError` about the first time at which one is."""
    first = reads.engine.scalar(f"SELECT min(_state_time) FROM {states} WHERE {ERROR} IS NOT NULL")
    if isinstance(first, int):
        failed = f"SELECT {names_of(form.key)} FROM {states} WHERE {ERROR} IS NOT NULL AND _state_time = {first}"
        _refuse(reads, form, reads.engine.table(failed), first)


def _refuse(reads: Reads, form: Form, errors: pa.Table, at: int) -> None:
    if errors.num_rows:
        keys = sorted(json_text(row) for row in _keys(reads, form, errors))
        raise KeysInError(reads.collection.name, at, errors.num_rows, keys[:_KEYS_NAMED_MAX])


def _unknown(reads: Reads, form: Form, at: int) -> tuple[int, tuple[str, ...]]:
    """Count the rows with a value that was never stated, and describe the first few."""
    query = form.unknown(reads, at)
    if query is None:
        return 0, ()
    found = reads.engine.table(query)
    columns = found[UNAVAILABLE].to_pylist()
    keys = _keys(reads, form, found)
    shown = sorted(f"{json_text(key)}: {', '.join(names)}" for key, names in zip(keys, columns, strict=True))
    return len(shown), tuple(shown[:_KEYS_NAMED_MAX])


def _keys(reads: Reads, form: Form, rows: pa.Table) -> list[dict[str, object]]:
    return json_rows(rows.select(list(form.key)), contents_types(reads.collection.entry))


def _key_counts(answer: Answer, key: Sequence[str]) -> KeyCounts:
    by_key = (
        f"SELECT bool_or({DIFF} > 0) AS came, bool_or({DIFF} < 0) AS gone FROM ({answer.query}) "
        f"GROUP BY {names_of(key)}"
    )
    counted = ", ".join(
        f"count(*) FILTER ({which}) AS {name}"
        for name, which in (("a", "came AND NOT gone"), ("b", "came AND gone"), ("c", "gone AND NOT came"))
    )
    counts = answer.engine.table(f"SELECT {counted} FROM ({by_key})").to_pylist()[0]
    return KeyCounts(*(int(counts[name]) for name in "abc"))


def _answer(reads: Reads, form: Form, rows: str, names: Sequence[str], where: str | None) -> Answer:
    kinds = {field.name: field.type for field in form.fields}
    schema = pa.schema([pa.field(name, kinds.get(name, pa.int64())) for name in names])
    return Answer(reads.engine, f"SELECT {names_of(names)} FROM ({rows})", schema, reads.collection.name, where)
