"""Steps that stopped: a clock that is ahead, an engine that failed, a limit, a check."""

from __future__ import annotations

from tidelake.errors.base import TidelakeError


class ClockAhead(TidelakeError):
    """A tick would mint a time far after the last minted time and every record's timestamp; nothing was written."""

    collection: str
    time: int
    last: int
    newest: object
    """The newest timestamp of the tick's records, or None if they have none."""
    ahead_s: int
    hint = (
        "correct this machine's clock; if the clock is right, set `clock_ahead_max_s` of '{collection}' to more than "
        "{ahead_s}, and restore the previous value after the next ingest"
    )

    @property
    def fact(self) -> str:
        """The time, and what it is compared with."""
        newest = (
            "and none of the records to read has a timestamp"
            if self.newest is None
            else f"and the newest timestamp of the records to read is {self.newest}"
        )
        return (
            f"the clock would mint time {self.time} for '{self.collection}', {self.ahead_s} s after the latest known "
            f"time: the last minted time is {self.last}, {newest}"
        )


class StepFailed(TidelakeError):
    """An engine failed with an error that Tidelake does not know; the collection's step stopped there."""

    step: str
    collection: str
    kind: str
    """What failed: the name of the engine's exception class, or a short phrase."""
    detail: str
    fact = "{step} of '{collection}' failed: {kind}: {detail}"
    hint = "all earlier commits are kept; the full error is in the log"


class ReadFailed(StepFailed):
    """A read failed with an error of its engine that Tidelake does not know; the collection is not affected."""

    hint = (
        "the collection is not affected; read fewer rows or columns, or use another engine, if the command has "
        "`--engine`"
    )


class TookTooLong(StepFailed):
    """The work on a collection took longer than `collection_limit_s`; the other collections did not wait for it."""

    detail: str
    """Whether it was cancelled or did not begin, and why, as the end of a sentence."""
    fact = "{step} of '{collection}' {detail}"
    hint = (
        "committed work is kept, and the next run resumes from there once this work has ended; if it really needs that "
        "long, raise `collection_limit_s`; if it hangs, restart the process"
    )


class BlockingCheckFailed(StepFailed):
    """A blocking check has failed in a full validation: nothing may be built on the collection until it passes."""

    fact = "blocking checks of '{collection}' failed: {detail}"
    hint = "correct the data at its source, or the expectation; then run `tidelake validate {collection} --full` again"
