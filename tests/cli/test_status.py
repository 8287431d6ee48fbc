"""`tidelake status` shows numbers and states, and does not start a JVM."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.commands import call, invoke, run
from tests.golden.shown import unpack
from tests.lakes.lake import Lake
from tidelake.errors import ConfigurationError, TidelakeError


def test_status_says_that_a_collection_is_not_ingested_yet_or_does_not_exist(tmp_path: Path) -> None:
    (tmp_path / "topics" / "t").mkdir(parents=True)
    schema = {"type": "record", "name": "data", "fields": [{"name": "id", "type": "long"}]}
    block = {"family": "plain", "topic": "t", "schema": schema}
    (tmp_path / "collections.yaml").write_text(json.dumps({"topics": "topics", "collections": {"one": block}}))
    assert "not ingested yet" in run("status", cwd=tmp_path).stdout
    assert json.loads(run("status", "--json", cwd=tmp_path).stdout) == {"collections": {"one": None}, "orphaned": []}
    unknown = run("status", "two", cwd=tmp_path)
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert "there is no collection of this name" in unknown.stderr
    assert "use one of: one" in unknown.stderr
    nothing = run("status", cwd=tmp_path / "topics")
    assert nothing.returncode == 2
    assert "collections.yaml" in nothing.stderr


@pytest.mark.parametrize("option", ["--json", "--check"])
def test_watch_refuses_what_it_would_ignore(tmp_path: Path, option: str) -> None:
    (tmp_path / "collections.yaml").write_text("collections: {}\n")
    done = run("status", "--watch", option, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"--watch and {option} cannot be combined" in done.stderr


def test_status_does_not_start_a_jvm_or_import_spark(tmp_path: Path) -> None:
    (tmp_path / "collections.yaml").write_text("collections: {}\n")
    code = (
        "import sys; sys.argv = ['tidelake', 'status', '--json']\n"
        "from tidelake.cli.app import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print([name for name in ('pyspark', 'dagster', 'great_expectations') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.spark
@pytest.mark.sweep
def test_status_of_a_proven_collection_does_not_import_pandas(contradicted: Lake) -> None:
    code = (
        f"import sys; sys.argv = ['tidelake', 'status', '--config', {str(contradicted.file)!r}]\n"
        "from tidelake.cli.app import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print([name for name in ('pandas', 'fastavro', 'pyarrow.dataset', 'obstore') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "held back at time 3" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"


def test_status_never_imports_pandas_and_help_imports_no_engine(tmp_path: Path) -> None:
    config = unpack(tmp_path)
    status = _imported("status", "--config", str(config))
    assert "pyarrow.lib" in status
    assert not {"pandas.core", "pyspark"} & status  # an import that was refused is listed, too
    helped = _imported("--help")
    assert "tidelake.cli.app" in helped
    assert not {"pyarrow", "pydantic", "deltalake", "duckdb"} & helped


def _imported(*arguments: str) -> set[str]:
    command = [sys.executable, "-X", "importtime", "-m", "tidelake.cli", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in {0, 1}, done.stderr
    return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}


def test_reading_a_store_does_not_import_the_logging_library() -> None:
    code = "import sys, tidelake.read.status; print('structlog' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.spark
def test_an_invalid_block_does_not_hide_the_other_collections(contradicted: Lake) -> None:
    config = ("--config", str(contradicted.file))
    document = yaml.safe_load(contradicted.file.read_text("utf-8"))
    document["collections"]["visits"] = {"family": "plein", "topic": "visits"}
    contradicted.file.write_text(yaml.safe_dump(document), encoding="utf-8")
    shown = invoke("status", *config)
    assert shown.exit_code == 1
    assert "held back at time 3" in shown.stdout
    assert "visits: its settings are invalid" in shown.stdout
    assert "collections.visits.family: input should be" in " ".join(shown.stderr.split())
    assert "contradicted" in call("explain", "prices", *config)
    with pytest.raises(ConfigurationError, match=r"collections\.visits\.family"):
        call("explain", "visits", *config)
    with pytest.raises(ConfigurationError, match=r"collections\.visits\.family"):
        call("seal", "prices", *config)  # a command that writes refuses invalid settings
    assert "its settings are invalid" in invoke("status", "visits", *config).stdout
    metrics = invoke("metrics", *config).stdout
    assert 'tidelake_collection_readable{collection="visits"} 0' in metrics
    assert 'tidelake_needs_somebody{collection="visits"} 1' in metrics


@pytest.mark.spark
def test_a_contradiction_is_shown_until_it_is_decided(contradicted: Lake) -> None:
    config = ("--config", str(contradicted.file))
    shown: dict[str, Any] = json.loads(invoke("status", "--json", *config).stdout)["collections"]["prices"]
    assert (shown["upper"], shown["pending"], shown["quarantine"], shown["lag_messages"]) == (3, 2, 1, 0)
    assert [(contradiction["time"], contradiction["decided"]) for contradiction in shown["contradictions"]] == [
        (3, False)
    ]
    assert (shown["state"], shown["waits_for"]) == ("held back at time 3", "a decision about time 3")
    table = invoke("status", *config)
    assert table.exit_code == 1
    assert shown["state"] in table.stdout
    decided = json.loads(
        call("resolve", "count", "prices", "--time", "3", "--count", "2", "--reason", "both", "--json", *config)
    )
    assert decided["decisions"][0]["reason"] == "both"
    contradicted.run()
    after = json.loads(call("status", "--json", *config))["collections"]["prices"]
    assert (after["upper"], after["contradictions"]) == (9, [])
    assert (after["state"], after["waits_for"]) == ("in order", None)
    assert after["sealed_by_decision"] == [{"time": 3, "announced": 2, "reason": "both"}]
    assert "sealed by decision: time 3: both" in call("status", *config)
    with pytest.raises(TidelakeError, match="time 3 of 'prices' is already sealed"):
        call("resolve", "count", "prices", "--time", "3", "--count", "1", "--reason", "again", *config)
