"""Judges the recorded calls of processes by nothing but the model of time-varying collections.

It knows the collection as a function of time, and shares no code with Tidelake. A call took effect at one moment
between its beginning and its end; the call of a process that was killed took effect at some moment, or never. This
determines which answers were possible:

- `upper` moves only by appends, and `since` never passes a capability that lives. A capability lives if nobody has
  begun to drop it, and if a later call on it was answered or its last call was less than a lease ago.
- Neither frontier moves back: no answer states an earlier frontier than a previous answer did.
- A read between the frontiers returns the collection's contents, and a read of changes returns its updates; contents
  plus the changes after them equal later contents, wherever the range is cut.
- An error states its reason, and the reason was possible: a time before a `since`, or at or after an `upper`; or a
  capability that somebody had dropped or taken over, or that nobody had called for the length of a lease.
- A capability never moves back, and one that has ended stays ended.
- Whoever takes a capability over with its token gets a new token. From then on, the old one is good only for taking the
  capability over again, and only until a call is made with the new one; then the old one is used up. Of the new tokens
  that were obtained with the same old one, at most one is ever good for a call.
- Only the retention rule, or a capability that may still live, keeps a compaction from moving `since` further.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

from tests.crash.held import truth
from tests.crash.held.records import FOR_EVER, Call

CLOCK_EXACT_NS = 20_000_000
"""The error of the clocks that leases are compared with: file systems state times that are milliseconds old."""


class HistoryBroken(AssertionError):
    """A record that no correct history has."""


class Rising:
    """Bounds for a frontier that never moves back, from the calls that have seen it."""

    def __init__(self, seen: Iterable[tuple[int, int, Call]]) -> None:
        """Take `(moment, value, call)`: the frontier had reached the value at that moment, according to that call."""
        ordered = sorted(seen, key=lambda each: each[0])
        self._moments, self._greatest = [], list[int]()
        for moment, value, _ in ordered:
            self._moments.append(moment)
            self._greatest.append(max(value, self._greatest[-1] if self._greatest else 0))

    def by(self, moment: int) -> int:
        """The value that the frontier had certainly reached before a moment."""
        place = bisect_left(self._moments, moment)
        return self._greatest[place - 1] if place else 0


@dataclass
class Life:
    """The known state of one capability."""

    id: str
    made: Call
    since: int
    lease_ns: int
    calls: list[Call] = field(default_factory=list)
    """All calls on it, in the order in which they began."""

    @property
    def good(self) -> list[Call]:
        """The calls that succeeded, including the one that made it."""
        return [self.made, *(call for call in self.calls if call.answer is not None)]

    def moves(self) -> list[tuple[Call, int]]:
        """The downgrades that took effect, or may have."""
        return [(call, call.asked["to"]) for call in self.calls if "to" in call.asked and call.error is None]

    def latest(self, moment: int) -> int:
        """The latest time that it may hold at a moment."""
        return max([self.since, *(to for call, to in self.moves() if call.begun < moment)])

    def earliest(self, moment: int) -> int:
        """The earliest time that it may hold at a moment."""
        return max([self.since, *(to for call, to in self.moves() if call.ended < moment and call.answer is not None)])

    @property
    def drops(self) -> list[Call]:
        return [call for call in self.calls if call.name == "drop" and call.error is None]

    @property
    def lives_until(self) -> int:
        """The moment until which it certainly lives."""
        renewed = max(call.begun for call in self.good) + self.lease_ns - CLOCK_EXACT_NS
        return min([max(renewed, *(call.begun for call in self.good)), *(drop.begun for drop in self.drops)])

    def was_used(self, token: str, moment: int) -> bool:
        """Whether a call with a token had certainly taken effect at a moment."""
        calls = [call for call in self.calls if call.asked["token"] == token and call.ended < moment]
        return any(call.answer is not None and call.answer.get("through", 0) is not None for call in calls)

    def may_be_taken(self, call: Call) -> bool:
        """Whether a call may be refused because a take has replaced its token.

        A take that repeats another is refused only if a call may have been made with the token that the other got.
        """
        token, before = call.asked["token"], [other for other in self.calls if other.begun < call.ended]
        takes = [other for other in before if other.name == "take" and other.error is None and other is not call]
        # A read takes several steps, so a read that failed may still have used the token.
        used = {other.asked["token"] for other in before if other.error is None or other.name in _STEPWISE}
        for other in takes:
            fresh = None if other.answer is None else other.answer["token"]  # a killed process never used its new token
            if other.asked["token"] == token and (call.name != "take" or fresh in used):
                return True
            twins = (each for each in takes if each.asked["token"] == other.asked["token"] and each is not other)
            if fresh == token and any(twin.ended > other.begun for twin in twins):
                return True
        return False

    def may_live(self, moment: int) -> bool:
        """Whether it may live at a moment, or later."""
        ended = [call for call in self.calls if call.error is not None and call.error["kind"] in _ENDS]
        ended += [drop for drop in self.drops if drop.answer is not None]
        return all(call.ended >= moment for call in ended)


_EXPIRED, _DROPPED, _TAKEN, _UNKNOWN = (f"Capability{how}" for how in ("Expired", "Dropped", "Taken", "Unknown"))
_ENDS = (_EXPIRED, _DROPPED, _UNKNOWN)


class History:
    """The calls of all processes on one collection."""

    def __init__(self, seed: str, calls: list[Call]) -> None:
        self.seed, self.calls = seed, calls
        self.appends = [call for call in calls if call.name == "append"]
        self._appended = [call.begun for call in self.appends]
        self._reached = list(accumulate((call.asked["upper"] for call in self.appends), max))
        self.lives = self._lives()
        self.sums = 0
        """How often contents were compared with earlier contents plus the changes in between."""
        self.uppers = Rising(self._seen("upper"))
        self.sinces = Rising(self._seen("since"))

    def check(self) -> None:
        """Check everything.

        Raises:
            HistoryBroken: a record is impossible.
        """
        for call in self.calls:
            self._rule(call.error is None or call.name not in _NEVER_REFUSED, call, "no such call may fail")
        self.check_upper()
        self.check_since()
        self.check_capabilities()
        self.check_compactions()
        self.check_reads()
        self.check_sums()
        self.check_followers()

    # --- frontiers

    def _seen(self, what: str) -> Iterator[tuple[int, int, Call]]:
        for call in self.calls:
            for place in (call.answer, call.error):
                if place is not None and place.get(what) is not None:
                    yield call.ended, place[what], call

    def upper_until(self, moment: int) -> int:
        """The greatest value that upper may have at a moment."""
        place = bisect_left(self._appended, moment)
        return self._reached[place - 1] if place else 0

    def check_upper(self) -> None:
        """Only appends move upper, each from where the previous one left it."""
        for moment, upper, call in self._seen("upper"):
            self._rule(upper <= self.upper_until(moment), call, "nobody had moved upper that far")
            self._rule(upper >= self.uppers.by(call.begun), call, "upper has moved back")
        done = sorted((call.asked["lower"], call.asked["upper"]) for call in self.appends if call.answer is not None)
        for (_, end), (start, _) in pairwise(done):
            assert start >= end, f"two appends were answered for times from {start} onwards"

    def check_since(self) -> None:
        """`since` passes neither a living capability nor the last sealed time, and does not move back."""
        for moment, since, call in self._seen("since"):
            self._rule(since >= self.sinces.by(call.begun), call, "since has moved back")
            self._rule(since == 0 or since < self.upper_until(moment), call, "since is not before upper")
        for life in self.lives.values():
            ends = sorted({life.lives_until, *(call.begun for call, _ in life.moves())})
            for end in (end for end in ends if end <= life.lives_until):
                since, held = self.sinces.by(end), life.latest(end)
                self._rule(since <= held, life.made, f"since was {since} although it held {held}")

    def check_compactions(self) -> None:
        """A compaction moves `since` at least as far as the rule and the capabilities certainly allow."""
        lost = list(self._lost())
        for call in self.calls:
            if call.name != "compact" or call.answer is None:
                continue
            wanted = max(0, min(self.uppers.by(call.begun) - call.asked["keep"], self.uppers.by(call.begun) - 1))
            held = [
                life.earliest(call.begun)
                for life in self.lives.values()
                if life.made.begun < call.ended and life.may_live(call.begun)
            ]
            # If since has passed the time of a capability, that capability has ended.
            passed = self.sinces.by(call.begun)
            held = [time for time in held if time >= passed]
            # A capability whose maker was killed may exist, although nobody can ever call it.
            held += [max(first, passed) for made, first, last in lost if made.begun < call.ended and last >= passed]
            least = min([wanted, *held])
            self._rule(call.answer["since"] >= least, call, f"since could have moved to {least}")

    def _lost(self) -> Iterator[tuple[Call, int, int]]:
        """The calls that may have made a capability before their process was killed.

        Each comes with the first and the last time that the capability may hold.
        """
        for call in self.calls:
            if call.name not in _MAKERS or call.answer is not None or call.error is not None:
                continue
            if call.asked["at"] is not None:
                yield call, call.asked["at"], call.asked["at"]
                continue
            who = call.process.partition("-")[0]
            lives = (each for each in self.calls if each.process.partition("-")[0] == who)
            killed_by = min((each.begun for each in lives if each.begun > call.begun), default=FOR_EVER)
            first = max(0, self.uppers.by(call.begun) - 1, self.sinces.by(call.begun))
            yield call, first, max(first, self.upper_until(killed_by) - 1)

    # --- capabilities

    def _lives(self) -> dict[str, Life]:
        lives: dict[str, Life] = {}
        for call in self.calls:
            if call.name in _MAKERS and call.answer is not None:
                id = call.answer["id"]
                self._rule(id not in lives, call, "an id was given twice")
                lives[id] = Life(id, call, call.answer["held"], call.asked["lease_ms"] * 1_000_000)
        for call in self.calls:
            if call.asked.get("id") in lives:
                lives[call.asked["id"]].calls.append(call)
        return lives

    def check_capabilities(self) -> None:
        """Each call of a holder was answered in a way that the calls of all holders allow."""
        for call in self.calls:
            if call.name == "acquire":
                self._check_acquired(call)
        for life in self.lives.values():
            for call in life.calls:
                if call.name == "clone" and call.answer is not None:
                    held = call.answer["held"]
                    self._rule(
                        life.earliest(call.begun) <= held <= life.latest(call.ended), call, "it holds another time"
                    )
                if call.answer is not None:
                    self._check_allowed(life, call)
                elif call.error is not None:
                    self._check_refused(life, call)

    def _check_acquired(self, call: Call) -> None:
        at = call.asked["at"]
        if call.answer is not None:
            held = call.answer["held"]
            self._rule(held >= self.sinces.by(call.begun), call, "it holds a time that was forgotten")
            if at is not None:
                self._rule(held == at, call, "it holds another time")
            else:
                self._rule(held >= self.uppers.by(call.begun) - 1, call, "it holds an earlier time than the last")
                self._rule(held < max(1, self.upper_until(call.ended)), call, "nobody had sealed that time yet")
        elif call.error is not None:
            self._rule(call.error["kind"] == "SinceError" and at is not None, call, "no such error was possible")
            self._rule(at < call.error["since"], call, "the time is at or after since")

    def _check_allowed(self, life: Life, call: Call) -> None:
        """A call that succeeded: the capability lived, with this token, and did not move back."""
        for other in life.calls:
            if other.ended >= call.begun:
                continue
            kind = (other.error or {}).get("kind")
            self._rule(kind not in _ENDS, call, "the capability had ended")
            self._rule(not (other.name == "drop" and other.answer is not None), call, "it was dropped before")
            same = other.asked["token"] == call.asked["token"]
            if other.name == "take" and other.answer is not None and same:
                used = call.name != "take" or life.was_used(other.answer["token"], call.begun)
                self._rule(not used, call, "its token was used up")
            if kind == _TAKEN and same:
                self._rule(call.name == "take" and other.name != "take", call, "its token was refused before")
        if "to" in call.asked:
            self._rule(call.asked["to"] >= life.earliest(call.begun), call, "it moved back")
            self._rule(
                call.answer is not None and call.answer["held"] == call.asked["to"], call, "it holds another time"
            )
        if call.name == "take":
            takes = (other for other in life.calls if other.name == "take")
            answers = [take.answer for take in takes if take.asked["token"] == call.asked["token"]]
            fresh = {answer["token"] for answer in answers if answer is not None}
            good = [token for token in fresh if life.was_used(token, FOR_EVER)]
            self._rule(len(good) <= 1, call, "two calls took it with the same token, and both new tokens are good")

    def _check_refused(self, life: Life, call: Call) -> None:
        """A call that failed: the stated reason was possible."""
        assert call.error is not None
        kind, before = (
            call.error["kind"],
            [other for other in life.calls if other.begun < call.ended and other is not call],
        )
        good = [other for other in life.good if other.ended < call.begun]
        if kind in (_EXPIRED, _UNKNOWN):
            quiet_ns = call.ended - max((other.begun for other in good), default=0)
            dropped = kind == _UNKNOWN and any(other in life.drops for other in before)
            self._rule(dropped or quiet_ns >= life.lease_ns - CLOCK_EXACT_NS, call, f"it was called {quiet_ns} ns ago")
        elif kind == _DROPPED:
            self._rule(any(other in life.drops for other in before), call, "nobody has dropped it")
        elif kind == _TAKEN:
            self._rule(life.may_be_taken(call), call, "nobody has taken it over")
        elif kind == "FrontierRegression":
            self._rule(call.asked.get("to", FOR_EVER) < life.latest(call.ended), call, "it does not move back")
        elif kind == "SinceError":  # the time of the clone or the follower is forgotten: the capability is dead
            self._rule(not life.may_live(call.begun) or life.lives_until < call.ended, call, "it lives")
        else:
            self._rule(False, call, f"no call may fail with {kind}")

    # --- reads

    def check_reads(self) -> None:
        """Contents and changes are those of the collection; an error names a frontier that rules the read out."""
        for call in self.calls:
            if call.name not in _READS:
                continue
            if call.error is not None and "id" not in call.asked:
                kind, at = call.error["kind"], call.asked.get("as_of", call.asked.get("after"))
                if kind == "SinceError":
                    self._rule(at < call.error["since"], call, "the time is at or after since")
                elif kind == "UpperError":
                    last = call.asked.get("through", at)
                    self._rule(last >= call.error["upper"], call, "the time is before upper")
                else:
                    self._rule(False, call, f"no read may fail with {kind}")
            if call.answer is None or call.answer.get("lives") is False:
                continue
            if call.name == "read":
                as_of = call.asked["as_of"]
                self._rule(_rows(call) == truth.contents_at(self.seed, as_of), call, "these are not the contents")
            else:
                after, last = call.asked["after"], call.asked["through"]
                self._rule(_updates(call) == truth.updates_between(self.seed, after, last), call, "not the changes")
            last = call.asked["as_of" if call.name == "read" else "through"]
            self._rule(last < self.upper_until(call.ended), call, "nobody had sealed that time yet")

    def check_sums(self) -> None:
        """Contents plus the changes after them equal later contents, no matter which processes read them, and when."""
        reads: dict[int, list[Call]] = defaultdict(list)
        ranges: list[tuple[Call, int, int]] = []
        for call in self.calls:
            if call.answer is None or call.answer.get("lives") is False:
                continue
            said = call.asked | call.answer
            if "rows" in said:
                reads[said["as_of" if call.name == "read" else "through"]].append(call)
            elif "updates" in said:
                ranges.append((call, said["after"], said["through"]))
        times = sorted(reads)
        self.sums = 0
        for call, after, through in ranges:
            for first in reads.get(after, [])[:3]:
                for cut in times[bisect_left(times, after) : bisect_right(times, through)]:
                    sums = truth.added(_rows(first), _updates(call).items(), cut)
                    for later in reads[cut][:3]:
                        self.sums += 1
                        self._rule(_rows(later) == sums, call, f"with {first} it does not give {later}")

    def check_followers(self) -> None:
        """Each follower gets each time once and whole: a batch begins where the previous one ended."""
        tokens: dict[str, int] = {}
        for call in self.calls:
            if call.name != "batch" or call.answer is None or call.answer["through"] is None:
                continue
            who, after, through = call.asked["who"], call.answer["after"], call.answer["through"]
            if after is None:
                self._rule(_rows(call) == truth.contents_at(self.seed, through), call, "these are not the contents")
            else:
                self._rule(tokens[who] == after, call, f"the previous batch ended at {tokens[who]}")
                self._rule(_updates(call) == truth.updates_between(self.seed, after, through), call, "not the changes")
            self._rule(through < self.upper_until(call.ended), call, "nobody had sealed that time yet")
            tokens[who] = through

    def _rule(self, holds: bool, call: Call, why: str) -> None:
        if not holds:
            raise HistoryBroken(f"{call}\n{why}")


_MAKERS = ("acquire", "clone")
_READS = ("read", "changes")
_STEPWISE = (*_READS, "batch")
_NEVER_REFUSED = ("append", "compact", "merge", "sweep", "observe")


def _rows(call: Call) -> dict[int, int]:
    assert call.answer is not None
    return dict(call.answer["rows"])


def _updates(call: Call) -> truth.Updates:
    assert call.answer is not None
    return {(row, time): diff for row, time, diff in call.answer["updates"]}
