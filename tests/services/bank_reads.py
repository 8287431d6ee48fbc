"""Reads of the bank AS OF random times while jobs run: the sum of all balances is the same in every one.

A read chooses its time as `lake.at` does, and reads the pinned files without Spark, so that thousands fit into a run.
What it makes of the rows follows the rules of `tidelake.model.positioned`.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pyarrow.compute as pc

from tests.captures.bank import BANK, TOTAL
from tidelake import open_lake
from tidelake.errors import CollectionForgot, CollectionLags, SnapshotTorn, UnknownCollection
from tidelake.read.moment import Member
from tidelake.store.files import read_rows
from tidelake.store.layout import DIFF, POSITION, TIME
from tidelake.store.transactions import asserted_times


class BankReads:
    """Reads of both tables at one time, and what they found."""

    def __init__(self, file: Path, rng: Random) -> None:
        self.file, self.rng, self.done, self.refused = file, rng, 0, 0

    def read(self) -> None:
        """Read both tables AS OF a time that both have, and check the sum of all balances."""
        try:
            lake = open_lake(self.file, read_only=True)
            if not all(lake.catalog.find(table).entry.tables_made for table in BANK):
                return  # the first ingest is creating them
            latest = lake.at("latest", *BANK)
        except CollectionLags:
            return  # nothing is sealed yet
        except UnknownCollection:
            assert not self.done  # a table was never ingested
            return
        first = [min(asserted_times(member.table), default=latest.time + 1) for member in latest.members]
        if max(first) > latest.time:
            return
        time = self.rng.randint(max(first), latest.time)
        try:
            moment = lake.at(time, *BANK)
        except (SnapshotTorn, CollectionForgot):
            self.refused += 1
            return
        totals = {member.name: total_of(member, time) for member in moment.members}
        assert sum(totals.values()) == TOTAL, (time, totals)
        self.done += 1


def total_of(member: Member, time: int) -> int:
    """The sum of the balances in a table AS OF a time."""
    files = [file for file in member.table.files() if file.reach[0] <= time]
    schema, names = member.collection.updates_schema(), [TIME, DIFF, POSITION, "id", "balance"]
    rows = read_rows(member.table.path, files, schema, names, pc.field(TIME) <= time).to_pylist()
    barrier: list[int] = max((row[POSITION] for row in rows if row[DIFF] == 0), default=[])
    newest: dict[int, tuple[Any, ...]] = {}
    for row in rows:
        if row[DIFF] != 0 and row[POSITION] >= barrier:
            rank = (row[POSITION], row[DIFF] > 0, row[TIME], row["balance"] or 0)
            newest[row["id"]] = max(newest.get(row["id"], rank), rank)
    return sum(balance for _, is_value, _, balance in newest.values() if is_value)
