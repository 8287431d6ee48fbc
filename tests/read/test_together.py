"""Published tables of one timeline are brought to one time together, and say so."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from jobs import current
from jobs.tick import run_steps
from tests.lakes.published import table_of
from tests.lakes.shared_times import RECLOCKED, SharedTimes
from tidelake.errors import ConfigurationError, SnapshotTorn, StoreUnreachable, TidelakeError
from tidelake.protocol.transactions import Snapshot
from tidelake.read.current import CurrentReport, Wanted, update_current
from tidelake.read.publication import publication_of
from tidelake.read.together import Chosen, times_to_publish
from tidelake.settings.lake import load_settings
from tidelake.storage.location import Location
from tidelake.store.commit import OpenTable
from tidelake.store.published import Published
from tidelake.store.transactions import STATED, snapshot_values

SHOP = {"timeline": "shop"}


def chosen(lake: SharedTimes, *names: str) -> dict[str, Chosen | TidelakeError]:
    settings = load_settings(lake.file).only(names)
    published = {collection.name for collection in settings.collections}
    return times_to_publish(settings, lake.catalog, published.__contains__)


def test_all_collections_of_a_timeline_get_the_greatest_time_that_all_have(tmp_path: Path) -> None:
    lake = SharedTimes(tmp_path, orders=SHOP, lines=SHOP, other={}, new=SHOP)
    lake.seal(orders=9, lines=6, other=3)
    together = ("lines", "orders")
    assert chosen(lake) == {"orders": (5, together), "lines": (5, together)}
    assert chosen(lake, "orders") == {"orders": (5, ())}
    assert chosen(lake, "other") == {}
    lake.close("lines", 5)
    assert chosen(lake)["orders"] == (8, together)


def test_without_a_common_time_each_collection_is_published_separately(tmp_path: Path) -> None:
    lake = SharedTimes(tmp_path, orders=SHOP, lines=SHOP)
    lake.seal(orders=9, lines=6)
    lake.forget("orders", 7)
    assert chosen(lake) == {}


def test_a_collection_that_cannot_be_read_is_not_waited_for(tmp_path: Path) -> None:
    lake = SharedTimes(tmp_path, orders=SHOP, lines=SHOP, items=SHOP)
    lake.seal(orders=9, lines=6, items=5)
    shutil.rmtree(lake.catalog.find("items").paths.handles.local)
    found = chosen(lake)
    assert isinstance(found.pop("items"), TidelakeError)
    assert found == dict.fromkeys(("orders", "lines"), (5, ("lines", "orders")))


def test_a_collection_that_cannot_be_read_for_a_moment_is_not_published_at_a_time_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = SharedTimes(tmp_path, orders=SHOP, lines=SHOP, items=SHOP)
    lake.seal(orders=9, lines=6, items=12)
    items = lake.catalog.find("items")
    away = [items.paths.updates]

    class Opened(OpenTable):
        def __init__(self, path: Location) -> None:
            if path in away:
                away.remove(path)
                raise StoreUnreachable("no answer", str(path))
            super().__init__(path)

    monkeypatch.setattr("tidelake.read.together.OpenTable", Opened)
    wanted = current.wanted_tables(load_settings(lake.file))
    assert (wanted["orders"].through, wanted["lines"].through) == (5, 5)
    assert wanted["orders"].together == ("lines", "orders")
    assert wanted["items"].refused is not None
    with pytest.raises(StoreUnreachable, match="no answer"):
        update_current(cast(SparkSession, None), items, wanted["items"])
    again = current.wanted_tables(load_settings(lake.file))
    assert again["items"] == Wanted(5, ("items", "lines", "orders"))


def test_tables_torn_between_two_snapshots_stay_as_they_are_and_stop_no_other_timeline(tmp_path: Path) -> None:
    """The connector was killed after the first table; only its next snapshot has both tables."""
    shop: dict[str, Any] = {"framing": "transactions", "format": "json", "transaction_topic": "shop.transaction"}
    shop |= {"family": "debezium", "key": ["id"]}
    (tmp_path / "topics" / "shop.transaction").mkdir(parents=True)
    tables = {name: shop | {"table": f"public.{name}"} for name in ("orders", "lines")}
    lake = SharedTimes(tmp_path, **tables, visits={"timeline": "web"}, pages={"timeline": "web"})
    lake.seal(orders=40, lines=40, visits=9, pages=6)
    for name, places in {"orders": (30, 45), "lines": (45,)}.items():
        snapshots = snapshot_values(Snapshot(place, 1, True) for place in places)
        OpenTable(lake.catalog.find(name).paths.updates).commit(snapshots | {STATED: 50})
    wanted = current.wanted_tables(load_settings(lake.file))
    assert {name for name, each in wanted.items() if isinstance(each.refused, SnapshotTorn)} == {"orders", "lines"}
    assert wanted["visits"].through == 5
    with pytest.raises(SnapshotTorn):
        update_current(cast(SparkSession, None), lake.catalog.find("orders"), wanted["orders"])


def test_reclocked_collections_that_name_no_timeline_are_published_separately(tmp_path: Path) -> None:
    lake = SharedTimes(tmp_path, visits=RECLOCKED, pages=RECLOCKED)
    lake.seal(visits=9, pages=6)
    assert chosen(lake) == {}


def test_a_bag_with_a_key_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="the collection has a key, so no row occurs twice"):
        SharedTimes(tmp_path, orders={"family": "upsert", "key": "id", "bag": True})


def test_keys_in_error_are_left_out_of_the_table_that_says_so_also_if_it_is_published_together(tmp_path: Path) -> None:
    skips = {"family": "upsert", "key": "id", "current": {"skip_errors": True}, **SHOP}
    lake = SharedTimes(tmp_path, orders=skips, lines=SHOP)
    lake.seal(orders=9, lines=6)
    wanted = current.wanted_tables(load_settings(lake.file))
    together = ("lines", "orders")
    assert wanted == {"orders": Wanted(5, together, skip_errors=True), "lines": Wanted(5, together)}


def test_leaving_out_keys_in_error_is_refused_without_a_key(tmp_path: Path) -> None:
    refused = r"orders\.current\.skip_errors: is true, but the collection has no key, so no key can be in error"
    with pytest.raises(ConfigurationError, match=refused):
        SharedTimes(tmp_path, orders={"current": {"skip_errors": True}})
    SharedTimes(tmp_path / "false", orders={"current": {"skip_errors": False}})


@pytest.mark.spark
def test_the_tables_of_a_timeline_show_one_time_and_name_each_other(tmp_path: Path, spark: SparkSession) -> None:
    lake = SharedTimes(tmp_path, orders=SHOP, lines=SHOP)
    lake.seal(orders=9, lines=6)
    settings = load_settings(lake.file)

    def shown(name: str) -> Published:
        found = publication_of(lake.catalog.find(name))
        assert found is not None and found.shown is not None
        return found.shown

    def times() -> dict[str, int]:
        return {name: shown(name).as_of for name in ("orders", "lines")}

    assert current.run(spark, settings).ok
    assert times() == {"orders": 5, "lines": 5}
    assert shown("orders").together == ("lines", "orders")
    comment = DeltaTable(str(table_of(lake.catalog.find("orders")))).metadata().description
    assert comment.endswith("The same time was chosen for lines.")
    lake.seal(lines=8)
    report = run_steps(spark, settings, ["current"])
    assert report.ok and times() == {"orders": 7, "lines": 7}
    done = report.results["lines"]["current"]
    assert isinstance(done, CurrentReport) and (done.how, done.rows_rewritten) == ("followed", 0)
    version = DeltaTable(str(table_of(lake.catalog.find("lines")))).version()
    assert {each["current"].how for each in run_steps(spark, settings, ["current"]).results.values()} == {"unchanged"}
    assert DeltaTable(str(table_of(lake.catalog.find("lines")))).version() == version


@pytest.mark.spark
def test_the_table_of_a_closed_stream_may_show_a_later_time_and_is_not_written_again(
    tmp_path: Path, spark: SparkSession
) -> None:
    lake = SharedTimes(tmp_path, orders=SHOP, lines=SHOP)
    lake.close("lines", 2)
    wanted = Wanted(through=8, together=("items", "lines", "orders"))
    orders, lines = lake.catalog.find("orders"), lake.catalog.find("lines")
    assert update_current(spark, lines, wanted).how == "rebuilt"
    version = DeltaTable(str(table_of(lines))).version()
    for again in (wanted, replace(wanted, together=("lines", "orders")), Wanted(through=8), Wanted()):
        done = update_current(spark, lines, again)
        assert (done.how, done.as_of, done.together) == ("unchanged", 8, wanted.together)
    assert DeltaTable(str(table_of(lines))).version() == version
    done = update_current(spark, lines, replace(wanted, through=9))  # all tables of a timeline name the same time
    assert (done.how, done.as_of, done.rows_rewritten) == ("followed", 9, 0)
    older = shutil.copytree(orders.paths.root.local, tmp_path / "older")
    lake.seal(orders=9)
    update_current(spark, orders, wanted)
    shutil.rmtree(orders.paths.root.local)
    older.rename(orders.paths.root.local)
    lake.close("orders", 2)
    assert update_current(spark, orders, wanted).reason == "it shows time 8, which is beyond upper"
