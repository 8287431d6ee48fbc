"""Several collections at one time: the time that all have, the errors, and what a time means."""

from __future__ import annotations

import json
import threading
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

from jobs import ingest
from jobs.linger import linger
from tests.cli.commands import call
from tests.lakes.lake import RECORD
from tests.lakes.places import store_settings
from tests.lakes.raw_lake import VISIT
from tests.lakes.shared_times import RECLOCKED, SharedTimes
from tidelake import open_lake
from tidelake.catalog.catalog import Catalog
from tidelake.errors import (
    ArgumentRefused,
    CollectionForgot,
    CollectionLags,
    ConfigurationError,
    TimelinesDiffer,
    UnknownCollection,
)
from tidelake.protocol.order import INT64_MAX
from tidelake.read.moment import AS_READ
from tidelake.store.bindings import read_bindings
from tidelake.store.commit import OpenTable, is_table
from tidelake.store.failpoints import on_reach
from tidelake.store.layout import Store

SHOP = {"timeline": "shop"}


@pytest.fixture
def shop(tmp_path: Path) -> SharedTimes:
    """Two streams of one source, and a third from another."""
    shop = SharedTimes(tmp_path, orders=SHOP, customers=SHOP, other={})
    shop.seal(orders=10, customers=8, other=5)
    return shop


def test_the_latest_time_is_the_greatest_that_all_have(shop: SharedTimes) -> None:
    found = shop.lake.at("latest", "orders", "customers")
    assert (found.time, found.timeline, found.names) == (7, "shop", ("orders", "customers"))
    assert found.facts[0] == "the latest time that is sealed in all of orders, customers: the upper of customers is 8"
    assert "the same moment" in found.facts[-1]
    assert shop.lake.at("latest", "orders").time == 9
    assert shop.lake.at(3, "orders", "customers", "orders").time == 3


def test_a_collection_that_another_process_is_creating_only_lags(tmp_path: Path) -> None:
    (tmp_path / "topics" / "orders").mkdir(parents=True)
    block = {"family": "plain", "topic": "orders", "schema": RECORD}
    document = {"store": "store", "topics": "topics", "collections": {"orders": block}}
    (tmp_path / "collections.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    lake, seen = open_lake(tmp_path / "collections.yaml"), Counter[str]()

    def read(place: str) -> None:
        on_reach(None)
        for time in ("latest", 3):
            try:
                lake.at(time, "orders")
            except (UnknownCollection, CollectionLags) as error:
                seen[type(error).__name__] += 1
        on_reach(read)

    on_reach(read)
    try:
        (settings,) = lake.settings.collections
        lake.catalog.open_or_create(settings.spec())
    finally:
        on_reach(None)
    assert seen["UnknownCollection"] > 0, seen
    assert seen["CollectionLags"] > 0, seen


def test_a_store_that_another_process_creates_between_two_reads_is_not_reported_as_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, looks = Catalog(Store(tmp_path / "store")), 0

    def exists(catalog: Catalog) -> bool:
        nonlocal looks
        looks += 1
        found = is_table(catalog.store.catalog)
        if looks == 1:
            monkeypatch.undo()
            SharedTimes(tmp_path, orders={})
        return found

    monkeypatch.setattr(Catalog, "exists", exists)
    assert reader.get("other") is None
    assert looks == 1


def test_the_time_is_never_before_one_that_the_session_has_read(shop: SharedTimes) -> None:
    first = shop.lake.at("latest", "orders")
    with pytest.raises(CollectionLags, match="'customers' does not have time 9 yet: its upper is 8, so it lags by 2"):
        shop.lake.at("latest", "orders", "customers", not_before=first.time)
    shop.seal(customers=12)
    found = shop.lake.at("latest", "orders", "customers", not_before=first.time)
    assert (found.time, found.facts[1]) == (9, "not before 9, which this session has read")


def test_a_requested_time_before_one_that_the_session_has_read_is_refused(shop: SharedTimes) -> None:
    assert shop.lake.at(7, "orders", "customers", not_before=7).time == 7
    refused = "is 6, but must not be before `not_before`, 7"
    with pytest.raises(ArgumentRefused, match=f"time {refused}"):
        shop.lake.at(6, "orders", "customers", not_before=7)
    with pytest.raises(ArgumentRefused, match=f"as_of {refused}"):
        shop.lake.query("select count(*) as n from orders", 6, not_before=7)


def test_a_time_that_one_collection_does_not_have_yet_is_awaited_for_a_bounded_time(shop: SharedTimes) -> None:
    with pytest.raises(CollectionLags) as lags:
        shop.lake.at(11, "orders", "customers", wait_s=0.05)
    assert (lags.value.collection, lags.value.upper, lags.value.others) == ("customers", 8, ("orders",))
    assert lags.value.hint.startswith("wait, or read at an earlier time; ")
    later = threading.Timer(0.3, lambda: shop.seal(orders=12, customers=12))
    later.start()
    assert shop.lake.at(11, "orders", "customers", wait_s=30).time == 11
    later.join()


def test_the_error_names_the_collection_that_has_forgotten_a_time(shop: SharedTimes) -> None:
    shop.forget("customers", 6)
    with pytest.raises(CollectionForgot, match=r"'customers' has forgotten time 5: its since is \[6\]"):
        shop.lake.at(5, "orders", "customers")
    shop.forget("orders", 9)
    for time in ("latest", 11):
        with pytest.raises(CollectionLags, match="'customers' does not have time") as error:
            shop.lake.at(time, "orders", "customers")
        assert error.value.hint.startswith("wait: 'orders' has forgotten every time that 'customers' has; ")


def test_a_closed_stream_does_not_hold_the_others_back(shop: SharedTimes) -> None:
    shop.close("customers", 7)
    assert shop.lake.at("latest", "orders", "customers").time == 9
    shop.close("orders", 12)
    found = shop.lake.at("latest", "orders", "customers")
    assert (found.time, found.as_json()["collections"]["orders"]["upper"]) == (12, None)


def test_closed_streams_have_every_time_that_a_session_has_read(shop: SharedTimes) -> None:
    shop.close("customers", 7)
    session = shop.lake.at("latest", "orders").time
    found = shop.lake.at("latest", "customers", not_before=session)
    assert (found.time, found.facts[1]) == (session, "not before 9, which this session has read")
    assert shop.lake.query("select count(*) as n from customers", not_before=200).time == 200
    shop.close("orders", 12)
    assert [shop.lake.at("latest", "orders", "customers", not_before=time).time for time in (3, 200)] == [12, 200]


def test_collections_on_different_timelines_are_refused(shop: SharedTimes, tmp_path: Path) -> None:
    with pytest.raises(TimelinesDiffer, match="'orders' is on the timeline 'shop', and 'other' on 'collection other'"):
        shop.lake.at("latest", "orders", "other")
    with pytest.raises(TimelinesDiffer):
        shop.lake.at()
    mixed = SharedTimes(tmp_path / "mixed", a=RECLOCKED, b=RECLOCKED, c=RECLOCKED | {"timeline": "web"}, d={})
    mixed.seal(a=1_700_000_000_000, b=1_700_000_060_000, c=1_700_000_000_000)
    found = mixed.lake.at("latest", "a", "b")
    assert (found.time, found.timeline) == (1_700_000_000_000 - 1, "wall clock")
    assert AS_READ in found.facts
    for names in (("a", "c"), ("a", "d")):
        with pytest.raises(TimelinesDiffer):
            mixed.lake.at("latest", *names)


def test_arguments_out_of_range_are_refused(shop: SharedTimes) -> None:
    calls: list[dict[str, Any]] = [
        *({"time": value} for value in (-1, True, None, "last")),
        *({"not_before": value} for value in (-1, "1")),
        *({"wait_s": value} for value in (-1, float("nan"), None, "1", True)),
    ]
    for more in calls:
        with pytest.raises(ArgumentRefused):
            shop.lake.at(more.pop("time", "latest"), "orders", **more)
    for time in (None, "earliest", -1):
        rule = f"is {time!r}, but must be an integer between 0 and {INT64_MAX}, or 'latest'"
        with pytest.raises(ArgumentRefused, match=f"^time {rule}"):
            shop.lake.at(time, "orders")  # type: ignore[arg-type]
        with pytest.raises(ArgumentRefused, match=f"^as_of {rule}"):
            shop.lake.query("select count(*) as n from orders", as_of=time)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="no collection of this name"):
        shop.lake.at("latest", "nobody")
    found = shop.lake.at("latest", "orders")
    with pytest.raises(ArgumentRefused, match="not a collection of this moment"):
        found.member("customers")


def test_a_timeline_has_only_one_kind_of_time(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="is 'shop', like that of 'orders', but only one of the two"):
        SharedTimes(tmp_path, orders=SHOP, visits=RECLOCKED | SHOP)
    with pytest.raises(ConfigurationError, match="should be a name"):
        SharedTimes(tmp_path / "other", orders={"timeline": "wall clock"})


def test_the_command_says_which_time_and_why(shop: SharedTimes) -> None:
    config = ("--config", str(shop.file))
    assert call("at", "orders", "customers", *config).splitlines()[0] == "time 7, on the timeline 'shop'"
    document = json.loads(call("at", "orders", "--time", "4", "--json", *config))
    assert (document["time"], document["collections"]) == (4, {"orders": {"since": [0], "upper": 10}})
    with pytest.raises(CollectionLags):
        call("at", "orders", "customers", "--not-before", "9", "--wait", "0.1s", *config)


def test_a_collection_that_was_never_ingested_has_no_time(shop: SharedTimes) -> None:
    document = yaml.safe_load(shop.file.read_text())
    document["collections"]["new"] = document["collections"]["orders"] | {"topic": "new"}
    shop.file.write_text(yaml.safe_dump(document))
    with pytest.raises(UnknownCollection):
        shop.lake.at("latest", "orders", "new")


# --- reclocked collections on one timeline


class Web:
    """Reclocked collections on one timeline, and the number of records in each topic."""

    def __init__(self, root: Path, spark: SparkSession, names: tuple[str, ...], **more: Any) -> None:
        self.root, self.spark, self.names = root, spark, names
        block = {"framing": "reclock", "envelope": "append_only", "format": "json", "schema": VISIT, "timeline": "web"}
        for name in names:
            (root / "topics" / name).mkdir(parents=True)
        collections = {name: block | {"topic": name} | more for name in names}
        self.file = root / "collections.yaml"
        document = {"topics": "topics", "data_docs": "docs", "collections": collections, **store_settings(root)}
        self.file.write_text(yaml.safe_dump(document), encoding="utf-8")
        self.ends = dict.fromkeys(names, 0)

    def put(self, name: str, count: int) -> None:
        """Append records to a topic, with ids that count up."""
        with (self.root / "topics" / name / "0.jsonl").open("a", encoding="utf-8") as lines:
            for id in range(self.ends[name], self.ends[name] + count):
                value = {"id": id, "page": None}
                lines.write(json.dumps({"offset": id, "timestamp_ms": 1000 + id, "value": value}) + "\n")
        self.ends[name] += count

    def run(self) -> None:
        report = ingest.run(self.spark, open_lake(self.file).settings)
        assert report.ok, report.errors

    def times(self, name: str) -> list[int]:
        stored = open_lake(self.file).catalog.find(name)
        return [binding.time for binding in read_bindings(stored, OpenTable(stored.paths.updates))]


@pytest.mark.spark
@pytest.mark.sweep
def test_a_run_gives_all_collections_of_a_timeline_one_time(tmp_path: Path, spark: SparkSession) -> None:
    rng, web = Random(18), Web(tmp_path, spark, ("carts", "pages", "visits"))
    rows: dict[int, dict[str, int]] = {}
    session = 0
    earlier = []
    for _ in range(6):
        for name in ("carts", "visits"):
            web.put(name, rng.choice((0, 1, 3)))
        web.run()
        found = open_lake(web.file).at(not_before=session)
        assert {member.upper for member in found.members} == {found.time + 1}  # `pages` never has a record
        assert found.time > session
        session = found.time
        rows[session] = dict(web.ends)
        earlier.append(found)
    for found in (earlier[0], earlier[3], open_lake(web.file).at(sorted(rows)[2])):
        for name in web.names:
            contents = found.snapshot(spark, name).contents.toArrow().to_pylist()
            assert Counter(row["id"] for row in contents) == Counter(range(rows[found.time][name]))
    assert len(web.times("pages")) == 1  # idle ticks in a row share one binding
    assert AS_READ in found.facts
    explained = open_lake(web.file).collection("carts").explain(session)
    assert AS_READ in explained.facts


@pytest.mark.spark
def test_a_second_tick_of_a_run_gets_a_later_time_and_the_next_run_is_after_it(
    tmp_path: Path, spark: SparkSession
) -> None:
    web = Web(tmp_path, spark, ("carts", "visits"), messages_per_tick_max=1)
    web.put("carts", 3)
    web.run()
    first = open_lake(web.file).at()
    assert web.times("carts") == [first.time, first.time + 1, first.time + 2]
    web.run()
    assert {member.last for member in open_lake(web.file).at().members} == {open_lake(web.file).at().time}


@pytest.mark.spark
@pytest.mark.sweep
def test_a_lingering_run_moves_the_whole_timeline(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    web = Web(tmp_path, spark, ("carts", "visits"))
    monkeypatch.setattr("jobs.linger.MAINTAIN_S", 3600.0)
    web.put("carts", 1)
    arrival = _Arrival(web)
    assert linger(spark, open_lake(web.file).settings, 60.0, arrival, arrival.is_sealed).ok
    found = open_lake(web.file).at()
    assert {member.last for member in found.members} == {found.time}
    assert web.times("carts")[-1] == found.time
    assert len(web.times("carts")) == 2


class _Arrival:
    """Puts a second record when the first is sealed, and notes when both collections have been sealed again."""

    def __init__(self, web: Web) -> None:
        self.web, self.seals, self.is_sealed = web, Counter[str](), threading.Event()

    def begins(self, step: str, name: str) -> None:
        pass

    def ended(self, step: str, name: str, result: Any) -> None:
        if step != "seal":
            return
        self.seals[name] += 1
        if name == "carts" and self.seals[name] == 1:
            self.web.put("carts", 1)
        if min(self.seals["carts"], self.seals["visits"]) > 1:
            self.is_sealed.set()
