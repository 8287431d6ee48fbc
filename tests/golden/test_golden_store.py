"""A store that an earlier version made is read and continued with the same results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.docs.conftest import one_session  # noqa: F401
from tests.golden.shown import EXPECTED, Shown, go_on, unpack
from tests.sweeps import swept

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("one_session")]

COLLECTIONS: dict[str, dict[str, Any]] = json.loads(EXPECTED.read_text(encoding="utf-8"))["collections"]
CONTINUED = ("upsert", "raw_debezium")
"""Continued every day: one CDCv2 collection and, of the reclocked ones, the one with the most tables."""
READ = ("debezium", "closed", "raw_append_only_avro", "raw_upsert_json")
"""Read every day: two CDCv2 collections, one of them closed, and two reclocked ones, in Avro and in JSON."""


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store as the earlier version left it, for tests that only read."""
    return unpack(tmp_path_factory.mktemp("golden"))


@pytest.mark.parametrize("name", swept(COLLECTIONS, READ))
def test_a_collection_of_an_earlier_version_is_read_with_the_same_results(untouched: Path, name: str) -> None:
    expected = COLLECTIONS[name]
    assert Shown(untouched, name, expected["folder"]).everything() == expected["before"]


@pytest.mark.parametrize("name", swept(COLLECTIONS, CONTINUED))
def test_a_collection_of_an_earlier_version_continues_with_the_same_results(
    tmp_path: Path, spark: SparkSession, name: str
) -> None:
    expected = COLLECTIONS[name]
    config = unpack(tmp_path)
    done, jobs = go_on(config, name, expected["decisions"]), expected["jobs"]
    # The first run publishes at the new path, even if the table of the earlier version was up to date.
    jobs["current"] |= {"rebuilt": jobs["current"]["rebuilt"] if not jobs["current"]["rows"] else True}
    assert done == jobs
    minted = [row["time"] for row in expected["before"]["times"] or []]
    assert Shown(config, name, expected["folder"], minted, words=False).everything() == expected["after"]
