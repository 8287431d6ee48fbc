"""A lake whose store is in S3 equals the same lake on a disk. Further tests: damage, large runs, TLS and topics.

Other suites run on both kinds of store: see `tests/lakes/places.py`.
"""

from __future__ import annotations

import io
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from typer.testing import CliRunner

from expectations.published import published_results
from jobs import validate
from tests.crash.harness import state_of
from tests.lakes.lake import NAME, Lake, progress, updates
from tests.services.faulty_proxy import Fault, FaultyProxy, faulty_proxy, refusal
from tests.services.object_store import ObjectStore, object_store_server
from tidelake import open_lake
from tidelake.cli.app import app
from tidelake.errors import DamagedTable, MalformedTopic, StoreAccessDenied, TidelakeError
from tidelake.report.history import read_history
from tidelake.settings.object_store import ObjectStorePlace
from tidelake.storage import blobs
from tidelake.storage.location import Location, locate
from tidelake.storage.objects import PROBE
from tidelake.storage.page_headers import chunks_of
from tidelake.storage.s3 import open_store
from tidelake.topic.files import FileTopic
from tidelake.topic.lines import parse_lines
from tidelake.topic.shape import TOPIC_SCHEMA
from tidelake.topic.topic import OffsetRange

pytestmark = [pytest.mark.spark, pytest.mark.services]


@pytest.fixture
def on_s3(tmp_path: Path, spark: SparkSession, object_store: ObjectStore) -> Lake:
    """A plain collection on an empty topic."""
    return Lake(tmp_path, spark, lake=object_store.settings())


def send_first(lake: Lake) -> None:
    lake.send(
        updates(((1, 10), 0, 1), ((2, None), 0, 1)),
        updates(((1, 10), 0, 1), ((3, 30), 1, 2)),  # the first is a copy
        progress([0], [2], {0: 2, 1: 1}),
        b"\x07 not a message",
    )


def send_second(lake: Lake) -> None:
    lake.send(updates(((2, None), 2, -1), ((4, 40), 3, 1)), progress([2], [4], {2: 1, 3: 1}), updates(((5, 5), 4, 1)))


def story_of(lake: Lake) -> dict[str, Any]:
    """The output of every step, apart from random names."""
    send_first(lake)
    first = lake.run()
    send_second(lake)
    lake.send(updates(((9, 9), 0, 1)))  # late
    ingested, second = lake.ingest(), lake.seal()
    contents = {as_of: lake.contents(as_of) for as_of in (1, 3)}
    validated = lake.validate()
    published = lake.current().results[NAME]
    compacted = lake.compact()
    again = lake.validate(full=True)
    return {
        "sealed": [(sealed.upper, sealed.closed) for sealed in (first, second)],
        "ingested": (ingested.ticks, ingested.copies_dropped),
        "contents": contents,
        "validated": [(report.damaged, report.mismatches, report.upper) for report in (validated, again)],
        "published": (published.rows, published.contents_rows, published.as_of),
        "compacted": (compacted.merges, compacted.rows_before, compacted.rows_after),
        "contents after": lake.contents(3),
        "quarantined": lake.quarantined(),
        "state": {name: value for name, value in state_of(lake).items() if name != "proofs"},
        "runs": sorted(file.run.partition("-")[0] for file in lake.table.files()),
        "hashes": sorted((file.rows, file.rows_hash) for file in lake.table.files()),
    }


@pytest.mark.sweep
def test_a_lake_on_s3_equals_the_same_lake_on_a_disk(
    on_s3: Lake, tmp_path: Path, spark: SparkSession, object_store: ObjectStore
) -> None:
    on_disk = Lake(tmp_path / "disk", spark)
    assert story_of(on_s3) == story_of(on_disk)
    assert not (tmp_path / "store").exists()
    root = on_s3.catalog.store.root
    names = {blob.location.path.partition("/")[0] for blob in blobs.list_blobs(root)}
    assert names == {
        PROBE,
        on_s3.catalog.store.head_starts.name,
        *(path.name for path in (tmp_path / "disk" / "store").iterdir()),
    }
    left = [key for key in object_store.keys(root.root) if "__magic" in key or key.endswith("/")]
    assert left == [], "Spark leaves neither unfinished writes nor folders behind"

    done = CliRunner().invoke(app, ["status", "--json", "--config", str(on_s3.file)])
    assert json.loads(done.stdout)["collections"][NAME]["upper"] == 4, done.stdout
    lake = open_lake(on_s3.file)
    assert lake.collection(NAME).upper == 4
    assert not lake.collection(NAME).verify(deep=True).damages
    found = CliRunner().invoke(app, ["doctor", "--config", str(on_s3.file)])
    assert "supports conditional writes" in found.stdout, found.stdout


@pytest.mark.sweep
def test_a_flipped_bit_in_an_object_is_an_error_and_never_another_value(on_s3: Lake) -> None:
    send_first(on_s3)
    on_s3.run()
    (file,) = [file for file in on_s3.table.files() if file.run.startswith("ingest-")]
    location = on_s3.table.path / file.path
    whole = bytearray(blobs.read(location))
    column = pq.ParquetFile(io.BytesIO(whole)).metadata.row_group(0).column(0)
    first = column.dictionary_page_offset or column.data_page_offset
    whole[first + column.total_compressed_size - 1] ^= 1
    place = on_s3.settings.store
    assert isinstance(place, ObjectStorePlace)
    obstore.put(open_store(place), location.path, bytes(whole))
    frame = on_s3.spark.read.parquet(str(location))
    with pytest.raises(Exception, match=r"CRC|checksum|could not verify|corrupt"):
        frame.select("_time").collect()
    with pytest.raises(TidelakeError, match=r"is not the one that was committed"):
        on_s3.contents(0)


def flip_first_header(lake: Lake, location: Location) -> None:
    """Flip a bit in the header of a file's first page; no Parquet checksum covers headers."""
    place = lake.settings.store
    assert isinstance(place, ObjectStorePlace)
    data = bytearray(blobs.read(location))
    position = chunks_of(pa.BufferReader(bytes(data)))[0].start
    data[position + 1] ^= 1
    obstore.put(open_store(place), location.path, bytes(data))


def test_large_runs_are_written_in_several_files_without_a_rename(on_s3: Lake) -> None:
    from tidelake.store.files import check_whole, describe_run, open_verified
    from tidelake.store.runs import read_files, write_updates

    schema = pa.schema([("_time", pa.int64()), ("_diff", pa.int64()), ("text", pa.string()), ("_run", pa.string())])
    frame = on_s3.spark.range(120_000, numPartitions=3).selectExpr(
        "id AS _time", "1L AS _diff", "sha2(cast(id AS string), 512) AS text", "id % 2 = 0 AS even"
    )
    table = on_s3.catalog.store.root / "c" / "test" / "updates"
    written = write_updates(frame, table, "ingest-0-0", schema, ["even"])
    assert len(written.files) == 6
    assert sum(file.rows for file in written.files) == 120_000
    assert max(file.bytes for file in written.files) > 1 << 20, "the digest of at least one file covers only its footer"
    assert [file.path for file in describe_run(table, "ingest-0-0")] == [file.path for file in written.files]
    for file in written.files:
        open_verified(table, file).close()
    check_whole(table, written.files)
    large = next(file for file in written.files if file.bytes > 1 << 20)
    flip_first_header(on_s3, table / large.path)
    open_verified(table, large).close()
    with pytest.raises(DamagedTable, match="is not the one that was committed: its SHA-256 differs"):
        check_whole(table, written.files)
    flip_first_header(on_s3, table / large.path)
    rows = read_files(on_s3.spark, table, written.files, schema)
    assert rows.selectExpr("count(*)", "count(DISTINCT text)", "sum(_time)").first() == (
        120_000,
        120_000,
        7_199_940_000,
    )


def test_all_engines_trust_the_authorities_in_the_settings(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", os.environ.get("SSL_CERT_FILE", ""))  # restores it after the test
    with object_store_server(tmp_path, uses_tls=True) as server:
        lake = Lake(tmp_path / "lake", spark, lake=server.settings())
        send_first(lake)
        assert lake.run().upper == 2
        assert lake.contents(1) == {(1, 10): 1, (2, None): 1, (3, 30): 2}


# --- topics and reports are in S3 as well

EXPECTED = {"type": "expect_column_values_to_not_be_null", "column": "id"}


@pytest.fixture
def proxy(object_store: ObjectStore) -> Iterator[FaultyProxy]:
    with faulty_proxy(object_store.endpoint) as running:
        yield running


def put_topic(lake: Lake) -> Location:
    """Move the messages of the topic's folder into S3: the first half as lines, the rest as Parquet."""
    topic, lines = blobs.root_of(lake.settings.topics) / NAME, lake.topic / "0.jsonl"
    rows = list(parse_lines(locate(lines)))
    texts, half = lines.read_text(encoding="utf-8").splitlines(keepends=True), len(rows) // 2
    blobs.write(topic / "0.jsonl", "".join(texts[:half]).encode())
    messages = [{"partition": 0, "topic": NAME, "timestamp": row["timestamp_ms"] * 1000, **row} for row in rows[half:]]
    with blobs.writing(topic / "part-1.parquet") as sink:
        pq.write_table(pa.Table.from_pylist(messages, schema=TOPIC_SCHEMA), sink)
    shutil.rmtree(lake.root / "topics")
    return topic


@pytest.mark.sweep
def test_a_lake_without_any_folder_runs_every_job(
    tmp_path: Path, spark: SparkSession, object_store: ObjectStore
) -> None:
    place = object_store.settings()
    bucket = place["store"].rpartition("/")[0]
    folders = {"topics": f"{bucket}/topics", "data_docs": f"{bucket}/docs"}
    lake = Lake(tmp_path, spark, lake={**place, **folders}, expectations=[EXPECTED])
    send_first(lake)
    send_second(lake)
    put_topic(lake)
    assert lake.run().upper == 4
    assert lake.contents(1) == {(1, 10): 1, (2, None): 1, (3, 30): 2}
    assert lake.quarantined() == [(3, "undecodable")]
    assert validate.run_with_pages(spark, lake.settings).ok

    opened = open_lake(lake.file)
    status = opened.collection(NAME).status()
    assert status is not None
    assert (status.upper, status.lag_messages) == (4, 0)
    assert opened.trace(NAME, 0, 5)[NAME] != []
    assert opened.collection(NAME).explain(1).time == 1
    docs = blobs.root_of(lake.settings.data_docs)
    assert "1 collection" in blobs.read(docs / "index.html").decode()
    assert "Safe to use up to time 3" in blobs.read(docs / "collections" / f"{NAME}.html").decode()
    assert [row["upper"] for row in read_history(lake.settings.data_docs, NAME)] == [4]
    assert {result.suite for result in published_results(docs)} == {NAME, f"{NAME}-contents"}
    assert [path.name for path in tmp_path.iterdir()] == ["collections.yaml"]


@pytest.mark.parametrize(
    ("method", "answer", "kind"),
    [
        ("GET", refusal(400, "ExpiredToken", "sorry"), StoreAccessDenied),
        pytest.param("GET", refusal(404, "NoSuchKey"), MalformedTopic, marks=pytest.mark.sweep),
        pytest.param("GET", refusal(403, "AccessDenied", "sorry"), StoreAccessDenied, marks=pytest.mark.sweep),
        pytest.param("HEAD", refusal(403, "AccessDenied"), StoreAccessDenied, marks=pytest.mark.sweep),
    ],
    ids=["expired", "gone", "read", "head"],
)
def test_a_refused_spark_request_is_reported_and_the_next_run_continues(
    tmp_path: Path,
    spark: SparkSession,
    object_store: ObjectStore,
    proxy: FaultyProxy,
    method: str,
    answer: tuple[int, str],
    kind: type[TidelakeError],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = object_store.settings("topics", endpoint=proxy.endpoint, request_timeout_s=2)
    lake = Lake(tmp_path, spark, lake={"topics": place["store"], "s3": place["s3"]})
    send_first(lake)
    topic = put_topic(lake)
    read = FileTopic.read

    def after_planning(self: FileTopic, spark: SparkSession, offsets: OffsetRange) -> DataFrame:
        # Spark checks that a file exists, and lists it later. For `MalformedTopic`, the file disappears in between.
        pattern = r"list-type.*part-1\.parquet" if kind is MalformedTopic else r"part-1\.parquet"
        proxy.faults = [Fault(method, pattern, answer=answer)]
        return read(self, spark, offsets)

    with monkeypatch.context() as patched:
        patched.setattr(FileTopic, "read", after_planning)
        with pytest.raises(kind, match=f"{topic}/part-1.parquet") as caught:
            lake.ingest()
    assert "do-not-show" not in str(caught.value)
    proxy.faults = []
    assert lake.run().upper == 2
    assert lake.contents(1) == {(1, 10): 1, (2, None): 1, (3, 30): 2}
