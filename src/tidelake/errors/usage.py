"""Calls and requests that break a rule of the interface."""

from __future__ import annotations

from collections.abc import Iterable

from tidelake.errors.base import InvalidUsage, Time, show_frontier


class MixedTimes(InvalidUsage):
    """Two times of different widths were compared, or a value is not a time."""

    first: object
    second: object
    fact = "times {first:line} and {second:line} cannot be compared: their widths differ"


class ArgumentRefused(InvalidUsage):
    """An argument breaks its rule."""

    name: str
    value: object
    rule: str
    """A clause that follows the value: `but must be at least 1`."""
    fix: str
    fact = "{name} is {value:line}, {rule}"
    hint = "{fix}"


class SealedTime(InvalidUsage):
    """An update was appended at a time that is already sealed."""

    time: Time
    upper: Iterable[Time]
    fact = "time {time} is before upper {upper:frontier}, so it is already sealed"


class FrontierRegression(InvalidUsage):
    """A frontier would move backwards."""

    role: str
    """Which frontier: `since`, `upper`, `frontier`."""
    current: Iterable[Time]
    asked: Iterable[Time]
    fact = "{role} is {current:frontier} and cannot move back to {asked:frontier}"

    @property
    def hint(self) -> str:
        """Where the frontier can move."""
        if not tuple(self.current):
            return "a frontier only advances, and nothing is after the empty one"
        return f"a frontier only advances: give {show_frontier(self.current)} or a later one"


class EncodingRefused(InvalidUsage):
    """The values of a message do not fit its schema."""

    problem: str
    fact = "the message does not fit its schema: {problem}"


class DataRefused(InvalidUsage):
    """Data that somebody typed in does not fit the collection's schema."""

    problem: str
    fact = "the data does not fit the collection's schema: {problem}"
    hint = "give every column as JSON, as `tidelake read --json` prints it"


class Refusal(InvalidUsage):
    """A refused request; the code that raises the error writes its text. Each subclass is one kind of request."""

    problem: str
    """The fact, in lower case, with its values."""
    fix: str
    fact = "{problem}"
    hint = "{fix}"


class OptionRefused(Refusal):
    """Options of the command line are missing, cannot be read, or cannot be combined."""


class DecisionRefused(Refusal):
    """A decision that cannot be read, or that does not apply to what is waiting for one."""


class StatementRefused(Refusal):
    """The text of a statement is not JSON, or does not have exactly `data` and a valid `diff`."""


class GeneratorRefused(Refusal):
    """A stream that the generator cannot write with these options, or into this folder."""


class CopyRefused(Refusal):
    """A topic that cannot be recorded into this folder, or a recording that cannot be played into this topic."""


class CommitRefused(Refusal):
    """A commit that is not allowed: the code that prepared it is wrong, not its data."""
