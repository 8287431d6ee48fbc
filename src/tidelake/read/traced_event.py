"""Decodes a message of a collection with transactions, for `tidelake trace`. Needs no JVM."""

from __future__ import annotations

import re
from typing import Any

from tidelake.ingest.source_messages import ReadMessage
from tidelake.protocol.transactions import NotATransaction, commit_ranges, is_by_signal, payload_of, transaction_of
from tidelake.read.fates import NULL, RECORD
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection
from tidelake.store.state import UPPER
from tidelake.store.transactions import read_snapshots, read_transactions


def describe_message(
    collection: Collection, table: OpenTable, value: bytes | None, read_message: ReadMessage = payload_of
) -> tuple[str, str, dict[str, Any]]:
    """Return the kind of a message's fate, and what the message says, as a sentence and as facts.

    Cost: the table `transactions/`.
    """
    if value is None:
        return NULL, "read: a tombstone, which means nothing: the delete came before it", {}
    try:
        message = read_message(value)
    except NotATransaction:
        message = None
    if not isinstance(message, dict):
        return RECORD, "read", {}
    upper = table.value(UPPER) or 0
    if "status" in message:
        transaction, _, position = str(message.get("id")).partition(":")
        facts = {"transaction": transaction, "status": message["status"]}
        if message["status"] != "END" or not position.isdigit():
            return RECORD, f"read: the BEGIN of transaction {transaction}", facts
        time = int(position)
        return RECORD, f"read: the END of transaction {transaction}, {_when(time, upper)}", facts | {"time": time}
    source, named = _part(message, "source"), _part(message, "transaction")
    transaction_id, order = transaction_of(named.get("id")), named.get("data_collection_order")
    if transaction_id is None and is_by_signal(source):
        return RECORD, "read: a row of a snapshot that a signal asked for: a decision has left it out", {}
    if transaction_id is None:
        lsn = int(source.get("lsn") or 0)
        if any(snapshot.lsn == lsn and snapshot.is_abandoned for snapshot in read_snapshots(table, lsn)):
            return RECORD, f"read: a row of the snapshot at {lsn}, which was abandoned: it is not stored", {"time": lsn}
        return RECORD, f"read: a row of the snapshot at {lsn}, {_when(lsn, upper)}", {"time": lsn}
    facts = {"transaction": transaction_id, "number": order}
    before = re.match(r'\["(\d+)"', str(source.get("sequence")))
    after = -1 if before is None else int(before[1])
    ends = [(found.id, found.time) for found in read_transactions(collection, after + 1) if found.id is not None]
    fitting = [lsn for id, low, lsn in commit_ranges(ends) if id == transaction_id and low <= after < lsn]
    about = f"read: event {order} of transaction {transaction_id}"
    if not fitting:
        return RECORD, f"{about}, whose END was not read", facts
    return RECORD, f"{about}, {_when(fitting[0], upper)}", facts | {"time": fitting[0]}


def _part(message: dict[str, Any], name: str) -> dict[str, Any]:
    part = message.get(name)
    return part if isinstance(part, dict) else {}


def _when(time: int, upper: int) -> str:
    return f"time {time}, which is {'sealed' if time < upper else 'not sealed yet'}"
