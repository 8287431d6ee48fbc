"""Holds in the handles: their documents, their leases, and the format that keeps earlier versions of Tidelake out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.expectations.reports import settings
from tests.golden.shown import unpack
from tests.lakes.held import HeldLake
from tidelake import open_lake
from tidelake.catalog import handles
from tidelake.catalog.catalog import Catalog
from tidelake.catalog.handles import read_handles
from tidelake.errors import ArgumentRefused, NewerFormat
from tidelake.storage import blobs
from tidelake.store import commit, table_log
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Capability, Entry
from tidelake.store.format import CATALOG_VERSION, FORMAT_VERSION, HANDLES_VERSION
from tidelake.store.holds import ENDED_MAX, HOLDS_MAX, Token, acquire, beats_of, drop, observe, renew
from tidelake.store.layout import Store

LEASE_MS = 1_000
ENTRY = Entry(
    id="7f",
    name="prices",
    framing="cdcv2",
    envelope="none",
    record_schema={},
    capabilities=(Capability(id="critical", kind="critical", since=(0,)),),
    created_at_ms=0,
)


def held() -> tuple[Entry, Token]:
    token = Token.new(ENTRY.id)
    return acquire(ENTRY, token, 3, LEASE_MS, "a test", 0), token


def seen(entry: Entry, now_ms: int, slack_ms: int = 0) -> Entry:
    return observe(entry, beats_of(entry), now_ms, slack_ms)


def is_live(entry: Entry) -> bool:
    return len(entry.capabilities) == 2


def test_a_lease_ends_when_two_sightings_of_one_beat_are_a_lease_apart() -> None:
    entry, token = held()
    first = seen(entry, 50_000)
    assert is_live(first)
    assert seen(first, 50_000 + LEASE_MS - 1) == first
    ended = seen(first, 50_000 + LEASE_MS)
    assert not is_live(ended)
    assert [(gone.id, gone.how) for gone in ended.ended] == [(token.id, "expired")]


def test_a_first_sighting_never_ends_a_lease_however_old_the_hold_is() -> None:
    entry, _ = held()
    assert is_live(seen(entry, 10**15))


def test_any_call_between_two_sightings_renews_the_lease() -> None:
    entry, token = held()
    called = renew(seen(entry, 0), token, 0)
    again = seen(called, 10 * LEASE_MS)
    assert is_live(again)
    assert is_live(seen(again, 11 * LEASE_MS - 1))
    assert not is_live(seen(again, 11 * LEASE_MS))


def test_a_call_after_the_observer_has_looked_keeps_the_hold() -> None:
    entry, token = held()
    first = seen(entry, 0)
    beats = beats_of(first)
    called = renew(first, token, 0)  # commits before the observer, which therefore repeats its change on this entry
    assert observe(called, beats, 10 * LEASE_MS) == called


def test_a_clock_of_the_store_that_goes_back_restarts_the_lease() -> None:
    entry, _ = held()
    back = seen(seen(entry, 100_000), 5_000)
    assert is_live(back)
    assert is_live(seen(back, 5_000 + LEASE_MS - 1))
    assert not is_live(seen(back, 5_000 + LEASE_MS))


def test_the_error_of_the_clock_is_added_to_the_lease() -> None:
    first = seen(held()[0], 0)
    assert is_live(seen(first, LEASE_MS + 999, slack_ms=1_000))
    assert not is_live(seen(first, LEASE_MS + 1_000, slack_ms=1_000))


def test_an_expired_id_is_not_revived_by_an_observer_that_knows_it() -> None:
    entry, _ = held()
    ended = seen(seen(entry, 0), LEASE_MS)
    assert observe(ended, beats_of(entry), 2 * LEASE_MS) == ended


def test_the_critical_capability_never_expires() -> None:
    assert observe(ENTRY, beats_of(ENTRY), 10**15) == ENTRY


def test_the_memory_of_ended_holds_and_the_number_of_live_ones_are_bounded() -> None:
    entry = ENTRY
    for _ in range(ENDED_MAX + 3):
        token = Token.new(entry.id)
        entry = drop(acquire(entry, token, 0, 1, "", 0), token)
    assert len(entry.ended) == ENDED_MAX
    for _ in range(HOLDS_MAX):
        entry = acquire(entry, Token.new(entry.id), 0, 1, "", 0)
    with pytest.raises(ArgumentRefused, match="holds is 1000, and 'prices' cannot have more than that"):
        acquire(entry, Token.new(entry.id), 0, 1, "", 0)


def test_the_store_does_not_have_the_secret_of_a_token(tmp_path: Path) -> None:
    lake = HeldLake.create(tmp_path, upper=9)
    token = lake.collection.acquire().token
    document = lake.stored.entry.model_dump_json()
    assert token.split(".")[1] in document
    assert token.split(".")[2] not in document
    assert token.split(".")[2] not in repr(Token.parse(token))


def test_an_entry_without_holds_is_written_as_before() -> None:
    document = json.loads(ENTRY.model_dump_json())
    assert "ended" not in document
    assert document["capabilities"] == [{"id": "critical", "kind": "critical", "since": [0]}]
    assert Entry.model_validate(document) == ENTRY


def test_handles_have_the_newest_format_once_there_is_a_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = HeldLake.create(tmp_path, upper=9)
    handles = lake.stored.paths.handles
    assert OpenTable(handles).format == FORMAT_VERSION
    with lake.collection.acquire():
        pass
    assert OpenTable(handles).format == HANDLES_VERSION > CATALOG_VERSION
    monkeypatch.setattr(commit, "NEWEST_VERSION", CATALOG_VERSION)  # the earlier version's newest format
    with pytest.raises(NewerFormat, match=r"in format 5; .* supports formats up to 4"):
        read_handles(lake.stored.paths)


def test_holds_in_one_collection_leave_the_format_of_others_alone(tmp_path: Path) -> None:
    lake = HeldLake.create(tmp_path, upper=9)
    other = lake.catalog.open_or_create(settings("plain").model_copy(update={"name": "visits"}).spec())
    lake.collection.acquire()
    assert OpenTable(other.paths.handles).format == FORMAT_VERSION
    assert OpenTable(lake.catalog.store.catalog).format == CATALOG_VERSION


def test_a_time_of_a_store_of_an_earlier_version_can_be_held(tmp_path: Path) -> None:
    config = unpack(tmp_path)
    lake = open_lake(config)
    collection = lake.collection("plain")
    held = collection.acquire(purpose="an old store")
    assert [hold.purpose for hold in collection.holds()] == ["an old store"]
    held.drop()
    assert Catalog(Store(lake.settings.store)).find("plain").entry.ended[0].id == held.id


def test_the_log_of_handles_stays_short_however_many_calls_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_log, "CROWDED_S", 0.0)
    monkeypatch.setattr(handles, "_ENTRIES_MAX", 8)
    lake = HeldLake.create(tmp_path, upper=9)
    held = lake.collection.acquire()
    for _ in range(100):
        held.renew()
    log = lake.stored.paths.handles / "_delta_log"
    entries = [name for name in blobs.list_names(log) if name.endswith(".json")]
    assert len(entries) < 80  # those since the older of two checkpoints that are 32 commits apart
    (checkpoint, *_) = sorted((name for name in blobs.list_names(log) if "checkpoint.parquet" in name), reverse=True)
    assert len(blobs.read(log / checkpoint)) < 40_000
    assert [hold.id for hold in lake.collection.holds()] == [held.id]


def test_a_process_that_was_paused_while_a_log_was_cleaned_up_lists_it_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_log, "CROWDED_S", 0.0)
    monkeypatch.setattr(handles, "_ENTRIES_MAX", 8)
    lake = HeldLake.create(tmp_path, upper=9)
    held, path = lake.collection.acquire(), lake.stored.paths.handles
    version, verify = table_log.newest_version(path), table_log._verify_entries
    pauses: list[int] = []

    def paused(*arguments: Any) -> Any:
        """Make calls as other processes would, after the log was listed and before its entries are read."""
        if not pauses:
            pauses.append(version)
            for _ in range(100):
                held.renew()
        return verify(*arguments)

    monkeypatch.setattr(table_log, "_verify_entries", paused)
    assert OpenTable(path).version == version + 100
    assert pauses == [version]
