"""What the benchmarks say about samples."""

from __future__ import annotations

from benchmarks import small, ticks
from benchmarks.data import Stream
from benchmarks.measure import Measured, Samples, interleave
from benchmarks.report import Line, lines_of


def took(*seconds: float) -> list[Measured]:
    return [Measured(one, one) for one in seconds]


def test_a_ratio_compares_neighbours_in_time() -> None:
    """A busy minute hits both sides of a round; the medians of each side could come from different minutes."""
    samples = Samples({"ours": took(1, 10, 1), "theirs": took(2, 20, 40)})
    assert samples.ratio("ours", "theirs") == 2


def test_contestants_take_turns_and_the_first_round_is_not_kept() -> None:
    order: list[tuple[str, int]] = []

    def turn(name: str) -> object:
        return lambda number: order.append((name, number)) or Measured(number, number)

    samples = interleave({"a": turn("a"), "b": turn("b")}, 2)  # type: ignore[dict-item]
    assert order == [("a", 0), ("b", 0), ("a", 1), ("b", 1), ("a", 2), ("b", 2)]
    assert [one.seconds for one in samples.of["b"]] == [1, 2]


def test_no_round_begins_after_the_end_but_one_is_kept() -> None:
    samples = interleave({"a": lambda number: Measured(number, number)}, 9, end=0)
    assert len(samples.of["a"]) == 1


def test_a_target_may_be_a_lower_or_an_upper_bound() -> None:
    assert [Line("", "", 2, 1, at_most=bound).met for bound in (False, True)] == [True, False]
    assert Line("", "", 2, None).met is None


def test_the_best_of_the_tuned_merges_is_what_a_tick_is_held_against() -> None:
    samples = Samples({ticks.UPSERT: took(1), ticks.MERGE: took(4), ticks.MERGE_VECTORS: took(3)})
    samples.of |= {name + ticks.READS: took(1) for name in list(samples.of)}
    found = {(line.what, line.against): line for line in lines_of({"ticks uniform": {"1000000": samples}})}
    tick = found["tick, tidelake upsert, 1 M rows, uniform", ticks.MERGE_VECTORS]
    assert (tick.reached, tick.target, tick.met) == (3, 5, False)
    assert found["tick + read, tidelake upsert, 1 M rows, uniform", f"{ticks.MERGE_VECTORS} + read"].reached == 2


def test_a_reversed_ledger_is_held_against_its_own_order() -> None:
    samples = Samples({small.IN_ORDER: took(2), small.REVERSED: took(3)})
    (line,) = lines_of({"ledger": {"40000": samples}})
    assert (line.reached, line.met) == (1.5, False)


def test_ticks_begin_where_the_state_ends() -> None:
    stream = Stream(25_000)
    assert (stream.state_times, stream.tick_times, stream.tick_start(2)) == (3, 1000, 2003)
