"""Verifies the files of a collection against what was committed, and restores what can be restored.

A log entry is restored from the copy that its marker holds, and a marker from its entry. Nothing else is changed, and
damaged bytes are set aside, never deleted. Readers verify on their way what they read; here everything is read.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow.parquet as pq

from tidelake.errors import DamagedTable
from tidelake.storage import blobs
from tidelake.storage.location import Location
from tidelake.store.acknowledged import ACKED, digest_of, entry_marker, read_markers
from tidelake.store.commit import OpenTable
from tidelake.store.files import RunFile, damage_named, open_verified
from tidelake.store.notices import warn
from tidelake.store.table_log import check_log, entry_path

FROM_A_COPY = "restore it from a copy of the store, or rebuild the collection from its topic under a new name"


@dataclass(frozen=True)
class Damage:
    """A file that is not what was committed."""

    table: str
    """The folder of its table: `updates`, `proofs`, …, or `catalog`."""
    file: str
    """Its path below that folder; empty if the damage is not in one file."""
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
        table: its folder.
        deep: also read every page of every file and verify its checksum.
        found: gets what was read and what is damaged.
    """
    found.tables += 1
    if not blobs.list_names(table):
        found.damages.append(Damage(table.name, "", "is missing", FROM_A_COPY))
        return
    log_damage = [damage for damage, _ in _damage_in_log(table)]
    found.damages += log_damage
    if log_damage:
        return  # which files are live is not known
    try:
        files = OpenTable(table).files()
        check_log(table)
    except DamagedTable as error:
        found.damages.append(Damage(table.name, "", error.detail, FROM_A_COPY))
        return
    for file in files:
        found.files += 1
        found.bytes += file.bytes
        try:
            _verify_file(table, file, deep)
        except FileNotFoundError:
            found.damages.append(Damage(table.name, file.path, "is missing", FROM_A_COPY))
        except DamagedTable as error:
            found.damages.append(Damage(table.name, file.path, error.detail, FROM_A_COPY))


def repair_log(table: Location) -> list[Damage]:
    """Restore the damaged entries and markers of a table's log from each other; return what was restored."""
    restored = []
    for damage, copy in _damage_in_log(table):
        if copy is None:
            continue
        damaged = table / damage.file
        if blobs.exists(damaged):
            aside = damaged.parent / f".damaged-{damaged.name}-{secrets.token_hex(4)}"
            blobs.set_aside(damaged, aside)
        blobs.create(damaged, copy)
        blobs.make_names_durable([damaged.parent])
        warn("a damaged file of a log was restored", table=str(table), file=damage.file)
        restored.append(damage)
    return restored


def _damage_in_log(table: Location) -> Iterator[tuple[Damage, bytes | None]]:
    """Each acknowledged entry that is damaged, and each damaged marker, with the bytes that restore it."""
    for version, digest in sorted(read_markers(table).entries.items()):
        entry, marker = entry_path(table, version), entry_marker(table, version, digest)
        text = blobs.read(entry) if blobs.exists(entry) else None
        copy = blobs.read(marker)
        is_good, is_copy_good = text is not None and digest_of(text) == digest, digest_of(copy) == digest
        if not is_good:
            problem = "is missing" if text is None else "is not the one that was acknowledged"
            remedy = f"comes back from its copy in {ACKED}" if is_copy_good else FROM_A_COPY
            yield Damage(table.name, entry.below(table), problem, remedy, is_copy_good), copy if is_copy_good else None
        elif not is_copy_good:
            problem, remedy = "is not a copy of the entry", "is written again from the entry"
            yield Damage(table.name, marker.below(table), problem, remedy, True), text


def _verify_file(table: Location, file: RunFile, deep: bool) -> None:
    with damage_named(table, file), open_verified(table, file) as source:
        parquet = pq.ParquetFile(source, page_checksum_verification=True)
        if parquet.metadata.num_rows != file.rows:
            fact = f"the file {file.path} has {parquet.metadata.num_rows} rows, but {file.rows} were committed"
            raise DamagedTable(str(table), fact)
        if deep:
            for group in range(parquet.num_row_groups):
                parquet.read_row_group(group)
