"""Topics in S3 are read, written and generated as they are on a disk, and failures are reported. No JVM is started."""

from __future__ import annotations

import gzip
import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from typer.testing import CliRunner

from tests.services.faulty_proxy import Fault, FaultyProxy, faulty_proxy, refusal
from tests.services.object_store import ENVIRONMENT, ObjectStore
from tidelake.cli.app import app
from tidelake.errors import (
    BucketMissing,
    ConfigurationError,
    FolderMissing,
    MalformedTopic,
    StoreAccessDenied,
    StoreUnreachable,
    TidelakeError,
    WrongRegion,
)
from tidelake.generator.generate import generate
from tidelake.generator.options import GenerateOptions
from tidelake.ingest.new_topics import check_topics_of_new_collections
from tidelake.settings.lake import Settings, load_settings
from tidelake.storage import blobs
from tidelake.storage.location import Location, locate
from tidelake.storage.objects import PROBE
from tidelake.topic.files import FileTopic
from tidelake.topic.open import open_topics
from tidelake.topic.recorded_file import write_recorded_file
from tidelake.topic.shape import TOPIC_SCHEMA

pytestmark = pytest.mark.services

SCHEMA = {"type": "record", "name": "visit", "fields": [{"name": "page", "type": "string"}]}
BLOCK = {"framing": "reclock", "envelope": "append_only", "topic": "visits", "format": "json", "schema": SCHEMA}


@pytest.fixture
def proxy(object_store: ObjectStore) -> Iterator[FaultyProxy]:
    with faulty_proxy(object_store.endpoint) as running:
        yield running


@pytest.fixture
def settings(tmp_path: Path, object_store: ObjectStore, proxy: FaultyProxy) -> Settings:
    """The settings of a lake whose topics are behind the proxy."""
    return settings_of(tmp_path, object_store.settings("topics", endpoint=proxy.endpoint, request_timeout_s=2))


def settings_of(tmp_path: Path, place: dict[str, Any]) -> Settings:
    document = {"topics": place["store"], "s3": place["s3"], "collections": {"visits": BLOCK}}
    file = tmp_path / "collections.yaml"
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    return load_settings(file)


@pytest.fixture
def topic(settings: Settings) -> FileTopic:
    """A topic of two files: ten messages as lines, and ten in a Parquet file."""
    root = blobs.root_of(settings.topics) / "visits"
    blobs.write(root / "0.jsonl", lines(range(10)))
    blobs.write(root / "a.parquet", parquet(range(10, 20)))
    return topic_of(settings)


def topic_of(settings: Settings) -> FileTopic:
    (opened,) = open_topics(settings.collections[0])
    assert isinstance(opened, FileTopic)
    return opened


def lines(offsets: range) -> bytes:
    rows = ({"offset": offset, "timestamp_ms": offset, "value": {"page": f"/{offset}"}} for offset in offsets)
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def parquet(offsets: range, partition: int = 0) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(messages(offsets, partition), sink)
    return bytes(sink.getvalue())


def messages(offsets: range, partition: int = 0) -> pa.Table:
    rows = [{"partition": partition, "offset": at, "value": b'{"page": "/%d"}' % at} for at in offsets]
    return pa.Table.from_pylist(rows, schema=TOPIC_SCHEMA)


def contents(topic: FileTopic) -> list[dict[str, Any]]:
    """All messages, in the order of their offsets."""
    offsets, gaps = topic.plan({}, 1_000)
    assert gaps == []
    rows = [
        row for table in topic.batches(offsets, ["partition", "offset", "key", "value"]) for row in table.to_pylist()
    ]
    return sorted(rows, key=lambda row: (row["partition"], row["offset"]))


# --- reading


def test_a_topic_in_s3_equals_the_same_topic_on_a_disk(settings: Settings, tmp_path: Path) -> None:
    files = {
        "0.jsonl": lines(range(10)),
        "1.jsonl.gz": gzip.compress(lines(range(5))),
        "a.parquet": parquet(range(10, 20)),
        "large.parquet": parquet(range(20, 40_000)),
        "_hidden": b"x",
    }
    root, disk = blobs.root_of(settings.topics) / "visits", locate(tmp_path / "disk") / "visits"
    for name, data in files.items():
        blobs.write(root / name, data)
        blobs.write(disk / name, data)
    ours, theirs = topic_of(settings), FileTopic(disk)
    assert (ours.name, ours.end_offsets()) == ("visits", {0: 40_000, 1: 5})
    assert ours.end_offsets() == theirs.end_offsets()
    assert contents(ours) == contents(theirs)
    for offset in (3, 15, 39_999):
        assert ours.record_at(0, offset) == theirs.record_at(0, offset)
    assert ours.record_at(0, 40_000) is None


def test_folders_that_a_console_creates_are_not_messages(settings: Settings, object_store: ObjectStore) -> None:
    root = blobs.root_of(settings.topics)
    with pytest.raises(FolderMissing, match=rf"has no folder {root}/visits") as missing:
        topic_of(settings).end_offsets()
    assert "empty object" in str(missing.value.hint)
    folder = f"{object_store.endpoint}/{root.root.removeprefix('s3://')}/visits/"
    with urllib.request.urlopen(urllib.request.Request(folder, data=b"", method="PUT"), timeout=30):
        pass  # consoles create a folder in this way
    assert topic_of(settings).end_offsets() == {}
    blobs.write(root / "visits" / "archive" / "0.jsonl", lines(range(3)))
    blobs.write(root / "visits" / "1.jsonl", lines(range(2)))
    assert topic_of(settings).end_offsets() == {1: 2}, "subfolders are not read"


def test_a_new_collection_without_a_topic_is_refused_before_anything_is_written(
    settings: Settings, tmp_path: Path, proxy: FaultyProxy
) -> None:
    with pytest.raises(ConfigurationError, match="the topic 'visits' has no folder s3://") as refused:
        check_topics_of_new_collections((), settings)
    assert refused.value.field == "collections.visits.topic"
    assert check_topics_of_new_collections(("visits",), settings) == {}, "a known collection may wait for its topic"
    proxy.faults = [Fault("GET", "", answer=refusal(403, "AccessDenied"))]
    assert isinstance(check_topics_of_new_collections((), settings)["visits"], StoreAccessDenied)
    assert not (tmp_path / "data").exists()


def test_a_process_reads_each_file_once(settings: Settings, proxy: FaultyProxy) -> None:
    root = blobs.root_of(settings.topics) / "visits"
    for number in range(12):
        blobs.write(root / f"{number:02d}.parquet", parquet(range(5 * number, 5 * number + 5)))
    before = proxy.requests.copy()
    assert topic_of(settings).end_offsets() == {0: 60}
    assert proxy.requests - before == {"GET": 13}, "a list, and a request for each file"
    before = proxy.requests.copy()
    assert topic_of(settings).end_offsets() == {0: 60}
    assert proxy.requests - before == {"GET": 1}
    blobs.write(root / "12.parquet", parquet(range(60, 65)))
    assert topic_of(settings).end_offsets() == {0: 65}


def test_a_topic_of_any_size_is_read_once_and_small_topics_share_the_cache(
    settings: Settings, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelake.topic.files._REMOTE_MAX", 5)
    monkeypatch.setattr("tidelake.topic.files._remote", {})

    def requests(name: str, files: int) -> int:
        before = proxy.requests.total()
        assert FileTopic(blobs.root_of(settings.topics) / name).end_offsets() == {0: files}
        return proxy.requests.total() - before

    sizes = {"visits": 8, "small": 2, "other": 2, "third": 2}
    for name, files in sizes.items():
        for number in range(files):
            blobs.write(blobs.root_of(settings.topics) / name / f"{number}.parquet", parquet(range(number, number + 1)))
    assert [requests("visits", 8) for _ in range(3)] == [9, 1, 1], "although it exceeds the limit"
    assert [requests("small", 2), requests("other", 2), requests("small", 2)] == [3, 3, 1]
    assert requests("visits", 8) == 8, "one file was kept: the limit left no room for more"
    assert [requests("small", 2), requests("other", 2), requests("third", 2)] == [3, 3, 3]
    assert [requests("other", 2), requests("third", 2)] == [1, 1]
    assert requests("small", 2) == 2, "only one file was forgotten: the one over the limit"


# --- failures


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (Fault("GET", "list-type", answer=refusal(403, "AccessDenied", "sorry")), StoreAccessDenied),
        (Fault("GET", r"0\.jsonl", answer=refusal(403, "AccessDenied", "sorry")), StoreAccessDenied),
        (Fault("HEAD", r"0\.jsonl", answer=refusal(403, "AccessDenied", "sorry")), StoreAccessDenied),
        (Fault("GET", r"a\.parquet", answer=refusal(403, "AccessDenied", "sorry")), StoreAccessDenied),
        (Fault("GET", r"a\.parquet", answer=refusal(400, "ExpiredToken", "sorry")), StoreAccessDenied),
        (Fault("GET", "", answer=refusal(400, "AuthorizationHeaderMalformed", "sorry")), WrongRegion),
        (Fault("GET", "", answer=refusal(404, "NoSuchBucket", "sorry")), BucketMissing),
        (Fault("GET", r"a\.parquet", answer=refusal(503, "SlowDown")), StoreUnreachable),
        pytest.param(Fault("GET", "list-type", hang_s=20), StoreUnreachable, marks=pytest.mark.sweep),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else f"{value.method} {value.path}",
)
def test_a_refused_or_lost_request_is_reported_and_the_next_run_continues(
    topic: FileTopic, proxy: FaultyProxy, fault: Fault, kind: type[TidelakeError]
) -> None:
    proxy.faults = [fault]
    started = time.monotonic()
    with pytest.raises(kind) as caught:
        topic.plan({}, 100)
    assert time.monotonic() - started < 15
    text = str(caught.value)
    assert str(topic.folder) in text
    assert "hint: " in text
    assert "do-not-show" not in text
    assert ENVIRONMENT["AWS_SECRET_ACCESS_KEY"] not in text
    proxy.faults = []
    assert len(contents(topic)) == 20


def test_the_doctor_names_a_topic_that_cannot_be_read(settings: Settings, proxy: FaultyProxy) -> None:
    blobs.write(blobs.root_of(settings.topics) / "visits" / "0.jsonl", lines(range(3)))
    found = CliRunner().invoke(app, ["doctor", "--config", str(settings.file)])
    assert "1 partition, 3 offsets" in " ".join(found.stdout.split()), found.stdout
    proxy.faults = [Fault("GET", "list-type", answer=refusal(403, "ExpiredToken", "it has expired"))]
    found = CliRunner().invoke(app, ["doctor", "--config", str(settings.file)])
    assert "ExpiredToken: it has expired" in " ".join(found.stdout.split()), found.stdout


@pytest.mark.parametrize("name", ["0.jsonl", "a.parquet", "large.parquet"])
def test_a_file_that_disappears_after_the_listing_is_an_error(
    settings: Settings, proxy: FaultyProxy, name: str
) -> None:
    root = blobs.root_of(settings.topics) / "visits"
    blobs.write(root / "0.jsonl", lines(range(10)))
    blobs.write(root / "a.parquet", parquet(range(10, 20)))
    blobs.write(root / "large.parquet", parquet(range(20, 40_000)))
    topic = topic_of(settings)
    gone = refusal(404, "NoSuchKey")
    proxy.faults = [Fault(method, f"{name}$", answer=gone) for method in ("GET", "HEAD")]
    with pytest.raises(MalformedTopic, match=rf"{root}/{name} was listed, but no longer exists"):
        topic.plan({}, 100)
    proxy.faults = []
    offsets, _ = topic.plan({}, 100_000)
    proxy.faults = [Fault(method, f"{name}$", answer=gone) for method in ("GET", "HEAD")]
    with pytest.raises(MalformedTopic, match="was listed, but no longer exists"):
        list(topic.batches(offsets, ["partition", "offset", "value"]))


def test_nothing_beyond_the_gap_is_read_if_a_listing_lacks_a_file(topic: FileTopic, proxy: FaultyProxy) -> None:
    blobs.write(topic.folder / "b.parquet", parquet(range(20, 30)))

    def without(name: str) -> tuple[int, str]:
        kept = [blob for blob in blobs.list_blobs(topic.folder) if blob.location.name != name]
        prefix = topic.folder.root.partition("://")[2].partition("/")[2]
        entries = "".join(
            f"<Contents><Key>{prefix}/{blob.location.path}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            f"<ETag>{blob.stamp}</ETag><Size>{blob.size}</Size></Contents>"
            for blob in kept
        )
        return (
            200,
            f'<?xml version="1.0"?><ListBucketResult><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>',
        )

    lying = without("a.parquet")
    proxy.faults = [Fault("GET", "list-type", answer=lying)]
    offsets, (gap,) = topic.plan({}, 100)
    assert (offsets.intervals, gap.from_offset, gap.to_offset) == ({0: (0, 10)}, 10, 20)
    proxy.faults = []
    end = without("b.parquet")
    proxy.faults = [Fault("GET", "list-type", answer=end)]
    offsets, gaps = topic.plan({0: 30}, 100)
    assert (offsets.intervals, [(gap.from_offset, gap.to_offset) for gap in gaps]) == ({}, [(20, 30)])
    proxy.faults = []
    offsets, gaps = topic.plan({}, 100)
    assert (offsets.intervals, gaps) == ({0: (0, 30)}, [])


# --- recordings


def test_a_recording_in_s3_is_created_once_and_verified(settings: Settings) -> None:
    root = blobs.root_of(settings.topics) / "visits"
    part = root / "part-00000-0000000000000000000.parquet"
    write_recorded_file(part, messages(range(0, 10, 2)), {0: (0, 10)}, 5)
    assert topic_of(settings).end_offsets() == {0: 10}
    before = blobs.read(part)
    with pytest.raises(FileExistsError):
        write_recorded_file(part, messages(range(10)), {0: (0, 10)}, 5)
    assert blobs.read(part) == before
    table = pq.read_table(blobs.open_file(part))
    with blobs.writing(part) as sink:
        pq.write_table(table.slice(1), sink)
    with pytest.raises(MalformedTopic, match=r"differs from what was recorded .*5 rows were recorded, but it has 4"):
        topic_of(settings).end_offsets()


@pytest.mark.parametrize("happens", [True, False], ids=["it happens", "it does not happen"])
def test_a_part_whose_put_had_no_answer_is_recorded_once(settings: Settings, proxy: FaultyProxy, happens: bool) -> None:
    root = blobs.root_of(settings.topics) / "visits"
    blobs.check_conditional_writes(root)
    proxy.faults = [Fault("PUT", "part-", forwards=happens, times=1)]
    write_recorded_file(root / "part-00000-0.parquet", messages(range(4)), {0: (0, 4)}, None)
    assert (proxy.met["part-"], topic_of(settings).end_offsets()) == (1, {0: 4})


# --- the command line


def refusal_of(command: list[str]) -> str:
    """The error of a command that is refused."""
    done = CliRunner().invoke(app, command)
    assert isinstance(done.exception, TidelakeError), done.output
    return str(done.exception)


def files_of(topic: Location) -> dict[str, bytes]:
    return {blob.location.name: blobs.read(blob.location) for blob in blobs.list_blobs(topic)}


def test_generated_topics_are_the_same_in_s3(object_store: ObjectStore, tmp_path: Path) -> None:
    place = f"s3://{object_store.create_bucket()}/topics"
    options = ["--updates", "300", "--times", "10", "--partitions", "2", "--close"]
    command = ["generate", "visits", "--topics", place, "--out", str(tmp_path / "s3"), *options]
    done = CliRunner().invoke(app, command)
    assert (done.exit_code, done.stdout.split(":")[1]) == (0, f"//{place[5:]}/visits"), done.output
    chosen = GenerateOptions(name="visits", updates=300, times=10, partitions=2, close=True)
    made = generate(chosen, tmp_path / "topics", tmp_path / "disk")
    assert files_of(locate(place) / "visits") == files_of(made.topic)
    assert f"{place}/visits is not empty" in refusal_of(command)


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        (["generate", "a", "--topics", "gs://lake/topics"], "'gs://lake/topics' is a URI with the scheme 'gs'"),
        (["generate", "a", "--topics", "s3a://lake/topics"], "write `s3://bucket/folder`"),
        (["generate", "a", "--out", "s3://lake/out"], "--out 's3://lake/out' is a URI"),
        (["init", "az://lake/topics/a"], "'az://lake/topics/a' is a URI with the scheme 'az'"),
        (["init", "s3://lake"], "s3://lake is a bucket, not a topic"),
        (["replay", "a.jsonl", "--engine", "delta", "--store", "s3://lake/a"], "--store 's3://lake/a' is a URI"),
    ],
)
def test_a_place_that_a_command_cannot_use_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], problem: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert problem in refusal_of(command)
    assert list(tmp_path.iterdir()) == []


def test_init_drafts_the_settings_of_a_topic_in_s3(object_store: ObjectStore, tmp_path: Path) -> None:
    place = locate(f"s3://{object_store.create_bucket()}/topics")
    blobs.write(place / "visits" / "0.jsonl", lines(range(5)))
    config = tmp_path / "collections.yaml"
    done = CliRunner().invoke(app, ["init", f"{place}/visits/", "--config", str(config)])
    assert done.exit_code == 0, done.output
    settings = load_settings(config)
    assert (str(settings.topics), settings.collections[0].topics) == (str(place), ("visits",))
    refused = refusal_of(["init", f"{place}/visit", "--config", str(tmp_path / "other.yaml")])
    assert f"has no folder {place}/visit" in refused
    assert not (tmp_path / "other.yaml").exists()


# --- lower layers


def test_changes_by_several_writers_are_not_lost(settings: Settings) -> None:
    from concurrent.futures import ThreadPoolExecutor

    file = blobs.root_of(settings.topics) / "shared.json"

    def adding(name: str) -> Callable[[bytes | None], bytes]:
        return lambda present: json.dumps(sorted({*json.loads(present or b"[]"), name})).encode()

    names = [f"writer-{number}" for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: blobs.update(file, adding(name), "application/json"), names))
    assert json.loads(blobs.read(file)) == names
    stamp = blobs.stamp(file)
    assert blobs.update(file, adding("last"), None) == blobs.stamp(file) != stamp


def test_the_probe_of_conditional_writes_is_not_a_message(settings: Settings) -> None:
    topic = blobs.root_of(settings.topics)
    blobs.create(topic / "0.jsonl", lines(range(2)))
    assert blobs.exists(topic / PROBE)
    assert FileTopic(Location(topic.root)).end_offsets() == {0: 2}
