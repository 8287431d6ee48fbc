"""The servers to which the client of a schema registry sends the password."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tidelake.settings.registry import RegistrySettings
from tidelake.settings.secret import Secret
from tidelake.topic.schema_registry import SchemaRegistry


@contextmanager
def serving(seen: list[tuple[str, bool]], to: str | None = None) -> Iterator[str]:
    """A server that notes each path and whether a password came with it, and redirects `/subjects` to `to`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append((self.path, "Authorization" in self.headers))
            if to is not None and self.path.startswith("/subjects"):
                self.send_response(302)
                self.send_header("Location", to)
            else:
                self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"[]")

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_the_password_is_not_sent_to_another_server_after_a_redirect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "*")
    (tmp_path / "password").write_text("secret", encoding="utf-8")

    def ask(url: str) -> None:
        login: dict[str, Any] = {"username": "u", "password": Secret(file=tmp_path / "password")}
        assert SchemaRegistry(RegistrySettings(url=url, cache=tmp_path, **login)).schemas_of("s") == {}

    first: list[tuple[str, bool]] = []
    second: list[tuple[str, bool]] = []
    with serving(second) as other, serving(first, f"{other}/moved") as url:
        ask(url)
    assert [sent for _, sent in first] == [True]
    assert second == [("/moved", False)]
    own: list[tuple[str, bool]] = []
    with serving(own, "/moved") as url:
        ask(url)
    assert [sent for _, sent in own] == [True, True]


def test_a_registry_on_this_machine_is_not_asked_through_a_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "password").write_text("secret", encoding="utf-8")
    login: dict[str, Any] = {"username": "u", "password": Secret(file=tmp_path / "password")}
    asked: list[tuple[str, bool]] = []
    by_proxy: list[tuple[str, bool]] = []
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with serving(by_proxy) as proxy, serving(asked) as url:
        monkeypatch.setenv("http_proxy", proxy)
        assert SchemaRegistry(RegistrySettings(url=url, cache=tmp_path, **login)).schemas_of("s") == {}
    assert (by_proxy, [has_password for _, has_password in asked]) == ([], [True])
