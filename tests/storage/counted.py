"""An object store in memory that counts requests, without a server."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from typing import Any

import obstore
import pytest
from obstore.store import MemoryStore

from tidelake.storage import blobs, objects
from tidelake.storage.location import Location

PAGE = 1000
"""The number of names that one request lists."""


class CountedStore:
    """A store in memory. Each call of obstore counts as a request, and so does each further page of a listing."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Count until the test ends."""
        self.requests: Counter[str] = Counter()
        self.root: Location = blobs.mount(f"memory://{secrets.token_hex(8)}", MemoryStore())
        monkeypatch.setattr(objects, "obstore", self)

    def since(self, before: Counter[str]) -> dict[str, int]:
        """Return the requests counted since `before` was copied from `requests`."""
        return dict(sorted((self.requests - before).items()))

    def __getattr__(self, name: str) -> Any:
        call = getattr(obstore, name)

        def counted(*positional: Any, **named: Any) -> Any:
            self.requests[name] += 1
            return call(*positional, **named)

        return counted

    def list(self, *positional: Any, **named: Any) -> Iterator[Any]:
        """List lazily, as obstore does: a page is requested only when the one before it is used up."""
        self.requests["list"] += 1
        for number, meta in enumerate(chain.from_iterable(obstore.list(*positional, **named))):
            if number and number % PAGE == 0:
                self.requests["list"] += 1
            yield [meta]
