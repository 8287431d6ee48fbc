"""Changes that the catalog refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from obstore.store import MemoryStore

from tests.expectations.reports import settings
from tidelake.catalog.catalog import Catalog
from tidelake.errors import Conflict, Fenced, FrontierRegression, UnknownCollection, WriterFenced
from tidelake.storage import blobs
from tidelake.store.commit import EPOCH, OpenTable
from tidelake.store.followed import forget_all, known, remember
from tidelake.store.layout import Store


def test_since_never_moves_backwards_and_the_entry_is_unchanged(tmp_path: Path) -> None:
    catalog = Catalog(Store(tmp_path))
    catalog.open_or_create(settings("plain").spec())
    entry = catalog.update("prices", lambda old: old.model_copy(update={"since": (5,)}))
    with pytest.raises(FrontierRegression, match=r"since of 'prices' is \[5\] and cannot move back to \[3\]"):
        catalog.update("prices", lambda old: old.model_copy(update={"since": (3,)}))
    assert catalog.find("prices").entry == entry


def test_the_error_about_an_unknown_collection_names_it_and_the_store(tmp_path: Path) -> None:
    catalog = Catalog(Store(tmp_path))
    catalog.open_or_create(settings("plain").spec())
    for change in (catalog.find, lambda name: catalog.update(name, lambda old: old)):
        with pytest.raises(UnknownCollection, match="has no collection 'visits'\nhint: run its ingest once") as error:
            change("visits")
        assert str(tmp_path) in str(error.value)


def test_a_fenced_writer_stays_out_after_a_restart_until_a_fence_lets_it_in(tmp_path: Path) -> None:
    store, spec = Store(tmp_path), settings("plain").spec()
    running = Catalog(store, "old").open_or_create(spec)
    Catalog(store).fence("prices", "new")
    with pytest.raises(Fenced):
        OpenTable(running.paths.updates).commit({}, epoch=running.entry.epoch)
    for _ in range(2):
        with pytest.raises(WriterFenced) as error:
            Catalog(store, "old").open_or_create(spec)
        assert error.value.fact == ("'prices' is fenced: only the writer 'new' may write to it, and this one is 'old'")
        assert "`tidelake fence prices --writer old`, which keeps out 'new'" in error.value.hint
    with pytest.raises(
        WriterFenced, match=r"and this one has no name\nhint: .* set `writer:` in its settings, then run"
    ):
        Catalog(store).open_or_create(spec)
    opened = Catalog(store, "new").open_or_create(spec)
    assert OpenTable(opened.paths.updates).commit({}, epoch=opened.entry.epoch).version > 0
    assert Catalog(store, "old").find("prices").entry == opened.entry  # a fenced writer can still read

    Catalog(store).fence("prices", "old")
    with pytest.raises(Fenced):
        OpenTable(opened.paths.updates).commit({}, epoch=opened.entry.epoch)
    with pytest.raises(WriterFenced, match="only the writer 'old' may write to it, and this one is 'new'"):
        Catalog(store, "new").open_or_create(spec)
    assert Catalog(store, "old").open_or_create(spec).entry.epoch == 2
    Catalog(store).fence("prices", None)
    for name in ("old", "new", None):
        assert Catalog(store, name).open_or_create(spec).entry.epoch == 3


@pytest.mark.parametrize("just_checked", [False, True])
def test_a_fence_between_the_check_and_the_opening_keeps_the_writer_out(just_checked: bool) -> None:
    store, spec = Store(blobs.mount("memory://checked", MemoryStore())), settings("plain").spec()
    catalog = Catalog(store, "old")
    paths = catalog.open_or_create(spec).paths
    assert catalog.check([spec]) == {"prices"}
    seen = {path: known(path) for path in (paths.handles, paths.updates)}
    Catalog(store).fence("prices", "new")
    for path, log in seen.items():  # as if another process had set the fence
        remember(path, log)
    if just_checked:
        opened = catalog.open_or_create(spec, just_checked=True)
        with pytest.raises(Fenced):
            OpenTable(opened.paths.updates).commit({}, epoch=opened.entry.epoch)
        remember(paths.updates, seen[paths.updates])
        with pytest.raises(Conflict):
            OpenTable(opened.paths.updates, may_be_stale=True).commit({}, epoch=opened.entry.epoch)
    with pytest.raises(WriterFenced):
        catalog.open_or_create(spec)
    forget_all()


def test_a_writer_that_is_fenced_out_does_not_finish_a_fence_or_change_the_entry(tmp_path: Path) -> None:
    store, spec = Store(tmp_path), settings("plain").spec()
    paths = Catalog(store).open_or_create(spec).paths
    unfinished = Catalog(store).update("prices", lambda entry: entry.model_copy(update={"epoch": 4, "writer": "new"}))
    with pytest.raises(WriterFenced):
        Catalog(store, "old").open_or_create(spec)
    assert (Catalog(store).find("prices").entry, OpenTable(paths.updates).value(EPOCH)) == (unfinished, 0)
    Catalog(store, "new").open_or_create(spec)
    assert OpenTable(paths.updates).value(EPOCH) == 4


def test_the_names_of_writers_have_no_effect_without_a_fence(tmp_path: Path) -> None:
    store, spec = Store(tmp_path), settings("plain").spec()
    for name in ("one", None, "other"):
        entry = Catalog(store, name).open_or_create(spec).entry
        assert (entry.epoch, entry.writer) == (0, None)
    assert "writer" not in entry.model_dump_json()
