"""Wrong settings stop before anything is written, and the message says where and how to mend it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelake.configuration import check_topics, load_settings
from tidelake.errors import ConfigurationError

GOOD = """
store: lake
topics: in
collections:
  orders:
    family: plain
    topic: orders
    schema: {type: record, name: data, fields: [{name: id, type: long}]}
"""


def load(tmp_path: Path, text: str) -> object:
    file = tmp_path / "collections.yaml"
    file.write_text(text, encoding="utf-8")
    return load_settings(file)


def test_paths_are_relative_to_the_file_and_defaults_are_filled_in(tmp_path: Path) -> None:
    (tmp_path / "collections.yaml").write_text(GOOD)
    settings = load_settings(tmp_path / "collections.yaml")
    one = settings.collection("orders")
    assert (settings.store, one.topic_folder) == (tmp_path / "lake", tmp_path / "in" / "orders")
    assert (one.encoding, one.keep, one.envelope) == ("avro", "all", "none")
    assert settings.only(("orders",)) == settings


def test_a_schema_may_be_a_file_and_a_whole_cdcv2_schema(tmp_path: Path) -> None:
    import json

    from tidelake.schema import cdcv2_schema

    record = {"type": "record", "name": "data", "fields": [{"name": "id", "type": "long"}]}
    (tmp_path / "orders.avsc").write_text(json.dumps(cdcv2_schema(record)))
    text = GOOD.replace("{type: record, name: data, fields: [{name: id, type: long}]}", "orders.avsc")
    (tmp_path / "collections.yaml").write_text(text)
    assert load_settings(tmp_path / "collections.yaml").collection("orders").record_schema == record


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("store: lake", "stor: lake"), r"stor: is not a known key\nhint: use one of: collections, data_docs, store"),
        (("family: plain", "family: plian"), r"collections.orders.family: .*not 'plian'"),
        (("    topic: orders", "    tpoic: orders"), r"collections.orders.tpoic: is not a known key"),
        (("    topic: orders\n", ""), r"collections.orders.topic: field required"),
        (("    topic: orders", "    topic: 7"), r"collections.orders.topic: .*not 7"),
        (("topic: orders", "topic: orders\n    keep: -1"), r"collections.orders.keep"),
        (("topic: orders", "topic: orders\n    keep: some"), r"collections.orders.keep"),
        (("topic: orders", "topic: orders\n    messages_per_tick_max: 0"), r"messages_per_tick_max"),
        (("topic: orders", "topic: orders\n    encoding: confluent"), r"schema_ids: is missing for Confluent framing"),
        (("schema: {type", "schema: nowhere.avsc\n    x: {type"), r"x: is not a known key|cannot be read"),
        (("type: long", "type: lnog"), r"collections.orders.schema: .*lnog"),
        (("  orders:", "  Orders:"), r"collections.Orders: is not a name"),
        (("collections:", "collections: 3\nother:"), r"is not a known key|is not a mapping"),
        (("store: lake", "store: [lake]"), r"store: is not a path"),
        (("store: lake", "store: lake\nstore: lake2"), r"line 3: the key 'store' is given twice"),
        (("store: lake", "store: 'lake"), r"line \d+: "),
    ],
)
def test_what_is_wrong_is_named_with_its_place(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        load(tmp_path, GOOD.replace(*change))
    assert str(tmp_path / "collections.yaml") in str(caught.value)
    assert "hint:" in str(caught.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["collections.yaml"]


def test_two_collections_on_one_name_are_refused(tmp_path: Path) -> None:
    block = GOOD.split("collections:\n")[1]
    with pytest.raises(ConfigurationError, match="the key 'orders' is given twice"):
        load(tmp_path, GOOD + block)


def test_a_topic_that_is_not_there_is_named_with_its_folder(tmp_path: Path) -> None:
    (tmp_path / "collections.yaml").write_text(GOOD)
    settings = load_settings(tmp_path / "collections.yaml")
    with pytest.raises(ConfigurationError, match="the topic 'orders' has no folder"):
        check_topics(settings)
    (tmp_path / "in" / "orders").mkdir(parents=True)
    check_topics(settings)
