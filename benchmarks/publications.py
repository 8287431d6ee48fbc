"""Compares a tick and the publication of its changes with a MERGE of the same rows.

Both leave a table that any engine can read.
"""

from __future__ import annotations

from benchmarks.bench import Bench, Lake
from benchmarks.data import Stream, Ticks, state_rows
from benchmarks.measure import Measured, Samples
from benchmarks.peers import MergeTable
from benchmarks.states import seed_state
from jobs import current
from tidelake.read.current import CurrentReport

BOTH, PUBLICATION, REBUILD = "tick and current", "current, after a tick", "current --rebuild"
MERGE = "MERGE tuned, without deletion vectors"
_NAME = "orders"


def measure_publications(bench: Bench, rows: int) -> Samples:
    """Measure standard ticks of 100,000 updates, with uniformly distributed keys, against a state of `rows` rows.

    Each tick is followed by a publication.
    """
    bench.say(f"ticks, each followed by a publication, against a state of {rows:,} rows")
    root, spark = bench.folder(f"publications-{rows}"), bench.spark
    lake = Lake(spark, root, {_NAME: "upsert"}, keep={_NAME: 1})
    stream = Stream(rows, "upsert")
    made = root / "made"
    made.mkdir()
    ticks = Ticks(spark, stream, made, _NAME, 0)
    ticks.make(2 * (bench.rounds + 1))
    seed_state(lake, _NAME, stream)
    lake.run(_NAME, current.run)
    table = MergeTable(spark, root / "merge", vectors=False)
    table.create(state_rows(spark, stream))

    def tick(number: int) -> None:
        lake.add_file(_NAME, ticks.file(number))
        lake.tick(_NAME)

    def publish() -> None:
        done = current.run(spark, lake.settings.only((_NAME,))).results[_NAME]
        assert isinstance(done, CurrentReport) and done.how == "followed", done

    def both(number: int) -> Measured:
        def work() -> None:
            tick(2 * number)
            publish()

        return bench.meter.measure(work, [lake.store])

    def only_current(number: int) -> Measured:
        tick(2 * number + 1)
        return bench.meter.measure(publish, [lake.store])

    def rebuild(number: int) -> Measured:
        return bench.meter.measure(lambda: current.run(spark, lake.settings.only((_NAME,)), rebuild=True), [lake.store])

    def merge(number: int) -> Measured:
        return bench.meter.measure(lambda: table.tick(ticks.file(2 * number)), [table.folder])

    return bench.interleave({BOTH: both, PUBLICATION: only_current, MERGE: merge, REBUILD: rebuild})
