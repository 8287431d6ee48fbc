"""`tidelake init` writes settings with which a topic can be ingested and sealed, and nothing else."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from tests.captures.lake import EVENT, FOLDER, avro_lines, lines
from tests.cli.commands import call
from tests.lakes.lake import RECORD, progress, updates
from tests.services.kafka import PASSWORD, USER, Broker, Record
from tests.services.registry import Registry
from tests.sweeps import swept
from tidelake.cli.app import app
from tidelake.cli.init.draft import Choices, draft_of
from tidelake.cli.init.draft import Registry as SubjectSchemas
from tidelake.cli.init.json_columns import Inferred
from tidelake.cli.init.samples import Sample
from tidelake.errors import ConfigurationError, FolderMissing, OptionRefused
from tidelake.generator.generate import generate
from tidelake.generator.options import GenerateOptions
from tidelake.schema.avro import cdcv2_schema

CAPTURED = "steady.public.people"


def init(root: Path, *arguments: str) -> tuple[dict[str, Any], str]:
    """Write settings into a folder; return the only collection and the output."""
    result = CliRunner().invoke(app, ["init", *arguments, "--config", str(root / "collections.yaml")])
    if result.exception is not None:
        raise result.exception
    document = yaml.safe_load((root / "collections.yaml").read_text(encoding="utf-8"))
    (block,) = document["collections"].values()
    return dict(block), result.stdout


def topic(root: Path, name: str, *records: dict[str, Any]) -> str:
    """A file topic with one partition."""
    folder = root / "topics" / name
    folder.mkdir(parents=True)
    text = "".join(json.dumps({"offset": offset, **record}) + "\n" for offset, record in enumerate(records))
    (folder / "0.jsonl").write_text(text, encoding="utf-8")
    return str(folder)


def contents(root: Path) -> list[dict[str, Any]]:
    """Run the two commands that `init` prints, and return the rows without `_diff`."""
    config = ("--config", str(root / "collections.yaml"))
    (name,) = yaml.safe_load((root / "collections.yaml").read_text(encoding="utf-8"))["collections"]
    report = json.loads(call("run", "--json", *config))
    assert report["ok"], report["errors"]
    assert report["results"][name]["ingest"]["quarantined"] == 0
    rows = json.loads(call("read", name, "--json", *config))["rows"]
    return [{column: value for column, value in row.items() if column != "_diff"} for row in rows]


@pytest.mark.spark
@pytest.mark.sweep
def test_a_cdcv2_topic_with_its_schema_can_be_sealed(tmp_path: Path, spark: SparkSession) -> None:
    options = GenerateOptions(name="orders", updates=200, times=4)
    generate(options, tmp_path / "topics", tmp_path)
    block, output = init(tmp_path, str(tmp_path / "topics" / "orders"), "--schema", str(tmp_path / "orders.avsc"))
    assert (block["framing"], block["envelope"]) == ("cdcv2", "none")
    config = tmp_path / "collections.yaml"
    assert output.splitlines()[1:] == [
        f"  tidelake run --config {config}",
        f"  tidelake read orders --config {config}",
    ]
    assert contents(tmp_path)


@pytest.mark.spark
def test_events_in_json_become_rows(tmp_path: Path, spark: SparkSession) -> None:
    records: list[dict[str, Any]] = [
        {
            "value": {
                "page": "/",
                "ms": 12,
                "ok": True,
                "tags": ["a", None],
                "geo": {"lat": 1, "lon": 2.5},
                "x-y": 1,
                "Page": "A",
            }
        },
        {"key": "k", "value": {"page": "/b", "ms": 13, "extra": None, "geo": {"lat": 1.5, "lon": 2}}},
        {"value": {"page": None}},
    ]
    block, _ = init(tmp_path, topic(tmp_path, "visits", *records))
    assert block["envelope"] == "append_only"
    rows = contents(tmp_path)
    assert [row["page"] for row in rows] == [None, "/", "/b"]
    assert rows[1]["geo"] == {"lat": 1.0, "lon": 2.5}
    assert rows[1]["tags"] == ["a", None]
    assert "x-y" not in rows[1]
    text = (tmp_path / "collections.yaml").read_text(encoding="utf-8")
    assert "# the field 'x-y' is left out: a column cannot have this name\n" in text
    assert "# the field 'Page' is left out: another column's name differs only in case\n" in text
    assert "if a record replaces earlier ones" in text


@pytest.mark.spark
@pytest.mark.parametrize(
    ("keys", "inside"),
    [
        pytest.param([{"id": 1}, {"id": 2}], True, marks=pytest.mark.sweep),
        pytest.param([{"id": 1}, {"id": 2}], False, marks=pytest.mark.sweep),
        (["1", "2"], True),
        pytest.param(["a", "b"], False, marks=pytest.mark.sweep),
    ],
    ids=["columns of the value", "in columns of their own", "bare, in the value", "bare, in a column of their own"],
)
def test_records_with_keys_and_deletes_become_the_newest_values(
    tmp_path: Path, spark: SparkSession, keys: list[Any], inside: bool
) -> None:
    values = [{"id": number, "name": f"n{number}"} if inside else {"name": f"n{number}"} for number in (1, 2)]
    records = [{"key": key, "value": value} for key, value in zip(keys, values, strict=True)]
    changed = {"key": keys[0], "value": {**values[0], "name": "changed"}}
    block, _ = init(tmp_path, topic(tmp_path, "items", *records, changed, {"key": keys[1], "value": None}))
    assert (block["envelope"], block["key"]) == ("upsert", ["id"])
    assert ("key_schema" in block) is not inside
    assert [row["name"] for row in contents(tmp_path)] == ["changed"]


@pytest.mark.spark
@pytest.mark.parametrize("embedded", swept([False, True], [True]), ids=["bare", "with its schema"])
def test_captured_change_events_become_the_rows_of_their_table(
    tmp_path: Path, spark: SparkSession, embedded: bool
) -> None:
    folder = tmp_path / "topics" / CAPTURED
    if embedded:
        folder.mkdir(parents=True)
        wrapped = [with_schema(json.loads(line)) for line in lines("steady", CAPTURED)[0][:50]]
        (folder / "0.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in wrapped), encoding="utf-8")
    else:
        shutil.copytree(FOLDER / "steady" / "topics" / CAPTURED, folder)
    block, _ = init(tmp_path, str(folder))
    assert (block["framing"], block["envelope"], block["format"], block["key"]) == (
        "reclock",
        "debezium",
        "json",
        ["id"],
    )
    assert ("schema" in block) is not embedded
    rows = contents(tmp_path)
    assert rows
    assert len({row["id"] for row in rows}) == len(rows)


def with_schema(line: dict[str, Any]) -> dict[str, Any]:
    """A record as the converter writes it with embedded schemas; only the columns `id` and `name` are kept."""
    fields = [
        {"field": "id", "type": "int64", "optional": False},
        {"field": "name", "type": "string", "optional": True},
    ]
    rows = [{"field": part, "type": "struct", "optional": True, "fields": fields} for part in ("before", "after")]
    schema = {"type": "struct", "fields": [*rows, {"field": "op", "type": "string", "optional": False}]}
    value = line["value"]
    if value is None:
        return line
    for part in ("before", "after"):
        row = value[part]
        value[part] = None if row is None else {"id": row["id"], "name": row["name"]}
    return {**line, "value": {"schema": schema, "payload": value}}


@pytest.mark.spark
@pytest.mark.sweep
def test_change_events_in_avro_need_their_schema_and_their_key(tmp_path: Path, spark: SparkSession) -> None:
    folder = tmp_path / "topics" / CAPTURED
    folder.mkdir(parents=True)
    encoded = avro_lines(lines("steady", CAPTURED)[0][:40], b"")
    (folder / "0.jsonl").write_text("".join(f"{line}\n" for line in encoded), encoding="utf-8")
    schema = tmp_path / "event.avsc"
    schema.write_text(json.dumps(EVENT), encoding="utf-8")
    with pytest.raises(OptionRefused, match="Avro cannot be read without its schema"):
        init(tmp_path, str(folder))
    with pytest.raises(OptionRefused, match="change events in Avro need the primary key"):
        init(tmp_path, str(folder), "--schema", str(schema))
    init(tmp_path, str(folder), "--schema", str(schema), "--key", "id")
    assert contents(tmp_path)


@pytest.mark.services
@pytest.mark.spark
def test_a_kafka_topic_with_schemas_in_a_registry_can_be_read(
    tmp_path: Path, spark: SparkSession, broker: Broker, registry: Registry
) -> None:
    name = broker.create_topic(partitions=2)
    schema_id = registry.register(f"{name}-value", cdcv2_schema(RECORD))
    header = b"\x00" + schema_id.to_bytes(4, "big")
    messages = (updates((1, 1, 1), (2, 1, 1)), progress([0], [2], {1: 2}))
    broker.produce(name, [Record(header + value, None, partition, ()) for partition, value in enumerate(messages)])
    with pytest.raises(OptionRefused, match="begin with the id of a schema in a registry\nhint: give --registry"):
        init(tmp_path, name, "--kafka", broker.bootstrap_servers)
    block, _ = init(tmp_path, name, "--kafka", broker.bootstrap_servers, "--registry", registry.url, "--name", "prices")
    assert (block["framing"], block["encoding"], block["source"]) == ("cdcv2", "confluent", "kafka")
    assert [row["id"] for row in contents(tmp_path)] == [1, 2]


@pytest.mark.services
@pytest.mark.spark
@pytest.mark.sweep
def test_brokers_that_need_tls_and_a_password_are_described_by_a_file(
    tmp_path: Path, spark: SparkSession, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INIT_PASSWORD", PASSWORD)
    (tmp_path / "secure").mkdir()
    (tmp_path / "secure" / "ca.pem").write_bytes(broker.certificate.read_bytes())
    kafka = {
        "bootstrap_servers": broker.secure_bootstrap_servers,
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_username": USER,
        "sasl_password": {"env": "INIT_PASSWORD"},
        "ssl_ca_file": "ca.pem",
    }
    servers = tmp_path / "secure" / "servers.yaml"
    servers.write_text(yaml.safe_dump({"kafka": kafka}), encoding="utf-8")
    name = broker.create_topic()
    broker.produce(name, [Record(b'{"id": 1}'), Record(b'{"id": 2}')])
    init(tmp_path, name, "--servers", str(servers))
    written = yaml.safe_load((tmp_path / "collections.yaml").read_text(encoding="utf-8"))
    assert written["kafka"] == {**kafka, "ssl_ca_file": str(tmp_path / "secure" / "ca.pem")}
    assert sorted(row["id"] for row in contents(tmp_path)) == [1, 2]


def test_a_file_of_servers_needs_a_block_and_no_other_address(tmp_path: Path) -> None:
    servers = tmp_path / "servers.yaml"
    with pytest.raises(ConfigurationError, match=r"No such file.*\nhint: give the path of a file with a `kafka:` or a"):
        init(tmp_path, "orders", "--servers", str(servers))
    servers.write_text("- store\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"is not a YAML mapping\nhint: write a `kafka:` or a `registry:`"):
        init(tmp_path, "orders", "--servers", str(servers))
    servers.write_text("store: lake\n", encoding="utf-8")
    with pytest.raises(OptionRefused, match="has neither a `kafka` block nor a `registry` block"):
        init(tmp_path, "orders", "--servers", str(servers))
    with pytest.raises(OptionRefused, match="--servers cannot be combined"):
        init(tmp_path, "orders", "--servers", str(servers), "--kafka", "localhost:9092")
    servers.write_text("kafka: {bootstrap_servers: 'localhost:9092', sasl_username: x}\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"servers.yaml: kafka.sasl_username: has no effect for PLAINTEXT"):
        init(tmp_path, "orders", "--servers", str(servers))
    assert not (tmp_path / "collections.yaml").exists()


def test_nothing_is_overwritten_and_nothing_is_left_behind(tmp_path: Path) -> None:
    folder = topic(tmp_path, "visits", {"value": {"page": "/"}})
    file = tmp_path / "collections.yaml"
    file.symlink_to(tmp_path / "nowhere.yaml")
    with pytest.raises(OptionRefused, match="exists, and is not overwritten"):
        init(tmp_path, folder)
    file.unlink()
    with pytest.raises(OptionRefused, match=r"'append' is not an envelope\nhint: did you mean 'append_only'\?"):
        init(tmp_path, folder, "--envelope", "append")
    with pytest.raises(OptionRefused, match=r"refused: collections\.Bad: is not a valid name"):
        init(tmp_path, folder, "--name", "Bad")
    assert [path.name for path in tmp_path.iterdir()] == ["topics"]
    init(tmp_path, folder)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["collections.yaml", "topics"]


@pytest.mark.parametrize(
    ("records", "problem"),
    [
        ([], "has no messages yet"),
        ([{"key": {"id": 1}, "value": None}], "none of the first messages of 'some' has a value: they are deletes"),
        ([{"value": "plain text"}], "are not JSON objects.*\nhint: if they are Avro, .* other formats cannot be read"),
        ([{"value_b64": "AAAAAAEC"}], "begin with the id of a schema in a registry"),
        ([{"value": {"op": "c", "after": {"id": 1}, "source": {"connector": "postgresql"}}}], "have no keys"),
        (
            [{"key": "1", "value": {"op": "c", "after": {"id": 1}, "source": {"connector": "postgresql"}}}],
            "have no keys that name columns",
        ),
        (
            [{"key": {"id": 1}, "value": {"op": "c", "after": {"id": 1}, "source": {"connector": "db2"}}}],
            "it is not known which fields order the events of the connector db2",
        ),
        ([{"value": {"_": {}, "-": 1}}], "a collection cannot hold these records"),
    ],
)
def test_settings_that_only_the_user_knows_are_requested(
    tmp_path: Path, records: list[dict[str, Any]], problem: str
) -> None:
    with pytest.raises(OptionRefused, match=problem):
        init(tmp_path, topic(tmp_path, "some", *records))
    assert not (tmp_path / "collections.yaml").exists()


def test_advice_about_schema_ids_does_not_repeat_what_was_done(tmp_path: Path) -> None:
    folder = topic(tmp_path, "some", {"value_b64": "AAAAAAEC"})
    schema = tmp_path / "some.avsc"
    schema.write_text(json.dumps(RECORD), encoding="utf-8")
    with pytest.raises(OptionRefused, match="begin with the id of a schema in a registry\nhint: give --registry URL"):
        init(tmp_path, folder, "--schema", str(schema))
    with pytest.raises(OptionRefused, match="begin with the id of a schema in a registry\nhint: leave out --schema"):
        init(tmp_path, folder, "--schema", str(schema), "--registry", "http://127.0.0.1:9")


def test_a_schema_that_the_registry_lacks_is_not_asked_from_the_user_if_the_messages_have_its_id() -> None:
    empty, schema = SubjectSchemas(lambda subject: {}), Choices(schema=RECORD)
    framed, bare = Sample(None, b"\x00\x00\x00\x00\x01\x02"), Sample(None, b"\x02\x04")
    with pytest.raises(
        OptionRefused, match="under 'out-value'\nhint: register the schema of the values there, or write"
    ):
        draft_of("out", [framed], Choices(), empty)
    with pytest.raises(OptionRefused, match=r"under 'out-value'\nhint: give --schema FILE\.avsc"):
        draft_of("out", [bare], Choices(), empty)
    for registry, advice in ((empty, "leave out --schema"), (None, "give --registry URL")):
        with pytest.raises(OptionRefused, match=f"written with, or {advice} if they begin with the id of a schema"):
            draft_of("out", [bare, framed], schema, registry)


def test_columns_without_samples_are_described_as_what_they_are() -> None:
    inferred = Inferred()
    inferred.record("some", [{"id": 1, "tags": [], "marks": [None], "note": None}])
    assert inferred.remarks == [
        "the arrays in 'tags' are empty in all samples; their items are read as text",
        "the items of 'marks' are null in all samples; they are read as text",
        "the column 'note' is null in all samples; it is read as text",
    ]


def test_a_topic_beside_the_settings_is_refused_because_the_store_would_be_inside_the_topics(tmp_path: Path) -> None:
    folder = tmp_path / "visits"
    folder.mkdir()
    (folder / "0.jsonl").write_text('{"offset": 0, "value": {"page": "/"}}\n', encoding="utf-8")
    with pytest.raises(OptionRefused, match="move the topic into a folder of topics"):
        init(tmp_path, str(folder))
    with pytest.raises(FolderMissing, match="has no folder"):
        init(tmp_path, str(tmp_path / "none"))


def test_mysql_events_are_ordered_by_their_place_in_the_log(tmp_path: Path) -> None:
    source = {"connector": "mysql", "file": "bin.1", "pos": 4, "row": 0}
    event = {"op": "c", "before": None, "after": {"id": 1, "name": "a"}, "source": source}
    block, _ = init(tmp_path, topic(tmp_path, "db.shop.items", {"key": {"id": 1}, "value": event}))
    assert block["position"] == ["source.file", "source.pos", "source.row"]
    assert block["schema"]["fields"][0] == {"name": "id", "type": "long"}
