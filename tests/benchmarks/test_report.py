"""The benchmarks' report on their samples."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest

from benchmarks import catalogs, held, lingering, many, raw, requests, small, ticks
from benchmarks.__main__ import tasks
from benchmarks.data import Stream
from benchmarks.lines import Line, lines_of
from benchmarks.measure import Measured, Samples, interleave
from benchmarks.peers import differential
from benchmarks.report import show
from benchmarks.targets import ROWS, TICK


def took(*seconds: float) -> list[Measured]:
    return [Measured(value, value) for value in seconds]


def test_a_ratio_compares_neighbours_in_time() -> None:
    """A busy minute slows both sides of a round, but the medians of the two sides may come from different minutes."""
    samples = Samples({"ours": took(1, 10, 1), "theirs": took(2, 20, 40)})
    assert samples.ratio("ours", "theirs") == 2


def test_contestants_take_turns_and_the_first_round_is_not_kept() -> None:
    order: list[tuple[str, int]] = []

    def turn(name: str) -> Callable[[int], Measured]:
        def measure(number: int) -> Measured:
            order.append((name, number))
            return Measured(number, number)

        return measure

    samples = interleave({"a": turn("a"), "b": turn("b")}, 2)
    assert order == [("a", 0), ("b", 0), ("a", 1), ("b", 1), ("a", 2), ("b", 2)]
    assert [sample.seconds for sample in samples.of["b"]] == [1, 2]


def test_only_one_round_is_kept_if_the_end_has_already_passed() -> None:
    samples = interleave({"a": lambda number: Measured(number, number)}, 9, end=0)
    assert len(samples.of["a"]) == 1


def test_a_contestant_that_fails_is_reported_and_the_others_continue() -> None:
    def fails(number: int) -> Measured:
        raise MemoryError

    def appends(number: int) -> Measured:
        return Measured(2, 2, jobs=1)

    samples = interleave({small.SEAL: appends, small.APPEND: fails, small.COMMIT: appends}, 2)
    assert len(samples.of[small.SEAL]) == 2
    lines = lines_of({"seal": {"1": samples}})
    assert [line.note for line in lines if line.reached is None] == ["failed: MemoryError"]
    assert [line.what for line in lines if line.reached is not None] == ["Spark jobs", "commit"]


def test_a_store_of_many_collections_is_compared_with_a_store_of_few() -> None:
    few = {catalogs.few(what): took(2, 2) for what in (catalogs.FIND, catalogs.CHANGE)}
    samples = Samples({**few, catalogs.FIND: took(2, 2), catalogs.CHANGE: took(4, 4), catalogs.STATUS: took(9)})
    find, change, status, each = lines_of({"catalog": {"10000": samples}})
    assert [(line.reached, line.met) for line in (find, change, status)] == [(1, True), (2, False), (9, True)]
    assert (each.reached, each.met) == (0.9, None)


def test_calls_of_holders_are_compared_with_a_bound_and_with_a_new_collection() -> None:
    samples = Samples({held.new(what): took(0.01, 0.01) for what in held.CALLS})
    samples.of |= {held.ACQUIRE: took(0.012, 0.012), held.DOWNGRADE: took(0.016, 0.016)}
    samples.of |= {held.DROP: took(0.03, 0.03), held.HOLDS: took(0.002, 0.002)}
    lines = lines_of({"holds": {"10000": samples}})
    assert [line.met for line in lines] == [True, True, True, False, False, False, True, True]
    assert [line.unit for line in lines] == [" ms", "×"] * 4


def test_the_usual_number_of_requests_has_a_budget_and_the_maximum_is_shown() -> None:
    counts = {requests.TICK: [33.0, 33.0, 80.0], requests.SEAL: [21.0], requests.STATUS: [5.0], requests.FIRST: [90.0]}
    samples = Samples()
    for step, numbers in counts.items():
        for what in (requests.REQUESTS, requests.BYTES, *requests.VERBS):
            samples.series[requests.series_of(step, what)] = numbers
    lines = {line.what: line for line in lines_of({"requests": {"3": samples}})}
    tick, seal, status = (lines[step] for step in (requests.TICK, requests.SEAL, requests.STATUS))
    assert [(line.reached, line.met) for line in (tick, seal, status)] == [(33, True), (21, False), (5, True)]
    assert [(lines[what].reached, lines[what].met) for what in ("tick with checkpoints", requests.FIRST)] == [
        (80, None),
        (90, None),
    ]


def test_arrivals_have_a_median_and_a_tail_and_memory_is_compared_after_a_quarter_of_the_run() -> None:
    samples = Samples({lingering.ARRIVAL: took(*[1] * 98, 5, 9)})
    samples.series = {lingering.PROCESS: [50, 100, 100, 100, 120], lingering.LIVE: [900, 100, 100, 90]}
    lines = lines_of({"linger": {"120": samples}})
    assert [(line.reached, line.met) for line in lines] == [(1, True), (5, None), (1.2, False), (0.9, True)]


def test_a_target_may_be_a_lower_or_an_upper_bound() -> None:
    assert [Line(TICK, "", "", 2, 1, at_most=bound).met for bound in (False, True)] == [True, False]
    assert Line(TICK, "", "", 2, None).met is None
    assert Line(TICK, "", "", None, 2).met is None


def test_a_tick_is_compared_with_the_best_of_the_tuned_merges() -> None:
    samples = Samples({ticks.UPSERT: took(1), ticks.MERGE: took(4), ticks.MERGE_VECTORS: took(3)})
    samples.of |= {name + ticks.READS: took(1) for name in list(samples.of)}
    lines = {(line.what, line.against): line for line in lines_of({"ticks uniform": {"1000000": samples}})}
    tick = lines["tidelake upsert, 1 M rows, uniform", ticks.MERGE_VECTORS]
    assert (tick.reached, tick.target, tick.met) == (3, 5, False)
    assert lines["tidelake upsert + read, 1 M rows, uniform", f"{ticks.MERGE_VECTORS} + read"].reached == 2


def test_a_raw_topic_is_compared_with_mere_parsing_and_its_tick_with_one_on_a_smaller_table() -> None:
    parsed = Samples({raw.TIDELAKE: took(4), raw.PARSED: took(1)})
    sizes = {"1000000": Samples({raw.TICK: took(2)}), "4000000": Samples({raw.TICK: took(2.1)})}
    lines = lines_of({"raw": {"1000000": parsed}, raw.GROWTH: sizes})
    assert [(round(line.reached or 0, 2), line.met) for line in lines] == [(0.25, False)] * 2 + [(1.05, True)] * 2


def test_a_ledger_in_reverse_order_is_compared_with_one_in_order() -> None:
    samples = Samples({small.IN_ORDER: took(2), small.REVERSED: took(3)})
    (line,) = lines_of({"ledger": {"40000": samples}})
    assert (line.reached, line.met) == (1.5, False)


def test_a_missing_peer_has_a_line_that_says_why() -> None:
    samples = Samples({small.IN_ORDER: took(2), small.REVERSED: took(2)}, absent={differential.READER: "no cargo"})
    line = next(
        candidate for candidate in lines_of({"ledger": {"40000": samples}}) if candidate.against == differential.READER
    )
    assert (line.reached, line.met, line.note) == (None, None, "no cargo")


def test_every_target_has_a_row_whatever_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    show({}, {}, {"pathway": "it is not there"})
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.count("not measured") == len(ROWS)
    assert "it is not there" in shown


def test_every_measurement_has_a_target_and_every_target_a_measurement() -> None:
    measured = {task.name.partition(" ")[0] for task in tasks(quick=False, large=False)}
    assert measured == {row.measurement for row in ROWS if row.measurement}
    for sizes in ((False, False), (True, False), (False, True)):
        for task in tasks(*sizes):
            inspect.signature(task.measure).bind(None, task.size)


def test_ticks_that_take_more_than_twice_the_median_are_reported() -> None:
    samples = Samples({many.TICK: took(1, 1, 3), many.COMPACTION: took(5), many.COMMIT: took(0.01, 0.02)})
    samples.series = {many.RUNS: [3.0, 9.0], many.ENTRIES: [70.0]}
    samples.facts = {"ticks": 8.0, "updates": 1000.0, "written": 40.0, "minimal": 10.0}
    lines = {line.what: line for line in lines_of({"many": {"1000": samples}})}
    assert lines["ticks over twice the median"].reached == 1
    assert lines["maximum of live runs"].met
    assert not lines["maximum of log entries"].met
    assert lines["over 8 ticks of 1,000 updates"].reached == 4


def test_ticks_begin_where_the_state_ends() -> None:
    stream = Stream(25_000)
    assert (stream.state_times, stream.tick_times, stream.tick_start(2)) == (3, 1000, 2003)
