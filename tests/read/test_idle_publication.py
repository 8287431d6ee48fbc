"""A table whose collection is idle is not written again, and the report has the time that the table records. No JVM."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from pyspark.sql import SparkSession

from tests.lakes.shared_times import RECLOCKED, SharedTimes
from tests.report.published import publish
from tidelake.plugins.envelope import form_of
from tidelake.read.current import Wanted, update_current
from tidelake.read.publication import publication_of
from tidelake.store.commit import OpenTable
from tidelake.store.layout import DIFF
from tidelake.store.state import IDLE_LOWER, IDLE_UPPER, UPPER


def test_an_idle_table_keeps_its_time_and_the_report_says_so(tmp_path: Path) -> None:
    lake = SharedTimes(tmp_path, visits=RECLOCKED)
    lake.seal(visits=6)
    visits = lake.catalog.find("visits")
    updates = OpenTable(visits.paths.updates)
    columns = (*(field.name for field in form_of(visits.entry, updates).fields), DIFF)
    publish(lake.catalog, "visits", columns, as_of=5)
    no_spark = cast(SparkSession, None)  # nothing is read or written
    done = update_current(no_spark, visits, Wanted())
    assert (done.how, done.as_of, done.unchanged_through) == ("unchanged", 5, None)
    updates.commit({UPPER: 20, IDLE_LOWER: 6, IDLE_UPPER: 20})
    for wanted, through in ((Wanted(), 19), (Wanted(through=12), 12), (Wanted(through=3), None)):
        done = update_current(no_spark, visits, wanted)
        published = publication_of(visits)
        assert published is not None and published.shown is not None
        assert done.as_of == published.shown.as_of == 5
        assert (done.how, done.unchanged_through) == ("unchanged", through)
