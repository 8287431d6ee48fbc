"""Settings, schemas and installed packages that cannot be used."""

from __future__ import annotations

from tidelake.errors.base import InvalidUsage


class SchemaRefused(InvalidUsage):
    """A record schema that a collection cannot hold."""

    column: str
    """The path of the column, with dots; empty for the record itself."""
    reason: str

    @property
    def fact(self) -> str:
        """The column and the reason."""
        return f"column {self.column!r} is refused: {self.reason}" if self.column else f"schema refused: {self.reason}"


class ConfigurationError(InvalidUsage):
    """A setting is invalid; nothing was started."""

    file: str
    field: str
    """The path of the setting, with dots, or a line number."""
    problem: str
    fix: str
    hint = "{fix}"

    @property
    def fact(self) -> str:
        """The place and the problem."""
        return ": ".join(part for part in (self.file, self.field, self.problem) if part)


class UnknownPlugin(InvalidUsage):
    """A framing or an envelope, named in the settings or in a store, is not installed."""

    kind: str
    name: str
    group: str
    fact = "the {kind} '{name}' is not installed"
    hint = "install the package that provides it (entry point group `{group}`); for the built-in ones: make setup"


class NoCheckout(InvalidUsage):
    """Neither a wheel nor a checkout provides the jobs."""

    folder: str
    fact = "there is no folder `jobs` in {folder}"
    hint = "install Tidelake from its wheel, or from its checkout: make setup"
