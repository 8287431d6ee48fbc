"""`verify` names every damaged file of a store, and `repair` restores files that have an acknowledged copy."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml

from tests.cli.commands import run
from tests.golden.shown import unpack
from tidelake import open_lake
from tidelake.catalog.catalog import Catalog
from tidelake.errors import DamagedLog
from tidelake.lake import LakeCollection
from tidelake.settings.lake import load_settings
from tidelake.storage.location import Location
from tidelake.store.commit import OpenTable
from tidelake.store.files import RunFile
from tidelake.store.layout import Store
from tidelake.store.table_log import entry_path, newest_version

NAME = "plain"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A store from an earlier version; one collection was opened for writing, which acknowledged its entries."""
    file = unpack(tmp_path)
    settings = load_settings(file)
    (spec,) = (collection.spec() for collection in settings.collections if collection.name == NAME)
    Catalog(Store(settings.store)).open_or_create(spec)
    return file


def tables_of(config: Path) -> Location:
    return Location(open_lake(config).collection(NAME).path)


def newest_entry(config: Path, table: str) -> Path:
    path = tables_of(config) / table
    return entry_path(path, newest_version(path)).local


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 4
    file.write_bytes(data)


@pytest.mark.sweep
def test_a_warning_about_the_store_is_not_part_of_the_output(config: Path) -> None:
    newest = newest_entry(config, "updates")
    torn = newest.with_name(f"{int(newest.stem) + 1:020d}.json")
    torn.write_text('{"commitInfo": {')
    done = run("repair", NAME, "--apply", "--json", "--config", config)
    assert json.loads(done.stdout)["left"] == []
    assert "a torn log entry was set aside" in done.stderr


@pytest.mark.sweep
def test_verify_leaves_a_torn_entry_where_it_is(config: Path) -> None:
    newest = newest_entry(config, "updates")
    torn = newest.with_name(f"{int(newest.stem) + 1:020d}.json")
    torn.write_text('{"commitInfo": {')
    done = run("verify", NAME, "--json", "--config", config)
    assert json.loads(done.stdout)[NAME]["damages"] == []
    assert (done.stderr, torn.read_text()) == ("", '{"commitInfo": {')


def test_an_undamaged_store_is_verified_and_its_tables_and_files_are_counted(config: Path) -> None:
    done = run("verify", "--deep", "--json", "--config", config)
    results = json.loads(done.stdout)
    assert (done.returncode, len(results)) == (0, 12)
    for name, result in results.items():
        assert result["damages"] == [], name
        assert result["tables"] >= 5, name
        assert result["files"] > 0, name


def test_a_damaged_entry_is_reported_and_restored_and_other_collections_are_unaffected(config: Path) -> None:
    entry = newest_entry(config, "updates")
    before = entry.read_bytes()
    flip(entry)
    done = run("verify", NAME, "--config", config)
    assert done.returncode == 1
    assert entry.name in done.stdout
    assert "is not the one that was acknowledged" in done.stdout
    assert run("verify", "upsert", "--config", config).returncode == 0

    done = run("status", NAME, "--config", config)
    assert f"tidelake repair {NAME}" in (done.stdout + done.stderr).replace("COLLECTION", NAME)

    done = run("repair", NAME, "--config", config)
    assert (done.returncode, entry.read_bytes() == before) == (1, False), "without --apply, nothing changes"
    assert f"1 of 1 damaged files can be restored: tidelake repair {NAME} --apply" in done.stderr
    done = run("repair", NAME, "--apply", "--config", config)
    assert (done.returncode, entry.read_bytes() == before) == (0, True)
    assert run("verify", NAME, "--config", config).returncode == 0
    assert "nothing is damaged" in run("repair", NAME, "--config", config).stderr


def test_an_invalid_block_is_reported_and_the_other_collections_are_verified(config: Path) -> None:
    document = yaml.safe_load(config.read_text(encoding="utf-8"))
    document["collections"]["upsert"]["family"] = "plein"
    config.write_text(yaml.safe_dump(document), encoding="utf-8")
    done = run("verify", "--config", config)
    assert (done.returncode, done.stderr.count("none damaged")) == (1, 11), done.stderr
    assert "error: upsert: " in done.stderr
    assert "collections.upsert.family" in done.stderr
    found = json.loads(run("verify", "--json", "--config", config).stdout)
    assert "collections.upsert.family" in found["upsert"]["error"]
    assert found[NAME]["damages"] == []
    assert run("verify", NAME, "--config", config).returncode == 0
    assert run("verify", "upsert", "--config", config).returncode == 2
    assert run("resolve", "list", NAME, "--config", config).returncode == 0
    assert run("repair", NAME, "--config", config).returncode == 2  # a command that may write refuses invalid settings


def test_a_damaged_catalog_is_reported_and_restored(config: Path) -> None:
    store = tables_of(config).local.parent.parent
    path = Location(str(store)) / "catalog"
    entry = entry_path(path, newest_version(path)).local
    before = entry.read_bytes()
    entry.unlink()
    done = run("verify", NAME, "--config", config)
    assert done.returncode == 1
    assert "is missing" in done.stdout
    assert run("repair", NAME, "--apply", "--config", config).returncode == 0
    assert entry.read_bytes() == before


def test_a_lost_file_is_reported_and_cannot_be_restored(config: Path) -> None:
    table = tables_of(config) / "proofs"
    file: RunFile = OpenTable(table).files()[0]
    (table / file.path).local.unlink()
    done = run("repair", NAME, "--apply", "--json", "--config", config)
    (damage,) = json.loads(done.stdout)["left"]
    assert (done.returncode, damage["file"], damage["problem"]) == (1, file.path, "is missing")
    assert "from a copy of the store" in damage["remedy"]


@pytest.mark.sweep
def test_handles_that_cannot_be_restored_are_reported(config: Path) -> None:
    handles = tables_of(config) / "handles"
    (file,) = OpenTable(handles).files()
    (handles / file.path).local.unlink()
    done = run("repair", NAME, "--apply", "--json", "--config", config)
    (damage,) = json.loads(done.stdout)["left"]
    assert (done.returncode, damage["table"], damage["file"]) == (1, "handles", file.path)


@pytest.mark.sweep
def test_a_damaged_name_is_reported_and_restored_and_other_names_are_unaffected(config: Path) -> None:
    names = tables_of(config).local.parent.parent / "names"
    (entry,) = (names / NAME / "_delta_log").glob("*.json")
    before = entry.read_bytes()
    flip(entry)
    done = run("verify", NAME, "--config", config)
    assert (done.returncode, f"names/{NAME}" in done.stdout) == (1, True)
    done = run("status", "--config", config)
    assert done.stderr.count("error: ") == done.stderr.count(f"error: {NAME}: ") == 1
    done = run("repair", NAME, "--apply", "--json", "--config", config)
    assert (done.returncode, json.loads(done.stdout)["left"], entry.read_bytes()) == (0, [], before)
    assert run("verify", NAME, "--config", config).returncode == 0


def test_a_lost_name_is_reported_and_never_recreated(config: Path) -> None:
    store = tables_of(config).local.parent.parent
    shutil.rmtree(store / "names" / NAME)
    done = run("verify", NAME, "--json", "--config", config)
    (damage,) = json.loads(done.stdout)[NAME]["damages"]
    assert (done.returncode, damage["table"], damage["problem"]) == (1, f"names/{NAME}", "is missing")
    settings = load_settings(config)
    (spec,) = (collection.spec() for collection in settings.collections if collection.name == NAME)
    before = sorted((store / "c").iterdir())
    with pytest.raises(DamagedLog, match="it is missing, but the name was bound to a collection"):
        Catalog(Store(settings.store)).open_or_create(spec)
    assert sorted((store / "c").iterdir()) == before


@pytest.mark.sweep
def test_the_lost_log_of_a_name_is_recreated_if_only_one_collection_has_the_name(config: Path) -> None:
    own, before = tables_of(config).local, open_lake(config).collection(NAME).upper
    store = own.parent.parent
    shutil.rmtree(store / "names" / NAME)
    other = next(folder for folder in (store / "c").iterdir() if folder != own) / "handles"
    aside = other.rename(other.with_name("aside"))
    done = run("repair", NAME, "--apply", "--json", "--config", config)
    assert json.loads(done.stdout)["left"], "the collection whose handles are gone may have the name"
    aside.rename(other)
    done = run("repair", NAME, "--apply", "--json", "--config", config)
    assert (done.returncode, json.loads(done.stdout)["left"]) == (0, [])
    assert run("verify", NAME, "--config", config).returncode == 0
    assert open_lake(config).collection(NAME).upper == before


@pytest.mark.sweep
def test_a_lost_note_of_a_name_is_rewritten(config: Path) -> None:
    note = tables_of(config).local.parent.parent / "catalog" / "_names" / NAME
    note.unlink()
    done = run("verify", NAME, "--json", "--config", config)
    (damage,) = json.loads(done.stdout)[NAME]["damages"]
    assert (damage["table"], damage["file"], damage["is_restorable"]) == ("catalog", f"_names/{NAME}", True)
    assert run("repair", NAME, "--apply", "--config", config).returncode == 0
    assert note.read_text("utf-8") == NAME


def test_a_flipped_bit_in_a_page_is_found_only_by_a_deep_verification(config: Path) -> None:
    table = tables_of(config) / "updates"
    file = max(OpenTable(table).files(), key=lambda file: file.bytes)
    collection: LakeCollection = open_lake(config).collection(NAME)
    path = (table / file.path).local
    data = bytearray(path.read_bytes())
    data[60] ^= 1
    path.write_bytes(data)
    assert collection.verify().damages == []
    (damage,) = collection.verify(deep=True).damages
    assert damage.file == file.path
