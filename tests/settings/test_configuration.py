"""Invalid settings stop a job before anything is written; the error says where they are and how to fix them."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from jobs.publish import Asked, check_target
from tidelake.errors import ArgumentRefused, ConfigurationError
from tidelake.settings.lake import Settings, check_topics, load_settings, load_valid_settings
from tidelake.settings.reclock import ReclockSettings
from tidelake.settings.transactions import TransactionSettings

GOOD = """
store: lake
topics: in
collections:
  orders:
    family: plain
    topic: orders
    schema: {type: record, name: data, fields: [{name: id, type: long}]}
"""


def load(tmp_path: Path, text: str) -> Settings:
    file = tmp_path / "collections.yaml"
    file.write_text(text, encoding="utf-8")
    return load_settings(file)


def test_paths_are_relative_to_the_file_and_defaults_are_filled_in(tmp_path: Path) -> None:
    (tmp_path / "collections.yaml").write_text(GOOD)
    settings = load_settings(tmp_path / "collections.yaml")
    collection = settings.collection("orders")
    assert (settings.store, collection.topics_folder, collection.topics) == (
        tmp_path / "lake",
        tmp_path / "in",
        ("orders",),
    )
    assert (collection.encoding, collection.keep, collection.envelope) == ("avro", "all", "none")
    assert settings.only(("orders",)) == settings


@pytest.mark.parametrize(
    ("text", "keep"),
    [
        *(("all", "all"), ("0", 0), ("10000", 10_000)),
        *(("90s", timedelta(seconds=90)), ("30m", timedelta(minutes=30)), ("12 h", timedelta(hours=12))),
        ("7d", timedelta(days=7)),
    ],
)
def test_retention_may_be_all_or_a_distance_or_a_duration(tmp_path: Path, text: str, keep: object) -> None:
    (tmp_path / "collections.yaml").write_text(GOOD.replace("topic: orders", f"topic: orders\n    keep: {text}"))
    read = load_settings(tmp_path / "collections.yaml").collection("orders").keep
    assert (read, type(read)) == (keep, type(keep))


def test_a_lake_is_named_by_its_settings_or_else_by_its_folder_or_file(tmp_path: Path) -> None:
    folder = tmp_path / "shop.eu-1"
    folder.mkdir()

    def lake(text: str = "", file: str = "collections.yaml") -> str:
        (folder / file).write_text(GOOD + text, encoding="utf-8")
        return load_settings(folder / file).lake

    assert (lake(), lake("lake: Sales\n"), lake(file="web.yaml")) == ("shop_eu_1", "Sales", "web")
    assert (lake(file="2.yaml"), lake(file="täglich.yaml")) == ("lake_2", "t_glich")
    assert len(lake(file=f"{'9' * 80}.yaml")) <= 63
    for wrong in ("2", "a-b", "", "[a]"):
        with pytest.raises(ConfigurationError, match=r"lake: is not the name of a lake"):
            lake(f"lake: {wrong}\n")


def test_a_collection_has_owners_that_dagster_accepts(tmp_path: Path) -> None:
    def owners(text: str) -> tuple[str, ...]:
        (tmp_path / "collections.yaml").write_text(GOOD + f"    owners: {text}\n", encoding="utf-8")
        return load_settings(tmp_path / "collections.yaml").collection("orders").owners

    assert owners("team:sales") == ("team:sales",)
    assert owners("[ada@example.com, 'team:a_b']") == ("ada@example.com", "team:a_b")
    for wrong in ("[sales]", "7", "['ada@']", "[7]"):
        with pytest.raises(ConfigurationError, match=r"collections\.orders\.owners: should be e-mail addresses"):
            owners(wrong)


def test_the_valid_collections_of_a_file_are_read_although_others_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "collections.yaml"
    file.write_text(GOOD + "  visits: {family: plein}\n  stock: 7\n", encoding="utf-8")
    loaded = load_valid_settings(file)
    assert [collection.name for collection in loaded.settings.collections] == ["orders"]
    assert list(loaded.refused) == ["visits", "stock"]
    assert "line 9: collections.visits.family: input should be" in str(loaded.refused["visits"])
    with pytest.raises(ConfigurationError, match=r"collections\.visits\.family"):
        load_settings(file)
    file.write_text(GOOD + "stroe: lake\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="stroe: is not a known key"):
        load_valid_settings(file)


def test_a_writer_gets_its_name_from_the_file_or_from_a_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def writer(text: str) -> str | None:
        (tmp_path / "collections.yaml").write_text(GOOD + text, encoding="utf-8")
        return load_settings(tmp_path / "collections.yaml").writer

    assert (writer(""), writer("writer: lake-2.eu\n")) == (None, "lake-2.eu")
    monkeypatch.setenv("TESTS_WRITER", "")
    assert writer("writer: {env: TESTS_WRITER}\n") is None
    monkeypatch.delenv("TESTS_WRITER")
    assert writer("writer: {env: TESTS_WRITER}\n") is None
    monkeypatch.setenv("TESTS_WRITER", "eu")
    assert writer("writer: {env: TESTS_WRITER}\n") == "eu"
    monkeypatch.setenv("TESTS_WRITER", "e u")
    problem = r"writer: TESTS_WRITER is 'e u', which is not a writer's name\nhint: set TESTS_WRITER to at most 63"
    with pytest.raises(ConfigurationError, match=problem):
        writer("writer: {env: TESTS_WRITER}\n")


def test_a_topic_that_is_already_read_or_published_to_is_refused_as_a_target(tmp_path: Path) -> None:
    file = tmp_path / "collections.yaml"
    visits = GOOD.partition("collections:\n")[2].replace("orders", "visits")
    several = GOOD.replace("topic: orders", "topic: [orders_a, orders_b]")
    for text, problem in (
        (several + "    publish: {to: orders_b}\n", "orders.publish.to: is 'orders_b', which the collection reads"),
        (
            GOOD + "    publish: {to: out}\n" + visits + "    publish: {to: out}\n",
            "visits.publish.to: is 'out', to which 'orders' is published",
        ),
    ):
        with pytest.raises(ConfigurationError, match=problem):
            load(tmp_path, text)
    load(tmp_path, GOOD + "    publish: {to: visits}\n" + visits + "    publish: {to: visits_out}\n")
    settings = load_settings(file)
    (tmp_path / "in").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "in")
    for to in ("orders", str(tmp_path / "in" / "orders"), str(tmp_path / "link" / ".." / "link" / "orders") + "/"):
        with pytest.raises(ArgumentRefused, match="'orders' reads this topic"):
            check_target(settings, "orders", Asked(to))
    check_target(settings, "orders", Asked(str(tmp_path / "out" / "orders")))


def test_a_schema_may_be_in_a_file_and_may_be_a_whole_cdcv2_schema(tmp_path: Path) -> None:
    import json

    from tidelake.schema.avro import cdcv2_schema

    record = {"type": "record", "name": "data", "fields": [{"name": "id", "type": "long"}]}
    (tmp_path / "orders.avsc").write_text(json.dumps(cdcv2_schema(record)))
    text = GOOD.replace("{type: record, name: data, fields: [{name: id, type: long}]}", "orders.avsc")
    (tmp_path / "collections.yaml").write_text(text)
    assert load_settings(tmp_path / "collections.yaml").collection("orders").record_schema == record


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ("store: lake", "stor: lake"),
            r"stor: is not a known key\nhint: did you mean 'store'\? See docs/reference/configuration.md for every key",
        ),
        (("store: lake", "store: lake\nparallel: 0"), r"parallel: is not a whole number from 1 to 64: 0"),
        (("store: lake", "store: lake\ncollection_limit_s: 1m"), r"collection_limit_s: is not a whole number .*'1m'"),
        (("family: plain", "family: plian"), r"collections.orders.family: .*not 'plian'"),
        (("    topic: orders", "    tpoic: orders"), r"collections.orders.tpoic: is not a known key"),
        (("    topic: orders\n", ""), r"collections.orders.topic: is missing"),
        (("    topic: orders", "    topic: 7"), r"collections.orders.topic: .*not 7"),
        (("topic: orders", "topic: orders\n    keep: -1"), r"collections.orders.keep"),
        (("topic: orders", "topic: orders\n    keep: some"), r"collections.orders.keep"),
        (
            ("topic: orders", "topic: orders\n    keep: 1w"),
            r"keep: should be 'all', a distance before upper .*, or a duration such as 12h or 7d, not '1w'",
        ),
        (
            ("topic: orders", "topic: orders\n    keep: 0d"),
            r"keep: should be 'all', a distance before upper .*, not '0d'",
        ),
        (
            ("topic: orders", "topic: orders\n    keep: true"),
            r"keep: should be 'all', a distance before upper .*, not True",
        ),
        (("topic: orders", "topic: orders\n    messages_per_tick_max: 0"), r"messages_per_tick_max"),
        (("topic: orders", "topic: orders\n    encoding: confluent"), r"schema_ids: is required for Confluent framing"),
        (("schema: {type", "schema: nowhere.avsc\n    x: {type"), r"x: is not a known key|cannot be read"),
        (("type: long", "type: lnog"), r"collections.orders.schema: .*lnog"),
        (("  orders:", "  Orders:"), r"collections.Orders: is not a valid name"),
        (("collections:", "collections: 3\nother:"), r"is not a known key|is not a mapping"),
        (("store: lake", "store: [lake]"), r"store: is not a path"),
        (("store: lake", "store: lake\nstore: lake2"), r"line 3: the key 'store' is given twice"),
        (("store: lake", "store: 'lake"), r"line \d+: "),
        (
            ("family: plain", "family: 2020-13-45"),
            r"line 6: '2020-13-45' is not a valid timestamp: month must be in 1..12",
        ),
        (("family: plain", "family: !!bool maybe"), r"line 6: 'maybe' is not a valid bool"),
        (("family: plain", "family: !!timestamp x"), r"line 6: 'x' is not a valid timestamp"),
        (("store: lake", "store: " + "[" * 20_000), r"line \d+|is nested too deeply"),
        (("store: lake", "store: " + "[" * 20_000 + "]" * 20_000), r"is nested too deeply"),
        (("store: lake", "store: ''"), r"store: is not a path: ''"),
        (("store: lake", "store: ' lake'"), r"store: is not a path: ' lake'"),
        (("store: lake", 'store: "la\\0ke"'), r"store: is not a path: 'la\\x00ke'"),
        (
            ("store: lake", "store: la\x01ke"),
            r"line 2: has the character U\+0001, which .*\nhint: remove the character",
        ),
        (("topics: in", 'topics: "\\uD800"'), r"topics: is not a path"),
        (("topics: in", "topics: 2020-01-01"), r"topics: is not a path: datetime.date"),
        (("store: lake", "store: lake\nwriter: a b"), r"writer: is not a writer's name: 'a b'\nhint: give at most 63"),
        (("store: lake", "store: lake\nwriter: 7"), r"writer: is not a writer's name: 7"),
        (("store: lake", "store: lake\nwriter: ''"), r"writer: is not a writer's name: ''"),
        (("store: lake", "store: lake\nwriter: {file: a}"), r"writer: does not name an environment variable"),
        (("store: lake", "store: lake\nwriter: {env: 7}"), r"writer: does not name an environment variable"),
        (("store: lake", "store: in"), r"store: the store .*in and the topics .*in are the same folder"),
        (("store: lake", "store: in/lake"), r"or one is inside the other"),
        (("topics: in", "topics: lake/in"), r"or one is inside the other"),
        (("topics: in", "topics: other/../lake/./"), r"are the same folder"),
        (("store: lake", "store: collections.yaml"), r"store: .*collections.yaml is a file, not a folder"),
        (("store: lake", "store: collections.yaml/lake"), r"store: .*collections.yaml is a file, not a folder"),
        (
            ("topic: orders", "topic: orders\n    publish: {to: out, encodng: avro}"),
            r"orders.publish.encodng: is not a known key\nhint: did you mean 'encoding'\?",
        ),
        (
            ("topic: orders", "topic: orders\n    publish: out"),
            r"publish: is not a mapping\nhint: write it as `publish",
        ),
        (("topic: orders", "topic: orders\n    publish: {}"), r"publish.to: is missing"),
        (
            ("topic: orders", "topic: orders\n    publish: {to: _out}"),
            r"publish.to: should be a topic's name, which has no `/` and does not begin with `.` or `_`, not '_out'",
        ),
        (("topic: orders", "topic: orders\n    current: {skip: true}"), r"orders.current.skip: is not a known key"),
        (("    topic: orders", "    topic: ''"), r"collections.orders.topic: is not the name of a topic: ''"),
        (("    topic: orders", "    topic: a/b"), r"collections.orders.topic: is not the name of a topic: 'a/b'"),
        (("    topic: orders", "    topic: .."), r"collections.orders.topic: is not the name of a topic: '..'"),
        (("    topic: orders", "    topic: /etc"), r"collections.orders.topic: is not the name of a topic"),
        (
            ("type: long", "type: {type: enum, name: e, symbols: [red, green, red]}"),
            r"collections.orders.schema: .*its enum has the symbol 'red' twice",
        ),
    ],
)
def test_the_error_names_the_invalid_setting_and_the_file(
    tmp_path: Path, change: tuple[str, str], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        load(tmp_path, GOOD.replace(*change))
    assert str(tmp_path / "collections.yaml") in str(caught.value)
    assert "hint:" in str(caught.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["collections.yaml"]


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (("    topic: orders", "    topic: a/b"), "line 7: collections.orders.topic: "),
        (("type: long", "type: lnog"), "line 8: collections.orders.schema: "),
        (("    topic: orders\n", ""), "line 5: collections.orders.topic: "),
        (("store: lake", "stor: lake"), "line 2: stor: "),
    ],
)
def test_an_error_names_the_line_of_the_setting_or_of_the_block_that_lacks_it(
    tmp_path: Path, change: tuple[str, str], place: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(tmp_path, GOOD.replace(*change))
    assert f"collections.yaml, {place}" in str(caught.value)


def test_an_error_in_a_schema_file_names_that_file(tmp_path: Path) -> None:
    (tmp_path / "orders.avsc").write_text("{")
    text = GOOD.split("    schema:", maxsplit=1)[0] + "    schema: orders.avsc\n"
    with pytest.raises(ConfigurationError, match=r"orders.avsc: collections.orders.schema: is not JSON"):
        load(tmp_path, text)


def test_a_store_next_to_topics_with_a_similar_name_is_accepted(tmp_path: Path) -> None:
    text = GOOD.replace("store: lake", "store: in-store")
    (tmp_path / "collections.yaml").write_text(text)
    assert load_settings(tmp_path / "collections.yaml").store == tmp_path / "in-store"


def test_a_store_that_a_link_puts_inside_the_topics_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "lake").symlink_to(tmp_path / "in" / "lake")
    with pytest.raises(ConfigurationError, match="one is inside the other"):
        load(tmp_path, GOOD)


WIDE = "{type: record, name: data, fields: [{name: id, type: long}, {name: note, type: ['null', string]}]}"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ("{name: note, type: ['null', string]}", "the column 'id' is missing"),
        (
            "{name: id, type: long}, {name: note, type: ['null', string]}, {name: more, type: int}",
            "the collection has no column 'more'",
        ),
        (
            "{name: id, type: int}, {name: note, type: ['null', string]}",
            "'id' is int, but in the collection it is long",
        ),
        (
            "{name: id, type: {type: long, logicalType: timestamp-micros}}, {name: note, type: ['null', string]}",
            r"'id' is long \(timestamp-micros\), but in the collection it is long",
        ),
        (
            "{name: id, type: {type: array, items: [int, long]}}, {name: note, type: ['null', string]}",
            "'id' is array<one of<int: int or null, long: long or null>>, but in the collection it is long",
        ),
        (
            "{name: id, type: long}, {name: note, type: string}",
            "'note' is string, but in the collection it is string or",
        ),
    ],
)
def test_a_schema_for_an_id_is_refused_if_its_columns_differ_and_the_column_is_named(
    tmp_path: Path, fields: str, message: str
) -> None:
    other = f"{{type: record, name: other, fields: [{fields}]}}"
    text = GOOD.split("    schema:", maxsplit=1)[0] + f"    schema: {WIDE}\n    schema_ids: {{7: {WIDE}, 9: {other}}}\n"
    with pytest.raises(ConfigurationError, match=message) as caught:
        load(tmp_path, text)
    assert "collections.orders.schema_ids.9: " in str(caught.value)


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        ("key: id", r"the key has no column 'price'\nhint: .*the columns of the key, in any order"),
        (
            "key: sku\n    key_schema: {type: record, name: key, fields: [{name: sku, type: long}]}",
            r"the column 'sku' is missing\nhint: .*the columns of `key_schema`, in any order",
        ),
    ],
)
def test_a_schema_for_an_id_of_keys_is_compared_with_the_columns_of_the_key(
    tmp_path: Path, key: str, problem: str
) -> None:
    row = "{type: record, name: row, fields: [{name: id, type: long}, {name: price, type: long}]}"
    text = GOOD.split("    schema:", maxsplit=1)[0].replace("family: plain", "family: upsert\n    framing: reclock")
    ids = f"schema_ids: {{2: {row}}}\n    key_schema_ids: {{1: {row}}}\n"
    text = f"{text}    encoding: confluent\n    schema: {row}\n    {key}\n    {ids}"
    with pytest.raises(ConfigurationError, match=f"key_schema_ids.1: .*{problem}"):
        load(tmp_path, text)
    reader = "`key_schema`" if "key_schema:" in text else "the schema"
    with pytest.raises(ConfigurationError, match=f"key: {reader} has no column 'no_such'"):
        load(tmp_path, text.replace(key.partition("\n")[0], "key: no_such"))


def test_the_schema_of_an_id_may_have_its_columns_in_another_order(tmp_path: Path) -> None:
    other = "{type: record, name: other, fields: [{name: note, type: [string, 'null']}, {name: id, type: long}]}"
    text = GOOD.split("    schema:", maxsplit=1)[0] + f"    schema: {WIDE}\n    schema_ids: {{7: {other}}}\n"
    (tmp_path / "collections.yaml").write_text(text)
    assert set(load_settings(tmp_path / "collections.yaml").collection("orders").schema_ids) == {7}


@pytest.mark.parametrize("schema_id", ["-1", "4294967296", "yes", "one"])
def test_a_schema_id_is_a_four_byte_number(tmp_path: Path, schema_id: str) -> None:
    with pytest.raises(ConfigurationError, match="schema_ids: does not map ids to schemas"):
        load(tmp_path, GOOD + f"    schema_ids: {{{schema_id}: {WIDE}}}\n")


def test_two_collections_with_one_name_are_refused(tmp_path: Path) -> None:
    block = GOOD.split("collections:\n")[1]
    with pytest.raises(ConfigurationError, match="the key 'orders' is given twice"):
        load(tmp_path, GOOD + block)


def test_a_name_without_any_collection_is_answered_with_what_to_add(tmp_path: Path) -> None:
    settings = load(tmp_path, GOOD.partition("  orders:")[0])
    with pytest.raises(
        ConfigurationError, match=r"no collection of this name\nhint: add a collection below `collections"
    ):
        settings.collection("orders")
    with pytest.raises(ConfigurationError, match=r"no collection of this name\nhint: did you mean 'orders'\?"):
        load(tmp_path, GOOD).collection("order")


def test_a_topic_without_a_folder_is_refused_and_named(tmp_path: Path) -> None:
    (tmp_path / "collections.yaml").write_text(GOOD)
    settings = load_settings(tmp_path / "collections.yaml")
    with pytest.raises(ConfigurationError, match="the topic 'orders' has no folder"):
        check_topics(settings)
    (tmp_path / "in" / "orders").mkdir(parents=True)
    check_topics(settings)


RAW = """
store: lake
topics: in
collections:
  clicks:
    framing: reclock
    envelope: append_only
    topic: [eu, us]
    format: json
    metadata: [topic, offset]
    schema: {type: record, name: click, fields: [{name: page, type: string}]}
"""


def test_a_raw_collection_has_its_envelope_topics_and_metadata(tmp_path: Path) -> None:
    collection = load(tmp_path, RAW).collections[0]
    assert isinstance(collection, ReclockSettings)
    assert (collection.framing, collection.family, collection.envelope, collection.format) == (
        "reclock",
        "append_only",
        "append_only",
        "json",
    )
    assert (collection.topics, collection.topic) == (("eu", "us"), "eu, us")
    assert [field["name"] for field in collection.record_schema["fields"]] == ["page", "kafka_topic", "kafka_offset"]
    assert [field["name"] for field in collection.value_schema["fields"]] == ["page"]
    named = load(tmp_path, RAW.replace("[topic, offset]", "{timestamp: sent_at, headers: sent_with}")).collections[0]
    assert [field["name"] for field in named.record_schema["fields"]] == ["page", "sent_at", "sent_with"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("envelope: append_only", "envelope: none"), r"clicks.framing: is 'reclock', but .* state no diff"),
        (("envelope: append_only", "envelope: plain"), r"clicks.envelope: is not an envelope: 'plain'"),
        (
            ("envelope: append_only", "envelope: append_only\n    family: upsert"),
            r"clicks.envelope: is 'append_only', but family is 'upsert': both name the envelope",
        ),
        (
            ("envelope: append_only", "envelope: append_only\n    before: key"),
            r"clicks.before: is not allowed for a reclocked topic",
        ),
        (
            ("framing: reclock", "framing: relock"),
            r"clicks.framing: input should be 'cdcv2', 'reclock' or 'transactions'",
        ),
        (
            ("    framing: reclock\n", ""),
            r"clicks.format: is not allowed for CDCv2 messages, which are Avro\nhint: leave it out; a reclocked topic",
        ),
        (
            ("framing: reclock", "framing: cdcv2\n    idle_upper_s: 3", "    format: json\n", ""),
            r"clicks.idle_upper_s: is not allowed for CDCv2 messages\nhint: leave it out; a reclocked topic has",
        ),
        (
            ("envelope: append_only", "envelope: append_only\n    key: page"),
            r"clicks.key: is not allowed for the envelope 'append_only'\nhint: leave it out",
        ),
        (
            ("envelope: append_only", "family: append_only\n    key: page"),
            r"clicks.key: is not allowed for the family 'append_only'",
        ),
        (("format: json", "format: xml"), r"clicks.format: input should be 'avro' or 'json'"),
        (("format: json", "format: json\n    encoding: confluent"), r"clicks.encoding: is not allowed for JSON"),
        (("topic: [eu, us]", "topic: []"), r"clicks.topic: names no topic"),
        (("topic: [eu, us]", "topic: [eu, eu]"), r"clicks.topic: names a topic twice"),
        (("topic: [eu, us]", "topic: [eu, a/b]"), r"clicks.topic: is not the name of a topic: 'a/b'"),
        (("[topic, offset]", "[topic, colour]"), r"clicks.metadata.colour: is not known"),
        (("[topic, offset]", "topic"), r"clicks.metadata: is neither a list of metadata nor a mapping"),
        (("[topic, offset]", "{offset: Page}"), r"clicks.metadata.offset: the column 'Page' clashes with .* 'page'"),
        (
            ("[topic, offset]", "{offset: at, topic: AT}"),
            r"clicks.metadata.offset: the column 'at' clashes with .* 'AT'",
        ),
        (("[topic, offset]", "{offset: _offset}"), r"clicks.metadata: .*_offset"),
        (("type: string", "type: [int, string]"), r"clicks.schema: the column 'page' is a union of several types"),
    ],
)
def test_settings_that_do_not_go_together_in_a_raw_collection_are_refused(
    tmp_path: Path, change: tuple[str, ...], message: str
) -> None:
    text = RAW
    for old, new in zip(change[::2], change[1::2], strict=True):
        text = text.replace(old, new)
    with pytest.raises(ConfigurationError, match=message) as caught:
        load(tmp_path, text)
    assert "hint:" in str(caught.value)


EVENTS = """
collections:
  shop:
    framing: reclock
    envelope: debezium
    topic: shop
    key: id
    schema:
      type: record
      name: event
      fields:
        - name: before
          type: ['null', {type: record, name: row, fields: [{name: id, type: int}, {name: a, type: ['null', string]}]}]
        - {name: after, type: ['null', row]}
        - {name: op, type: string}
        - {name: ts_ms, type: long}
"""
KEY = "{type: record, name: key, fields: [{name: id, type: int}]}"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            f"key_schema_ids: {{1: {KEY}}}",
            r"key_schema_ids: is not allowed for bare Avro\nhint: bare keys have one schema",
        ),
        (
            f"encoding: confluent\n    schema_ids: {{}}\n    key_schema: {KEY}",
            r"schema_ids: is empty\nhint: .*or leave it out",
        ),
        (
            f"key_schema: {KEY.replace('int', 'string')}",
            r"key_schema: column 'id' is refused: it is written as a different",
        ),
        (f"key_schema: {KEY.replace('id', 'x')}", r"column 'id' is refused: it is missing, but"),
        ("format: json\n    key_schema: {}", r"key_schema: is not allowed for change events in JSON"),
        ("evolution: some", r"evolution: input should be 'none' or 'additive'"),
        ("subject: record", r"subject: has no effect: no schema is looked up"),
    ],
)
def test_keys_and_evolution_of_change_events_are_checked(tmp_path: Path, more: str, message: str) -> None:
    load(tmp_path, f"{EVENTS}    key_schema: {KEY}\n")
    with pytest.raises(ConfigurationError, match=message):
        load(tmp_path, f"{EVENTS}    {more}\n")


@pytest.mark.parametrize(
    ("family", "hint"),
    [("upsert", "leave it out: only `family: debezium` has it"), ("debezium", "leave it out, or add `key`")],
)
def test_before_is_for_change_events_with_a_key(tmp_path: Path, family: str, hint: str) -> None:
    text = GOOD.replace("family: plain", f"family: {family}\n    {'key: id' if family == 'upsert' else 'bag: false'}")
    with pytest.raises(ConfigurationError, match=f"before: is only allowed for .* have a key\nhint: {hint}"):
        load(tmp_path, f"{text}    before: key\n")


def test_evolution_is_for_raw_topics_and_a_schema_may_be_left_out_if_something_else_provides_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"evolution: is not allowed for CDCv2 messages: the data"):
        load(tmp_path, GOOD + "    evolution: additive\n")
    without = EVENTS[: EVENTS.index("    schema:")]
    load(tmp_path, f"{without}    format: json\n")
    with pytest.raises(
        ConfigurationError, match=r"schema: is missing\nhint: .*from a registry: .* a `registry:` block"
    ):
        load(tmp_path, without)
    registry = "registry: {url: 'http://127.0.0.1:8081'}\n"
    load(tmp_path, f"{registry}{without}    encoding: confluent\n")
    with pytest.raises(
        ConfigurationError, match=r"subject: makes subjects from record names, but `schema` or `key_schema` is missing"
    ):
        load(tmp_path, f"{registry}{without}    encoding: confluent\n    subject: record\n")
    with_transactions = without.replace("reclock", "transactions\n    transaction_topic: t\n    table: shop")
    for text in (without, with_transactions + "    format: avro\n", GOOD):
        with pytest.raises(
            ConfigurationError, match="subject: input should be 'topic', 'record' or 'topic_record', not"
        ):
            load(tmp_path, f"{registry}{text.lstrip()}    encoding: confluent\n    subject: topics\n")
    with pytest.raises(ConfigurationError, match=r"the framing 'transactions' does not support\nhint: leave it out"):
        load(tmp_path, f"{registry}{with_transactions}    format: avro\n    encoding: confluent\n    subject: record\n")


@pytest.mark.parametrize("text", [GOOD, RAW, EVENTS], ids=["cdcv2", "reclocked events", "reclocked changes"])
@pytest.mark.parametrize("own", ["transaction_topic: t", "table: t", "captures_publication: false"])
def test_an_error_about_a_key_that_only_one_other_framing_has_names_that_framing(
    tmp_path: Path, text: str, own: str
) -> None:
    problem = rf"{own.partition(':')[0]}: is only allowed with `framing: transactions`"
    hint = r"\nhint: leave it out, or write `framing: transactions`"
    # For CDCv2, `format` is not allowed either, but the error names the other key, which says more about which framing
    # is meant.
    formatted = f"{text.replace('    format: json', '')}    format: json\n    {own}\n"
    with pytest.raises(ConfigurationError, match=problem + hint):
        load(tmp_path, formatted)


def test_a_table_is_named_after_its_topic_even_if_the_topic_is_in_a_list(tmp_path: Path) -> None:
    block = "{framing: transactions, envelope: debezium, format: json, topic: [shop.public.orders]"
    text = f"collections:\n  orders: {block}, transaction_topic: shop.transaction}}\n"
    orders = load(tmp_path, text).collection("orders")
    assert isinstance(orders, TransactionSettings)
    assert orders.table == "public.orders"
    with pytest.raises(ConfigurationError, match=r"format: is missing\nhint: write `format: json`"):
        load(tmp_path, text.replace("format: json, ", ""))
    (tmp_path / "data" / "topics" / "shop.public.orders").mkdir(parents=True)
    with pytest.raises(
        ConfigurationError, match=r"orders\.transaction_topic: the topic 'shop.transaction' has no folder"
    ):
        check_topics(load(tmp_path, text))
    problem = "the topics 'shop.public.orders' and 'marks' do not show it"
    with pytest.raises(ConfigurationError, match=problem):
        load(tmp_path, text.replace("shop.transaction", "marks"))


def test_the_tables_of_a_connector_agree_on_what_it_captures(tmp_path: Path) -> None:
    block = "{{framing: transactions, envelope: debezium, format: json, topic: {0}.public.{1}, {2}{3}}}"
    common = "transaction_topic: {0}.transaction"
    tables = [("shop", "a", ""), ("shop", "b", ", captures_publication: false"), ("other", "c", "")]
    lines = [f"  {name}: {block.format(prefix, name, common.format(prefix), more)}" for prefix, name, more in tables]
    text = "\n".join(["store: store", "topics: topics", "data_docs: docs", "collections:", *lines, ""])
    with pytest.raises(ConfigurationError, match=r"b\.captures_publication: is false, but not for 'a', whose events"):
        load(tmp_path, text)
    agreeing = text.replace(", captures_publication: false", "")
    load(tmp_path, agreeing)
