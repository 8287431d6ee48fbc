"""Text from outside, made safe for a page: control characters are shown as escapes, and long texts are cut."""

from __future__ import annotations

import unicodedata
from datetime import UTC, datetime
from typing import Any

CHARACTERS_MAX = 600
"""Maximum length of a text on a page or in its JSON."""
_MS_SHOWN_MAX = 253_402_300_799_999
"""The last millisecond of the year 9999."""
_INVISIBLE = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
"""Unicode's categories of control characters, format characters (which may reverse text), surrogates and so on."""


def shown(text: str, limit: int = CHARACTERS_MAX) -> str:
    r"""Replace invisible characters with escapes, and cut a long text.

    >>> shown("a\x1b[31mb\u202e"), shown("x" * 5, limit=3)
    ('a\\x1b[31mb\\u202e', 'xxx… (5 characters)')
    """
    cut = text if len(text) <= limit else text[:limit]
    visible = "".join(_escaped(character) for character in cut)
    return visible if len(text) <= limit else f"{visible}… ({len(text):,} characters)"


def _escaped(character: str) -> str:
    if character == "\n":
        return " "
    if unicodedata.category(character) not in _INVISIBLE:
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def shown_values(value: Any, limit: int = CHARACTERS_MAX) -> Any:
    r"""Apply `shown` to every text in a JSON value.

    >>> shown_values({"a": ["x\0", 1, None]})
    {'a': ['x\\x00', 1, None]}
    """
    if isinstance(value, str):
        return shown(value, limit)
    if isinstance(value, dict):
        return {shown(str(name), limit): shown_values(inner, limit) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [shown_values(inner, limit) for inner in value]
    return value


def moment(ms: int) -> str:
    """Return milliseconds since 1970 as a date and time in UTC; the number itself if negative or past the year 9999.

    >>> moment(1_700_000_000_123), moment(-(2**62))
    ('2023-11-14 22:13:20 UTC', '-4611686018427387904')
    """
    if not 0 <= ms <= _MS_SHOWN_MAX:
        return str(ms)
    return f"{datetime.fromtimestamp(ms // 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def time_text(time: int, is_clock: bool) -> str:
    """Return a time of a collection as text. A minted time is followed by its date and time of day in UTC.

    >>> time_text(999, False), time_text(1_700_000_000_123, True)
    ('999', '1700000000123 (2023-11-14 22:13:20 UTC)')
    """
    return f"{time} ({moment(time)})" if is_clock and 0 <= time <= _MS_SHOWN_MAX else str(time)
