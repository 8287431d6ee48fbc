"""Every public call that does not start a JVM refuses an argument of a wrong type, and names it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lakes.held import HeldLake
from tests.lakes.lake import NAME
from tidelake import open_lake
from tidelake.errors import ArgumentRefused
from tidelake.lake import Lake

NEITHER = object()
NUMBERS: tuple[Any, ...] = ("x", 1.5, True, b"x", [1], NEITHER)
TEXTS: tuple[Any, ...] = (5, 1.5, True, b"x", ["x"], NEITHER)
LISTS: tuple[Any, ...] = (None, 5, "id", b"id", [None], [5], NEITHER)
FLAGS: tuple[Any, ...] = (None, 0, "no", [True], NEITHER)
Call = Callable[[Lake, Any], object]


def calls() -> Iterator[tuple[str, Call, tuple[Any, ...]]]:
    """Every argument: its name in the error, a call with it, and wrong values."""
    for read in ("rows", "subscribe"):
        for name, wrong in (("columns", LISTS), ("where", TEXTS), ("skip_errors", FLAGS), ("as_of", NUMBERS)):
            yield name, _with(read, name), wrong
    for name, wrong in (
        ("snapshot", FLAGS),
        ("rows_max", NUMBERS),
        ("spark", (5, "x", NEITHER)),
        ("capability", TEXTS),
    ):
        yield name, _with("subscribe", name), wrong
    yield "first", lambda lake, value: lake.collection(NAME).rows_between(value, 2), (None, *NUMBERS)
    yield "last", lambda lake, value: lake.collection(NAME).rows_between(1, value), (None, *NUMBERS)
    yield "columns", lambda lake, value: lake.collection(NAME).updates(1, columns=value), LISTS
    yield "spark", lambda lake, value: lake.collection(NAME).snapshot(value), (None, 5, "x")
    yield "seq", lambda lake, value: lake.collection(NAME).acquire(at=1).pin(value, 2), (*NUMBERS, -1, 2**63)
    for call in ("collection", "status", "history", "stored", "holds", "dropping", "drop"):
        yield "name", _named(call), (*TEXTS, "\ud800", "a\0")
    yield "name", lambda lake, value: lake.renew(value, "a.b.c"), TEXTS
    yield "name", lambda lake, value: lake.release(value, "a.b.c"), TEXTS
    yield "token", lambda lake, value: lake.renew(NAME, value), (None, *TEXTS)
    yield "token", lambda lake, value: lake.release(NAME, value), (None, *TEXTS)
    yield "name", lambda lake, value: lake.at("latest", value), TEXTS
    yield "other", lambda lake, value: lake.rename(NAME, value), TEXTS
    yield "query", lambda lake, value: lake.query(value), (None, *TEXTS)
    yield "limit", lambda lake, value: lake.history(NAME, value), NUMBERS
    yield "kinds", lambda lake, value: lake.collection(NAME).history(None, value), LISTS
    yield "topic", lambda lake, value: lake.trace(value, 0, 0), TEXTS
    yield "partition", lambda lake, value: lake.trace(NAME, value, 0), NUMBERS
    yield "offset", lambda lake, value: lake.trace(NAME, 0, value), NUMBERS
    yield "offset", lambda lake, value: lake.collection(NAME).trace(NAME, 0, value), NUMBERS
    yield "limit", lambda lake, value: lake.collection(NAME).late(value), NUMBERS
    yield "decision", lambda lake, value: lake.collection(NAME).decide(value), TEXTS
    yield "subject", lambda lake, value: lake.collection(NAME).withdraw(value), NUMBERS
    yield "writer", lambda lake, value: lake.collection(NAME).fence(value), TEXTS


def _with(call: str, argument: str) -> Call:
    return lambda lake, value: getattr(lake.collection(NAME), call)(**{argument: value})


def _named(call: str) -> Call:
    return lambda lake, value: getattr(lake, call)(value)


def test_every_argument_of_a_wrong_type_is_refused_by_name(tmp_path: Path) -> None:
    held = HeldLake.create(tmp_path)
    held.append((1, 1, 1), (2, 2, 1), upper=5)
    lake = open_lake(held.file)
    for name, call, wrong in calls():
        for value in wrong:
            with pytest.raises(ArgumentRefused, match=f"^{name} is "):
                call(lake, value)
    assert [hold for hold in lake.collection(NAME).holds() if hold.pinned_seq is not None] == []


def test_a_token_in_place_of_a_capability_is_not_repeated(tmp_path: Path) -> None:
    held = HeldLake.create(tmp_path, upper=5)
    token = held.collection.acquire().token
    with pytest.raises(ArgumentRefused, match=r"capability is .*, but must be a read capability\n") as refused:
        held.collection.subscribe(capability=token)  # type: ignore[call-overload]
    assert token.split(".")[2] not in str(refused.value)
