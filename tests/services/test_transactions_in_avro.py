"""The same transactions in JSON and in Avro with a registry: the tables are equal at every time."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import fastavro
import pytest
import yaml
from pyspark.sql import SparkSession

from tests.captures.bank import BANK, RECORDS
from tests.captures.bank_lake import MARKS, BankLake, Lines, captured
from tests.services.registry import Registry
from tidelake.errors import ConfigurationError
from tidelake.read.changes import changes
from tidelake.read.status import read_status
from tidelake.settings.lake import load_settings
from tidelake.topic.open import open_topics

pytestmark = [pytest.mark.services, pytest.mark.spark]

_SOURCE: dict[str, Any] = {"connector": "string", "lsn": ["null", "long"], "sequence": ["null", "string"]}
_SOURCE |= {"snapshot": ["null", "string"], "schema": "string", "table": "string"}
_BLOCK = {"id": "string", "total_order": "long", "data_collection_order": "long"}
_COUNT = {"data_collection": "string", "event_count": "long"}


def record(name: str, fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": key, "type": kind} for key, kind in fields.items()]}


def event_schema(table: str) -> dict[str, Any]:
    fields: dict[str, Any] = {"before": ["null", RECORDS[table]], "after": ["null", RECORDS[table]["name"]]}
    fields |= {"source": record("Source", _SOURCE), "transaction": ["null", record("block", _BLOCK)]}
    return record("Envelope", fields | {"op": "string", "ts_ms": ["null", "long"]})


END = record(
    "TransactionMetadataValue",
    {"status": "string", "id": "string", "event_count": ["null", "long"]}
    | {"data_collections": ["null", {"type": "array", "items": record("collection", _COUNT)}], "ts_ms": "long"},
)


def framed(schema_id: int, schema: Any, value: Any) -> str:
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(schema), value)
    return base64.b64encode(b"\0" + schema_id.to_bytes(4, "big") + body.getvalue()).decode()


def in_avro(lines: Lines, registry: Registry) -> dict[str, dict[int, list[str]]]:
    """The topics, with each value as Debezium's Avro converter writes it."""
    schemas = {f"shop.public.{table}": event_schema(table) for table in BANK} | {MARKS: END}
    ids = {topic: registry.register(f"{topic}-value", schema) for topic, schema in schemas.items()}

    def encode(topic: str, line: str) -> str:
        message = json.loads(line)
        value = message.pop("value")
        if value is None:
            return json.dumps(message | {"value": None})
        if value.get("before") is not None:
            # A column that was not logged has the default of its type.
            empty = {"string": "", "long": 0, "int": 0}
            types = {field["name"]: field["type"] for field in RECORDS[topic.rpartition(".")[2]]["fields"]}
            value["before"] = {
                name: empty[kind] if value["before"].get(name) is None else value["before"][name]
                for name, kind in types.items()
            }
        return json.dumps({**message, "key": None, "value_b64": framed(ids[topic], schemas[topic], value)})

    return {
        topic: {partition: [encode(topic, line) for line in some] for partition, some in partitions.items()}
        for topic, partitions in lines.items()
    }


@pytest.mark.sweep
def test_debezium_in_avro_gives_the_same_tables_at_every_time(
    tmp_path: Path, spark: SparkSession, registry: Registry
) -> None:
    for folder in ("json", "avro"):
        (tmp_path / folder).mkdir()
    with pytest.raises(ConfigurationError, match="is neither 'json' nor Avro with a registry"):
        BankLake(tmp_path / "refused", spark, format="avro")
    plain, lake = BankLake(tmp_path / "json", spark), BankLake(tmp_path / "avro", spark)
    document = yaml.safe_load(lake.file.read_text(encoding="utf-8"))
    document["registry"] = {"url": registry.url, "cache": "cache"}
    for block in document["collections"].values():
        block |= {"format": "avro", "encoding": "confluent"}
    lake.file.write_text(yaml.safe_dump(document, allow_unicode=True), encoding="utf-8")
    lake.settings = load_settings(lake.file)
    lines = captured()
    plain.send(lines)
    plain.run()
    written = in_avro(lines, registry)
    # The last END comes late: the status decodes the events that wait for it, and names their transaction.
    ends, last = written[MARKS][0], max(place for place, line in enumerate(lines[MARKS][0]) if "wallets" in line)
    lake.send(written | {MARKS: {0: ends[:last]}})
    lake.run()
    settings = lake.settings.collection("wallets")
    status = read_status(lake.collection("wallets"), open_topics(settings), settings=settings)
    assert json.loads(lines[MARKS][0][last])["value"]["id"].partition(":")[0] in status.sentence
    lake.send({MARKS: {0: ends[last:]}})
    lake.run()
    for table in BANK:
        upper = plain.upper(table)
        assert lake.upper(table) == upper
        both = [changes(spark, each.collection(table), 0, upper - 1).updates.collect() for each in (plain, lake)]
        assert len(both[0]) > 50 and sorted(map(tuple, both[0])) == sorted(map(tuple, both[1]))
