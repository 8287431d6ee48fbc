"""If a process is killed while it renames or drops a collection or collects garbage, the next one finishes the work."""

from __future__ import annotations

import multiprocessing
import os
import signal
from pathlib import Path

import pytest

from tests.lakes.held import HeldLake
from tests.lakes.lake import NAME
from tests.lakes.places import Stores
from tests.report.published import publish
from tidelake import open_lake
from tidelake.catalog.catalog import Catalog
from tidelake.catalog.handles import read_handles
from tidelake.catalog.name_log import NameLog
from tidelake.compact.garbage import collect_garbage
from tidelake.storage import blobs
from tidelake.store.failpoints import LIFE_FAILPOINTS, TABLES, on_reach
from tidelake.store.layout import Store
from tidelake.store.table_log import check_log

OTHER = "other"
PLACES = (
    *(f"commit.{moment}.handles" for moment in ("before_call", "after_call", "after_sync", "after_marker")),
    *(f"commit.after_call.{table}" for table in TABLES if table != "handles"),
    *("names.after_entry", "names.after_marker", "names.after_bound"),
    *LIFE_FAILPOINTS,
)
EVERYDAY = ("rename.after_name", "drop.after_handles")
STEPS = 3


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory, stores: Stores) -> HeldLake:
    """A collection without rows, which tests copy before they change it."""
    return HeldLake.create(stores.hold(tmp_path_factory.mktemp("life")) / "lake", upper=10)


def live(file: str, place: str | None, passing: int) -> None:
    """Rename, drop and delete the collection of a lake whose settings are in `file`.

    If there is a `place`, die when this failpoint is reached after it has been passed `passing` times.
    """
    left = [passing]

    def kill(name: str) -> None:
        if name == place:
            left[0] -= 1
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    on_reach(kill)
    catalog = Catalog(Store(open_lake(file).settings.store))
    if catalog.get(OTHER) is None and catalog.get(NAME) is not None:
        catalog.rename(NAME, OTHER)
    catalog.drop(OTHER)
    collect_garbage(catalog.store, {NAME}, retention_s=-60.0)  # an object store states times only to the second


def die(lake: HeldLake, place: str, passing: int) -> bool:
    """Run a process until it ends or is killed; return whether it was killed."""
    process = multiprocessing.get_context("spawn").Process(target=live, args=(str(lake.file), place, passing))
    process.start()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL)
    return process.exitcode != 0


def check_kill(lake: HeldLake, place: str, passing: int) -> bool:
    """Check that a store ends as if no process had been killed in it; return whether one was killed."""
    id, catalog = lake.stored.entry.id, lake.catalog
    publish(catalog)
    was_killed = die(lake, place, passing)
    assert [entry.id for entry in catalog.entries()] in ([id], [])
    assert catalog.orphans() == []
    live(str(lake.file), None, 0)
    on_reach(None)
    entry = read_handles(catalog.store.collection(id))
    assert (catalog.entries(), catalog.orphans(), entry.name, entry.renaming) == ([], [], OTHER, None)
    assert entry.dropped is not None and entry.dropped.storage == "gone"
    assert blobs.list_names(catalog.store.collection(id).root) == ["handles"]
    check_log(catalog.store.collection(id).handles)
    for name in (NAME, OTHER):
        check_log(NameLog.of(catalog.store, name).path)
    assert catalog.open_or_create(open_lake(lake.file).settings.collection(NAME).spec()).entry.id != id
    return was_killed


@pytest.mark.parametrize("place", EVERYDAY)
def test_a_killed_rename_or_drop_is_finished(template: HeldLake, any_store: Path, place: str) -> None:
    assert check_kill(template.copy(any_store / "lake"), place, 0)


@pytest.mark.sweep
@pytest.mark.parametrize("place", PLACES)
def test_a_kill_at_any_place_in_a_life_changes_nothing(template: HeldLake, any_store: Path, place: str) -> None:
    killed = [check_kill(template.copy(any_store / str(at)), place, at) for at in range(STEPS)]
    assert killed[0], f"nothing reaches {place}"
