"""One history gives equal tables, whether it is in JSON or in Avro, and whether it is read from Kafka or recordings."""

from __future__ import annotations

import base64
import io
import json
import time
from pathlib import Path
from typing import Any

import fastavro
import pytest
import yaml
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from jobs import ingest, validate
from tests.captures.lake import EVENT, avro_lines, change_collection, lines, moments, shown_rows
from tests.captures.workload import RECORD
from tests.services.connect import WAIT_S, Connect, debezium_settings
from tests.services.kafka import Broker, Record
from tests.services.postgres import Postgres
from tests.services.registry import Registry
from tidelake.catalog.catalog import Catalog
from tidelake.cli.app import app
from tidelake.read.snapshot import snapshot
from tidelake.settings.lake import load_settings
from tidelake.store.layout import Store

pytestmark = [pytest.mark.services, pytest.mark.spark, pytest.mark.sweep]

_CAPTURE, _TABLE = "snapshots", "people"
_TOPIC = f"{_CAPTURE}.public.{_TABLE}"
_KEY = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "int"}]}


def _framed(schema_id: int, schema: dict[str, Any], value: Any) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(schema), value)
    return _header(schema_id) + buffer.getvalue()


def _header(schema_id: int) -> bytes:
    return b"\x00" + schema_id.to_bytes(4, "big")


def _as_json(captured: list[str], partition: int) -> list[Record]:
    records = [json.loads(line) for line in captured]
    return [
        Record(
            None if record["value"] is None else json.dumps(record["value"]).encode(),
            json.dumps(record["key"]).encode(),
            partition,
        )
        for record in records
    ]


def _as_avro(captured: list[str], partition: int, value_id: int, key_id: int) -> list[Record]:
    """The events in Avro; a delete has no row in `before`, so only the record's key says which row is deleted."""
    records = [json.loads(line) for line in captured]
    keys = [record["key"] for record in records]
    for record in records:
        if record["value"] is not None and record["value"]["op"] == "d":
            record["value"]["before"] = None
    encoded = avro_lines([json.dumps(record) for record in records], _header(value_id))
    values = [json.loads(line)["value_b64"] for line in encoded]
    return [
        Record(None if value is None else base64.b64decode(value), _framed(key_id, _KEY, key), partition)
        for value, key in zip(values, keys, strict=True)
    ]


class _Lake:
    """Four collections with the same history."""

    def __init__(self, root: Path, spark: SparkSession, broker: Broker, registry: Registry) -> None:
        self.root, self.spark, self.broker = root, spark, broker
        self.json, self.avro = (broker.create_topic(partitions=2) for _ in range(2))
        self.ids = registry.register(f"{self.avro}-value", EVENT), registry.register(f"{self.avro}-key", _KEY)
        self.sent = {0: 0, 1: 0}
        avro = {"format": "avro", "encoding": "confluent"}
        collections = {
            "json_kafka": change_collection(self.json, RECORD, source="kafka"),
            "avro_kafka": change_collection(self.avro, RECORD, source="kafka", **avro),
            "json_files": change_collection(self.json, RECORD),
            "avro_files": change_collection(self.avro, RECORD, **avro),
        }
        for name in ("avro_kafka", "avro_files"):
            del collections[name]["schema"]  # the schema is in the registry
        document = {"store": "store", "topics": "topics", "data_docs": "docs", "collections": collections}
        document["kafka"] = {"bootstrap_servers": broker.bootstrap_servers}
        document["registry"] = {"url": registry.url, "cache": "cache"}
        self.file = root / "collections.yaml"
        self.file.write_text(yaml.safe_dump(document), encoding="utf-8")
        self.settings = load_settings(self.file)

    def send_to(self, offsets: dict[str, int]) -> None:
        for partition, captured in lines(_CAPTURE, _TOPIC).items():
            piece = captured[self.sent[partition] : offsets[str(partition)]]
            self.sent[partition] = offsets[str(partition)]
            self.broker.produce(self.json, _as_json(piece, partition))
            self.broker.produce(self.avro, _as_avro(piece, partition, *self.ids))

    def record(self) -> None:
        for topic in (self.json, self.avro):
            arguments = ["topic", "record", topic, str(self.root / "topics" / topic), "--config", str(self.file)]
            result = CliRunner().invoke(app, arguments)
            assert result.exit_code == 0, result.output

    def ingest(self, *names: str) -> dict[str, int]:
        """Read to the ends of the topics, and return the last time of each collection."""
        report = ingest.run(self.spark, self.settings.only(names))
        assert not report.errors
        assert [result.quarantined for result in report.results.values()] == [0] * len(names)
        return {name: self.rows_and_time(name)[1] for name in names}

    def rows_and_time(self, name: str, as_of: int | None = None) -> tuple[list[list[Any]], int]:
        collection = Catalog(Store(self.settings.store)).find(name)
        time = as_of if as_of is not None else (collection.carry_columns().value("upper") or 0) - 1
        return shown_rows(self.spark, collection, time), time


def test_one_history_ends_in_equal_tables(
    tmp_path: Path, spark: SparkSession, broker: Broker, registry: Registry
) -> None:
    lake = _Lake(tmp_path, spark, broker, registry)
    read: dict[tuple[str, int], list[list[Any]]] = {}
    noted = moments(_CAPTURE)
    for moment in noted:
        lake.send_to(moment["offsets"][_TOPIC])
        for name, at in lake.ingest("json_kafka", "avro_kafka").items():
            read[name, at] = sorted(moment["rows"][_TABLE])
    lake.record()
    for name, at in lake.ingest("json_files", "avro_files").items():
        read[name, at] = sorted(noted[-1]["rows"][_TABLE])
    for (name, at), rows in read.items():
        assert lake.rows_and_time(name, at)[0] == rows, (name, at)
    assert not validate.run(spark, lake.settings, True).errors


_COLUMNS = ("id", "name", "built", "price")
_AVRO_CONVERTER = "io.apicurio.registry.utils.converter.AvroConverter"


def _avro_converters(registry: Registry) -> dict[str, str]:
    """Settings of a connector that writes Avro in Confluent's framing."""
    settings: dict[str, str] = {}
    for part in ("key", "value"):
        settings |= {
            f"{part}.converter": _AVRO_CONVERTER,
            f"{part}.converter.schemas.enable": "true",
            f"{part}.converter.apicurio.registry.url": registry.url.replace("/apis/ccompat/v7", "/apis/registry/v2"),
            f"{part}.converter.apicurio.registry.auto-register": "true",
            f"{part}.converter.apicurio.registry.as-confluent": "true",
            f"{part}.converter.apicurio.registry.use-id": "contentId",
            f"{part}.converter.apicurio.registry.headers.enabled": "false",
            # This converter caches schemas by their names only, and fails at the next schema of the same name.
            f"{part}.converter.schemas.cache.config": "0",
        }
    return {**settings, "schema.name.adjustment.mode": "avro"}


class _Twins:
    """Two connectors on the same database, one for JSON and one for Avro, and a collection for each."""

    def __init__(
        self, root: Path, broker: Broker, postgres: Postgres, connect: Connect, registry: Registry, database: str
    ) -> None:
        self.broker, self.postgres, self.connect, self.database = broker, postgres, connect, database
        with_schema = {"key.converter.schemas.enable": "true", "value.converter.schemas.enable": "true"}
        block = {"framing": "reclock", "envelope": "debezium", "source": "kafka", "key": "id", "evolution": "additive"}
        avro = {"format": "avro", "encoding": "confluent"}
        document: dict[str, Any] = {"store": "store", "data_docs": "docs", "collections": {}}
        for name, converters, form in (
            ("json", with_schema, {"format": "json"}),
            ("avro", _avro_converters(registry), avro),
        ):
            settings = debezium_settings(postgres, database, f"{database}_{name}", table_include_list="public.boats")
            own = {"slot.name": f"{database}_{name}", "publication.name": f"{database}_{name}"}
            connect.put(f"{database}_{name}", {**settings, **own, **converters})
            document["collections"][name] = {**block, **form, "topic": f"{database}_{name}.public.boats"}
        document["kafka"] = {"bootstrap_servers": broker.bootstrap_servers}
        document["registry"] = {"url": registry.url, "cache": "cache"}
        file = root / "collections.yaml"
        file.write_text(yaml.safe_dump(document), encoding="utf-8")
        self.settings = load_settings(file)

    def work(self, *statements: str) -> None:
        with self.postgres.connect(self.database) as session:
            for statement in statements:
                session.execute(statement.encode())

    def wait_for(self, records: int) -> None:
        """Wait until both topics have this many records."""
        end = time.monotonic() + WAIT_S
        topics = [collection.topic for collection in self.settings.collections]
        while True:
            existing = set(self.broker.admin.list_topics(timeout=WAIT_S).topics)
            counts = [
                sum(high for _, high in self.broker.ends(topic).values()) if topic in existing else 0
                for topic in topics
            ]
            if min(counts) >= records:
                return
            for topic in topics:
                self.connect.wait_until_running(topic.partition(".")[0])
            assert time.monotonic() < end, f"{topics} have {counts} records, not {records}"
            time.sleep(0.2)

    def rows(self, spark: SparkSession, *columns: str) -> list[list[tuple[Any, ...]]]:
        """Ingest, and return the contents of both collections."""
        report = ingest.run(spark, self.settings)
        assert not report.errors, report.errors
        catalog = Catalog(Store(self.settings.store))
        contents = []
        for name in ("json", "avro"):
            frame = snapshot(spark, catalog.find(name)).contents
            contents.append([tuple(row) for row in frame.select(*columns).orderBy("id").collect()])
        return contents


def test_debeziums_avro_and_json_end_in_equal_tables_that_get_the_databases_new_columns(
    tmp_path: Path, spark: SparkSession, broker: Broker, postgres: Postgres, connect: Connect, registry: Registry
) -> None:
    database = postgres.create_database()
    with postgres.connect(database) as session:
        session.execute("create table boats (id int primary key, name text, built date, price numeric(8,2))")
        session.execute("insert into boats values (1, 'Möwe', '1990-01-31', 12.5), (2, null, null, null)")
    twins = _Twins(tmp_path, broker, postgres, connect, registry, database)
    try:
        twins.wait_for(2)
        twins.work(
            "insert into boats select n, 'boat ' || n, date '2020-01-01' + n, n / 3.0 from generate_series(3, 40) n",
            "update boats set name = 'Albatros' where id = 2",
            "delete from boats where id % 7 = 0",
        )
        twins.wait_for(2 + 38 + 1 + 2 * 5)
        as_json, as_avro = twins.rows(spark, *_COLUMNS)
        assert as_json == as_avro and len(as_json) == 35
        twins.work(
            "alter table boats add column seen timestamptz",
            "alter table boats add column crew int not null default 3",
            "update boats set seen = '2026-01-31 12:00:00+00', crew = 5 where id < 4",
            "delete from boats where id = 5",
        )
        twins.wait_for(2 + 38 + 1 + 2 * 5 + 3 + 2)
        as_json, as_avro = twins.rows(spark, *_COLUMNS, "seen", "crew")
        with postgres.connect(database) as session:
            # The database gave the rows the new column's default, 3, but sent none of them again: the collections have
            # null there.
            held = session.execute("select id, name, built, price, seen, nullif(crew, 3) from boats").fetchall()
        assert as_json == as_avro
        assert [row[:4] for row in as_json] == sorted(row[:4] for row in held)
        assert [row[5] for row in as_json] == [row[5] for row in sorted(held)]
    finally:
        for name in ("json", "avro"):
            connect.remove(f"{database}_{name}")
        time.sleep(0.5)
        postgres.drop_database(database)
