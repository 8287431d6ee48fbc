"""Every class of the tree of errors, found by walking it."""

from __future__ import annotations

import inspect
import pickle
from typing import Any

import pytest

from tidelake.errors import Contradiction, MalformedMessage, OverCount, TidelakeError, show

BY_ANNOTATION = {
    "int": 7,
    "str": "text",
    "Time": (3, 4),
    "object": None,
    "Iterable[Time]": (5,),
    "str | None": "text",
    "int | None": 7,
    "Iterable[tuple[str, object]]": (("zero_diff", 3), ("bad_time", [1, "x"])),
}


def all_below(error: type[TidelakeError]) -> list[type[TidelakeError]]:
    return [error, *(deeper for child in error.__subclasses__() for deeper in all_below(child))]


CLASSES = sorted({error for error in all_below(TidelakeError) if "__init__" in vars(error)}, key=lambda e: e.__name__)


def example(error: type[TidelakeError]) -> TidelakeError:
    parameters = list(inspect.signature(error.__init__).parameters.values())[1:]
    values: list[Any] = [BY_ANNOTATION.get(str(parameter.annotation), "text") for parameter in parameters]
    return error(*values)


@pytest.mark.parametrize("error_class", CLASSES)
def test_an_error_survives_a_pickle_with_all_its_values(error_class):
    error = example(error_class)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is error_class
    assert (vars(copy), copy.args, str(copy)) == (vars(error), error.args, str(error))


@pytest.mark.parametrize("error_class", CLASSES)
def test_an_error_says_a_fact_in_lower_case_and_then_its_hint(error_class):
    fact, *hint = str(example(error_class)).split("\n")
    assert fact
    assert not fact[0].isupper()
    assert not hint or (len(hint) == 1 and hint[0].startswith("hint: "))


def test_every_contradiction_has_a_kind_of_its_own():
    kinds = [error.kind for error in Contradiction.__subclasses__()]
    assert len(set(kinds)) == len(kinds)
    assert "contradiction" not in kinds


def test_a_malformed_message_names_all_its_problems():
    error = MalformedMessage([("zero_diff", 3), ("bad_time", "x"), ("bad_message", None)])
    assert (error.kind, error.time) == ("zero_diff", 3)
    assert "at time 3" in str(error)
    assert "'x'" in str(error)


def test_a_value_too_big_to_show_is_no_second_error():
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    for value in (10**5000, deep, "x" * 10**6):
        assert len(show(value)) <= 120
        assert str(MalformedMessage([("bad_time", value)]))


def test_an_error_about_a_time_names_it():
    assert "time 4 is announced with 1 updates, and 2" in str(OverCount(4, 1, 2))
