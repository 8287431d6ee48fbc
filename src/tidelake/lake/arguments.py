"""Checks the types of arguments before anything is opened; the error names the wrong argument."""

from __future__ import annotations

from collections.abc import Collection

from tidelake.errors import ArgumentRefused


def check_selection(columns: object, where: object, skip_errors: object) -> None:
    """Check the arguments that every read has.

    Raises:
        ArgumentRefused: one of them has the wrong type.
    """
    check_names("columns", columns, "id")
    if where is not None:
        check_text("where", where)
    check_flag("skip_errors", skip_errors)


def check_names(name: str, value: object, example: str) -> None:
    """Check that an argument is a list of names; raises `ArgumentRefused`."""
    is_list = isinstance(value, Collection) and not isinstance(value, str | bytes)
    if not is_list or not all(isinstance(each, str) for each in value):  # type: ignore[attr-defined]
        raise ArgumentRefused(name, value, "but must be a list of names", f"write `{name}=['{example}']`")


def check_flag(name: str, value: object) -> None:
    """Check that an argument is True or False; raises `ArgumentRefused`."""
    if not isinstance(value, bool):
        raise ArgumentRefused(name, value, "but must be True or False", "write one of the two")


def check_session(spark: object) -> None:
    """Check that an argument is a Spark session; raises `ArgumentRefused`."""
    if not hasattr(spark, "createDataFrame"):  # the classes of sessions differ, and importing them takes seconds
        raise ArgumentRefused("spark", spark, "but must be a Spark session", "pass one that `start_session()` returns")


def check_number(name: str, value: object) -> None:
    """Check that an argument is an integer of at least 0; raises `ArgumentRefused`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ArgumentRefused(name, value, "but must be an integer of at least 0", "give a number")


def check_listing(limit: object, kinds: object) -> None:
    """Check the arguments of a history; raises `ArgumentRefused`."""
    if limit is not None:
        check_number("limit", limit)
    check_names("kinds", kinds, "seal")


def check_text(name: str, value: object) -> None:
    """Check that an argument is text; raises `ArgumentRefused`."""
    if not isinstance(value, str):
        raise ArgumentRefused(name, value, "but must be text", "give a `str`")


def check_name(name: str, value: object) -> None:
    """Check that an argument can be the name of a collection; raises `ArgumentRefused`."""
    check_text(name, value)
    if "\0" in str(value) or any("\ud800" <= character <= "\udfff" for character in str(value)):
        raise ArgumentRefused(name, value, "which no file can have as its name", "give the name of a collection")
