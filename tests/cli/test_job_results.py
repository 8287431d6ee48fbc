"""The sentences that say what a step of a job did."""

from __future__ import annotations

from tidelake.cli.job_results import sentence_of
from tidelake.read.current import CurrentReport


def test_the_line_of_a_publication_does_not_say_that_other_collections_were_published() -> None:
    report = CurrentReport(as_of=5, rows=7, together=("items", "lines", "orders"))
    line = "current: 7 rows as of 5, unchanged; the same time was chosen for 2 other collections"
    assert sentence_of("current", report, mints_times=False) == line


def test_the_line_of_an_idle_table_has_the_time_that_the_table_records_and_the_one_through_which_it_holds() -> None:
    line = sentence_of("current", CurrentReport(as_of=5, rows=7, unchanged_through=9), mints_times=False)
    assert line == "current: 7 rows as of 5, unchanged through 9"
