"""Commits to a store in S3, and failed requests and responses. No JVM is started."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from structlog.testing import capture_logs

from tests.services.faulty_proxy import Fault, FaultyProxy, faulty_proxy, refusal
from tests.services.object_store import ENVIRONMENT, ObjectStore
from tests.store.racing import check_race
from tests.sweeps import swept
from tidelake.errors import (
    BucketMissing,
    ConditionalWritesMissing,
    Conflict,
    DamagedLog,
    DamagedTable,
    Indeterminate,
    StoreAccessDenied,
    StoreUnreachable,
    StoreUnreadable,
    TidelakeError,
    WrongRegion,
)
from tidelake.lake import Lake
from tidelake.settings.lake import load_settings
from tidelake.settings.object_store import ObjectStorePlace
from tidelake.storage import blobs
from tidelake.storage.location import Location, locate
from tidelake.storage.objects import PROBE
from tidelake.store import commit
from tidelake.store.acknowledged import ACKED, read_markers
from tidelake.store.commit import OpenTable, create_table, maintain
from tidelake.store.failpoints import on_reach
from tidelake.store.files import read_rows, write_run
from tidelake.store.followed import forget_all
from tidelake.store.layout import Store
from tidelake.store.table_log import LOG, checkpoints, entry_path, load_table, nonce_of, read_entry

pytestmark = pytest.mark.services

SCHEMA = pa.schema([("_time", pa.int64()), ("a", pa.int64()), ("_run", pa.string())])
ENTRY_1 = r"_delta_log/0{19}1\.json$"


@pytest.fixture
def proxy(object_store: ObjectStore) -> Iterator[FaultyProxy]:
    """A proxy in front of the server that all tests share."""
    with faulty_proxy(object_store.endpoint) as running:
        yield running


def place_of(tmp_path: Path, settings: dict[str, Any]) -> ObjectStorePlace:
    """The place of the store in these settings."""
    file = tmp_path / "collections.yaml"
    file.write_text(yaml.safe_dump(settings), encoding="utf-8")
    place = load_settings(file).store
    assert isinstance(place, ObjectStorePlace)
    return place


@pytest.fixture
def root(tmp_path: Path, object_store: ObjectStore, proxy: FaultyProxy) -> Location:
    """The root of a store that is reached through the proxy."""
    return Store(place_of(tmp_path, object_store.settings(endpoint=proxy.endpoint, request_timeout_s=2))).root


@pytest.fixture
def table(root: Location) -> Location:
    """An empty table with an upper, behind the proxy."""
    return made(root / "t")


@pytest.fixture
def direct(object_store: ObjectStore) -> Location:
    """An empty table with an upper. Requests bypass the proxy: the environment says how the store is reached."""
    return made(locate(f"s3://{object_store.create_bucket()}/store") / "t")


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the outcome of creating an object is unknown, give up after two requests, not after ten seconds."""
    monkeypatch.setattr("tidelake.storage.objects._CREATE_WAITS_S", (0.0, 0.1))
    monkeypatch.setattr("tidelake.storage.s3._RETRIES_MAX", 0)


def made(table: Location) -> Location:
    create_table(table, SCHEMA, {"epoch": 3, "upper": 5})
    return table


def rows(*times: int) -> pa.Table:
    return pa.table({"_time": list(times), "a": list(times)})


# --- commits


def test_a_commit_adds_files_and_a_stale_one_conflicts(direct: Location) -> None:
    stale = OpenTable(direct)
    done = OpenTable(direct).commit({"upper": 7}, write_run(direct, "r1", rows(1, 2)))
    assert (done.version, done.seq) == (1, 1)
    with pytest.raises(Conflict):
        stale.commit({"upper": 8})
    opened = OpenTable(direct)
    assert (opened.value("upper"), read_rows(direct, opened.files(), SCHEMA)["a"].to_pylist()) == (7, [1, 2])
    opened.commit({}, write_run(direct, "m1", rows(3)), ["r1"])
    assert [file.run for file in OpenTable(direct).files()] == ["m1"]
    OpenTable(direct).add_columns([pa.field("b", pa.string())])
    assert "b" in OpenTable(direct).schema().names


def test_checkpoints_and_the_cleanup_keep_every_value(direct: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit, "_CHECKPOINT_EVERY_COMMITS", 2)
    monkeypatch.setattr("tidelake.store.table_log.RETENTION_S", -5)
    for upper in range(6, 14):
        OpenTable(direct).commit({"upper": upper})
        maintain(direct)
    assert len(checkpoints(direct)) >= 2
    assert read_entry(direct, 1) is None, "old entries are deleted"
    opened = OpenTable(direct)
    assert (opened.value("upper"), opened.value("epoch"), opened.seq) == (13, 3, 8)


def test_racing_processes_lose_no_commit(direct: Location) -> None:
    check_race(direct, rounds=4)


# --- unknown outcomes: whether the put of an entry happened, and whether its response arrived


def test_a_put_that_happened_without_an_answer_is_a_commit(table: Location, proxy: FaultyProxy) -> None:
    proxy.faults = [Fault("PUT", ENTRY_1, forwards=True, times=1)]
    done = OpenTable(table).commit({"upper": 8})
    assert (done.version, OpenTable(table).value("upper"), proxy.met[ENTRY_1]) == (1, 8, 1)
    assert nonce_of(read_entry(table, 1) or []) == done.nonce


def test_a_put_that_happened_with_an_error_as_its_answer_is_a_commit(table: Location, proxy: FaultyProxy) -> None:
    proxy.faults = [Fault("PUT", ENTRY_1, forwards=True, answer=refusal(500, "InternalError"), times=1)]
    assert OpenTable(table).commit({"upper": 8}).version == 1
    assert (OpenTable(table).value("upper"), proxy.met[ENTRY_1]) == (8, 1)


@pytest.mark.usefixtures("hasty")
def test_a_put_that_the_store_refuses_three_times_is_tried_again_with_a_warning(
    table: Location, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelake.storage.objects._CREATE_WAITS_S", (0.0, 0.1, 0.1, 0.1, 0.1))
    monkeypatch.setattr("tidelake.storage.notices._WAITING_EVERY_S", 0.0)
    proxy.faults = [Fault("PUT", ENTRY_1, answer=refusal(503, "SlowDown"), times=3)]
    with capture_logs() as logged:
        assert OpenTable(table).commit({"upper": 8}).version == 1
    assert [(event["log_level"], event["attempt"]) for event in logged] == [
        ("warning", 2),
        ("warning", 3),
        ("warning", 4),
    ]
    assert {event["location"] for event in logged} == {str(entry_path(table, 1))}
    assert logged[0]["seconds"] <= logged[2]["seconds"] < 60
    assert all("SlowDown" in event["reason"] and "do-not-show" not in event["reason"] for event in logged)


@pytest.mark.usefixtures("hasty")
def test_however_many_puts_a_store_refuses_there_is_only_one_warning_at_a_time(
    root: Location, proxy: FaultyProxy
) -> None:
    blobs.check_conditional_writes(root)
    proxy.faults = [Fault("PUT", "", answer=refusal(503, "SlowDown"))]
    with capture_logs() as logged:
        for name in "abc":
            with pytest.raises(StoreUnreachable):
                blobs.create(root / name, b"1")
    assert [event["location"] for event in logged] == [str(root / "a")]


@pytest.mark.usefixtures("hasty")
def test_a_put_that_never_happens_is_indeterminate_and_can_be_repeated(table: Location, proxy: FaultyProxy) -> None:
    proxy.faults = [Fault("PUT", ENTRY_1, answer=refusal(503, "SlowDown"))]
    with capture_logs() as logged, pytest.raises(Indeterminate):
        OpenTable(table).commit({"upper": 8})
    assert [(event.get("location"), event.get("table"), event["attempt"]) for event in logged] == [
        (str(entry_path(table, 1)), None, 2),
        (None, str(table), 2),
    ]
    assert OpenTable(table).value("upper") == 5
    proxy.faults = []
    assert OpenTable(table).commit({"upper": 8}).version == 1


def test_a_put_after_that_of_another_writer_is_a_conflict_even_without_an_answer(
    table: Location, proxy: FaultyProxy
) -> None:
    def other() -> None:
        OpenTable(table).commit({"upper": 6})

    proxy.faults = [Fault("PUT", ENTRY_1, forwards=True, times=1, before=other)]
    with pytest.raises(Conflict):
        OpenTable(table).commit({"upper": 8})
    assert (OpenTable(table).value("upper"), proxy.met[ENTRY_1]) == (6, 1)


@pytest.mark.usefixtures("hasty")
def test_a_commit_whose_entry_cannot_be_marked_is_indeterminate_and_the_next_process_marks_it(
    table: Location, proxy: FaultyProxy
) -> None:
    proxy.faults = [Fault("PUT", r"_acked/0{19}1-", answer=refusal(503, "SlowDown"))]
    with pytest.raises(Indeterminate) as unknown:
        OpenTable(table).commit({"upper": 8})
    assert nonce_of(read_entry(table, 1) or []) == unknown.value.nonce
    proxy.faults = []
    assert OpenTable(table).value("upper") == 8
    assert read_markers(table).newest == 1


@pytest.mark.usefixtures("hasty")
def test_a_checkpoint_that_cannot_be_written_does_not_stop_commits_and_is_written_later(
    table: Location, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit, "_CHECKPOINT_EVERY_COMMITS", 2)
    for upper in (6, 7):
        OpenTable(table).commit({"upper": upper})
    proxy.faults = [Fault("PUT", r"checkpoint\.parquet", answer=refusal(503, "SlowDown"))]
    assert not maintain(table)
    assert OpenTable(table).value("upper") == 7
    proxy.faults = []
    assert maintain(table)
    assert len(checkpoints(table)) == 1


NOTHING = 200, "<ListBucketResult><KeyCount>0</KeyCount><IsTruncated>false</IsTruncated></ListBucketResult>"
"""The answer of a store that lists no object."""


@pytest.mark.parametrize("lists", ["list-type=2.*start-after=", "list-type=2"], ids=["later markers", "all markers"])
def test_an_entry_stays_if_listings_leave_out_markers_because_another_process_may_have_acknowledged_it(
    table: Location, proxy: FaultyProxy, lists: str
) -> None:
    OpenTable(table).commit({"upper": 6})
    opened = OpenTable(table)

    def acknowledge(name: str) -> None:
        if name == f"commit.after_sync.{table.name}":
            on_reach(None)
            forget_all()  # as in another process
            assert OpenTable(table).value("upper") == 8
            proxy.faults = [Fault("GET", lists, answer=NOTHING)]

    on_reach(acknowledge)
    try:
        with pytest.raises(Indeterminate, match="version 1 was acknowledged, but its marker is gone") as unknown:
            opened.commit({"upper": 8})
    finally:
        on_reach(None)
    assert proxy.met[lists] == 2
    proxy.faults = []
    forget_all()
    assert OpenTable(table).value("upper") == 8
    assert nonce_of(read_entry(table, 2) or []) == unknown.value.nonce


def test_an_entry_in_a_table_that_was_deleted_meanwhile_is_deleted(table: Location) -> None:
    OpenTable(table).commit({"upper": 6})
    opened = OpenTable(table)
    blobs.delete_folder(table)
    with pytest.raises(DamagedTable, match="there is no table"):
        opened.commit({"upper": 8})
    assert blobs.list_names(table / LOG) == []


@pytest.mark.parametrize("answer", [None, refusal(500, "InternalError")], ids=["no answer", "an error"])
@pytest.mark.parametrize("happens", [True, False], ids=["it happens", "it does not happen"])
def test_exactly_one_creator_wins_whatever_the_answer(
    root: Location, proxy: FaultyProxy, answer: tuple[int, str] | None, happens: bool
) -> None:
    blobs.check_conditional_writes(root)
    proxy.faults = [Fault("PUT", "/entry$", forwards=happens, answer=answer, times=1)]
    blobs.create(root / "entry", b"first")
    assert proxy.met["/entry$"] == 1
    proxy.faults = [Fault("PUT", "/entry$", forwards=happens, answer=answer, times=1)]
    with pytest.raises(FileExistsError):
        blobs.create(root / "entry", b"first")  # the same bytes, but another caller
    assert blobs.read(root / "entry") == b"first"


CUT: dict[str, tuple[str, str, Callable[[Location], object], object]] = {
    "a listing of names": ("GET", "list-type", lambda root: sorted(blobs.list_names(root / "f")), ["0", "1"]),
    "a listing of blobs": ("GET", "list-type", lambda root: len(blobs.list_blobs(root / "f")), 2),
    "a listing of later names": ("GET", "list-type", lambda root: blobs.list_names_after(root / "f", "0"), ["1"]),
    "two listings in one": ("GET", "list-type", lambda root: blobs.list_names_in_turn(root, "e", "f")[1], ["0", "1"]),
    "a listing of what is absent": ("GET", "list-type", lambda root: blobs.absent(root / "f", [root / "f" / "0"]), []),
    "a listing of one blob": ("GET", "list-type", lambda root: blobs.is_empty(root / "f"), False),
    "a read": ("GET", "/f/0", lambda root: blobs.read(root / "f" / "0"), b"0" * 1000),
    "a read of an absent blob": (
        "GET",
        "/f/2",
        lambda root: blobs.update(root / "f" / "2", lambda _: b"") and None,
        None,
    ),
    "a deletion": ("POST", "delete", lambda root: blobs.delete(root / "f" / "0"), None),
    "several deletions": ("POST", "delete", lambda root: blobs.delete_all([root / "f" / "0"]), None),
    "the deletion of a folder": ("POST", "delete", lambda root: blobs.delete_folder(root / "f"), None),
}
"""Requests whose responses are cut: method, path, the call, and what it returns."""


@pytest.mark.parametrize("what", CUT)
def test_a_request_whose_response_was_cut_is_repeated(
    root: Location, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr("tidelake.storage.objects._CUT_WAITS_S", (0.0, 0.0))
    method, path, call, returned = CUT[what]
    for name in ("0", "1"):
        blobs.write(root / "f" / name, name.encode() * 1000)
    proxy.faults = [Fault(method, path, forwards=True, passes=True, is_cut=True, times=2)]
    assert call(root) == returned
    assert proxy.met[path] == 2


def test_a_log_that_delta_rs_reads_is_read_again_if_a_response_was_cut(
    table: Location, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelake.storage.objects._CUT_WAITS_S", (0.0, 0.0))
    hint = "_last_checkpoint$"  # a young table has none
    proxy.faults = [Fault("GET", hint, forwards=True, passes=True, is_cut=True, times=2)]
    assert load_table(table).version() == OpenTable(table).version
    assert proxy.met[hint] == 2


def test_a_response_that_is_cut_each_time_is_an_error(
    root: Location, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelake.storage.objects._CUT_WAITS_S", (0.0, 0.0))
    proxy.faults = [Fault("GET", "list-type", forwards=True, passes=True, is_cut=True)]
    with pytest.raises(StoreUnreachable, match="response body error"):
        blobs.list_names(root)
    assert proxy.met["list-type"] == 3


# --- what a bucket must guarantee


def test_a_bucket_without_conditional_writes_is_refused_before_anything_is_committed(
    tmp_path: Path, object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    from http.server import BaseHTTPRequestHandler

    with faulty_proxy(object_store.endpoint) as proxy:
        parse = BaseHTTPRequestHandler.parse_request

        def forgetful(self: BaseHTTPRequestHandler) -> bool:
            parsed = parse(self)
            del self.headers["If-None-Match"]
            return parsed

        monkeypatch.setattr(BaseHTTPRequestHandler, "parse_request", forgetful)
        root = Store(place_of(tmp_path, object_store.settings(endpoint=proxy.endpoint))).root
        with pytest.raises(ConditionalWritesMissing, match=f"{root} does not support conditional writes"):
            create_table(root / "t", SCHEMA)
        for _ in range(2):
            with pytest.raises(ConditionalWritesMissing, match=f"{root} does not support conditional writes"):
                blobs.ensure(root / "a", b"1")
        assert not [
            blob for blob in blobs.list_blobs(root) if "_delta_log/0" in blob.location.path.partition("_unf")[0]
        ]


def test_the_probe_of_conditional_writes_takes_one_request_per_process(root: Location, proxy: FaultyProxy) -> None:
    blobs.create(root / "a", b"1")
    assert blobs.exists(root / PROBE)
    for made, requests in (("b", 1), ("c", 1), ("d", 2)):
        if made == "d":
            blobs.disconnect()  # as in a new process
        before = proxy.requests.total()
        blobs.create(root / made, b"2")
        assert proxy.requests.total() == before + requests


def test_a_refused_put_of_an_existing_blob_serves_as_the_probe(root: Location, proxy: FaultyProxy) -> None:
    for requests in (3, 1, 1):  # first the blob and the probe of a new store; then only the blob
        before = proxy.requests.total()
        blobs.ensure(root / "a", b"1")
        assert proxy.requests.total() == before + requests
        blobs.disconnect()
    blobs.ensure(root / "a", b"1")
    before = proxy.requests.total()
    blobs.create(root / "b", b"2")
    assert proxy.requests.total() == before + 1


@pytest.mark.parametrize("happens", [True, False], ids=["it happens", "it does not happen"])
def test_a_blob_is_ensured_whatever_the_answers(root: Location, proxy: FaultyProxy, happens: bool) -> None:
    for name in ("a", PROBE):
        proxy.faults.append(Fault("PUT", f"/{name}$", forwards=happens, times=1))
    blobs.ensure(root / "a", b"1")
    # If the put whose response was lost took effect, the next one is refused, which already proves that writes are
    # conditional.
    assert proxy.met == {"/a$": 1} | ({} if happens else {f"/{PROBE}$": 1})
    assert blobs.read(root / "a") == b"1"


# --- failures


def failure(root: Location) -> TidelakeError:
    """The error of a store that cannot be opened."""
    with pytest.raises(TidelakeError) as caught:
        OpenTable(root / "t")
    assert "do-not-show" not in str(caught.value)
    assert ENVIRONMENT["AWS_SECRET_ACCESS_KEY"] not in str(caught.value)
    assert root.root in str(caught.value)
    return caught.value


def test_a_missing_bucket_is_reported(tmp_path: Path, object_store: ObjectStore) -> None:
    settings = object_store.settings() | {"store": "s3://no-such-bucket/store"}
    error = failure(Store(place_of(tmp_path, settings)).root)
    assert isinstance(error, BucketMissing)
    with pytest.raises(BucketMissing):
        create_table(locate("s3://no-such-bucket/store") / "t", SCHEMA)


@pytest.mark.parametrize(
    ("method", "access"), [("GET", "list"), ("PUT", "write"), ("POST", "delete")], ids=["list", "write", "delete"]
)
@pytest.mark.parametrize("code", swept(["AccessDenied", "ExpiredToken", "RequestTimeTooSkewed"], ["ExpiredToken"]))
def test_a_missing_permission_is_reported(
    root: Location, proxy: FaultyProxy, method: str, access: str, code: str
) -> None:
    blobs.write(root / "t" / "a", b"1")
    proxy.faults = [Fault(method, "", answer=refusal(403, code, "sorry"))]
    requests: dict[str, Callable[[], object]] = {
        "list": lambda: blobs.list_names(root / "t"),
        "write": lambda: blobs.write(root / "t" / "b", b"2"),
        "delete": lambda: blobs.delete(root / "t" / "a"),
    }
    with pytest.raises(
        StoreAccessDenied, match=f"these credentials are not allowed to {access} {root}/t.*{code}: sorry"
    ):
        requests[access]()
    proxy.faults = []
    assert blobs.read(root / "t" / "a") == b"1", "nothing is lost"


def test_read_only_credentials_open_a_table_up_to_its_last_acknowledged_entry(
    table: Location, proxy: FaultyProxy
) -> None:
    for upper in (6, 7):
        OpenTable(table).commit({"upper": upper})
    (marker,) = [name for name in blobs.list_names(table / ACKED) if name.startswith(f"{2:020d}-")]
    blobs.delete(table / ACKED / marker)
    proxy.faults = [Fault(method, "", answer=refusal(403, "AccessDenied")) for method in ("PUT", "POST", "DELETE")]
    assert OpenTable(table).value("upper") == 6
    proxy.faults = []
    assert OpenTable(table).value("upper") == 7
    proxy.faults = [Fault("PUT", "_delta_log", answer=refusal(403, "AccessDenied", "sorry"))]
    with pytest.raises(StoreAccessDenied, match=r"these credentials are not allowed to write .*AccessDenied") as denied:
        OpenTable(table).commit({"upper": 8})
    assert "do-not-show" not in str(denied.value)


def test_a_bucket_in_another_region_is_reported(root: Location, proxy: FaultyProxy) -> None:
    proxy.faults = [Fault("GET", "", answer=refusal(400, "AuthorizationHeaderMalformed", "expecting 'eu-west-1'"))]
    error = failure(root)
    assert isinstance(error, WrongRegion)
    assert "expecting 'eu-west-1'" in error.fact


def test_an_endpoint_that_hangs_is_given_up_in_bounded_time(table: Location, proxy: FaultyProxy) -> None:
    proxy.faults = [Fault("GET", "", hang_s=30)]
    started = time.monotonic()
    with pytest.raises(StoreUnreachable, match="does not serve"):
        OpenTable(table)
    assert time.monotonic() - started < 15
    proxy.faults = []
    assert OpenTable(table).value("upper") == 5


def test_an_endpoint_that_refuses_connections_is_reported(tmp_path: Path, object_store: ObjectStore) -> None:
    settings = object_store.settings(endpoint="http://127.0.0.1:1", request_timeout_s=1)
    assert isinstance(failure(Store(place_of(tmp_path, settings)).root), StoreUnreachable)


def test_transient_errors_go_unnoticed(table: Location, proxy: FaultyProxy) -> None:
    proxy.faults = [Fault(method, "", answer=refusal(503, "SlowDown"), times=2) for method in ("GET", "PUT", "HEAD")]
    assert OpenTable(table).commit({"upper": 9}, write_run(table, "r1", rows(1))).version == 1
    assert OpenTable(table).value("upper") == 9


def test_an_acknowledged_entry_that_disappears_is_reported_as_damage(table: Location) -> None:
    OpenTable(table).commit({"upper": 6})
    text = blobs.read(entry_path(table, 1))
    blobs.delete(entry_path(table, 1))
    assert OpenTable(table).value("upper") == 6, "this process has verified it, and its marker is there"
    forget_all()  # as in another process
    with pytest.raises(DamagedLog, match="version 1 was acknowledged, but its entry is missing"):
        OpenTable(table)
    blobs.create(entry_path(table, 1), text[: len(text) // 2])
    with pytest.raises(DamagedLog):
        OpenTable(table)


def test_an_incomplete_entry_is_reported_as_damage_because_no_object_is_torn(table: Location) -> None:
    blobs.create(entry_path(table, 1), b'{"commitInfo": {"nonce"')
    with pytest.raises(DamagedLog, match="the entry of version 1 is not the one that was written"):
        OpenTable(table)
    assert blobs.exists(entry_path(table, 1))


def test_the_status_of_a_lake_names_the_store_and_the_problem(
    tmp_path: Path, object_store: ObjectStore, proxy: FaultyProxy
) -> None:
    schema = {"type": "record", "name": "a", "fields": [{"name": "id", "type": "long"}]}
    block = {"family": "plain", "topic": "a", "schema": schema}
    document = object_store.settings(endpoint=proxy.endpoint) | {"collections": {"a": block}}
    (tmp_path / "collections.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    lake = Lake.open(tmp_path / "collections.yaml")
    assert lake.status() == {"a": None}
    proxy.faults = [Fault("GET", "", answer=refusal(403, "ExpiredToken", "it has expired"))]
    error = lake.status()["a"]
    assert isinstance(error, StoreUnreadable)
    assert "ExpiredToken: it has expired" in str(error)


# --- one store under two names


def test_two_uris_of_one_folder_are_one_store(object_store: ObjectStore, tmp_path: Path) -> None:
    settings = object_store.settings()
    place = place_of(tmp_path, settings)
    other = place_of(tmp_path, settings | {"store": settings["store"].replace("/store", "//store/")})
    assert (other.uri, Store(other).root) == (place.uri, Store(place).root)
    create_table(Store(place).root / "t", SCHEMA)
    stale = OpenTable(Store(other).root / "t")
    OpenTable(Store(place).root / "t").commit({})
    with pytest.raises(Conflict):
        stale.commit({})
