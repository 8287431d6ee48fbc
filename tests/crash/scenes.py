"""A scene for each failpoint: how the lake is prepared, what the victim does, and what another process does."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from random import Random

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from tests.crash.harness import collection_of
from tests.lakes.lake import NAME, Lake, progress, updates
from tests.lakes.places import write_in_the_past
from tests.lakes.published import table_of
from tidelake.storage import blobs
from tidelake.storage.location import Location
from tidelake.store.acknowledged import digest_of
from tidelake.store.commit import OpenTable, maintain
from tidelake.store.dead_notes import DEAD
from tidelake.store.failpoints import FAILPOINTS, TABLES
from tidelake.store.files import read_rows, write_run
from tidelake.store.layout import QUARANTINE_SCHEMA, RUN, new_run
from tidelake.store.published import read_table_state
from tidelake.store.staged_rows import StagedRows
from tidelake.store.state import UPPER
from tidelake.store.table_log import checkpoints

CYCLE = ("ingest", "seal", "validate", "compact", "current")
"""The steps of a schedule, in order."""


@dataclass(frozen=True)
class Scene:
    """What happens while a piece of the topic is processed.

    Args:
        prepare: the name of a preparation of the lake; see `prepare`.
        meet: a place, and the step that another process takes when the victim first reaches this place.
        steps: the steps of the victim.
        piece: the number of the piece; with None, the seed chooses a piece after the first.
    """

    prepare: str | None = None
    meet: tuple[str, str] | None = None
    steps: tuple[str, ...] = CYCLE
    piece: int | None = None


_PLAIN = Scene()
_FIRST = Scene(piece=0)
_OPERATOR = Scene(steps=("decide", "withdraw", "fence", *CYCLE))
OF_PLACES = {
    "table.after_folder": _FIRST,
    "table.after_entry": _FIRST,
    "table.after_create.catalog": _FIRST,
    **{f"table.after_create.{table}": _FIRST for table in TABLES},
    "table.after_torn_entry": Scene(prepare="tear"),
    "table.after_torn_checkpoint": Scene(prepare="blunt"),
    "commit.before_call.handles": _OPERATOR,
    "commit.after_call.handles": _OPERATOR,
    "commit.after_sync.handles": _OPERATOR,
    "commit.after_marker.handles": _OPERATOR,
    "commit.after_checkpoint_write": Scene(prepare="age"),
    "commit.after_checkpoint": Scene(prepare="age"),
    "commit.after_cleanup": Scene(prepare="age"),
    "append.after_conflict": Scene(meet=("commit.before_call.quarantine", "bump:quarantine")),
    "names.after_entry": _FIRST,
    "names.after_marker": _FIRST,
    "names.after_bound": _FIRST,
    "catalog.after_name": _FIRST,
    "catalog.after_handles": _FIRST,
    "catalog.after_commit": _OPERATOR,
    "catalog.after_conflict": Scene(meet=("commit.before_call.handles", "bump:handles")),
    "catalog.after_epoch": _OPERATOR,
    "ingest.after_conflict": Scene(meet=("ingest.after_progress", "bump:updates")),
    "ingest.after_overtaken_late": Scene(meet=("ingest.after_progress", "seal")),
    "ingest.after_overtaken_write": Scene(meet=("ingest.after_progress", "seal")),
    "ingest.after_lost_offsets": Scene(meet=("ingest.after_progress", "ingest")),
    "seal.after_blocked": Scene(prepare="contradict"),
    "seal.after_conflict": Scene(meet=("seal.after_proofs", "bump:updates")),
    "seal.after_overtaken": Scene(meet=("seal.after_proofs", "seal")),
    "seal.after_claiming_less": Scene(meet=("seal.after_proofs", "overtake")),
    "validate.after_evidence": Scene(prepare="belie"),
    "compact.after_conflict": Scene(meet=("compact.after_write", "bump:updates")),
    "compact.after_lost_runs": Scene(meet=("compact.after_write", "compact")),
    "tidy.after_write": Scene(prepare="crowd"),
    "tidy.after_commit": Scene(prepare="crowd"),
    "current.after_checkpoint": Scene(prepare="republish"),
    "sweep.after_floor": Scene(prepare="litter"),
    "sweep.after_folder": Scene(prepare="litter"),
}
"""The scenes of places that are not reached while an ordinary piece of an ordinary topic is processed."""


ONLY_ON_A_DISK = frozenset({"table.after_torn_entry"})
"""Places that are not reached in a store whose blobs are always whole or absent."""


def scene_of(place: str) -> Scene:
    """The scene that reaches a failpoint."""
    assert place in FAILPOINTS, f"tidelake.store.failpoints has no {place}"
    return OF_PLACES.get(place, _PLAIN)


def prepare(lake: Lake, what: str | None, seed: int) -> None:
    """Bring a lake into the state that a scene needs; readers see no difference."""
    if what is not None:
        {
            "tear": _tear,
            "age": _age,
            "belie": _belie,
            "blunt": _blunt,
            "contradict": _contradict,
            "crowd": _crowd,
            "litter": _litter,
            "republish": _republish,
        }[what](lake, seed)


def _tear(lake: Lake, seed: int) -> None:
    """Another process died while it was writing the next log entry."""
    tear_next_entry(lake.table.path, Random(seed))


def tear_next_entry(path: Location, rng: Random) -> None:
    """Write, as the next entry, a truncated copy of the newest; in half of all cases it ends between two lines."""
    version = OpenTable(path).version
    entry = path.local / "_delta_log" / f"{version:020d}.json"
    text = entry.read_bytes()
    ends = [index for index, byte in enumerate(text) if byte == ord("\n")]
    cut = rng.choice(ends) if rng.random() < 0.5 else rng.randrange(len(text))
    (entry.parent / f"{version + 1:020d}.json").write_bytes(text[:cut])


def _age(lake: Lake, seed: int) -> None:
    """Make enough commits for a checkpoint to be due after the next commit."""
    for _ in range(32):
        lake.table.commit({})


def _blunt(lake: Lake, seed: int) -> None:
    """The second half of a checkpoint that was just written is lost."""
    _age(lake, seed)
    path = lake.table.path
    assert maintain(path)
    (checkpoint,) = checkpoints(path)
    whole = blobs.read(checkpoint)
    blobs.write(checkpoint, whole[: len(whole) // 2])


def _contradict(lake: Lake, seed: int) -> None:
    """The source announces two counts for a time far from all others."""
    lake.send(progress([10**7], [10**7 + 1], {10**7: 1}), progress([10**7], [10**7 + 1], {10**7: 2}))


def _belie(lake: Lake, seed: int) -> None:
    """The source states something new about a time that is sealed."""
    lake.send(updates((77, (lake.table.value(UPPER) or 0) - 2, 1)))


def _crowd(lake: Lake, seed: int) -> None:
    """Repeated ticks have filled the quarantine with runs of the same rows."""
    path = collection_of(lake).paths.quarantine
    rows: pa.Table = read_rows(path, OpenTable(path).files(), QUARANTINE_SCHEMA)
    for _ in range(8):
        table = OpenTable(path)
        table.commit({}, write_run(path, new_run("quarantine", table.seq), rows))


def _litter(lake: Lake, seed: int) -> None:
    """Processes that died three days ago have left files behind, which a sweep confirmed to be dead two days ago."""
    paths = collection_of(lake).paths
    for folder in (paths.updates / f"{RUN}=ingest-dead", paths.progress / f"{RUN}=progress-dead"):
        write_in_the_past(folder / "part-0.parquet", b"PAR1", 3 * 86400)
        note = json.dumps({folder.name: [None, 0, time.time()]}).encode()
        write_in_the_past(folder.parent / DEAD / f"litter-{digest_of(note)}.json", note, 2 * 86400)


def _republish(lake: Lake, seed: int) -> None:
    """The same contents have been published so often that a checkpoint is due after the next publication."""
    table = table_of(collection_of(lake))
    shown = read_table_state(table).shown
    assert shown is not None
    options = blobs.delta_options(table)
    rows = DeltaTable(str(table), storage_options=options).to_pyarrow_table()
    for _ in range((9 - StagedRows(table).version) % 10):
        staged = StagedRows(table)
        write_deltalake(str(staged.folder), rows, storage_options=options)
        staged.take()
        staged.commit(NAME, "", shown)
