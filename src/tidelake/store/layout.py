"""The folders of a store, and the schemas of a collection's tables.

<store>/catalog/                   the store's id and format; before format 4, also the names and the handles
    _names/<name>                  which names were ever bound, so that a lost name is noticed
<store>/names/<name>/              a log: which collection has the name, and where its contents are published
<store>/head_starts/<name>.zip     object stores only: what a new process begins with; can be deleted at any time
<store>/cuts/<time>-….json         transactions whose first changes might not have been sent; see `store.cuts`
<store>/tables/<name>/             the contents just before upper, as a plain Delta table with a writer of its own
<store>/c/<collection_id>/
    handles/                       one row: schema, `since`, capabilities, epoch, decisions
    updates/                       the data's columns, `_time`, `_diff` (positioned form: `_position`, `_unavailable`
                                   and `_error` too); partitioned by `_run`
    progress/                      pending progress statements; pruned by seal
    proofs/                        for each time, the announced and the counted number of updates
    quarantine/                    unusable messages, and why
    bindings/                      reclocked: the offsets bound to each minted time
    transactions/                  transactions of the source, and what they announce for the collection's table
    late/                          statements that arrived after their times were sealed
    current/                       contents that earlier releases published; they are no longer rebuilt
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass

import pyarrow as pa

from tidelake.settings.object_store import ObjectStorePlace
from tidelake.storage import blobs
from tidelake.storage.location import Location, Place
from tidelake.store.publication import folder_of_name

RUN = "_run"
TIME = "_time"
DIFF = "_diff"
POSITION = "_position"
UNAVAILABLE = "_unavailable"
ERROR = "_error"

EVENT_POSITION_SIZES = (2, 4)
"""With transactions, the sizes of the positions that a seal counts: 2 for an event (commit position, number in the
transaction) and 4 for a snapshot row (log position, 0, partition, offset). Second rows of events, and barriers, have
other sizes."""

MERGE_RUN = "merge-"
"""Prefix of the runs in `updates/` that merges wrote. If diffs are summed, no such run has equal rows at one time."""

PROOF_RUN = "proof-"
"""Prefix of the runs in `proofs/` that hold proofs. Other runs hold notes."""

RETENTION_RUN = "retention-"
"""Prefix of the runs in `proofs/` that note rows removed by retention, and of those in `updates/` that remove them."""

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
"""Each row is a progress statement that announces `count_values[i]` distinct updates at `count_times[i]`."""

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
"""`kind` is `sealed` (a sealed time with its counts), `blocked` (a contradiction that a seal found), `validated` (a
recount that agreed: its range is `[lower, upper)`, and `diff_sum` is the sum of all diffs before `upper`), `damaged`
(a recount that did not agree; `detail` says where), `late_update` (a late statement that contradicts what was
published at `_time`), `late_count` (a late progress statement that contradicts the proofs of one or more times:
`counted` says how many, and `_time` is the first), `compacted` (see `proof_log.COMPACTED`) or `retention` (see
`store.retention`: `counted` rows that state a moment before `upper`, in milliseconds, were removed at `_time`;
`announced` is the total removed so far, and `lower` is the previous time at which rows were removed). For the late
kinds, `detail` is JSON: the place, and the stated and the published value."""

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
"""Each row is a tick: it read offsets `[starts[i], ends[i])` of `partitions[i]` of `topics[i]`. Times are unique."""

TRANSACTIONS_SCHEMA = pa.schema(
    [
        pa.field(TIME, pa.int64()),
        pa.field("kind", pa.string()),
        pa.field("id", pa.string()),
        *_source,
        pa.field("events", pa.int64()),
        pa.field("events_in_all", pa.int64()),
        pa.field("ended_at_ms", pa.int64()),
        pa.field(RUN, pa.string()),
        pa.field("begins_at", pa.int64()),
    ]
)
"""`kind` is `end` (the end of a transaction: its commit position, id, place in the topic, its number of events in the
collection's table and in all tables, when it ended, and where in the log it begins) or `snapshot` (a snapshot of the
table: its log position, and its number of rows). A row may be repeated. Files of earlier releases lack `begins_at`,
and `carry_columns` adds it to their tables."""

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
"""One row for each `(topic, partition, offset)`; `times` are those that the message holds back, if known."""


COLLECTION_ID = re.compile(r"[0-9a-f]{32}")
"""The form of a collection's id."""
_RUN_NAME = re.compile(r"[^-]+-([0-9]{1,19})-[0-9a-f]{24}")


def new_run(kind: str, seq: int) -> str:
    """Return a fresh name for a run: its kind (`ingest`, `seal`, `merge`, …), a `seq`, and 96 random bits.

    Args:
        kind: what writes the run.
        seq: the `seq` that the table has when the writer opens it, before the writer writes anything.
    """
    return f"{kind}-{seq}-{secrets.token_hex(12)}"


def run_of(path: str) -> str:
    """Return the run that a file belongs to, from its path or URI.

    >>> run_of("file:///store/updates/_run=ingest-0f3a/_base=true/part-0.parquet")
    'ingest-0f3a'
    """
    return path.rpartition(f"/{RUN}=")[2].partition("/")[0]


def begun_at(run: str) -> int:
    """Return the `seq` at which a run began; 0 if the run is so old that its name does not state it.

    >>> begun_at(new_run("ingest", 17)), begun_at("ingest-0f3a")
    (17, 0)
    """
    match = _RUN_NAME.fullmatch(run)
    return 0 if match is None else int(match[1])


@dataclass(frozen=True)
class CollectionPaths:
    """The locations of one collection's tables."""

    root: Location

    @property
    def store(self) -> Store:
        """The store of the collection."""
        return Store(self.root.parent.parent)

    @property
    def handles(self) -> Location:
        """The collection's entry: what can change about it, such as `since`, capabilities, epoch and decisions."""
        return self.root / "handles"

    @property
    def updates(self) -> Location:
        """All ingested updates, sealed and unsealed."""
        return self.root / "updates"

    @property
    def progress(self) -> Location:
        """Pending progress statements, which reach beyond upper."""
        return self.root / "progress"

    @property
    def proofs(self) -> Location:
        """The counts that each seal compared."""
        return self.root / "proofs"

    @property
    def quarantine(self) -> Location:
        """Messages that could not be used, and why."""
        return self.root / "quarantine"

    @property
    def late(self) -> Location:
        """Statements that arrived after their times were sealed."""
        return self.root / "late"

    @property
    def bindings(self) -> Location:
        """The offsets bound to each minted time; reclocked collections only."""
        return self.root / "bindings"

    @property
    def transactions(self) -> Location:
        """The transactions that were read; only for collections whose source announces transactions."""
        return self.root / "transactions"

    @property
    def current(self) -> Location:
        """The contents that earlier releases published. The table is no longer rebuilt, and nothing deletes it."""
        return self.root / "current"


class Store:
    """A folder, local or in an object store, that holds a catalog, names and collections."""

    def __init__(self, place: Place | ObjectStorePlace, read_only: bool = False) -> None:
        """Take the store's location; nothing is opened.

        Args:
            place: the folder.
            read_only: whether every attempt to write to the store raises `LakeReadOnly`.
        """
        root = blobs.root_of(place)
        self.root = root.read_only if read_only else root

    @property
    def catalog(self) -> Location:
        """The catalog's table, which has the store's id and format."""
        return self.root / "catalog"

    @property
    def names(self) -> Location:
        """The folder of the logs of all names."""
        return self.root / "names"

    @property
    def bound_names(self) -> Location:
        """A folder with a blob for each name ever bound; outside `names`, so that the two are rarely lost together."""
        return self.catalog / "_names"

    @property
    def collections(self) -> Location:
        """The folder of all collections."""
        return self.root / "c"

    @property
    def head_starts(self) -> Location:
        """The folder of what new processes begin with, in object stores; it can be deleted at any time."""
        return self.root / "head_starts"

    @property
    def cuts(self) -> Location:
        """The folder of notes about transactions whose first changes might not have been sent; see `store.cuts`."""
        return self.root / "cuts"

    def log_of_name(self, name: str) -> Location:
        """Return the folder of the log that binds a name to a collection."""
        return self.names / folder_of_name(name)

    def head_start(self, name: str) -> Location:
        """Return the blob that a new process begins with when it opens the collection that has this name."""
        return self.head_starts / f"{folder_of_name(name)}.zip"

    def publication(self, folder: str) -> Location:
        """Return the location of published contents, by the folder of their publication."""
        return self.root / "tables" / folder

    def collection(self, collection_id: str) -> CollectionPaths:
        """Return the locations of a collection's tables, by its id, which is random and never a user's string."""
        return CollectionPaths(self.collections / collection_id)
