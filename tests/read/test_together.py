"""Published tables of one timeline are brought to one time together, and say so."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from jobs import current
from jobs.tick import run_steps
from tests.lakes.published import table_of
from tests.lakes.shared_times import RECLOCKED, SharedTimes
from tidelake.errors import ConfigurationError
from tidelake.read.current import CurrentReport, Wanted
from tidelake.read.publication import publication_of
from tidelake.read.together import times_to_publish
from tidelake.settings.lake import load_settings
from tidelake.store.published import Published

SHOP = {"timeline": "shop"}


def chosen(lake: SharedTimes, *names: str) -> dict[str, tuple[int, tuple[str, ...]]]:
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
    assert comment.endswith("Brought to this time together with lines.")
    lake.seal(lines=8)
    report = run_steps(spark, settings, ["current"])
    assert report.ok and times() == {"orders": 7, "lines": 7}
    done = report.results["lines"]["current"]
    assert isinstance(done, CurrentReport) and (done.how, done.rows_rewritten) == ("followed", 0)
    version = DeltaTable(str(table_of(lake.catalog.find("lines")))).version()
    assert {each["current"].how for each in run_steps(spark, settings, ["current"]).results.values()} == {"unchanged"}
    assert DeltaTable(str(table_of(lake.catalog.find("lines")))).version() == version
