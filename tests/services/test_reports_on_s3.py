"""Reports in S3: a bucket serves them, several writers keep all lines, and failures are reported. No JVM is started."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import obstore
import pytest
import yaml
from typer.testing import CliRunner

from expectations.frame import result_frame
from expectations.judge import judge
from expectations.last_verdicts import keep_verdicts, last_verdicts, save_verdicts
from expectations.published import published_results
from expectations.suite import Rule, build_suite
from tests.expectations.reports import STATUS, at, report, settings
from tests.report.stored import NAME, Stored
from tests.services.faulty_proxy import Fault, FaultyProxy, faulty_proxy, refusal
from tests.services.object_store import ObjectStore
from tidelake.cli.app import app
from tidelake.errors import BucketMissing, StoreAccessDenied, StoreUnreadable
from tidelake.report.facts import CheckResult, unreadable_facts
from tidelake.report.history import append_history, read_history, row_of
from tidelake.report.pages import write_report
from tidelake.settings.lake import load_settings
from tidelake.settings.object_store import ObjectStorePlace
from tidelake.storage import blobs
from tidelake.storage.location import Location, locate
from tidelake.storage.s3 import open_store

pytestmark = pytest.mark.services


@pytest.fixture
def proxy(object_store: ObjectStore) -> Iterator[FaultyProxy]:
    with faulty_proxy(object_store.endpoint) as running:
        yield running


@pytest.fixture
def place(tmp_path: Path, object_store: ObjectStore, proxy: FaultyProxy) -> ObjectStorePlace:
    """The folder of the reports, behind the proxy."""
    there = object_store.settings("docs", endpoint=proxy.endpoint, request_timeout_s=2)
    file = tmp_path / "collections.yaml"
    file.write_text(yaml.safe_dump({"data_docs": there["store"], "s3": there["s3"]}), encoding="utf-8")
    data_docs = load_settings(file).data_docs
    assert isinstance(data_docs, ObjectStorePlace)
    return data_docs


def media_types(place: ObjectStorePlace) -> dict[str, str]:
    """The media type of each file below a folder, by its path."""
    store = open_store(place)
    paths = [blob.location.path for blob in blobs.list_blobs(blobs.root_of(place))]
    found = {path: obstore.get(store, path, options={"head": True}).attributes for path in paths}
    return {path: str(attributes["Content-Type"]) for path, attributes in found.items() if "Content-Type" in attributes}


def test_a_bucket_can_serve_the_report(place: ObjectStorePlace, tmp_path: Path) -> None:
    stored = Stored(tmp_path)
    page = write_report(place, stored.facts(), [NAME, "visits"])
    write_report(place, stored.facts(), [NAME, "visits"])
    write_report(tmp_path / "docs", stored.facts(), [NAME, "visits"])
    assert (page, page.uri) == (blobs.root_of(place) / f"collections/{NAME}.html", f"{place}/collections/{NAME}.html")
    types = media_types(place)
    assert {path: types[path] for path in types if "history" not in path and not path.startswith("_")} == {
        "collections/prices.html": "text/html; charset=utf-8",
        "collections/prices.json": "application/json",
        "index.html": "text/html; charset=utf-8",
        "lake.json": "application/json",
    }
    rows = read_history(place, NAME)
    assert [row["verdict"] for row in rows] == ["Nothing is sealed yet, so there is nothing to read."] * 2
    docs = locate(tmp_path / "docs")
    known = [json.loads(blobs.read(root / "lake.json")) for root in (blobs.root_of(place), docs)]
    names = [[row["name"] for row in document["collections"]] for document in known]
    assert names == [[NAME, "visits"]] * 2


@pytest.mark.sweep
def test_many_files_of_the_history_are_merged(place: ObjectStorePlace, tmp_path: Path) -> None:
    row = row_of(Stored(tmp_path).facts())
    for _ in range(4):
        append_history(place, row, files_max=3)
    assert len(read_history(place, NAME)) == 4


def test_several_writers_keep_the_lines_of_all_collections(place: ObjectStorePlace) -> None:
    names = [f"name_{number}" for number in range(6)]

    def write(name: str) -> Location:
        chosen = settings().model_copy(update={"name": name})
        return write_report(place, unreadable_facts(chosen, "lost"), names)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(write, names))
    lake = json.loads(blobs.read(blobs.root_of(place) / "lake.json"))["collections"]
    assert {(row["name"], row["level"]) for row in lake} == {(name, "alarm") for name in names}
    page = blobs.read(blobs.root_of(place) / "index.html").decode()
    assert "6 collections need attention now" in page


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        pytest.param(
            Fault("PUT", "", answer=refusal(403, "AccessDenied", "sorry")), StoreAccessDenied, marks=pytest.mark.sweep
        ),
        (Fault("PUT", "", answer=refusal(400, "ExpiredToken", "sorry")), StoreAccessDenied),
        pytest.param(
            Fault("GET", r"lake\.json", answer=refusal(403, "AccessDenied", "sorry")),
            StoreAccessDenied,
            marks=pytest.mark.sweep,
        ),
        (Fault("PUT", "", answer=refusal(404, "NoSuchBucket", "sorry")), BucketMissing),
    ],
    ids=["write", "expired", "read", "bucket"],
)
def test_a_report_that_cannot_be_written_is_an_error_and_the_next_report_is_written(
    place: ObjectStorePlace, proxy: FaultyProxy, fault: Fault, kind: type[StoreUnreadable]
) -> None:
    facts = unreadable_facts(settings(), "lost")
    proxy.faults = [fault]
    with pytest.raises(kind, match=str(place)) as caught:
        write_report(place, facts, [NAME])
    assert "do-not-show" not in str(caught.value)
    proxy.faults = []
    write_report(place, facts, [NAME])
    assert blobs.exists(blobs.root_of(place) / "index.html")


def test_data_docs_are_copied_and_old_results_are_deleted(place: ObjectStorePlace) -> None:
    def validated(name: str, **more: Any) -> None:
        suite = build_suite(settings().model_copy(update={"name": name}))
        judge(result_frame(report(at(3)), STATUS, 1), suite, place, **more)

    validated("visits")
    for _ in range(3):
        validated(NAME, results_kept=2)
    results = published_results(place)
    assert [result.suite for result in results] == [NAME, NAME, "visits"]
    root, types = blobs.root_of(place), media_types(place)
    index = blobs.read(root / "validations.html").decode()
    for result in results:
        assert f'href="{result.page}"' in index
        assert types[result.page] == "text/html; charset=utf-8"
        assert "announced_is_recounted" in blobs.read(root / result.page).decode()
    pages = [path for path in types if path.startswith("validations/prices/")]
    assert len(pages) == 2
    assert types["static/styles/tidelake.css"] == "text/css; charset=utf-8"


def test_the_last_verdicts_are_kept_in_s3(place: ObjectStorePlace, proxy: FaultyProxy) -> None:
    rule = Rule("ids_are_unique", "ids are unique", lambda common, settings: None, blocking=True, is_own=True)  # type: ignore
    rules = [rule]
    (unknown,) = last_verdicts(place, NAME, rules)
    assert unknown.passed
    keep_verdicts(place, NAME)
    failed = CheckResult(rule.name, False, "alarm", "an id is null", True, ["null"])
    save_verdicts(place, NAME, 0, [failed])
    (verdict,) = last_verdicts(place, NAME, rules)
    assert (verdict.passed, verdict.examples) == (False, ["null"])
    proxy.faults = [Fault("GET", "verdicts", answer=refusal(403, "AccessDenied"))]
    (verdict,) = last_verdicts(place, NAME, rules)
    assert not verdict.passed
    assert "StoreAccessDenied" in str(verdict.note)


def test_the_doctor_checks_that_reports_can_be_written(
    place: ObjectStorePlace, proxy: FaultyProxy, tmp_path: Path
) -> None:
    command = ["doctor", "--config", str(tmp_path / "collections.yaml")]
    assert f"{place} can be written to" in " ".join(CliRunner().invoke(app, command).stdout.split())
    assert blobs.list_blobs(blobs.root_of(place)) == []
    proxy.faults = [Fault("PUT", "", answer=refusal(403, "AccessDenied", "sorry"))]
    assert "AccessDenied: sorry" in " ".join(CliRunner().invoke(app, command).stdout.split())
