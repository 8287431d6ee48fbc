"""An earlier format's catalog is divided into names and handles once, even if processes die or read in the meantime."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.cli.commands import run
from tests.golden.shown import unpack
from tests.stops import stop_at
from tests.sweeps import swept
from tidelake import open_lake
from tidelake.catalog import undivided
from tidelake.catalog.catalog import Catalog
from tidelake.catalog.handles import ENTRIES_SCHEMA
from tidelake.catalog.undivided import is_divided
from tidelake.errors import ConfigurationError, DamagedTable, NewerFormat, WriterFenced
from tidelake.integrity.verification import Verification, verify_name, verify_table
from tidelake.settings.lake import load_settings
from tidelake.storage import blobs
from tidelake.storage.local_disk import LocalDisk
from tidelake.store import commit
from tidelake.store.bring_over import bring_over
from tidelake.store.commit import OpenTable
from tidelake.store.failpoints import BRING_OVER_FAILPOINTS
from tidelake.store.files import RunFile, read_rows, write_run
from tidelake.store.format import CATALOG_VERSION, FORMAT
from tidelake.store.layout import Store, new_run
from tidelake.store.publication import Publication, run_kind

PLACES = [place for place in BRING_OVER_FAILPOINTS if place.startswith(("divide.", "commit."))]


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of format 3: its catalog has two publications, one for a name without a collection."""
    file = unpack(tmp_path_factory.mktemp("golden"))
    store = Store(load_settings(file).store)
    bring_over(store.catalog)
    id = Catalog(store).find("plain").entry.id
    for name in ("plain", "Gone"):
        add_publication(store, Publication(name=name, folder=name.lower(), collection_id=id, bound_at_ms=5))
    return file


def add_publication(store: Store, publication: Publication) -> None:
    """Publish as the release with format 3 did."""
    table = OpenTable(store.catalog)
    run = new_run(run_kind(publication.name), table.seq)
    rows = pa.table({"name": [publication.name], "document": [publication.model_dump_json()]})
    table.commit({FORMAT: 3}, write_run(store.catalog, run, rows))


@pytest.fixture
def catalog(golden: Path, tmp_path: Path) -> Catalog:
    shutil.copytree(golden.parent / "store", tmp_path / "store")
    return Catalog(Store(tmp_path / "store"))


def seen(catalog: Catalog) -> tuple[Any, ...]:
    """The state that readers see."""
    publications = [catalog.publication(name) for name in ("plain", "Gone", "upsert", "gone")]
    found = catalog.lookup([entry.name for entry in catalog.entries()])
    return catalog.entries(), list(found.values()), publications, catalog.get("Gone")


def tree(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def check_divided(catalog: Catalog, before: tuple[Any, ...]) -> None:
    assert seen(catalog) == before
    table = OpenTable(catalog.store.catalog)
    assert (is_divided(table), table.format, table.files()) == (True, CATALOG_VERSION, [])
    found = Verification()
    verify_table(catalog.store.catalog, True, found)
    for entry in catalog.entries():
        handles = verify_name(catalog.store, entry.name, found)
        assert handles == catalog.store.collection(entry.id).handles
        verify_table(handles, True, found)
    assert (found.damages, catalog.orphans(), catalog.divide()) == ([], [], 0)


def test_readers_leave_an_undivided_catalog_as_it_is(catalog: Catalog, tmp_path: Path) -> None:
    before = tree(tmp_path)
    entries, found, publications, gone = seen(catalog)
    assert len(entries) == 12 and [each.entry for each in found] == entries
    assert [publication and publication.folder for publication in publications] == ["plain", "gone", None, None]
    assert gone is None and catalog.orphans() == []
    assert tree(tmp_path) == before


def test_a_catalog_is_divided_only_once(catalog: Catalog) -> None:
    before = seen(catalog)
    assert catalog.divide() == 12
    check_divided(catalog, before)
    version = OpenTable(catalog.store.catalog).version
    catalog.update("plain", lambda entry: entry.model_copy(update={"epoch": 1}))
    assert (catalog.divide(), OpenTable(catalog.store.catalog).version) == (0, version)
    assert catalog.find("plain").entry.epoch == 1


@pytest.mark.parametrize(
    "place", swept(PLACES, ["commit.after_call.catalog", "divide.after_handles", "divide.after_copies"])
)
def test_a_division_that_was_killed_is_continued_and_readers_notice_nothing(catalog: Catalog, place: str) -> None:
    before = seen(catalog)
    stop_at(place, catalog.divide)
    assert seen(catalog) == before
    catalog.divide()
    check_divided(catalog, before)


@pytest.mark.parametrize("place", swept(["divide.after_name", "names.after_entry"], ["divide.after_name"]))
def test_a_division_advances_even_if_every_process_is_killed_at_the_same_place(catalog: Catalog, place: str) -> None:
    before = seen(catalog)
    for _ in range(3):
        names = len(blobs.list_names(catalog.store.names))
        stop_at(place, catalog.divide)
        assert seen(catalog) == before
        assert len(blobs.list_names(catalog.store.names)) == names + 1
    catalog.divide()
    check_divided(catalog, before)


def test_after_the_first_commit_of_a_division_earlier_releases_can_neither_read_nor_write(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_at("divide.after_format", catalog.divide)
    assert not blobs.is_folder(catalog.store.names)
    monkeypatch.setattr(commit, "NEWEST_VERSION", 3)
    with pytest.raises(NewerFormat):
        OpenTable(catalog.store.catalog)


def test_a_refused_writer_does_not_divide_the_catalog(catalog: Catalog, golden: Path, tmp_path: Path) -> None:
    spec = load_settings(golden).collection("plain").spec()
    table = OpenTable(catalog.store.catalog)
    entry = catalog.find("plain").entry.model_copy(update={"writer": "new"})
    rows = pa.table({"name": [entry.name], "document": [entry.model_dump_json()]})
    (earlier,) = [file.run for file in table.files() if "plain" in read_name(table, file)]
    table.commit({}, write_run(table.path, new_run("entry", table.seq), rows), [earlier])
    before = tree(tmp_path)
    with pytest.raises(WriterFenced):
        catalog.open_or_create(spec)
    other = replace(spec, envelope="append_only")
    with pytest.raises(ConfigurationError):
        Catalog(catalog.store, "new").open_or_create(other)
    assert tree(tmp_path) == before
    assert Catalog(catalog.store, "new").open_or_create(spec).entry.writer == "new"


def read_name(table: OpenTable, file: RunFile) -> list[str]:
    """A list with the name in this row of the catalog; it is empty if the row is a publication."""
    if file.run.startswith("publication."):
        return []
    names: list[str] = read_rows(table.path, [file], ENTRIES_SCHEMA)["name"].to_pylist()
    return names


def test_a_change_between_two_copies_of_a_division_is_kept(catalog: Catalog) -> None:
    stop_at("divide.after_copies", catalog.divide)
    changed = catalog.update("plain", lambda entry: entry.model_copy(update={"epoch": 3}))
    assert not is_divided(OpenTable(catalog.store.catalog))
    assert catalog.divide() == 12
    assert catalog.find("plain").entry == changed


def test_concurrent_processes_divide_a_catalog_only_once(catalog: Catalog) -> None:
    before = seen(catalog)
    with ThreadPoolExecutor(4) as threads:
        assert 12 in list(threads.map(lambda _: Catalog(catalog.store).divide(), range(4)))
    check_divided(catalog, before)


@contextmanager
def divided_during(catalog: Catalog, monkeypatch: pytest.MonkeyPatch, call: str) -> Iterator[list[str]]:
    """Divide the catalog, as another process would, when one of its files is first touched."""
    touch, done = getattr(LocalDisk, call), list[str]()

    def touched(self: LocalDisk, location: Any, *arguments: Any) -> Any:
        if "/catalog/" in str(location) and not done:
            done.append(str(location))
            Catalog(catalog.store).divide()
        return touch(self, location, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(LocalDisk, call, touched)
        yield done


@pytest.mark.parametrize("call", swept(["list_names", "read", "open_file"], ["open_file"]))
def test_a_reader_sees_the_same_state_during_a_division(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    before = seen(catalog)
    with divided_during(catalog, monkeypatch, call) as done:
        assert seen(catalog) == before
    assert done
    check_divided(catalog, before)


def test_many_collections_are_copied_by_threads(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    before = seen(catalog)
    monkeypatch.setattr(undivided, "_COPIED_AT_ONCE", 2)
    assert catalog.divide() == 12
    check_divided(catalog, before)


def test_a_damaged_row_stops_the_division_before_any_copy(catalog: Catalog) -> None:
    table = OpenTable(catalog.store.catalog)
    (table.path / table.files()[3].path).local.unlink()
    with pytest.raises(DamagedTable):
        catalog.divide()
    assert not blobs.is_folder(catalog.store.names)


def test_the_upgrade_command_divides_the_catalog_and_upgrades_all_collections(golden: Path, tmp_path: Path) -> None:
    root = tmp_path / "lake"
    shutil.copytree(golden.parent, root)
    config = root / golden.name
    catalog = Catalog(Store(load_settings(config).store))
    before = seen(catalog)
    done = run("upgrade", "--config", config)
    assert (done.returncode, "it has 12 collections" in done.stderr + done.stdout) == (0, True)
    after = seen(catalog)
    assert [entry.model_copy(update={"tables_format": 0}) for entry in after[0]] == before[0]
    assert {entry.tables_format for entry in after[0]} == {2}
    assert after[2:] == before[2:]
    unchanged = tree(root)
    assert run("upgrade", "--json", "--config", config).returncode == 0
    assert tree(root) == unchanged
    assert open_lake(config).upgrade() == [entry.name for entry in after[0]]
