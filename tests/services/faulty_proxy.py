"""A proxy that counts the requests to an object store, and causes faults, as instructed or at random."""

from __future__ import annotations

import http.client
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length"}
_LOOK_S = 0.02
"""The interval at which the server checks whether it should stop; with the default, each stop would take 0.5 s."""


@dataclass
class Fault:
    """A fault that happens to requests with a given method and a path that matches a pattern.

    Args:
        method: `PUT`, `GET`, …
        path: a regular expression for the path and the query.
        forwards: whether the store carries out the request.
        answer: the status and body of the response; None ends the connection without a response.
        passes: whether the client gets the store's own response instead of `answer`.
        is_cut: whether the connection ends in the middle of the store's response.
        hang_s: how long to wait before the response.
        changes: what happens to the body of the store's own response.
        times: how many requests the fault happens to.
        before: what else happens before the request is carried out.
    """

    method: str
    path: str
    forwards: bool = False
    answer: tuple[int, str] | None = None
    passes: bool = False
    is_cut: bool = False
    hang_s: float = 0.0
    changes: Callable[[bytes], bytes] = lambda body: body
    times: int = 10**9
    before: Callable[[], object] = lambda: None


def refusal(status: int, code: str, message: str = "") -> tuple[int, str]:
    """The response of a store that refuses a request; like a real one, it repeats part of the request."""
    text = f"<Code>{code}</Code><Message>{message}</Message><StringToSign>do-not-show</StringToSign>"
    return status, f'<?xml version="1.0" encoding="UTF-8"?><Error>{text}</Error>'


class Request(NamedTuple):
    """A request, as it would appear on a bill."""

    verb: str
    """`get`, `head`, `put`, `list` or `delete`; each request of a multipart upload is a put."""
    target: str
    """The path and the query, decoded."""
    bytes: int
    """The total size of the request body and the response body."""


def verb_of(method: str, target: str) -> str:
    """Return the kind of a request: one of the values of `Request.verb`.

    >>> verb_of("GET", "/b?list-type=2&prefix=a/"), verb_of("GET", "/b/a"), verb_of("POST", "/b?delete")
    ('list', 'get', 'delete')
    """
    query = urlsplit(target).query
    if method == "GET" and ("list-type=" in query or "uploads" in query):
        return "list"
    if method == "POST":
        return "delete" if "delete" in query else "put"
    return method.lower()


class RandomFaults:
    """Faults that happen to any request, at random.

    Args:
        seed: the source of all randomness.
        share: the share of requests that a fault happens to.
    """

    def __init__(self, seed: int | str, share: float = 0.05) -> None:
        self._rng, self._share = Random(seed), share

    def next(self, method: str) -> tuple[str, Fault] | None:
        """The kind of the next request's fault, and the fault; None if nothing happens to the request."""
        if self._rng.random() >= self._share:
            return None
        wait_s = self._rng.uniform(0.01, 0.5)
        kinds = {
            "a late answer": Fault(method, "", forwards=True, passes=True, hang_s=wait_s),
            "a late request": Fault(method, "", forwards=True, passes=True, before=lambda: time.sleep(wait_s)),
            "a request that is lost": Fault(method, ""),
            "an answer that is lost": Fault(method, "", forwards=True),
            "an answer that is cut": Fault(method, "", forwards=True, passes=True, is_cut=True),
            "500": Fault(method, "", answer=refusal(500, "InternalError")),
            "503": Fault(method, "", answer=refusal(503, "SlowDown")),
            "500 after it was done": Fault(method, "", forwards=True, answer=refusal(500, "InternalError")),
            "503 after it was done": Fault(method, "", forwards=True, answer=refusal(503, "SlowDown")),
        }
        kind = self._rng.choice(list(kinds))
        return kind, kinds[kind]


@dataclass
class FaultyProxy:
    """A running proxy."""

    endpoint: str
    faults: list[Fault] = field(default_factory=list)
    at_random: RandomFaults | None = None
    """What may happen to requests that no fault matches."""
    key_id: str | None = None
    """The id of the only access key that has not expired; None if the store decides."""
    met: Counter[str] = field(default_factory=Counter)
    """How many requests each fault has happened to: by its path or, if it was random, by its kind."""
    requests: Counter[str] = field(default_factory=Counter)
    """How many requests there were, by method."""
    served: list[Request] = field(default_factory=list)
    """All requests that got a response, in the order of the responses."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, method: str, path: str) -> Fault | None:
        """Count a request, and return the fault that happens to it; None if none does."""
        with self.lock:
            self.requests[method] += 1
            for fault in self.faults:
                if fault.method == method and fault.times > 0 and re.search(fault.path, path):
                    fault.times -= 1
                    self.met[fault.path] += 1
                    return fault
            drawn = None if self.at_random is None else self.at_random.next(method)
            if drawn is None:
                return None
            self.met[drawn[0]] += 1
            return drawn[1]


@contextmanager
def faulty_proxy(target: str) -> Iterator[FaultyProxy]:
    """Run a proxy on a free port of 127.0.0.1."""
    address = urlsplit(target).netloc

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            fault = proxy.take(self.command, self.path)
            if proxy.key_id is not None and f"Credential={proxy.key_id}/" not in self.headers.get("Authorization", ""):
                fault = Fault(self.command, "", answer=refusal(400, "ExpiredToken", "The token has expired."))
            if fault is not None:
                fault.before()
            if fault is None or fault.forwards:
                status, headers, data = self._forward(body)
            if fault is not None:
                time.sleep(fault.hang_s)
            if fault is not None and not fault.passes:
                if fault.answer is None:
                    self.close_connection = True
                    return
                status, text = fault.answer
                headers, data = [("Content-Type", "application/xml")], text.encode()
            elif fault is not None:
                data = fault.changes(data)
            target = unquote(self.path)
            proxy.served.append(Request(verb_of(self.command, target), target, len(body) + len(data)))
            self.send_response(status)
            for name, value in headers:
                if name.lower() not in _HOP_BY_HOP:
                    self.send_header(name, value)
            is_made_up = fault is not None and not fault.passes
            length = next((value for name, value in headers if name.lower() == "content-length"), str(len(data)))
            self.send_header("Content-Length", length if self.command == "HEAD" and not is_made_up else str(len(data)))
            if fault is not None and fault.is_cut:
                self.close_connection = True
                data = data[: len(data) // 2]
                if not data:
                    return  # the headers have not been sent
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        def _forward(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
            connection = http.client.HTTPConnection(address, timeout=60)
            try:
                connection.request(self.command, self.path, body, dict(self.headers.items()))
                answer = connection.getresponse()
                return answer.status, answer.getheaders(), answer.read()
            finally:
                connection.close()

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _serve

        def log_message(self, *_: object) -> None:
            pass

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """Say nothing: a client that has stopped waiting closes its connection."""

    server = Quiet(("127.0.0.1", 0), Handler)
    proxy = FaultyProxy(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, args=(_LOOK_S,), daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
