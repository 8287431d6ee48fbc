"""Later rows beside a larger base, all read by DuckDB itself: the contents are those of a model. No JVM is started."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from tidelake.catalog.catalog import Catalog
from tidelake.errors import DamagedTable
from tidelake.query.contents import contents
from tidelake.query.verified_files import may_be_read
from tidelake.settings.lake import load_settings
from tidelake.store.base import BASE, split_base
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection
from tidelake.store.files import describe_run
from tidelake.store.layout import DIFF, TIME, Store, new_run
from tidelake.store.state import UPPER
from tidelake.store.table_schema import updates_schema

RECORD = {
    "type": "record",
    "name": "row",
    "fields": [
        {"name": "id", "type": ["null", "long"]},
        {"name": "name", "type": ["null", "string"]},
        {"name": "price", "type": ["null", "double"]},
        {"name": "raw", "type": ["null", "bytes"]},
    ],
}
NAMES = [field["name"] for field in RECORD["fields"]]  # type: ignore[index]
Row = tuple[Any, ...]
_BASE_ROWS, _LATER_ROWS, _TICKS = 4_000, 2_100, 2
_PRICES = [None, math.nan, -0.0, 0.0, -1.5, math.inf]


def shown(row: Iterable[Any]) -> str:
    """A row as text, in which -0 is 0."""
    return repr([0.0 if isinstance(value, float) and value == 0 else value for value in row])


def filler(rng: Random) -> bytes:
    """Bytes that do not compress, so that a few rows make a file large enough for DuckDB to read it itself."""
    return rng.randbytes(40)


class Stored:
    """A collection whose table is written by hand: a base at time 0, and a run for each later time."""

    def __init__(self, root: Path, family: str, key: Sequence[str] = ()) -> None:
        (root / "topics" / "rows").mkdir(parents=True)
        block = {"family": family, "topic": "rows", "schema": RECORD, "keep": 1} | ({"key": list(key)} if key else {})
        file = root / "collections.yaml"
        document = {"store": "store", "topics": "topics", "data_docs": "docs", "collections": {"rows": block}}
        file.write_text(yaml.safe_dump(document), encoding="utf-8")
        settings = load_settings(file)
        self.catalog = Catalog(Store(settings.store))
        self.catalog.open_or_create(settings.collection("rows").spec())

    @property
    def collection(self) -> Collection:
        return self.catalog.find("rows")

    def write(self, rows: Sequence[tuple[Row, int, int]], is_base: bool = False) -> None:
        """Commit rows with their times and diffs as one run."""
        collection, folder = self.collection, f"{BASE}=true" if is_base else ""
        table = OpenTable(collection.paths.updates)
        run = new_run("merge" if is_base else "append", table.seq)
        target = collection.paths.updates.local / f"_run={run}" / folder
        target.mkdir(parents=True)
        schema = pa.schema([f for f in updates_schema(collection.entry.record_schema, False) if f.name != "_run"])
        columns = {name: [row[place] for row, _, _ in rows] for place, name in enumerate(NAMES)}
        columns |= {TIME: [time for _, time, _ in rows], DIFF: [diff for _, _, diff in rows]}
        written = pa.table({name: columns[name] for name in schema.names}, schema)
        pq.write_table(written, target / "part-0.parquet", row_group_size=1_500, write_page_checksum=True)
        upper = max(time for _, time, _ in rows) + 1
        table.commit({UPPER: upper}, describe_run(collection.paths.updates, run), epoch=collection.entry.epoch)

    def check(self, time: int, expected: Counter[str], columns: Sequence[str] = (), where: str | None = None) -> None:
        """Compare the contents at a time with `expected`; DuckDB itself must read the base and the later files."""
        table = OpenTable(self.collection.paths.updates)
        base, later = split_base([file for file in table.files() if file.reach[0] <= time])
        assert base
        assert len(later) == time
        assert all(may_be_read(table.path, file) for file in (*base, *later))
        found = contents(self.collection, time, columns, where)
        counted: Counter[str] = Counter()
        for row in found.rows.table().to_pylist():
            diff = row.pop(DIFF)
            assert diff != 0
            assert shown(row.values()) not in counted
            counted[shown(row.values())] = diff
        assert counted == expected
        found.rows.close()


def random_rows(rng: Random, number: int, kind: str) -> list[Row]:
    """Distinct rows: with many different ids, with few, or with many ids that are null."""
    rows: dict[str, Row] = {}
    while len(rows) < number:
        key = rng.randrange(5) if kind == "few ids" else rng.randrange(10**6)
        if kind == "many nulls" and rng.random() < 0.3:
            key = None  # type: ignore[assignment]
        name = rng.choice([None, "", "ż", f"name {rng.randrange(3)}"])
        row = (key, name, rng.choice(_PRICES), filler(rng) if rng.random() < 0.9 or kind == "few ids" else None)
        rows[shown(row)] = row
    return list(rows.values())


@pytest.mark.parametrize("base_diff", [1, None])
@pytest.mark.parametrize("kind", ["many ids", "few ids", "many nulls"])
def test_diffs_of_later_rows_are_added_to_those_of_the_base(tmp_path: Path, kind: str, base_diff: int | None) -> None:
    rng = Random(f"{kind} {base_diff}")
    stored = Stored(tmp_path, "plain")
    base = random_rows(rng, _BASE_ROWS, kind)
    rows = [(row, 0, base_diff or rng.choice([1, 2, 3])) for row in base]
    stored.write(rows, is_base=True)
    model = Counter({shown(row): diff for row, _, diff in rows})
    for time in range(1, _TICKS + 1):
        similar = [(row[0], row[1], rng.choice(_PRICES), row[3]) for row in rng.sample(base, _LATER_ROWS // 3)]
        some = [*rng.sample(base, _LATER_ROWS // 3), *similar, *random_rows(rng, _LATER_ROWS // 3, kind)]
        later = [(row, time, rng.choice([-1, -1, 1, 2])) for row in some]
        stored.write(later)
        for row, _, diff in later:
            model[shown(row)] += diff
        stored.check(time, Counter({row: diff for row, diff in model.items() if diff}))


@pytest.mark.parametrize("key", [["id"], ["id", "name"], ["raw"]], ids=str)
def test_the_newest_later_row_of_a_key_replaces_that_of_the_base(tmp_path: Path, key: list[str]) -> None:
    rng = Random(str(key))
    stored = Stored(tmp_path, "upsert", key)
    places = [NAMES.index(name) for name in key]
    model: dict[str, Row] = {}
    for row in random_rows(rng, _BASE_ROWS, "many nulls"):
        model[shown(row[place] for place in places)] = row
    stored.write([(row, 0, 1) for row in model.values()], is_base=True)
    for time in range(1, _TICKS + 1):
        known = [tuple(rng.choice(_PRICES) if n == 2 else v for n, v in enumerate(row)) for row in model.values()]
        some = [*rng.sample(known, _LATER_ROWS // 2), *random_rows(rng, _LATER_ROWS // 2, "many nulls")]
        each = {shown(row[place] for place in places): (row, rng.choice([-1, 1, 1])) for row in some}
        stored.write([(row, time, diff) for row, diff in each.values()])
        for name, (row, diff) in each.items():
            model.pop(name, None)
            if diff > 0:
                model[name] = row
        stored.check(time, Counter(map(shown, model.values())))
        stored.check(
            time,
            Counter(shown(row[:1]) for row in model.values() if row[0] is not None and row[0] % 2 == 0)
            if key == ["id"]
            else Counter(map(shown, model.values())),
            *((["id"], "id % 2 = 0") if key == ["id"] else ()),
        )


@pytest.mark.parametrize("family", ["plain", "upsert"])
def test_damage_to_the_base_after_a_read_was_prepared_is_found(tmp_path: Path, family: str) -> None:
    rng = Random(family)
    stored = Stored(tmp_path, family, ["raw"] if family == "upsert" else ())
    stored.write([(row, 0, 1) for row in random_rows(rng, _BASE_ROWS, "many ids")], is_base=True)
    stored.write([(row, 1, 1) for row in random_rows(rng, _LATER_ROWS, "many ids")])
    found = contents(stored.collection, 1)
    (base,) = stored.collection.paths.updates.local.glob(f"*/{BASE}=true/*.parquet")
    data = bytearray(base.read_bytes())
    data[len(data) // 3] ^= 1
    base.write_bytes(data)
    with pytest.raises(DamagedTable):
        found.rows.table()
    found.rows.close()
