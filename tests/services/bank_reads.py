"""Reads of the bank's tables, AS OF random times, while jobs run: the sum of all balances is the same in every read.

Reads do without Spark, so there is time for thousands of them. A read takes the versions of the tables that `lake.at`
found, and evaluates their rows by the rules of `tidelake.model.positioned`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.compute as pc

from tests.captures.bank import BANK, TOTAL
from tidelake import open_lake
from tidelake.errors import CollectionLags, SnapshotTorn, UnknownCollection
from tidelake.read.moment import Member
from tidelake.read.torn import check_not_torn
from tidelake.store.files import read_rows
from tidelake.store.layout import DIFF, POSITION, TIME
from tidelake.store.transactions import asserted_times

_TIMES = 5
"""The number of reads for each state of the tables."""


class BankReads:
    """Reads of both tables AS OF the same times, and the number of these reads."""

    def __init__(self, file: Path, rng: Random) -> None:
        self.lake, self.rng, self.done = open_lake(file, read_only=True), rng, 0

    def read(self) -> None:
        """Read both tables AS OF a few times that both have, and check the sum of all balances at each."""
        try:
            if not all(self.lake.catalog.find(table).entry.tables_made for table in BANK):
                return  # the first ingest is creating them
            latest = self.lake.at("latest", *BANK)
        except CollectionLags:
            return  # nothing is sealed yet
        except UnknownCollection:
            assert not self.done  # a table has not been ingested yet
            return
        first = max(min(asserted_times(member.table), default=latest.time + 1) for member in latest.members)
        tables = {member.name: (member.collection, member.table) for member in latest.members}
        rows = [rows_of(member, latest.time) for member in latest.members] if first <= latest.time else []
        for time in [self.rng.randint(first, latest.time) for _ in range(_TIMES)] if rows else []:
            try:
                check_not_torn(tables, time)
            except SnapshotTorn:
                continue
            totals = [total_of(each, time) for each in rows]
            assert sum(totals) == TOTAL, (time, totals)
            self.done += 1


def rows_of(member: Member, time: int) -> list[dict[str, Any]]:
    """The rows of a table up to a time."""
    files = [file for file in member.table.files() if file.reach[0] <= time]
    schema, names = member.collection.updates_schema(), [TIME, DIFF, POSITION, "id", "balance"]
    return list(read_rows(member.table.path, files, schema, names, pc.field(TIME) <= time).to_pylist())


def total_of(rows: Sequence[Mapping[str, Any]], time: int) -> int:
    """The sum of the balances in a table AS OF a time."""
    until = [row for row in rows if row[TIME] <= time]
    barrier: list[int] = max((row[POSITION] for row in until if row[DIFF] == 0), default=[])
    newest: dict[int, tuple[Any, ...]] = {}
    for row in until:
        if row[DIFF] != 0 and row[POSITION] >= barrier:
            rank = (row[POSITION], row[DIFF] > 0, row[TIME], row["balance"] or 0)
            newest[row["id"]] = max(newest.get(row["id"], rank), rank)
    return sum(balance for _, is_value, _, balance in newest.values() if is_value)
