"""What every block of `collections.yaml` is checked for, whatever it is about."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from tidelake.errors import ConfigurationError


def refuse_unknown(file: str, prefix: str, block: Mapping[Any, Any], known: Collection[str]) -> None:
    """Refuse a key that means nothing, so that a slip of the pen is not an option left out.

    Args:
        file: the file's name, for the error.
        prefix: what stands before the block's keys in the error, such as `kafka.`; empty for the whole file.
        block: the block.
        known: its keys.

    Raises:
        ConfigurationError: naming the key, and those that there are.
    """
    for key in block:
        if key not in known:
            raise ConfigurationError(
                file, f"{prefix}{key}", "is not a known key", f"use one of: {', '.join(sorted(known))}"
            )


def problem_of(message: str) -> str:
    """What a validator says, as the fact of an error; names that it gives stay as they are accepted.

    >>> problem_of("Input should be 'PLAIN'"), problem_of("Value error, is empty")
    ("input should be 'PLAIN'", 'is empty')
    """
    fact = message.removeprefix("Value error, ")
    return fact[:1].lower() + fact[1:]
