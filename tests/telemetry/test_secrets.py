"""Passwords and keys that a run uses, or has in its environment, appear in nothing that the run leaves behind."""

from __future__ import annotations

import io
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import fastavro
import pytest
import yaml

from tests.docs.blocks import PROJECT
from tests.lakes.lake import RECORD, progress, updates
from tests.services.kafka import PASSWORD, USER, Broker, Record
from tests.services.registry import Registry
from tests.telemetry.artefacts import files_below, found_in, run_watched
from tests.telemetry.collector import collecting

_VISIT: dict[str, Any] = {"type": "record", "name": "visit", "fields": [{"name": "page", "type": "string"}]}
SECRETS = {
    "KAFKA_PASSWORD": PASSWORD,
    "REGISTRY_PASSWORD": "planted-registry-5f0c2e",
    "AWS_ACCESS_KEY_ID": "AKIAPLANTED5F0C2E",
    "AWS_SECRET_ACCESS_KEY": "planted/aws+secret/5f0c2e",
    "AWS_SESSION_TOKEN": "planted-session-5f0c2e",
    "OTLP_TOKEN": "planted-otlp-5f0c2e",
}
WRONG = "a wrong but planted one 5f0c2e"


def test_the_search_finds_a_secret_however_it_is_written(tmp_path: Path) -> None:
    quoted = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
    written = {
        "plain": PASSWORD.encode(),
        "jaas": f'password="{quoted}";'.encode(),
        "json": yaml.safe_dump({"jaas": quoted}, default_style='"').encode(),
        "basic": b"Basic dGlkZWxha2U6cGxhbnRlZC1yZWdpc3RyeS01ZjBjMmU=",
    }
    for name, content in written.items():
        (tmp_path / name).write_bytes(b"before " + content + b" after")
    (tmp_path / "none").write_bytes(b"no secret at all")
    assert found_in(files_below(tmp_path), SECRETS, USER) == {
        *(f"{tmp_path / name}: KAFKA_PASSWORD" for name in ("plain", "jaas", "json")),
        f"{tmp_path / 'basic'}: REGISTRY_PASSWORD",
    }


@pytest.mark.spark
@pytest.mark.services
@pytest.mark.sweep
def test_no_artefact_of_a_run_contains_a_secret(broker: Broker, registry: Registry, tmp_path: Path) -> None:
    prices, visits = broker.create_topic(), broker.create_topic()
    broker.produce(prices, [Record(progress([0], [3], {1: 1, 2: 1})), Record(updates((1, 1, 1), (2, 2, 1)))])
    schema_id = registry.register(f"{visits}-value", _VISIT)
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(_VISIT), {"page": "index"})
    broker.produce(visits, [Record(b"\0" + schema_id.to_bytes(4, "big") + body.getvalue()), Record(b"garbage")])
    artefacts = tmp_path / "artefacts"
    home, events, metrics, conf = (artefacts / name for name in ("dagster", "events", "metrics", "conf"))
    for folder in (home, events, metrics, conf):
        folder.mkdir(parents=True)
    shutil.copy(PROJECT / "orchestration" / "dagster.yaml", home)
    # Spark's event log has the plans of all queries, and all settings of Spark.
    (conf / "spark-defaults.conf").write_text(
        f"spark.eventLog.enabled true\nspark.eventLog.compress false\nspark.eventLog.dir file://{events}\n"
    )
    document = {
        "store": "store",
        "data_docs": "docs",
        "kafka": {
            "bootstrap_servers": broker.secure_bootstrap_servers,
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "SCRAM-SHA-512",
            "sasl_username": USER,
            "sasl_password": {"env": "KAFKA_PASSWORD"},
            "ssl_ca_file": str(broker.certificate),
            "request_timeout_s": 20,
        },
        "registry": {"url": registry.url, "username": USER, "password": {"env": "REGISTRY_PASSWORD"}, "cache": "cache"},
        "collections": {
            "prices": {"family": "plain", "topic": prices, "source": "kafka", "schema": RECORD},
            "visits": {
                "framing": "reclock", "envelope": "append_only", "topic": visits, "source": "kafka",
                "format": "avro", "encoding": "confluent", "schema": _VISIT,
            },
        },
    }  # fmt: skip
    config = artefacts / "collections.yaml"
    config.write_text(yaml.safe_dump(document), encoding="utf-8")
    logs = {path: path.stat().st_size for path in (PROJECT / ".logs").glob("*") if path.is_file()}
    with collecting() as collector:
        environment = os.environ | SECRETS
        del environment["OTLP_TOKEN"]
        environment |= {
            "PYTHONPATH": f"{PROJECT / 'src'}:{PROJECT}",
            "SPARK_CONF_DIR": str(conf),
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer%20{SECRETS['OTLP_TOKEN']}",
            "TIDELAKE_METRICS_FOLDER": str(metrics),
            "TIDELAKE_LOG_FORMAT": "json",
            "TIDELAKE_LOG_FILE": str(artefacts / "tidelake.log"),
        }
        command = [sys.executable, "-m", "tests.telemetry.scheduled_run", str(config), str(home)]
        good = run_watched(command, environment, PROJECT)
        command = [sys.executable, "-m", "jobs.ingest", "--config", str(config)]
        refused = run_watched(command, environment | {"KAFKA_PASSWORD": WRONG}, PROJECT)
        command = [sys.executable, "-m", "tidelake.cli", "status", "--json", "--config", str(config)]
        status = run_watched(command, environment | {"KAFKA_PASSWORD": WRONG}, PROJECT)
    assert (good.status, refused.status) == (0, 1), (good.stderr[-4000:], refused.stderr[-4000:])
    contents = [*files_below(artefacts)]
    for name, run in {"good": good, "refused": refused, "status": status}.items():
        contents += [(f"{name}, stdout", run.stdout), (f"{name}, stderr", run.stderr)]
        contents += [(f"{name}, process list", command.encode()) for command in run.commands]
    contents += [(path, body) for path, body in collector.bodies]
    contents += [
        (str(path), path.read_bytes()[logs.get(path, 0) :]) for path in (PROJECT / ".logs").glob("*") if path.is_file()
    ]
    everything = b"".join(content for _, content in contents)
    # The run used its secrets, and left every kind of artefact.
    assert collector.authorizations == {f"Bearer {SECRETS['OTLP_TOKEN']}"}
    assert {path for path, _ in collector.bodies} == {"/v1/traces", "/v1/metrics"}
    assert any("java" in command for command in good.commands)
    assert b"SparkListenerSQLExecutionStart" in everything and prices.encode() in everything
    assert b"cannot be read from" in refused.stdout
    for pattern in ("dagster/**/*.db", "docs/**/index.html", "metrics/*.prom", "events/**/*", "tidelake.log"):
        assert list(artefacts.glob(pattern)), pattern
    assert found_in(contents, SECRETS | {"wrong": WRONG}, USER) == set()
