"""Verifies the files of a collection against what was committed, and restores what can be restored.

A log entry is restored from the copy that its marker holds, and a marker from its entry. Nothing else is changed, and
damaged bytes are set aside, never deleted. Readers verify only what they read; this module reads everything.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import pyarrow.parquet as pq

from tidelake.errors import DamagedTable
from tidelake.storage import blobs
from tidelake.storage.location import Location
from tidelake.store.acknowledged import ACKED, digest_of, entry_marker, entry_markers
from tidelake.store.commit import OpenTable
from tidelake.store.files import RunFile, damage_named, open_verified
from tidelake.store.notices import warn
from tidelake.store.table_log import (
    check_log,
    entry_path,
    is_of_earlier_version,
    is_whole,
    read_or_none,
    stated_before,
)

FROM_A_COPY = "restore it from a copy of the store, or rebuild the collection from its topic under a new name"


@dataclass(frozen=True)
class Damage:
    """A file that is not what was committed."""

    table: str
    """The folder of the file's table: `updates`, `proofs`, …, or `catalog`."""
    file: str
    """The file's path below that folder; empty if the damage is not in one file."""
    problem: str
    remedy: str
    """What `repair` does about it, or what a person can do."""
    is_restorable: bool = False
    """Whether `repair` restores it."""


@dataclass
class Verification:
    """What a verification read, and the damage that it found."""

    tables: int = 0
    files: int = 0
    bytes: int = 0
    """Total size of the files."""
    damages: list[Damage] = field(default_factory=list)


def verify_table(table: Location, deep: bool, found: Verification) -> None:
    """Verify a table's log and its live files.

    Args:
        table: the table's folder.
        deep: whether to read every page of every file, and verify the checksums.
        found: receives what was read and what is damaged.
    """
    found.tables += 1
    if not blobs.list_names(table):
        found.damages.append(Damage(table.name, "", "is missing", FROM_A_COPY))
        return
    log_damage = [damage for damage, _ in _damage_in_log(table)]
    found.damages += log_damage
    if log_damage:
        return  # it is not known which files are live
    try:
        files = OpenTable(table).files()
        check_log(table)
    except DamagedTable as error:
        found.damages.append(Damage(table.name, "", error.detail, FROM_A_COPY))
        return
    for file in files:
        found.files += 1
        found.bytes += file.bytes
        if not blobs.exists(table / file.path):
            found.damages.append(Damage(table.name, file.path, "is missing", FROM_A_COPY))
            continue
        try:
            _verify_file(table, file, deep)
        except DamagedTable as error:
            found.damages.append(Damage(table.name, file.path, error.detail, FROM_A_COPY))


def repair_log(table: Location) -> list[Damage]:
    """Restore damaged log entries of a table from their markers, and markers from entries; return what was restored."""
    restored = []
    for damage, good in _damage_in_log(table):
        if not damage.is_restorable:
            continue
        damaged = table / damage.file
        with suppress(FileNotFoundError):
            blobs.set_aside(damaged, damaged.parent / f".damaged-{damaged.name}-{secrets.token_hex(4)}")
        if good is not None:
            blobs.create(damaged, good)
        blobs.make_names_durable([damaged.parent])
        warn("a damaged file of a log was restored", table=str(table), file=damage.file)
        restored.append(damage)
    return restored


def _damage_in_log(table: Location) -> Iterator[tuple[Damage, bytes | None]]:
    """Yield each damaged entry and marker, and the bytes that restore it: None if it is only set aside, or lost."""
    if is_of_earlier_version(table):
        return  # nothing was acknowledged; markers of a bring-over that was interrupted say nothing
    markers = entry_markers(table)
    for version, digests in sorted(markers.items()):
        entry, text = entry_path(table, version), read_or_none(entry_path(table, version))
        copies = {digest: read_or_none(entry_marker(table, version, digest)) for digest in digests}
        if None in (text, *copies.values()) and version not in entry_markers(table):
            continue  # a clean-up has just deleted it
        good = digest_of(text) if text is not None and digest_of(text) in digests else None
        if good is None:
            fitting = [digest for digest, copy in copies.items() if _fits(table, markers, version, digest, copy)]
            sound = [digest for digest, copy in copies.items() if copy is not None and digest_of(copy) == digest]
            strays = [digest for digest in sound if digest not in fitting and text is None]
            if len(fitting) == 1:
                good = fitting[0]
            if good is not None or len(strays) < len(digests):
                problem = "is missing" if text is None else "is not the one that was acknowledged"
                remedy = FROM_A_COPY if good is None else f"is restored from its copy in {ACKED}"
                damage = Damage(table.name, entry.below(table), problem, remedy, good is not None)
                yield damage, None if good is None else copies[good]
        for digest in digests - {good} if good is not None else set(strays):
            marker = entry_marker(table, version, digest).below(table)
            yield Damage(table.name, marker, "marks no commit of this table", "is set aside", True), None
        if good is not None and text is not None and digest_of(text) == good and copies[good] != text:
            marker = entry_marker(table, version, good).below(table)
            yield (
                Damage(table.name, marker, "is not a copy of the entry", "is rewritten from the entry", True),
                text,
            )


def _fits(table: Location, markers: dict[int, set[str]], version: int, digest: str, copy: bytes | None) -> bool:
    """Return whether the copy in a marker is the entry of this version: it fits the entries before and after it."""
    if copy is None or digest_of(copy) != digest or not is_whole(copy):
        return False
    before, after = markers.get(version - 1), read_or_none(entry_path(table, version + 1))
    follows = before is None or stated_before(copy) in {*before, None}
    is_followed = after is None or stated_before(after) in {digest, None}
    return follows and is_followed


def _verify_file(table: Location, file: RunFile, deep: bool) -> None:
    with damage_named(table, file), open_verified(table, file) as source:
        parquet = pq.ParquetFile(source, page_checksum_verification=True)
        if parquet.metadata.num_rows != file.rows:
            fact = f"the file {file.path} has {parquet.metadata.num_rows} rows, but {file.rows} were committed"
            raise DamagedTable(str(table), fact)
        if deep:
            for group in range(parquet.num_row_groups):
                parquet.read_row_group(group)
