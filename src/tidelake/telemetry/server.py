"""The endpoint that Prometheus scrapes: `GET /metrics`, read from the store for each scrape."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock

from tidelake.errors import TidelakeError
from tidelake.telemetry.exposition import CONTENT_TYPE

PATH = "/metrics"
_REQUEST_TIMEOUT_S = 10.0


class MetricsServer(ThreadingHTTPServer):
    """Serves metrics. The lake is read by one request at a time; requests that wait share the next reading."""

    daemon_threads = True

    def __init__(self, address: str, port: int, read: Callable[[], str]) -> None:
        """Listen on an address.

        Args:
            address: the address of an interface of this machine.
            port: the port; 0 picks a free one, whose number is then in `server_port`.
            read: returns the metrics as text.

        Raises:
            OSError: the port is taken, or the address is not one of this machine's.
        """
        super().__init__((address, port), _Handler)
        self._read = read
        self._lock = Lock()
        self._answer: tuple[float, str] | None = None

    def answer(self) -> str:
        """Return the metrics, from a reading that began after this call.

        Raises:
            TidelakeError: the settings are invalid, or the store cannot be opened.
        """
        asked = time.monotonic()
        with self._lock:
            if self._answer is None or self._answer[0] < asked:
                began = time.monotonic()
                self._answer = (began, self._read())
            return self._answer[1]


class _Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: MetricsServer
    timeout = _REQUEST_TIMEOUT_S

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != PATH:
            self._send(HTTPStatus.NOT_FOUND, f"there is nothing here but {PATH}\n")
            return
        try:
            text = self.server.answer()
        except (TidelakeError, OSError) as error:
            print(f"error: {error}", file=sys.stderr, flush=True)
            self._send(HTTPStatus.INTERNAL_SERVER_ERROR, f"error: {error}\n")
        else:
            self._send(HTTPStatus.OK, text, CONTENT_TYPE)

    def _send(self, status: HTTPStatus, text: str, kind: str = "text/plain; charset=utf-8") -> None:
        body = text.encode("utf-8")
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Log nothing: a scrape every few seconds would fill the log."""
