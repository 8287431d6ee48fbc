"""Secrets: settings name the environment variable or the file that holds a secret, and never hold the secret itself."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import Field

from tidelake.errors import ConfigurationError
from tidelake.settings.block import Block, Frozen


class Secret(Frozen):
    """Where a secret is kept, not the secret itself, so that no report, log or error can show it."""

    env: str | None = Field(default=None, min_length=1)
    file: Path | None = None


def read_secret_place(place: Block) -> Secret:
    """Read where a secret is kept. A secret in plain text is refused, and the error does not show it."""
    fix = "write `{env: NAME_OF_A_VARIABLE}` or `{file: PATH}`"
    if not isinstance(place.value, dict):
        place.fail("is empty" if place.value is None else "is a secret in plain text", fix)
    env, path = place.get("env"), place.get("file")
    if set(place.value) not in ({"env"}, {"file"}) or not isinstance(env or path, str):
        place.fail("does not say where the secret is kept", fix)
    return Secret(env=env) if path is None else Secret(file=place.folder / path)


def read_secret(secret: Secret, field: str) -> str:
    """Read a secret from its environment variable, or from its file without the last line break.

    Raises:
        ConfigurationError: the secret cannot be read; the error names the place, never the content.
    """
    if secret.env is not None:
        value = os.environ.get(secret.env)
        if not value:
            state = "not set" if value is None else "empty"
            fact = f"is {state}, but {field} is read from it"
            raise ConfigurationError("environment", secret.env, fact, "set it for this process")
        return value
    assert secret.file is not None
    try:
        return secret.file.read_text(encoding="utf-8").removesuffix("\n")
    except (OSError, UnicodeDecodeError) as error:
        problem = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        fix = "write the secret as UTF-8"
        if isinstance(error, OSError):
            fix = "correct the path, or give this user permission to read the file"
        raise ConfigurationError(str(secret.file), field, f"cannot be read: {problem}", fix) from None
