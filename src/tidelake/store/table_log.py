"""A table's log as files: its entries, and what a loss of power left of the newest ones.

Whatever was acknowledged is whole on disk. So a torn entry was never acknowledged and is set aside, and the entries
that a torn checkpoint sums up still exist.
"""

from __future__ import annotations

import json
import secrets

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from tidelake.errors import DamagedTable
from tidelake.spark.engine_errors import engine_fact
from tidelake.store import blobs
from tidelake.store.failpoints import reach
from tidelake.store.location import Location
from tidelake.store.notices import warn

LOG = "_delta_log"
SEQ = "seq"

LAST = {"last": SEQ}
"""Each entry states how it ends. Nothing else reveals a cut between two of its lines."""


def read_entry(path: Location, version: int) -> list[dict[str, dict[str, object]]] | None:
    """The actions of one log entry, or None if there is no such file.

    Raises:
        DamagedTable: the entry is torn.
    """
    try:
        text = blobs.read(entry_path(path, version))
    except FileNotFoundError:
        return None
    try:
        return [json.loads(line) for line in text.decode().splitlines() if line]
    except ValueError as error:
        raise DamagedTable(str(path), f"the log entry of version {version} is torn") from error


def check_log(path: Location) -> int:
    """Check that `seq` rises by one along all entries of the log; return their number.

    Raises:
        DamagedTable: names the version where the chain breaks.
    """
    versions = sorted(_versions(path))
    before: int | None = None
    for version in versions:
        seq = seq_of(read_entry(path, version) or [])
        if seq is None or (before is not None and seq != before + 1):
            raise DamagedTable(str(path), f"'seq' is {seq} at version {version} after {before}")
        before = seq
    return len(versions)


def entry_path(path: Location, version: int) -> Location:
    """The location of a version's log entry."""
    return path / LOG / f"{version:020d}.json"


def _versions(path: Location) -> list[int]:
    names = blobs.list_names(path / LOG)
    return [int(name[:20]) for name in names if len(name) == 25 and name.endswith(".json") and name[:20].isdigit()]


def newest_version(path: Location) -> int:
    """The version of the newest entry by its name, whole or torn; -1 if the log is empty."""
    return max(_versions(path), default=-1)


def last_checkpoint(path: Location) -> int:
    """The version of the newest checkpoint, or -1."""
    try:
        return int(json.loads(blobs.read(path / LOG / "_last_checkpoint"))["version"])
    except (FileNotFoundError, ValueError, KeyError):  # none, or a torn mark: a new checkpoint is due
        return -1


def checkpoints(path: Location) -> list[Location]:
    """The files of the checkpoints in the log, the newest last."""
    names = (name for name in blobs.list_names(path / LOG) if ".checkpoint" in name and name.endswith(".parquet"))
    return [path / LOG / name for name in sorted(names) if name[:20].isdigit()]


def set_torn_entry_aside(path: Location) -> None:
    """Move a torn or empty newest entry away. Only entries that are whole on disk are acknowledged."""
    newest = newest_version(path)
    if newest < 0:
        return
    entry = entry_path(path, newest)
    try:
        if _is_whole(blobs.read(entry)):
            return
    except FileNotFoundError:  # another process moved it
        return
    aside = path / LOG / f".torn-{newest:020d}-{secrets.token_hex(4)}"
    try:
        blobs.set_aside(entry, aside)
    except FileNotFoundError:  # another process moved it
        return
    moved = blobs.read(aside)
    if _is_whole(moved):
        # Between our look and our move another process moved the torn entry and committed a good one. Put it back.
        try:
            blobs.create(entry, moved)
        except FileExistsError as error:
            raise DamagedTable(str(path), f"version {newest} was committed twice; the first is {aside.name}") from error
        blobs.delete(aside)
    else:
        reach("table.after_torn_entry")
        warn("a torn log entry was set aside", table=str(path), version=newest, kept_as=aside.name)
    blobs.make_names_durable([path / LOG])


def _is_whole(text: bytes) -> bool:
    """Whether a log entry is JSON lines to its end. An entry of another engine does not state its end."""
    try:
        lines = [json.loads(line) for line in text.splitlines() if line]
    except ValueError:
        return False
    if not lines or not all(isinstance(line, dict) for line in lines):
        return False
    last = lines[0].get("commitInfo", {}).get("last")
    return last is None or lines[-1].get("txn", {}).get("appId") == last


def load_table(path: Location) -> DeltaTable:
    """Read a table's log; set an unreadable checkpoint aside if the entries before it still exist."""
    try:
        return DeltaTable(str(path))
    except TableNotFoundError as error:
        raise DamagedTable(str(path), "there is no table") from error
    except DeltaError as error:
        if not _set_unreadable_checkpoint_aside(path):
            raise DamagedTable(str(path), f"its log cannot be read: {engine_fact(error)}") from error
    return load_table(path)


def _set_unreadable_checkpoint_aside(path: Location) -> bool:
    """Move a torn newest checkpoint and the mark that names it away; return whether anything was moved.

    A checkpoint is synced before the entries behind it are deleted, so those of a torn one still exist.
    """
    log, written = path / LOG, checkpoints(path)
    torn = [log / "_last_checkpoint"]
    if written and not _is_readable(written[-1]):
        version = int(written[-1].name[:20])
        before = int(written[-2].name[:20]) if len(written) > 1 else -1
        if not set(range(before + 1, version + 1)) <= set(_versions(path)):
            return False
        torn.append(written[-1])
    moved = False
    for blob in torn:
        try:
            blobs.set_aside(blob, log / f".torn-{blob.name}-{secrets.token_hex(4)}")
        except FileNotFoundError:  # absent, or another process moved it
            continue
        moved = True
        warn("an unreadable checkpoint was set aside", table=str(path), name=blob.name)
        reach("table.after_torn_checkpoint")
    blobs.make_names_durable([log])
    return moved


def _is_readable(checkpoint: Location) -> bool:
    try:
        pq.read_table(blobs.open_file(checkpoint)).validate(full=True)
    except (pa.ArrowException, OSError):
        return False
    return True


def seq_of(entry: list[dict[str, dict[str, object]]]) -> int | None:
    """The `seq` of an entry."""
    for action in entry:
        transaction = action.get("txn")
        if transaction is not None and transaction.get("appId") == SEQ:
            return int(str(transaction["version"]))
    return None


def nonce_of(entry: list[dict[str, dict[str, object]]]) -> str | None:
    """The nonce of an entry."""
    for action in entry:
        if "commitInfo" in action:
            nonce = action["commitInfo"].get("nonce")
            return None if nonce is None else str(nonce)
    return None
