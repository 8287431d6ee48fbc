"""Every class in the error hierarchy."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from tidelake import errors
from tidelake.errors import (
    FAMILIES,
    CodecError,
    ConfigurationError,
    Conflict,
    ConflictingDiff,
    Contradiction,
    EnvelopeBreach,
    Indeterminate,
    InvalidUsage,
    KeysInError,
    MalformedMessage,
    MixedTimes,
    OverCount,
    SchemaRefused,
    SinceError,
    TidelakeError,
    TopicChanged,
    TopicGap,
    TopicUnwritable,
    UnknownColumn,
    show,
)

EXAMPLES = {
    "int": 7,
    "int | None": None,
    "bool": True,
    "str": "text",
    "str | None": None,
    "Time": (3, 4),
    "object": None,
    "Iterable[Time]": [5],
    "Iterable[str]": ["a", "b"],
    "Iterable[tuple[str, object]]": [("zero_diff", 3), ("bad_time", [1, "x"])],
}


def all_below(error: type[TidelakeError]) -> list[type[TidelakeError]]:
    return [error, *(deeper for child in error.__subclasses__() for deeper in all_below(child))]


CLASSES = sorted({error for error in all_below(TidelakeError)[1:] if error._types}, key=lambda error: error.__name__)


def example(error: type[TidelakeError]) -> TidelakeError:
    return error(*(EXAMPLES[kind] for kind in error._types.values()))


@pytest.mark.parametrize("error_class", CLASSES)
def test_an_error_survives_pickling_with_all_its_values(error_class: type[TidelakeError]) -> None:
    error = example(error_class)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is error_class
    assert (vars(copy), copy.args, str(copy)) == (vars(error), error.args, str(error))


@pytest.mark.parametrize("error_class", CLASSES)
def test_the_arguments_of_an_error_are_its_fields_in_order(error_class: type[TidelakeError]) -> None:
    error = example(error_class)
    assert list(vars(error).items()) == list(zip(error_class._types, error.args, strict=True))
    by_name = error_class(**vars(error))
    assert (vars(by_name), by_name.args) == (vars(error), error.args)


@pytest.mark.parametrize("error_class", CLASSES)
def test_an_error_states_a_fact_in_lower_case_and_then_its_hint(error_class: type[TidelakeError]) -> None:
    error = example(error_class)
    if error.fact != vars(TidelakeError)["fact"].fget(error):  # otherwise its subclasses define the fact
        assert not {"{", "}"} & set(error.fact)
    assert not error.fact[:1].isupper() or error.fact.startswith("Kafka")
    assert str(error) == (error.fact if error.hint is None else f"{error.fact}\nhint: {error.hint}")
    assert "\n" not in (error.hint or "")


@pytest.mark.parametrize("error_class", CLASSES)
def test_an_error_that_can_be_raised_has_a_fact_of_its_own(error_class: type[TidelakeError]) -> None:
    if error_class.__subclasses__() and error_class not in {TopicGap}:
        return
    assert any("fact" in vars(base) for base in error_class.__mro__[: error_class.__mro__.index(TidelakeError)])


def test_only_families_inherit_directly_from_the_root() -> None:
    assert set(TidelakeError.__subclasses__()) == set(FAMILIES)


def test_every_error_is_imported_from_the_package() -> None:
    for error in all_below(TidelakeError):
        assert getattr(errors, error.__name__) is error
        assert error.__module__ == "tidelake.errors"
        assert error.__name__ in errors.__all__


def test_every_contradiction_has_a_kind_of_its_own() -> None:
    kinds = [error.kind for error in Contradiction.__subclasses__()]
    assert len(set(kinds)) == len(kinds)
    assert "contradiction" not in kinds


def test_a_malformed_message_names_all_its_problems() -> None:
    error = MalformedMessage([("zero_diff", 3), ("bad_time", "x"), ("bad_message", None)])
    assert (error.kind, error.time) == ("zero_diff", 3)
    assert "at time 3" in str(error)
    assert "'x'" in str(error)


def test_a_value_too_big_to_show_causes_no_second_error() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    for value in (10**5000, deep, "x" * 10**6):
        assert len(show(value)) <= 120
        assert str(MalformedMessage([("bad_time", value)]))
        assert len(str(MixedTimes(value, 1))) < 200


def test_braces_in_a_value_are_shown_as_they_are() -> None:
    assert "{time}" in str(CodecError("undecodable", "{time} {0} {}"))


def test_an_error_takes_exactly_its_fields() -> None:
    with pytest.raises(TypeError, match="counted"):
        OverCount(4, 1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="takes"):
        InvalidUsage("text")
    with pytest.raises(TypeError, match="wrong"):
        OverCount(4, 1, wrong=2)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="time"):
        OverCount(4, 1, 2, time=4)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OverCount(4, 1, 2), "time 4 has more distinct updates than announced: 2 instead of 1\nhint: earlier times "
         "can still be sealed; settle this one with `tidelake resolve count NAME --time 4 --count N --reason …`, or "
         "discard a statement with `tidelake resolve discard`"),
        (ConflictingDiff(4, 1, -1), "one update at time 4 is stated with diff 1 and with diff -1\nhint: earlier times "
         "can still be sealed; a count cannot say which statement is right: discard the wrong one with `tidelake "
         "resolve discard NAME --time 4 --statement …`"),
        (EnvelopeBreach(4, "keys with two values: 1"), "time 4 breaks the envelope: keys with two values: 1\nhint: "
         "earlier times can still be sealed; a count cannot say which statement is right: discard the wrong one with "
         "`tidelake resolve discard NAME --time 4 --statement …`"),
        (EnvelopeBreach(4, "gone"), "time 4 breaks the envelope: gone\nhint: earlier times can still be sealed; settle "
         "this one with `tidelake resolve count NAME --time 4 --count N --reason …`, or discard a statement with "
         "`tidelake resolve discard`"),
        (TopicGap("orders", 0, 3, 5, "gone"), "topic 'orders', partition 0: offsets 3 to 4 are missing: gone\nhint: "
         "restore what is missing, or accept the gap: `tidelake resolve gap NAME --offsets orders:0:3-5 --reason …` "
         "(5 is excluded); its unread messages are then lost"),
        (TopicGap("orders", 0, 3, 4, "gone"), "topic 'orders', partition 0: offset 3 is missing: gone\nhint: restore "
         "what is missing, or accept the gap: `tidelake resolve gap NAME --offsets orders:0:3-4 --reason …` (4 is "
         "excluded); its unread messages are then lost"),
        (TopicChanged("orders#2", 0, 3, 5, "gone"), "topic 'orders#2', partition 0, was read up to offset 5, but its "
         "messages from offset 3 on are gone: gone\nhint: correct the topic or its name, or continue with the topic as "
         "it is: `tidelake resolve topic NAME --topic orders --reason …`; messages that have not been read yet are "
         "then lost"),
        (TopicUnwritable("orders", "kafka-1:9092", "gone"), "the topic 'orders' cannot be written to at kafka-1:9092: "
         "gone\nhint: check that the brokers are running and that the settings under `kafka:` are correct; records "
         "that were accepted stay in the topic"),
        (Conflict("updates", 7, "gone"), "version 7 of updates was not committed: gone\nhint: try again: the next "
         "attempt starts from the current state of the table"),
        (Indeterminate("updates", 7, "5d", "gone"), "version 7 of updates may or may not have been written; its nonce "
         "is 5d: gone\nhint: try again: the next attempt reads the table first, and so starts from what is committed"),
        (SinceError(3, iter([5]), "a"), "time 3 is not at or after since [5] of 'a'\nhint: read at or after since"),
        (SinceError(3, [], None), "time 3 is not at or after since []\nhint: the collection is permanently unreadable: "
         "its since is empty"),
        (KeysInError("orders", 3, 1, ["1"]), "1 key of 'orders' is in error: 1 (AS OF 3)\nhint: a later good value or "
         "a delete clears the error; read the other keys with --skip-errors"),
        (KeysInError("orders", 3, 4, ["1", "2"]), "4 keys of 'orders' are in error: 1, 2 and 2 more (AS OF 3)\nhint: a "
         "later good value or a delete clears the error; read the other keys with --skip-errors"),
        (SchemaRefused("", "no"), "schema refused: no"),
        (SchemaRefused("a.b", "no"), "column 'a.b' is refused: no"),
        (ConfigurationError("f.yaml", "", "no", "fix it"), "f.yaml: no\nhint: fix it"),
        (UnknownColumn("orders", "x", []), "'orders' has no column 'x'\nhint: use one of: none"),
    ],
)  # fmt: skip
def test_the_text_of_an_error_stays_the_same(error: TidelakeError, text: str) -> None:
    assert str(error) == text
