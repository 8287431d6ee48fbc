"""Steps on an object store save a head start, from which the next process begins."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dagster import DagsterInstance, build_op_context
from obstore.store import MemoryStore

from assets.names import Names
from assets.options import RunOptions
from assets.steps import compact_now
from jobs.lake import open_collection
from orchestration.run_once import run_tick_job
from tests.lakes.dagster_lakes import HISTORY, Lakes, compacted
from tests.services.counted_lake import forget_process
from tests.services.faulty_proxy import faulty_proxy
from tests.services.object_store import ObjectStore
from tidelake.settings.collection import CollectionSettings
from tidelake.settings.lake import Settings, load_settings
from tidelake.storage import blobs
from tidelake.store.dead_notes import DEAD
from tidelake.store.entry import Collection
from tidelake.store.followed import forget_all
from tidelake.store.head_start import forget_swept, use_head_start, was_swept
from tidelake.store.layout import Store


class Opened:
    """Stands for the resource of a lake; it has no session, because nothing is ever merged."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def session(self) -> Any:
        return None

    def settings_of(self, name: str) -> CollectionSettings:
        return self.settings.collection(name)

    def open(self, name: str) -> Collection:
        return open_collection(self.session(), self.settings, name)


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[Settings]:
    """A collection in a store in memory."""
    root = blobs.mount("memory://steps", MemoryStore())
    loaded = load_settings(Lakes(tmp_path, {"prices": "plain"}).config)
    forget_all()
    forget_swept()
    yield loaded.model_copy(update={"store": root})
    forget_all()
    forget_swept()


def test_a_compaction_says_in_the_head_start_when_it_swept(settings: Settings) -> None:
    names, store = Names("shop"), Store(settings.store)
    resources = {names.resource: Opened(settings), names.options: RunOptions()}
    with build_op_context(resources=resources) as context:
        compact_now(context, names, "prices", full=False)
    forget_all()
    forget_swept()
    use_head_start(store, "prices")
    assert was_swept(store, "prices", 3600)


@pytest.mark.sweep
@pytest.mark.spark
@pytest.mark.services
@pytest.mark.usefixtures("spark")
def test_the_runs_of_an_hour_sweep_once(tmp_path: Path, instance: DagsterInstance, object_store: ObjectStore) -> None:
    lakes = Lakes(tmp_path / "lakes", {"prices": "plain"})
    with faulty_proxy(object_store.endpoint) as proxy:
        lakes.write(lakes.document | object_store.settings(endpoint=proxy.endpoint))
        swept = []
        for messages in (HISTORY[:5], HISTORY[5:]):
            lakes.send("prices", *messages)
            before = len(proxy.served)
            forget_process()  # each run of a schedule has a process of its own
            assert compacted(run_tick_job(lakes.config, instance)) == {"prices"}
            swept.append(any(f"/catalog/{DEAD}/" in request.target for request in proxy.served[before:]))
        assert swept == [True, False]
