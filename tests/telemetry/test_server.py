"""The endpoint that Prometheus scrapes."""

from __future__ import annotations

import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tidelake.errors import ConfigurationError
from tidelake.telemetry.exposition import CONTENT_TYPE
from tidelake.telemetry.server import MetricsServer


@contextmanager
def serving(read: Callable[[], str]) -> Iterator[str]:
    with MetricsServer("127.0.0.1", 0, read) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def get(url: str) -> tuple[int, str, str]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read().decode()


def test_each_scrape_reads_again() -> None:
    readings = iter(["first\n", "second\n"])
    with serving(lambda: next(readings)) as url:
        assert get(f"{url}/metrics") == (200, CONTENT_TYPE, "first\n")
        assert get(f"{url}/metrics?x=1")[2] == "second\n"
        assert get(f"{url}/")[0] == 404


def test_an_error_fails_the_scrape_and_not_the_server(capfd: pytest.CaptureFixture[str]) -> None:
    def read() -> str:
        raise ConfigurationError("collections.yaml", "store", "is not a path", "write it as text")

    with serving(read) as url:
        status, _, text = get(f"{url}/metrics")
        assert (status, text) == (500, "error: collections.yaml: store: is not a path\nhint: write it as text\n")
        assert get(f"{url}/metrics")[0] == 500
    assert "is not a path" in capfd.readouterr().err


def test_scrapes_that_wait_share_one_reading() -> None:
    begun, finish = threading.Event(), threading.Event()
    readings: list[int] = []

    def read() -> str:
        readings.append(len(readings))
        begun.set()
        assert finish.wait(10)
        return f"{readings[-1]}\n"

    with serving(read) as url:
        answers: list[str] = []
        threads = [threading.Thread(target=lambda: answers.append(get(f"{url}/metrics")[2])) for _ in range(6)]
        threads[0].start()
        assert begun.wait(10)
        for thread in threads[1:]:
            thread.start()
        time.sleep(0.2)  # the other five have asked by now, and are waiting
        finish.set()
        for thread in threads:
            thread.join()
    # The first reading began before the other scrapes asked; one more serves all of these.
    assert (len(readings), sorted(answers)) == (2, ["0\n", *["1\n"] * 5])
