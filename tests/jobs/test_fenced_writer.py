"""A job whose writer was shut out by a fence writes nothing, however often it is started."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from jobs import compact, current, ingest, seal, validate
from tests.lakes.lake import NAME, Lake, progress, updates
from tidelake import open_lake
from tidelake.errors import WriterFenced

pytestmark = pytest.mark.spark


def test_every_job_of_a_fenced_writer_is_refused_until_the_writer_is_let_in_again(
    lake: Lake, spark: SparkSession
) -> None:
    old, new = (lake.settings.model_copy(update={"writer": name}) for name in ("old", "new"))
    lake.settings = old
    lake.send(updates((1, 1, 1)), progress([0], [2], {1: 1}))
    assert lake.run().upper == 2
    collection = open_lake(lake.file).collection(NAME)
    assert collection.fence("new") == 1
    lake.send(updates((2, 2, 1)), progress([2], [3], {2: 1}))
    version = lake.table.version
    for job in (ingest.run, seal.run, validate.run, compact.run, current.run):
        report = job(spark, old)
        assert isinstance(report.errors[NAME], WriterFenced), report
        assert not report.results
    assert (lake.table.version, lake.contents(1)) == (version, {(1, None): 1})
    lake.settings = new
    assert lake.run().upper == 3
    assert collection.fence("old") == 2
    assert isinstance(ingest.run(spark, new).errors[NAME], WriterFenced)
    assert seal.run(spark, old).ok
