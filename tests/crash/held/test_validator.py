"""The validator accepts a correct history, and rejects any with an answer that no correct collection gives."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from tests.crash.held import truth
from tests.crash.held.records import FOR_EVER, Call, calls_in
from tests.crash.held.validator import History, HistoryBroken

SEED = "shore"  # with this seed, there are updates at the times where a doctored answer must differ
SECOND = 1_000_000_000


def rows(time: int) -> list[list[int]]:
    return [[row, diff] for row, diff in truth.contents_at(SEED, time).items()]


def updates(after: int, through: int) -> list[list[int]]:
    return [[row, time, diff] for (row, time), diff in truth.updates_between(SEED, after, through).items()]


def record(name: str, asked: dict[str, Any], answer: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"name": name, "asked": asked, "answer": answer, **more}


A, B, C = ({"id": name, "token": f"x.{name}.1"} for name in "abc")
CORRECT: dict[str, dict[str, Any]] = {
    "append": record("append", {"lower": 0, "upper": 12}, {"upper": 12}),
    "acquire": record("acquire", {"at": 4, "lease_ms": 60_000}, {"id": "a", "held": 4}),
    "compact": record("compact", {"keep": 0}, {"since": 4}),
    "first": record("read", {"as_of": 5}, {"rows": rows(5)}),
    "changes": record("changes", A | {"after": 5, "through": 9}, {"updates": updates(5, 9), "lives": True}),
    "later": record("read", {"as_of": 8}, {"rows": rows(8)}),
    "clone": record("clone", A | {"at": 4, "lease_ms": 1_000}, {"id": "b", "held": 4}),
    "downgrade": record("downgrade", A | {"to": 6}, {"held": 6}),
    "take": record("take", A, {"id": "a", "held": 6, "token": "x.a.2"}),
    "taken": record("renew", A, error={"kind": "CapabilityTaken"}),
    "moved": record("renew", {"id": "a", "token": "x.a.2"}, {}),
    "used": record("take", A, error={"kind": "CapabilityTaken"}),
    "back": record("downgrade", {"id": "a", "token": "x.a.2", "to": 5}, error={"kind": "FrontierRegression"}),
    "expired": record("renew", B, error={"kind": "CapabilityExpired"}, wait=3 * SECOND),
    "again": record("compact", {"keep": 0}, {"since": 6}),
    "forgotten": record("read", {"as_of": 5}, error={"kind": "SinceError", "since": 6}),
    "open": record("read", {"as_of": 12}, error={"kind": "UpperError", "upper": 12}),
    "drop": record("drop", {"id": "a", "token": "x.a.2"}, {}),
    "dropped": record("renew", {"id": "a", "token": "x.a.2"}, error={"kind": "CapabilityDropped"}),
    "last": record("compact", {"keep": 0}, {"since": 11}),
    "refused": record("acquire", {"at": 7, "lease_ms": 1_000}, error={"kind": "SinceError", "since": 11}),
    "newest": record("acquire", {"at": None, "lease_ms": 60_000}, {"id": "c", "held": 11}),
    "snapshot": record(
        "batch", C | {"who": "f", "to": 11}, {"held": 11, "after": None, "through": 11, "rows": rows(11)}
    ),
    "more": record("append", {"lower": 12, "upper": 15}, {"upper": 15}),
    "batch": record(
        "batch",
        C | {"who": "f", "to": 11},
        {"held": 11, "after": 11, "through": 13, "updates": updates(11, 13)},
    ),
    "next": record(
        "batch", C | {"who": "f", "to": 13}, {"held": 13, "after": 13, "through": 14, "updates": updates(13, 14)}
    ),
    "observe": record("observe", {}, {"since": 11, "upper": 15}),
}


def calls_of(history: dict[str, dict[str, Any]]) -> list[Call]:
    """The calls one after the other, a millisecond apart."""
    calls, now = [], SECOND
    for each in history.values():
        now += each.get("wait", 0)
        ended = FOR_EVER if each.get("killed") else now + 500_000
        calls.append(Call("p", each["name"], each["asked"], now, ended, each.get("answer"), each.get("error")))
        now += 1_000_000
    return calls


def answers(name: str, **answer: Any) -> Callable[[dict[str, Any]], None]:
    return lambda history: history[name]["answer"].update(answer)


def fails(name: str, kind: str, **more: Any) -> Callable[[dict[str, Any]], None]:
    def change(history: dict[str, Any]) -> None:
        history[name] |= {"answer": None, "error": {"kind": kind, **more}}

    return change


def succeeds(name: str, **answer: Any) -> Callable[[dict[str, Any]], None]:
    return lambda history: history[name].update({"answer": answer, "error": None})


def without(*names: str) -> Callable[[dict[str, Any]], None]:
    def change(history: dict[str, Any]) -> None:
        for name in names:
            del history[name]

    return change


def ends(name: str, *records: dict[str, Any]) -> Callable[[dict[str, Any]], None]:
    """Let the history end with these records, in place of a call and everything after it."""

    def change(history: dict[str, Any]) -> None:
        for left_out in list(history)[list(history).index(name) :]:
            del history[left_out]
        history |= {f"end {number}": record for number, record in enumerate(records)}

    return change


BROKEN: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "since passed a hold": (answers("compact", since=5), "since was 5 although it held 4"),
    "since passed a hold, as an error says": (fails("first", "SinceError", since=6), "since was 6 although it held 4"),
    "since moved back": (answers("observe", since=10), "since has moved back"),
    "since stayed although nothing held it": (answers("last", since=6), "since could have moved to 11"),
    "since reached upper": (answers("observe", since=15), "since is not before upper"),
    "upper moved back": (answers("observe", upper=14), "upper has moved back"),
    "upper moved unasked": (answers("observe", upper=16), "nobody had moved upper that far"),
    "a row is missing": (answers("first", rows=rows(5)[1:]), "these are not the contents"),
    "a row of a later time shows": (answers("first", rows=rows(6)), "these are not the contents"),
    "an update is missing": (answers("changes", updates=updates(6, 9)), "not the changes"),
    "an update shows twice": (answers("changes", updates=updates(4, 9)), "not the changes"),
    "a time that nobody sealed is read": (without("more"), "nobody had (sealed that time yet|moved upper that far)"),
    "a hold is at another time": (answers("acquire", held=5), "it holds another time"),
    "a clone is at another time": (answers("clone", held=5), "it holds another time"),
    "a hold at a forgotten time": (succeeds("refused", id="d", held=7), "since was 11 although it held 7"),
    "a hold at an earlier time than the last": (answers("newest", held=10), "since was 11 although it held 10"),
    "a hold moves back": (succeeds("back", held=5), "it moved back"),
    "an earlier holder still has it": (succeeds("taken"), "its token was used up"),
    "a token is used twice": (succeeds("used", id="a", held=6, token="x.a.3"), "its token was used up"),
    "a token is refused although nobody used it": (without("take"), "nobody has taken it over"),
    "a token is used up although the new one was not used": (
        ends("taken", record("take", A, error={"kind": "CapabilityTaken"})),
        "nobody has taken it over",
    ),
    "two tokens from one are both good": (
        ends(
            "taken",
            record("take", A, {"id": "a", "held": 6, "token": "x.a.3"}),
            record("renew", {"id": "a", "token": "x.a.2"}, {}),
            record("renew", {"id": "a", "token": "x.a.3"}, {}),
        ),
        "both new tokens are good",
    ),
    "a dropped hold lives": (succeeds("dropped"), "it was dropped before"),
    "a hold is gone although nobody dropped it": (fails("moved", "CapabilityDropped"), "nobody has dropped it"),
    "a lease ends too early": (fails("moved", "CapabilityExpired"), "it was called .* ns ago"),
    "an expired hold lives again": (ends("again", record("renew", B, {})), "the capability had ended"),
    "a readable time is refused": (fails("later", "SinceError", since=4), "the time is at or after since"),
    "a sealed time is refused": (fails("later", "UpperError", upper=12), "the time is before upper"),
    "a call fails for no reason": (fails("moved", "Conflict"), "no call may fail with Conflict"),
    "a compaction fails": (fails("compact", "DamagedTable"), "no such call may fail"),
    "a read fails for no reason": (fails("later", "DamagedTable"), "no read may fail with DamagedTable"),
    "a follower misses a time": (
        answers("next", after=14, updates=updates(14, 14)),
        "the previous batch ended at 13",
    ),
    "a follower gets a time again": (
        answers("next", after=12, updates=updates(12, 14)),
        "the previous batch ended at 13",
    ),
    "a follower gets half a time": (answers("batch", updates=updates(11, 12)), "not the changes"),
}


def test_a_correct_history_is_accepted() -> None:
    History(SEED, calls_of(CORRECT)).check()
    assert all(truth.updates_at(SEED, time) for time in (5, 6, 12, 13, 14)), "a doctored answer must differ"


@pytest.mark.parametrize("what", BROKEN)
def test_an_impossible_history_is_refused(what: str) -> None:
    change, why = BROKEN[what]
    history = deepcopy(CORRECT)
    change(history)
    with pytest.raises(HistoryBroken, match=why):
        History(SEED, calls_of(history)).check()


def test_contents_and_changes_are_compared_with_each_other() -> None:
    history = deepcopy(CORRECT)
    history["first"]["answer"]["rows"] = history["later"]["answer"]["rows"] = [[0, 1]]
    with pytest.raises(HistoryBroken, match="does not give"):
        History(SEED, calls_of(history)).check_sums()


@pytest.mark.parametrize("name", ["append", "acquire", "downgrade", "take", "drop", "more", "compact"])
def test_a_call_whose_process_was_killed_may_or_may_not_have_taken_effect(name: str) -> None:
    if name in ("acquire", "downgrade", "take"):
        for others in ((), ("back", "taken", "moved", "used")):
            history = {key: each for key, each in deepcopy(CORRECT).items() if key not in others}
            history[name] |= {"answer": None, "killed": True}
            if name == "acquire":  # nobody knows its id
                history = {key: history[key] for key in ("append", "acquire", "compact", "first", "last")}
            if name == "take" and "used" in history:  # nobody uses the lost new token, so the old one is still good
                del history["used"]
                History(SEED, calls_of(history)).check()
                history["take again"] = record("take", A, error={"kind": "CapabilityTaken"})
                with pytest.raises(HistoryBroken, match="nobody has taken it over"):
                    History(SEED, calls_of(history)).check()
                continue
            History(SEED, calls_of(history)).check()
        return
    history = deepcopy(CORRECT)
    history[name] |= {"answer": None, "killed": True}
    History(SEED, calls_of(history)).check()


def test_a_capability_whose_maker_was_killed_may_hold_the_time_that_was_the_last_one_then() -> None:
    history = {
        "append": record("append", {"lower": 0, "upper": 12}, {"upper": 12}),
        "lost": record("acquire", {"at": None, "lease_ms": 60_000}, killed=True),
        "more": record("append", {"lower": 12, "upper": 15}, {"upper": 15}),
        "compact": record("compact", {"keep": 0}, {"since": 11}),
    }
    History(SEED, calls_of(history)).check()
    history["compact"]["answer"] = {"since": 10}
    with pytest.raises(HistoryBroken, match="since could have moved to 11"):
        History(SEED, calls_of(history)).check()
    history["compact"]["answer"] = {"since": 12}  # since has passed 11, so nothing holds 11 any more
    history["again"] = record("compact", {"keep": 0}, {"since": 12})
    with pytest.raises(HistoryBroken, match="since could have moved to 14"):
        History(SEED, calls_of(history)).check()


def test_a_torn_last_line_is_left_out() -> None:
    lines = ['{"name": "observe", "asked": {}, "at": 1}\n', '{"answer": {"since": 0, "up']
    (call,) = calls_in(lines, "p")
    assert (call.ended, call.answer) == (FOR_EVER, None)
