"""The root of all errors: a class declares its fields, a `fact` and a `hint`."""

from __future__ import annotations

from collections.abc import Iterable
from string import Formatter
from typing import Any, ClassVar, dataclass_transform

Time = int | tuple[int, ...]
"""A time as in `protocol.order`; this file imports no other package of Tidelake."""

SHOWN_CHARACTERS_MAX = 120
NAMES_LISTED_MAX = 12
"""Maximum number of names that a hint lists."""


def show(value: object) -> str:
    """Write any value for a person, on at most one line; never raises.

    >>> show("a" * 500)[-6:], show([1, 2])
    ('aaa...', '[1, 2]')
    """
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer of thousands of digits, a list nested thousands deep
        return f"<{type(value).__name__} too big to show>"
    return text if len(text) <= SHOWN_CHARACTERS_MAX else text[: SHOWN_CHARACTERS_MAX - 3] + "..."


def hint_for_name(name: str, names: Iterable[str], reference: str = "") -> str:
    """Return the hint about an unknown name: the nearest name, and all names if there are few.

    Args:
        name: the unknown name.
        names: the known names.
        reference: says where all names are described, as a sentence without the final period.

    >>> hint_for_name("ordres", ["orders", "visits"]), hint_for_name("x", ["a", "b"])
    ("did you mean 'orders'? Use one of: orders, visits", 'use one of: a, b')
    >>> many = [f"key_{number}" for number in range(30)]
    >>> hint_for_name("kye_7", many, "the reference describes every key")
    "did you mean 'key_7'? The reference describes every key"
    """
    from difflib import get_close_matches  # imported late: only errors need it

    known = sorted(names)
    sentences = []
    if nearest := get_close_matches(name[:SHOWN_CHARACTERS_MAX], known, n=1):
        sentences.append(f"did you mean '{nearest[0]}'?")
    if len(known) <= NAMES_LISTED_MAX:
        sentences.append(f"use one of: {', '.join(known) or 'none'}")
    elif reference:
        sentences.append(reference)
    elif not nearest:
        sentences.append(f"there are {len(known):,} names, such as {', '.join(known[:3])}")
    return " ".join(text if at == 0 else text[:1].upper() + text[1:] for at, text in enumerate(sentences))


def show_frontier(elements: Iterable[Time]) -> str:
    """Write a frontier as its elements in brackets; `[]` is the empty frontier."""
    return "[" + ", ".join(show(element) for element in elements) + "]"


class _AttributeFormatter(Formatter):
    """Fills in the attributes of an error."""

    def get_value(self, key: int | str, args: Any, kwargs: Any) -> Any:
        return getattr(kwargs["error"], str(key))

    def format_field(self, value: Any, format_spec: str) -> str:
        match format_spec:
            case "line":
                return show(value)
            case "frontier":
                return show_frontier(value)
            case "list":
                return ", ".join(map(str, value)) or "none"
            case _:
                return str(format(value, format_spec))


class _Template:
    """A format string: on an error it gives the filled-in text; on the class, the format string itself."""

    def __init__(self, template: str) -> None:
        self.template = template

    def __get__(self, error: TidelakeError | None, owner: type) -> str:
        return self.template if error is None else _AttributeFormatter().vformat(self.template, (), {"error": error})


@dataclass_transform(eq_default=False)
class TidelakeError(Exception):
    """The root of all errors. Its text is a fact in lower case and, after `hint:`, what to do about it."""

    __module__ = __package__
    _types: ClassVar[dict[str, str]] = {}
    """The fields, in order, each with its annotation."""

    def __init_subclass__(cls) -> None:
        """Read the declared fields of each subclass. Dataclasses could do this, but would make every import slower."""
        own = {name: kind for name, kind in cls.__annotations__.items() if not kind.startswith("ClassVar")}
        cls._types = cls._types | own
        if cls.__module__.startswith(f"{__package__}."):
            cls.__module__ = __package__  # where people import the class from, and what a traceback shows
        for name in ("fact", "hint"):
            if isinstance(template := vars(cls).get(name), str):
                setattr(cls, name, _Template(template))

    def __init__(self, *values: Any, **named: Any) -> None:
        """Keep the fields as attributes and as `args`; a field declared as an iterable is kept as a tuple."""
        fields = dict(zip(self._types, values, strict=False))
        if len(values) > len(fields) or fields.keys() & named or fields.keys() | named != self._types.keys():
            raise TypeError(f"{type(self).__name__} takes {list(self._types)}, not {values} and {named}")
        for name, kind in self._types.items():
            value = fields[name] if name in fields else named[name]
            setattr(self, name, tuple(value) if kind.startswith("Iterable") else value)
        self.args = tuple(getattr(self, name) for name in self._types)

    @classmethod
    def fields(cls) -> dict[str, str]:
        """Return the names of the fields, in order, each with its annotation."""
        return dict(cls._types)

    @property
    def fact(self) -> str:
        """What is wrong, with its values, in one lower-case sentence."""
        return ", ".join(show(value) for value in self.args)

    @property
    def hint(self) -> str | None:
        """What a person can do about it; None if there is nothing general to say."""
        return None

    def __str__(self) -> str:
        return self.fact if self.hint is None else f"{self.fact}\nhint: {self.hint}"


class InvalidUsage(TidelakeError):
    """The caller broke a rule of the interface; nothing was changed."""
