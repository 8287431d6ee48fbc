"""A proxy in front of an object store that counts requests, loses answers, and gives wrong ones, as a test says."""

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
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length"}


@dataclass
class Fault:
    """What happens to requests of a method whose path matches a pattern.

    Args:
        method: `PUT`, `GET`, …
        path: a regular expression for the path and the query.
        forwards: whether the store carries out the request.
        answer: the answer's status and body; None ends the connection without an answer.
        hang_s: how long to wait before the answer.
        times: how many requests it happens to.
        before: what else happens before the request is carried out.
    """

    method: str
    path: str
    forwards: bool = False
    answer: tuple[int, str] | None = None
    hang_s: float = 0.0
    times: int = 10**9
    before: Callable[[], object] = lambda: None


def refusal(status: int, code: str, message: str = "") -> tuple[int, str]:
    """The answer of a store that refuses a request; like real ones, it repeats a part of the request."""
    text = f"<Code>{code}</Code><Message>{message}</Message><StringToSign>do-not-show</StringToSign>"
    return status, f'<?xml version="1.0" encoding="UTF-8"?><Error>{text}</Error>'


class Request(NamedTuple):
    """A request as a bill shows it."""

    verb: str
    """`get`, `head`, `put`, `list` or `delete`; each request of a multipart upload is a put."""
    target: str
    """The path and the query, decoded."""
    bytes: int
    """The size of both bodies."""


def verb_of(method: str, target: str) -> str:
    """Return what a request does.

    >>> verb_of("GET", "/b?list-type=2&prefix=a/"), verb_of("GET", "/b/a"), verb_of("POST", "/b?delete")
    ('list', 'get', 'delete')
    """
    query = urlsplit(target).query
    if method == "GET" and ("list-type=" in query or "uploads" in query):
        return "list"
    if method == "POST":
        return "delete" if "delete" in query else "put"
    return method.lower()


@dataclass
class FaultyProxy:
    """A running proxy."""

    endpoint: str
    faults: list[Fault] = field(default_factory=list)
    met: Counter[str] = field(default_factory=Counter)
    """How many requests each fault has happened to, by its path."""
    requests: Counter[str] = field(default_factory=Counter)
    """How many requests there were, by method."""
    served: list[Request] = field(default_factory=list)
    """All requests, in the order of their answers."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, method: str, path: str) -> Fault | None:
        """Count a request, and return the fault that happens to it."""
        with self.lock:
            self.requests[method] += 1
            for fault in self.faults:
                if fault.method == method and fault.times > 0 and re.search(fault.path, path):
                    fault.times -= 1
                    self.met[fault.path] += 1
                    return fault
        return None


@contextmanager
def faulty_proxy(target: str) -> Iterator[FaultyProxy]:
    """Run a proxy on a free port of 127.0.0.1."""
    address = urlsplit(target).netloc

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            fault = proxy.take(self.command, self.path)
            if fault is not None:
                fault.before()
            if fault is None or fault.forwards:
                status, headers, data = self._forward(body)
            if fault is not None:
                time.sleep(fault.hang_s)
                if fault.answer is None:
                    self.close_connection = True
                    return
                status, text = fault.answer
                headers, data = [("Content-Type", "application/xml")], text.encode()
            target = unquote(self.path)
            proxy.served.append(Request(verb_of(self.command, target), target, len(body) + len(data)))
            self.send_response(status)
            for name, value in headers:
                if name.lower() not in _HOP_BY_HOP:
                    self.send_header(name, value)
            length = next((value for name, value in headers if name.lower() == "content-length"), str(len(data)))
            self.send_header("Content-Length", length if self.command == "HEAD" and fault is None else str(len(data)))
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
            """A client that has stopped waiting closes its connection."""

    server = Quiet(("127.0.0.1", 0), Handler)
    proxy = FaultyProxy(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
