"""Replays recorded streams: reads JSON lines, and gives the reader's output for each line.

Imports and the work per line are light on purpose, so that a thousand small streams take only seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum, auto
from typing import Any

from tidelake.errors import CodecError, MalformedMessage
from tidelake.protocol.antichain import Antichain
from tidelake.protocol.json_values import identity, parse, to_text
from tidelake.protocol.ledger.saved import time_to_json
from tidelake.protocol.message import ANY_WIDTH, Message, Progress, Updates
from tidelake.protocol.order import minimum
from tidelake.protocol.reader import Reader

_PROGRESS_NAMES = {"lower", "upper", "counts"}
_BAD_MESSAGE = MalformedMessage([("bad_message", None)])


def split_lines(content: bytes) -> list[bytes]:
    r"""Split a file at `\n` only; the last line break does not start another line.

    >>> split_lines(b"1\n\n2\n"), split_lines(b"")
    ([b'1', b'', b'2'], [])
    """
    lines = content.split(b"\n")
    return lines[:-1] if lines[-1] == b"" else lines


def replay_file(lines: Iterable[bytes], file_name: str) -> Iterator[dict[str, Any]]:
    """Run one recorded stream through a reader of its own.

    Args:
        lines: the lines without their line breaks. Each is an object with one field: `updates`, `progress`,
            `null_record`, `undecodable` or `restart`.
        file_name: the name in the output.

    Returns:
        For each line: its number (from 1), the frontier after it, the updates it published, and its errors as `kind`
        and `time`. Write them with `json_values.to_text`: only it preserves every number as it was read.

    >>> stream = [b'{"updates": [["a", 1, 1]]}', b'{"progress": {"lower": [0], "upper": [3], "counts": [[1, 1]]}}']
    >>> [(output["frontier"], output["updates"]) for output in replay_file(stream, "s")]
    [([0], []), ([3], [['a', 1, 1]])]
    """
    replay = Replay()
    for number, line in enumerate(lines, start=1):
        frontier, updates, errors = replay.receive_line(line)
        yield {"file": file_name, "line": number, "frontier": frontier, "updates": updates, "errors": errors}


class Marker(Enum):
    """The events that a line may record instead of a message."""

    NULL_RECORD = auto()
    RESTART = auto()


def parse_line(line: bytes, width: int | None = ANY_WIDTH) -> Message | Marker:
    """Read one line of a recorded stream.

    Args:
        line: the line without its line break.
        width: the width of every time; by default, the width of the first time.

    Raises:
        CodecError: the line is not JSON, or represents a record that could not be decoded.
        MalformedMessage: the message is malformed.
    """
    value = parse(line)
    if not isinstance(value, dict) or len(value) != 1:
        raise _BAD_MESSAGE
    ((name, content),) = value.items()
    if name == "updates" and isinstance(content, list):
        return Updates(content, width)
    if name == "progress" and isinstance(content, dict) and content.keys() == _PROGRESS_NAMES:
        return Progress(content["lower"], content["upper"], content["counts"], width)
    if name == "undecodable" and content is True:
        raise CodecError("undecodable", "recorded as undecodable")
    if name == "restart" and isinstance(content, dict):
        return Marker.RESTART
    if name == "null_record" and content is True:
        return Marker.NULL_RECORD
    raise _BAD_MESSAGE


def problems_of(error: CodecError | MalformedMessage) -> list[tuple[str, object]]:
    """Return the problems of a line as `(kind, time)`, each once."""
    if isinstance(error, CodecError):
        return [("undecodable" if error.reason == "undecodable" else "bad_message", None)]
    return list({(kind, identity(time)): (kind, time) for kind, time in error.problems}.values())


class Replay:
    """One stream's reader, created when the first well-formed time determines the width of times."""

    def __init__(self) -> None:
        self._reader: Reader | None = None
        self._width: int | None = ANY_WIDTH

    def receive_line(self, line: bytes) -> tuple[list[Any], list[Any], list[Any]]:
        """Receive one line, and return the frontier, the published updates and the errors, all as JSON values."""
        updates: list[Any] = []
        errors: list[tuple[str, object]] = []
        try:
            message = parse_line(line, self._width)
            if message is Marker.RESTART:
                self._restart()
            elif not isinstance(message, Marker) and message.width != ANY_WIDTH:
                if self._reader is None:
                    self._width = message.width
                    self._reader = Reader(Antichain.of(minimum(message.width)), identity)
                received = self._reader.receive(message)
                updates = [[update.data, time_to_json(update.time), update.diff] for update in received.updates]
                errors = [(error.kind, time_to_json(error.time)) for error in received.errors]
        except (CodecError, MalformedMessage) as error:
            errors = problems_of(error)
        return self._frontier(), updates, [{"kind": kind, "time": time} for kind, time in errors]

    def _frontier(self) -> list[Any]:
        return [0] if self._reader is None else [time_to_json(time) for time in self._reader.frontier]

    def _restart(self) -> None:
        """Recreate the reader from its state, saved as text."""
        if self._reader is not None:
            saved = to_text(self._reader.save())
            self._reader = None
            self._reader = Reader.restore(parse(saved), identity)
