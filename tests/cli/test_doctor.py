"""`tidelake doctor`: each check, with what to do, and an exit status for programs."""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from tests.lakes.lake import NAME, Lake, progress, updates
from tests.services.kafka import Broker
from tests.services.process import free_ports
from tests.services.registry import Registry
from tidelake.catalog.catalog import Catalog
from tidelake.cli.app import app
from tidelake.cli.doctor import machine
from tidelake.settings.lake import load_settings
from tidelake.storage import blobs
from tidelake.store.layout import Store

RECORD = {"type": "record", "name": "data", "fields": [{"name": "id", "type": "long"}]}


def checks(config: Path) -> tuple[int, dict[str, dict[str, Any]], list[str]]:
    """The exit status, the last finding of each check, and the facts of all failures."""
    done = CliRunner().invoke(app, ["doctor", "--json", "--config", str(config)])
    report = json.loads(done.stdout)
    assert report["ok"] == (done.exit_code == 0)
    failures = [finding["fact"] for finding in report["checks"] if finding["level"] == "fail"]
    return done.exit_code, {finding["check"]: finding for finding in report["checks"]}, failures


def written(root: Path, **document: Any) -> Path:
    """A `collections.yaml` with these keys."""
    file = root / "collections.yaml"
    file.write_text(yaml.safe_dump({"topics": "topics", "store": "store", **document}), encoding="utf-8")
    return file


def test_a_machine_that_is_ready_passes_every_check(tmp_path: Path) -> None:
    (tmp_path / "topics" / "orders").mkdir(parents=True)
    (tmp_path / "topics" / "orders" / "0.jsonl").write_text('{"offset": 0, "value": "a"}\n', encoding="utf-8")
    block = {"family": "plain", "topic": "orders", "schema": RECORD}
    status, found, failures = checks(written(tmp_path, collections={"orders": block}))
    assert (status, failures) == (0, [])
    assert set(found) == {
        "packages", "java", "jars", "temporary space", "port", "logs", "settings", "store", "disk", "clock",
        "topic orders",
    }  # fmt: skip
    assert found["topic orders"]["fact"] == "1 partition, 1 offset"
    assert found["settings"]["fact"].endswith("1 collection")
    assert not (tmp_path / "store").exists()


def test_a_block_for_s3_that_only_commands_use_is_mentioned(tmp_path: Path) -> None:
    _, found, failures = checks(written(tmp_path, s3={"region": "eu-west-1"}))
    assert (found["s3"]["fact"].partition(";")[0], failures) == ("no folder of the lake is in S3", [])


def test_all_problems_of_the_settings_are_listed(tmp_path: Path) -> None:
    (tmp_path / "topics" / "orders").mkdir(parents=True)
    good = {"family": "plain", "topic": "orders", "schema": RECORD}
    collections = {
        "orders": {**good, "kep": "all"},
        "visits": {**good, "family": "append_onl"},
        "gone": {**good, "topic": "gone"},
        "good": good,
    }
    file = written(tmp_path, stor="x", kafka={"bootstrap_servers": "nohost"}, collections=collections)
    status, found, failures = checks(file)
    assert status == 1
    problems = [
        "stor: is not",
        "kafka.bootstrap_servers: contains",
        "orders.kep: is",
        "visits.family: ",
        "gone.topic: ",
    ]
    assert len(failures) == len(problems)
    for problem in problems:
        assert any(problem in fact for fact in failures), problem
    assert found["topic orders"]["level"] == "warn"


def test_a_store_whose_setting_is_refused_is_not_looked_for_elsewhere(tmp_path: Path) -> None:
    _, found, failures = checks(written(tmp_path, store="gs://bucket/lake"))
    assert len(failures) == 1 and "scheme 'gs'" in failures[0]
    assert "store" not in found and "disk" not in found


@pytest.mark.parametrize(
    ("text", "fact"),
    [("collections: [", "line 1"), ("- a", "is not a YAML mapping"), ("collections: 3", "is not a mapping of names")],
)
def test_a_file_without_settings_is_one_failure(tmp_path: Path, text: str, fact: str) -> None:
    file = tmp_path / "collections.yaml"
    file.write_text(text, encoding="utf-8")
    status, _, failures = checks(file)
    assert status == 1
    assert len(failures) == 1
    assert fact in failures[0]


def test_without_settings_the_machine_is_still_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    status, found, _ = checks(Path("collections.yaml"))
    assert status == 0
    assert found["settings"]["level"] == "warn"
    assert "tidelake init" in found["settings"]["hint"]
    status, _, failures = checks(tmp_path / "elsewhere.yaml")
    assert status == 1
    assert "cannot be read" in failures[0]


def test_a_missing_or_outdated_java_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert "cannot be started" in next(found for found in machine.machine_findings() if found.check == "java").fact
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_402\"' >&2\n", encoding="utf-8")
    java.chmod(0o755)
    found = next(found for found in machine.machine_findings() if found.check == "java")
    assert (found.level, found.fact) == ("fail", f"{java} is Java 1.8.0_402, but Spark needs 17 or 21")


def test_jars_that_are_missing_or_changed_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDELAKE_HOME", str(tmp_path))

    def jars() -> tuple[str, str]:
        found = next(found for found in machine.machine_findings() if found.check == "jars")
        return found.level, found.fact

    assert jars()[0] == "warn"
    (tmp_path / ".jars").mkdir()
    (tmp_path / ".jars" / "delta-storage-4.4.0.jar").write_bytes(b"changed")
    level, fact = jars()
    assert level == "fail"
    assert fact.startswith("io.delta:delta-storage:4.4.0 has sha256")


def test_a_busy_port_and_a_full_disk_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        monkeypatch.setattr(machine, "_PORT", busy.getsockname()[1])
        assert next(found for found in machine.machine_findings() if found.check == "port").level == "warn"
    assert machine.disk_space("disk", tmp_path / "not" / "yet").level in ("ok", "warn")
    monkeypatch.setattr(machine, "_FREE_BYTES_MIN", 10**18)
    assert machine.disk_space("disk", tmp_path).level == "fail"
    scratch = next(found for found in machine.machine_findings() if found.check == "temporary space")
    assert scratch.level == "fail" and "SPARK_LOCAL_DIRS" in (scratch.hint or "")


def test_a_store_that_cannot_be_written_and_a_clock_that_is_wrong_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(tmp_path, store="/proc/tidelake/store")
    assert any("/proc" in fact for fact in checks(file)[2])
    now = time.time()
    for ahead_s, level in ((0.0, "ok"), (30.0, "warn"), (3_600.0, "fail")):
        monkeypatch.setattr(time, "time", lambda ahead_s=ahead_s: now + ahead_s)
        assert checks(written(tmp_path))[1]["clock"]["level"] == level


def test_servers_that_do_not_answer_are_reported_once(tmp_path: Path) -> None:
    [port] = free_ports(1)
    block = {"family": "plain", "topic": "orders", "schema": RECORD, "source": "kafka"}
    file = written(
        tmp_path,
        kafka={"bootstrap_servers": f"127.0.0.1:{port}", "request_timeout_s": 1},
        registry={"url": f"http://127.0.0.1:{port}"},
        collections={"orders": block, "others": block},
    )
    status, found, failures = checks(file)
    assert status == 1
    assert len(failures) == 2
    assert found["registry"]["level"] == found[f"broker 127.0.0.1:{port}"]["level"] == "fail"


@pytest.mark.services
def test_servers_and_topics_that_answer_pass(tmp_path: Path, broker: Broker, registry: Registry) -> None:
    topic = broker.create_topic()
    block = {"family": "plain", "topic": topic, "schema": RECORD, "source": "kafka"}
    file = written(
        tmp_path,
        kafka={"bootstrap_servers": broker.bootstrap_servers},
        registry={"url": registry.url},
        collections={"orders": block, "gone": {**block, "topic": f"{topic}-gone"}},
    )
    _, found, failures = checks(file)
    assert found["registry"]["level"] == "ok"
    assert found[f"topic {topic}"]["fact"] == "has no messages yet"
    assert [f"no topic '{topic}-gone'" in fact for fact in failures] == [True]


def test_a_collection_without_a_name_is_reported(tmp_path: Path) -> None:
    (tmp_path / "topics" / "orders").mkdir(parents=True)
    block = {"family": "plain", "topic": "orders", "schema": RECORD}
    file = written(tmp_path, collections={"orders": block, "visits": block})
    settings = load_settings(file)
    catalog = Catalog(Store(settings.store))
    folders = [catalog.open_or_create(each.spec()).paths.root for each in settings.collections]
    assert "names" not in checks(file)[1]
    blobs.delete_folder(catalog.store.names / "orders")
    _, found, failures = checks(file)
    assert found["collection visits"]["level"] == "ok"
    assert len(failures) == 2 and all("names/orders is damaged: it is missing" in fact for fact in failures)
    blobs.delete(catalog.store.bound_names / "orders")
    _, found, failures = checks(file)
    assert found["names"]["fact"] == f"no name leads to 1 of the store's collections, such as {folders[0]}"
    assert len(failures) == 1


@pytest.mark.spark
def test_tables_that_open_and_tables_that_are_damaged_are_told_apart(lake: Lake) -> None:
    lake.send(updates((1, 1, 1)), progress([0], [2], {1: 1}))
    lake.run()
    assert checks(lake.file)[1][f"collection {NAME}"]["fact"] == "can be opened; upper is 2"
    text = lake.file.read_text(encoding="utf-8")
    lake.file.write_text(text.replace("family: plain", "family: append_only"), encoding="utf-8")
    assert checks(lake.file)[1][f"collection {NAME}"]["level"] == "fail"
    lake.file.write_text(text, encoding="utf-8")
    for file in lake.table.files():
        os.remove(lake.collection.paths.updates.local / file.path)
    found = checks(lake.file)[1][f"collection {NAME}"]
    assert found["level"] == "fail"
    assert found["hint"] == f"run `tidelake repair {NAME}`"
