"""The `kafka` block: its settings, errors that name what is refused, and the refusal of secrets in plain text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tidelake.errors import ConfigurationError
from tidelake.settings.kafka import KafkaSettings
from tidelake.settings.lake import load_settings
from tidelake.settings.secret import Secret

RECORD = {"type": "record", "name": "data", "fields": [{"name": "id", "type": "long"}]}
ORDERS = {"family": "plain", "source": "kafka", "topic": "orders", "schema": RECORD}
SASL = {
    "bootstrap_servers": "b:1",
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "PLAIN",
    "sasl_username": "u",
    "sasl_password": {"env": "PASSWORD"},
}


def load(folder: Path, kafka: Any, collection: dict[str, Any] | None = None) -> KafkaSettings | None:
    document = {"collections": {"orders": ORDERS if collection is None else collection}}
    document |= {} if kafka is None else {"kafka": kafka}
    file = folder / "collections.yaml"
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    return load_settings(file).collection("orders").kafka


def test_a_collection_in_kafka_knows_its_cluster_and_a_collection_in_files_does_not(tmp_path: Path) -> None:
    settings = load(tmp_path, {**SASL, "ssl_ca_file": "ca.pem", "monitoring_group": "lake"})
    assert settings is not None
    assert (settings.ssl_ca_file, settings.sasl_password) == (tmp_path / "ca.pem", Secret(env="PASSWORD"))
    assert (settings.request_timeout_s, settings.uses_sasl, settings.uses_tls) == (30, True, True)
    from_file = load(tmp_path, {**SASL, "sasl_password": {"file": "secret"}})
    assert from_file is not None and from_file.sasl_password == Secret(file=tmp_path / "secret")
    in_files = {**ORDERS, "source": "files"}
    assert load(tmp_path, {"bootstrap_servers": "b:1"}, in_files) is None


@pytest.mark.parametrize(
    ("kafka", "field", "problem"),
    [
        (None, "collections.orders.source", "no cluster is given"),
        ("b:1", "kafka", "is not a mapping"),
        ({}, "kafka.bootstrap_servers", "is missing"),
        ({"bootstrap_servers": ""}, "kafka.bootstrap_servers", "at least 1 character"),
        ({"bootstrap_servers": "b:1", "sasl.jaas.config": "x"}, "kafka.sasl.jaas.config", "is not a known key"),
        ({"bootstrap_servers": "b:1", "request_timeout_s": 0}, "kafka.request_timeout_s", "not 0"),
        ({**SASL, "security_protocol": "TLS"}, "kafka.security_protocol", "not 'TLS'"),
        ({**SASL, "sasl_mechanism": "GSSAPI"}, "kafka.sasl_mechanism", "not 'GSSAPI'"),
        ({**SASL, "security_protocol": "sasl_ssl"}, "kafka.security_protocol", "'SASL_SSL', not 'sasl_ssl'"),
        ({**SASL, "sasl_mechanism": "plain"}, "kafka.sasl_mechanism", "'PLAIN', 'SCRAM-SHA-256' or 'SCRAM-SHA-512', n"),
        ({"bootstrap_servers": "a"}, "kafka.bootstrap_servers", "contains 'a', which is not host:port"),
        ({"bootstrap_servers": "b:1,c"}, "kafka.bootstrap_servers", "contains 'c', which is not host:port"),
        ({"bootstrap_servers": "b:1,"}, "kafka.bootstrap_servers", "contains '', which is not host:port"),
        ({"bootstrap_servers": "b c:1"}, "kafka.bootstrap_servers", "contains 'b c:1', which is not host:port"),
        ({"bootstrap_servers": "b:65536"}, "kafka.bootstrap_servers", "not host:port"),
        ({"bootstrap_servers": "::1:9092"}, "kafka.bootstrap_servers", "not host:port"),
        ({**SASL, "sasl_username": None}, "kafka.sasl_username", "is required for SASL_SSL"),
        ({**SASL, "security_protocol": "SSL"}, "kafka.sasl_mechanism", "has no effect for SSL"),
        ({**SASL, "security_protocol": "SASL_PLAINTEXT", "ssl_ca_file": "x"}, "kafka.ssl_ca_file", "has no effect for"),
        ({**SASL, "ssl_key_file": "x"}, "kafka.ssl_key_file", "must be set together"),
        ({**SASL, "sasl_password": {"env": ""}}, "kafka.sasl_password", "does not say where the secret"),
        ({**SASL, "sasl_password": {"env": "A", "file": "b"}}, "kafka.sasl_password", "does not say where the secret"),
        ({**SASL, "sasl_password": {"env": 5}}, "kafka.sasl_password", "does not say where the secret"),
    ],
)
def test_a_setting_that_does_not_fit_is_refused_and_named(tmp_path: Path, kafka: Any, field: str, problem: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(tmp_path, kafka)
    assert caught.value.field == field
    assert problem in caught.value.problem


CLEAR = {**SASL, "security_protocol": "SASL_PLAINTEXT"}


def test_a_password_in_the_clear_goes_to_no_other_machine_unless_the_settings_allow_it(tmp_path: Path) -> None:
    for servers in ("b:1", "127.0.0.1:1,10.0.0.1:1", "SASL_PLAINTEXT://localhost.b:1"):
        with pytest.raises(ConfigurationError, match=r"(?s)PLAIN would send the password to .*`kafka:`") as caught:
            load(tmp_path, {**CLEAR, "bootstrap_servers": servers})
        assert (caught.value.field, "line " in caught.value.file) == ("kafka.security_protocol", True)
    for more in (
        {"allow_plaintext_password": True},
        {"bootstrap_servers": "127.0.0.1:1,localhost:2,[::1]:3"},
        {"sasl_mechanism": "SCRAM-SHA-256"},
    ):
        assert load(tmp_path, {**CLEAR, **more}) is not None
    for kafka in (SASL, {**CLEAR, "sasl_mechanism": "SCRAM-SHA-256"}, {"bootstrap_servers": "b:1"}):
        with pytest.raises(ConfigurationError, match="allow_plaintext_password: has no effect"):
            load(tmp_path, {**kafka, "allow_plaintext_password": True})


def test_servers_may_be_written_in_every_way_that_clients_understand(tmp_path: Path) -> None:
    servers = "kafka-1.shop:9092, 10.0.0.1:9093,[::1]:9094,SASL_SSL://b_2:65535"
    settings = load(tmp_path, {"bootstrap_servers": servers})
    assert settings is not None and settings.bootstrap_servers == servers


def test_a_secret_in_plain_text_is_refused_and_not_repeated(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"kafka\.sasl_password: is a secret in plain text") as caught:
        load(tmp_path, {**SASL, "sasl_password": "hunter2"})
    assert "hunter2" not in str(caught.value)
    with pytest.raises(
        ConfigurationError, match=r"kafka\.sasl_password: is empty\nhint: write `{env: NAME_OF_A_VARIABLE}`"
    ):
        load(tmp_path, {**SASL, "sasl_password": None})
