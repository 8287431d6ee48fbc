"""Publishing a whole collection to a folder, compared with Spark merely writing these rows to Avro files."""

from __future__ import annotations

import shutil

from benchmarks.bench import Bench, Lake
from benchmarks.data import UPDATES_PER_TIME, Stream
from benchmarks.measure import Measured, Samples
from benchmarks.states import seed_state
from tidelake.catalog.catalog import Catalog
from tidelake.publish.publishing import Terms, publish
from tidelake.publish.target import FileTarget
from tidelake.read.changes import changes
from tidelake.storage.location import locate
from tidelake.store.layout import Store

PUBLISHED, AVRO = "published, and read back", "Spark writing these rows to Avro files"
CHANGES = "changes written to Avro files"
_NAME = "orders"


def measure_publishing(bench: Bench, rows: int) -> Samples:
    """Measure how long it takes to publish `rows` updates; each round has a new topic."""
    bench.say(f"publishing {rows:,} updates")
    root, spark = bench.folder(f"publishing-{rows}"), bench.spark
    lake = Lake(spark, root, {_NAME: "plain"})
    seed_state(lake, _NAME, Stream(rows, "plain", state_updates_per_time=UPDATES_PER_TIME))
    catalog, out, plain = Catalog(Store(lake.settings.store)), root / "out", root / "rows"
    changes(spark, lake.collection(_NAME), None).updates.write.parquet(str(plain))

    def published(number: int) -> Measured:
        target = FileTarget(locate(out / f"published-{number}"), f"published-{number}")
        return bench.meter.measure(lambda: publish(spark, catalog, _NAME, target, Terms()), [out])

    def avro(number: int) -> Measured:
        shutil.rmtree(out / "avro", ignore_errors=True)
        return bench.meter.measure(
            lambda: spark.read.parquet(str(plain)).write.format("avro").save(str(out / "avro")), [out]
        )

    def changes_as_avro(number: int) -> Measured:
        shutil.rmtree(out / "changes", ignore_errors=True)
        found = changes(spark, lake.collection(_NAME), None).updates
        return bench.meter.measure(lambda: found.write.format("avro").save(str(out / "changes")), [out])

    return bench.interleave({PUBLISHED: published, AVRO: avro, CHANGES: changes_as_avro})
