"""The notes of seals and validations in `proofs/`, without the proofs. Needs no JVM."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection
from tidelake.store.files import read_rows
from tidelake.store.late_notes import CONTRADICTED_RUN
from tidelake.store.layout import PROOF_RUN, PROOFS_SCHEMA, RETENTION_RUN, TIME

DAMAGED_FILES = "damaged_files"
"""The name of a value in the log of `proofs/`. Values can only rise, so this one is a flag by its parity: odd if the
newest validation that verified files found damaged files, else even."""
COMPACTED = "compacted"
"""The kind of the note of a full compaction: `lower` and `upper` are `since` before and after it, `copies` is the
number of runs that it merged, and `announced` and `counted` are the numbers of their rows before and after."""


@dataclass(frozen=True)
class HashNote:
    """The hashes that a validation noted about a range of times; see `validate.hashes`."""

    lower: int
    upper: int
    closed: bool
    times: str | None = None
    """The hash of the statements of the range."""
    contents: str | None = None
    """The hash of the contents just before upper."""
    as_of: int | None = None
    """The time of the contents if diffs are not summed. If they are summed, it is None, and `contents` is the sum of
    what each time contributes."""

    @property
    def detail(self) -> str:
        """The hashes, as a note stores them."""
        return json.dumps({"times": self.times, "contents": self.contents, "as_of": self.as_of})

    @staticmethod
    def read(row: Mapping[str, Any]) -> HashNote:
        """Read the note of a validation. Earlier releases noted no hashes; later releases may note more."""
        noted = json.loads(row["detail"] or "{}")
        known = {name: noted.get(name) for name in ("times", "contents", "as_of")}
        return HashNote(row["lower"], row["upper"], bool(row["closed"]), **known)


@dataclass
class ProofLog:
    """The notes of seals and validations in `proofs/`, without the proofs themselves."""

    blocked: list[dict[str, Any]] = field(default_factory=list)
    """`time` and `detail` of every contradiction that a seal found, each once."""
    validated_upper: int = 0
    validated_sum: int = 0
    validated_closed: bool = False
    """Whether the closed stream was validated to its end."""
    validations: int = 0
    hashes: list[HashNote] = field(default_factory=list)
    """The notes of the validations that agreed, oldest first, except those with a lower `upper` than an earlier one.

    The notes of earlier releases of Tidelake have no hashes."""
    validated_contents: str | None = None
    """The hash of the contents just before `validated_upper`; None if diffs are not summed, or if it was not noted."""
    damaged: str | None = None
    """The mismatch below upper, or the damaged files, that the newest validation found; None if it found neither."""
    has_damaged_files: bool = False
    """Whether the newest validation that verified files found damaged files."""
    damaged_at_ms: int = 0
    """When a validation last found a mismatch or damaged files, in milliseconds since 1970; 0 if none ever did."""
    newest_at_ms: int = 0
    """When the newest note was made, in milliseconds since 1970, by its writer's clock."""


def notes_damaged_files(proofs: OpenTable) -> bool:
    """Return whether the newest validation that verified files found damaged files; no file is opened."""
    return (proofs.value(DAMAGED_FILES) or 0) % 2 == 1


def read_proof_log(collection: Collection) -> ProofLog:
    """Read the notes of seals and validations in `proofs/`. A contradiction that was noted repeatedly counts once."""
    table = OpenTable(collection.paths.proofs)
    skipped = (PROOF_RUN, f"{CONTRADICTED_RUN}-", RETENTION_RUN)
    notes = [file for file in table.files() if not file.run.startswith(skipped)]
    log = ProofLog(has_damaged_files=notes_damaged_files(table))
    blocked: dict[tuple[int, str], dict[str, Any]] = {}
    rows = read_rows(collection.paths.proofs, notes, PROOFS_SCHEMA).to_pylist()
    for row in sorted(rows, key=lambda row: row["at_ms"]):
        if row["kind"] == COMPACTED:  # it says nothing about what is published
            continue
        log.newest_at_ms = row["at_ms"]
        if row["kind"] == "blocked":
            blocked[row[TIME], row["detail"]] = {"time": row[TIME], "detail": row["detail"]}
            continue
        log.damaged = row["detail"] if row["kind"] == "damaged" else None
        if log.damaged is not None:
            log.damaged_at_ms = row["at_ms"]
        if row["kind"] == "validated" and row["upper"] >= log.validated_upper:
            log.validated_upper, log.validated_sum = row["upper"], int(row["diff_sum"])
            log.validated_closed = bool(row["closed"])
            note = HashNote.read(row)
            log.validated_contents = note.contents if note.as_of is None else None
            log.hashes.append(note)
            log.validations += 1
    log.blocked = [blocked[key] for key in sorted(blocked)]
    return log
