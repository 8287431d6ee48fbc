"""Which cases run every day, and which only in sweeps."""

from __future__ import annotations

from typing import Any

import pytest

from tests.lakes.scripts import Case
from tests.sweeps import some_of_each_kind, swept


def values_of(parameters: list[Any], *, everyday: bool) -> list[Any]:
    return [parameter.values for parameter in parameters if everyday is (parameter.marks == ())]


def test_the_chosen_values_run_every_day_and_all_others_in_sweeps() -> None:
    parameters = swept("abc", ["b"])
    assert values_of(parameters, everyday=True) == [("b",)]
    assert values_of(parameters, everyday=False) == [("a",), ("c",)]
    assert values_of(swept([(1, "a"), (2, "b")], [(1, "a")], unpack=True), everyday=True) == [(1, "a")]


@pytest.mark.parametrize("everyday", [[], ["d"], ["a", "d"]])
def test_an_empty_or_unknown_choice_is_refused(everyday: list[str]) -> None:
    with pytest.raises(ValueError, match="the values for every day must be some of"):
        swept("abc", everyday)


def test_the_first_script_of_each_kind_and_every_third_script_run_every_day() -> None:
    titles = ["a: 1", "a: 2", "b: 3", "b: 4", "b: 5", "c", "c: 7"]
    parameters = some_of_each_kind(Case(title, []) for title in titles)
    assert [parameter.id for parameter in parameters] == titles
    assert [case.title for (case,) in values_of(parameters, everyday=True)] == ["a: 1", "b: 3", "b: 4", "c", "c: 7"]


def test_only_the_first_script_of_each_kind_runs_every_day_if_no_others_are_asked_for() -> None:
    titles = ["a: 1", "a: 2", "b: 3", "b: 4"]
    parameters = some_of_each_kind((Case(title, []) for title in titles), every=None)
    assert [case.title for (case,) in values_of(parameters, everyday=True)] == ["a: 1", "b: 3"]
