"""Commits that failed, or whose outcome is unknown."""

from __future__ import annotations

from tidelake.errors.base import TidelakeError


class CommitError(TidelakeError):
    """A commit to a table did not succeed, or its outcome is unknown."""


class Conflict(CommitError):
    """Somebody else committed this version first; nothing was written."""

    table: str
    version: int | None
    """None if several attempts failed, perhaps before they came to a commit."""
    detail: str
    hint = "try again: the next attempt starts from the current state of the table"

    @property
    def fact(self) -> str:
        """What was not committed, and why."""
        what = "a change to" if self.version is None else f"version {self.version} of"
        return f"{what} {self.table} was not committed: {self.detail}"


class VersionCleanedUp(Conflict):
    """The log no longer has the version that a validation reads; the validation was not finished."""

    hint = "validate again"

    @property
    def fact(self) -> str:
        """What can no longer be validated, and why."""
        return f"version {self.version} of {self.table} can no longer be validated: {self.detail}"


class RunSwept(Conflict):
    """A run began before a sweep that may delete it; nothing was written."""

    hint = "run the step again: it writes its rows into a new run"


class Fenced(CommitError):
    """The collection was fenced or dropped while this process had it open: the process can no longer commit."""

    table: str
    expected_epoch: int
    found_epoch: int
    fact = "the writer of {table} with epoch {expected_epoch} was fenced by epoch {found_epoch}"
    hint = (
        "commits made before the fence are kept; `tidelake history NAME` shows whether the collection was fenced or "
        "dropped: run the step again only if this writer may still write to it"
    )


class WriterFenced(CommitError):
    """A fence names another writer as the only one that may write: this writer stays out, even after a restart."""

    collection: str
    writer: str | None
    """The name of this writer in its settings."""
    admitted: str

    @property
    def fact(self) -> str:
        """Who may write, and who asked to."""
        this = "has no name" if self.writer is None else f"is '{self.writer}'"
        return f"'{self.collection}' is fenced: only the writer '{self.admitted}' may write to it, and this one {this}"

    @property
    def hint(self) -> str:
        """How this writer can be admitted."""
        name = "set `writer:` in its settings, then " if self.writer is None else ""
        return (
            f"stop this writer; to let it in instead, {name}run "
            f"`tidelake fence {self.collection} --writer {self.writer or 'NAME'}`, which keeps out '{self.admitted}'"
        )


class Indeterminate(CommitError):
    """The commit may have been written."""

    table: str
    version: int
    nonce: str
    detail: str
    fact = "version {version} of {table} may or may not have been written; its nonce is {nonce}: {detail}"
    hint = "try again: the next attempt reads the table first, and so starts from what is committed"
