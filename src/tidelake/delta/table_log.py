"""A table's log as files: its entries, and what a loss of power has left of the newest ones.

Whatever was acknowledged is whole on disk. So a torn entry was not acknowledged and is set aside, and a torn checkpoint
still has the entries that it sums up.
"""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from tidelake.delta.engines import engine_fact
from tidelake.delta.files import sync_folder
from tidelake.delta.notices import warn
from tidelake.delta.stops import reach
from tidelake.errors import DamagedTable

SEQ = "seq"

LAST = {"last": SEQ}
"""What each entry says that it ends with; a cut between two of its lines leaves nothing else to tell by."""


def read_entry(path: Path, version: int) -> list[dict[str, dict[str, object]]] | None:
    """The actions of one log entry, or None where there is no such file.

    Raises:
        DamagedTable: the entry is there and is not whole.
    """
    try:
        text = entry_path(path, version).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    try:
        return [json.loads(line) for line in text.splitlines() if line]
    except ValueError as error:
        raise DamagedTable(str(path), f"the log entry of version {version} is torn") from error


def check_log(path: Path) -> int:
    """Check that `seq` rises by one along every entry that the log still holds; return how many there are.

    Raises:
        DamagedTable: naming the version where the chain breaks.
    """
    versions = sorted(_versions(path))
    before: int | None = None
    for version in versions:
        seq = seq_of(read_entry(path, version) or [])
        if seq is None or (before is not None and seq != before + 1):
            raise DamagedTable(str(path), f"'seq' is {seq} at version {version} after {before}")
        before = seq
    return len(versions)


def entry_path(path: Path, version: int) -> Path:
    """Where the log entry of a version lies."""
    return path / "_delta_log" / f"{version:020d}.json"


def _versions(path: Path) -> list[int]:
    names = os.listdir(path / "_delta_log")
    return [int(name[:20]) for name in names if len(name) == 25 and name.endswith(".json") and name[:20].isdigit()]


def newest_version(path: Path) -> int:
    """The version of the newest entry by its name, whole or torn; -1 where the log holds none."""
    return max(_versions(path), default=-1)


def last_checkpoint(path: Path) -> int:
    """The version of the newest checkpoint, or -1."""
    try:
        text = (path / "_delta_log" / "_last_checkpoint").read_text(encoding="utf-8")
        return int(json.loads(text)["version"])
    except (FileNotFoundError, ValueError, KeyError):  # none, or torn: then it is time for one
        return -1


def set_torn_entry_aside(path: Path) -> None:
    """Move an empty or torn newest entry away: one is whole on disk before anybody is told of it."""
    log = path / "_delta_log"
    if not log.is_dir():
        return
    newest = newest_version(path)
    if newest < 0:
        return
    entry = entry_path(path, newest)
    try:
        whole = _is_whole(entry.read_bytes())
    except FileNotFoundError:  # another process has just moved it
        return
    if whole:
        return
    aside = log / f".torn-{newest:020d}-{secrets.token_hex(4)}"
    try:
        os.replace(entry, aside)
    except FileNotFoundError:  # another process has just moved it
        return
    if _is_whole(aside.read_bytes()):
        # Between the look and the move another process has moved the torn entry and committed a good one. It goes back.
        try:
            os.link(aside, entry)
        except FileExistsError as error:
            raise DamagedTable(str(path), f"version {newest} was committed twice; the first is {aside.name}") from error
        aside.unlink()
    else:
        reach("table.after_torn_entry")
        warn("a torn log entry was set aside", table=str(path), version=newest, kept_as=aside.name)
    sync_folder(log)


def _is_whole(text: bytes) -> bool:
    """Whether a log entry is JSON lines to its end; somebody else's does not say what its end is."""
    try:
        lines = [json.loads(line) for line in text.splitlines() if line]
    except ValueError:
        return False
    if not lines or not all(isinstance(line, dict) for line in lines):
        return False
    last = lines[0].get("commitInfo", {}).get("last")
    return last is None or lines[-1].get("txn", {}).get("appId") == last


def load_table(path: Path) -> DeltaTable:
    """Read a table's log; a checkpoint that cannot be read is set aside as long as the entries before it are there."""
    try:
        return DeltaTable(str(path))
    except TableNotFoundError as error:
        raise DamagedTable(str(path), "there is no table") from error
    except DeltaError as error:
        if not _set_unreadable_checkpoint_aside(path):
            raise DamagedTable(str(path), f"its log cannot be read: {engine_fact(error)}") from error
    return load_table(path)


def _set_unreadable_checkpoint_aside(path: Path) -> bool:
    """Move the newest checkpoint away where it is torn, and the mark that names it; say whether anything was moved.

    One is synced before the entries behind it may go, so those of a torn one are still there.
    """
    log = path / "_delta_log"
    checkpoints = sorted(log.glob("*.checkpoint*.parquet"))
    torn = [log / "_last_checkpoint"]
    if checkpoints and not _is_readable(checkpoints[-1]):
        version = int(checkpoints[-1].name[:20])
        before = int(checkpoints[-2].name[:20]) if len(checkpoints) > 1 else -1
        if not set(range(before + 1, version + 1)) <= set(_versions(path)):
            return False
        torn.append(checkpoints[-1])
    moved = False
    for one in torn:
        try:
            os.replace(one, log / f".torn-{one.name}-{secrets.token_hex(4)}")
        except FileNotFoundError:  # there is none, or another process has just moved it
            continue
        moved = True
        warn("an unreadable checkpoint was set aside", table=str(path), name=one.name)
        reach("table.after_torn_checkpoint")
    sync_folder(log)
    return moved


def _is_readable(checkpoint: Path) -> bool:
    try:
        pq.read_table(checkpoint).validate(full=True)
    except (pa.ArrowException, OSError):
        return False
    return True


def seq_of(entry: list[dict[str, dict[str, object]]]) -> int | None:
    """The `seq` that an entry names."""
    for action in entry:
        transaction = action.get("txn")
        if transaction is not None and transaction.get("appId") == SEQ:
            return int(str(transaction["version"]))
    return None


def nonce_of(entry: list[dict[str, dict[str, object]]]) -> str | None:
    """The nonce that an entry carries."""
    for action in entry:
        if "commitInfo" in action:
            nonce = action["commitInfo"].get("nonce")
            return None if nonce is None else str(nonce)
    return None
