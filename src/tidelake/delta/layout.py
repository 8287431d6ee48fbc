"""Where everything of a store lies, and what the tables of a collection look like.

<store>/catalog/                   names, ids, schemas, since, capabilities, epochs, standing decisions
<store>/c/<collection_id>/
    updates/                       the data's columns, `_time`, `_diff` (positioned form: `_position`, `_unavailable`
                                   and `_error` too); partitioned by `_run`
    progress/                      pending progress statements; pruned by seal
    proofs/                        per seal: what was announced and what was counted, by time
    quarantine/                    what could not be used, and why
    bindings/                      re-clocked: which offsets each minted time stands for
    late/                          every statement about a sealed time
    current/                       the contents at upper as a plain Delta table (its own single writer)
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

RUN = "_run"
TIME = "_time"
DIFF = "_diff"
POSITION = "_position"
UNAVAILABLE = "_unavailable"
ERROR = "_error"

PROOF_RUN = "proof-"
"""What the names of runs of `proofs/` begin with that hold proofs; others hold notes."""

_source = [
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
]

PROGRESS_SCHEMA = pa.schema(
    [
        *_source,
        pa.field("lower", pa.list_(pa.int64())),
        pa.field("upper", pa.list_(pa.int64())),
        pa.field("count_times", pa.list_(pa.int64())),
        pa.field("count_values", pa.list_(pa.int64())),
        pa.field(RUN, pa.string()),
    ]
)
"""One row is one progress statement; `count_times[i]` is announced with `count_values[i]` distinct updates."""

PROOFS_SCHEMA = pa.schema(
    [
        pa.field(TIME, pa.int64()),
        pa.field("lower", pa.int64()),
        pa.field("upper", pa.int64()),
        pa.field("closed", pa.bool_()),
        pa.field("kind", pa.string()),
        pa.field("announced", pa.int64()),
        pa.field("counted", pa.int64()),
        pa.field("copies", pa.int64()),
        pa.field("decision", pa.string()),
        pa.field("diff_sum", pa.decimal128(38, 0)),
        pa.field("detail", pa.string()),
        pa.field("at_ms", pa.int64()),
        pa.field(RUN, pa.string()),
    ]
)
"""`kind` is `sealed` (one time that was sealed, with its counts), `blocked` (one contradiction that a seal met),
`validated` (a recount that agreed: `lower`, `upper` is its range, `diff_sum` the sum of all diffs before `upper`),
`damaged` (a recount that did not; `detail` says where), `late_update` (a late statement that contradicts what was
published at `_time`) or `late_count` (a late progress statement that contradicts what was proven at `counted` times, of
which `_time` is the first). `detail` of the last two is JSON: the place, and what is stated and published."""

BINDINGS_SCHEMA = pa.schema(
    [
        pa.field(TIME, pa.int64()),
        pa.field("lower", pa.int64()),
        pa.field("topics", pa.list_(pa.string())),
        pa.field("partitions", pa.list_(pa.int32())),
        pa.field("starts", pa.list_(pa.int64())),
        pa.field("ends", pa.list_(pa.int64())),
        pa.field("records", pa.int64()),
        pa.field("rows", pa.int64()),
        pa.field("quarantined", pa.int64()),
        pa.field("at_ms", pa.int64()),
        pa.field(RUN, pa.string()),
    ]
)
"""One row is one tick: `topics[i]`, `partitions[i]` was read from `starts[i]` up to `ends[i]`. No two have one time."""

QUARANTINE_SCHEMA = pa.schema(
    [
        *_source,
        pa.field("timestamp_ms", pa.int64()),
        pa.field("reason", pa.string()),
        pa.field("detail", pa.string()),
        pa.field("times", pa.list_(pa.int64())),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field(RUN, pa.string()),
    ]
)
"""One row for each `(topic, partition, offset)`; `times` are the logical times it holds back, where they are known."""


def new_run(kind: str) -> str:
    """A fresh name for a run: what wrote it (`ingest`, `seal`, `merge`, …) and 96 random bits."""
    return f"{kind}-{secrets.token_hex(12)}"


@dataclass(frozen=True)
class CollectionPaths:
    """The folders of one collection's tables."""

    root: Path

    @property
    def store(self) -> Store:
        """The store that the collection is in."""
        return Store(self.root.parent.parent)

    @property
    def updates(self) -> Path:
        """Every statement that was taken in, sealed and unsealed."""
        return self.root / "updates"

    @property
    def progress(self) -> Path:
        """Progress statements that reach beyond upper."""
        return self.root / "progress"

    @property
    def proofs(self) -> Path:
        """What each seal compared."""
        return self.root / "proofs"

    @property
    def quarantine(self) -> Path:
        """What could not be used, and why."""
        return self.root / "quarantine"

    @property
    def late(self) -> Path:
        """Statements about times that were sealed before they came."""
        return self.root / "late"

    @property
    def bindings(self) -> Path:
        """Re-clocked collections: which offsets each minted time stands for."""
        return self.root / "bindings"

    @property
    def current(self) -> Path:
        """The contents at upper, for every Delta reader."""
        return self.root / "current"


@dataclass(frozen=True)
class Store:
    """A folder that holds a catalog and its collections."""

    root: Path

    @property
    def catalog(self) -> Path:
        """The catalog's table."""
        return self.root / "catalog"

    def collection(self, collection_id: str) -> CollectionPaths:
        """The folders of the collection with this id (random, never a user's string)."""
        return CollectionPaths(self.root / "c" / collection_id)
