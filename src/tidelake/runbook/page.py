"""The page of each error: fact, cause, what to do, commands and exit status; for `tidelake errors` and for the site."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from textwrap import fill, indent

from tidelake.errors import (
    FAMILIES,
    FILE_FROM_COPY,
    CapabilityError,
    ClockAhead,
    CommitError,
    DamagedTable,
    OptionRefused,
    StepFailed,
    StoreUnreadable,
    TidelakeError,
)
from tidelake.runbook.entries import ENTRIES

EXIT_ONE = (CommitError, CapabilityError, DamagedTable, StoreUnreadable, StepFailed, ClockAhead)
"""After these errors, which the caller did not cause, the command line exits with 1; after all other errors, with 2."""
_WIDTH = 78
_IN_A_COLLECTION = "1 from a job, which continues with the other collections"

_VALUES: dict[str, object] = {
    "admitted": "machine-1",
    "ahead_s": 90_000,
    "announced": 8,
    "as_of": 7,
    "asked": (5,),
    "capability_id": "c-7f3a",
    "collection": "orders",
    "column": "price",
    "contradiction": "time 7 is announced with different counts: 8 and 9",
    "columns": ("id", "price"),
    "count": 2,
    "counted": 9,
    "current": (9,),
    "detail": "…",
    "expected_epoch": 3,
    "field": "collections.orders.topic",
    "file": "collections.yaml",
    "first": 1,
    "fix": "…",
    "folder": "data/topics/orders",
    "format": 3,
    "frontier": 7,
    "found_epoch": 4,
    "from_offset": 120,
    "group": "tidelake.plugins",
    "keys": ('{"id": 1}', '{"id": 2}'),
    "kind": "framing",
    "known": 2,
    "last": 1_700_000_000_000,
    "line": 12,
    "messages": 3,
    "name": "example",
    "newest": 1_700_000_001_000,
    "nonce": "5d1c…",
    "offset": 120,
    "partition": 0,
    "predicate": "price >",
    "problem": "…",
    "problems": (("zero_diff", 7),),
    "reason": "undecodable",
    "role": "since",
    "rule": "but must be at least 1",
    "second": 2,
    "servers": "kafka-1:9092",
    "since": (9,),
    "source": "files",
    "step": "ingest",
    "store": "data/store",
    "table": "data/store/c/…/updates",
    "time": 7,
    "to_offset": 240,
    "topic": "orders",
    "upper": (7,),
    "url": "https://registry:8081",
    "value": 0,
    "version": 42,
    "where": "already taken in line 3",
    "why": "they were deleted",
    "writer": "machine-2",
}
"""An example for each field of an error, by its name."""
_OWN_VALUES: dict[str, dict[str, object]] = {
    "CapabilityDropped": {"detail": "it was dropped"},
    "CapabilityError": {"detail": "its lease expired"},
    "CapabilityExpired": {"detail": "its lease expired, because no call renewed it"},
    "CapabilityForeign": {"detail": "its token is mistyped, or belongs to a collection other than 'orders'"},
    "CapabilityTaken": {
        "detail": "its secret is not the current one: the token is mistyped, or another holder has taken it over"
    },
    "CapabilityUnknown": {
        "detail": "'orders' has no hold with this id: it ended long ago, or the token is mistyped",
    },
    "ClockAhead": {"time": 1_700_090_001_000},
    "CodecError": {"reason": "wrong_magic_byte", "detail": "the first byte is 7, not 0"},
    "CollectionDropped": {"id": "9f2c…", "name": "orders", "at": "2026-11-23T10:00:00Z", "has_successor": False},
    "CommitRefused": {"problem": "an open table is good for one commit", "fix": "open the table again"},
    "ConfigurationError": {
        "file": "collections.yaml, line 12",
        "field": "collections.orders.keep",
        "problem": "should be 'all', or a distance before upper, not 'some'",
        "fix": "see docs/reference/configuration.md",
    },
    "Conflict": {"detail": "another commit was already acknowledged"},
    "CopyRefused": {
        "problem": "data/topics/orders already holds messages, and its files never change",
        "fix": "record into an empty folder",
    },
    "DamagedPublication": {"table": "data/store/tables/orders", "detail": "no entry states the schema"},
    "DamagedFiles": {"detail": "the file _run=…/part-0.parquet is missing"},
    "DamagedLog": {"detail": "the entry of version 42 is not the one that was acknowledged"},
    "DamagedTable": {"detail": "time 7: 8 updates were proven, but 7 are stored"},
    "DataRefused": {"problem": "'price' is missing"},
    "EventBlocked": {
        "why": "belongs to no transaction: the connector did not have `provide.transaction.metadata=true`",
        "to_offset": 121,
    },
    "SnapshotUnfinished": {"from_offset": 0, "to_offset": 0, "why": "", "lsn": 8_040, "rows": 120},
    "SnapshotBySignal": {
        "why": "is a row of a snapshot that a signal asked for, and such a row does not state its exact log position",
        "to_offset": 145,
    },
    "SnapshotRepeated": {"from_offset": 0, "to_offset": 0, "why": "", "lsn": 8_040, "rows": 120},
    "PublishedTopicColumns": {"columns": ("price",), "problem": "its messages are in bare Avro"},
    "PublishedTopicCut": {"is_inside": False},
    "PublishedTopicRecreated": {"problem": "was deleted and recreated"},
    "TransactionCut": {
        "transaction": "753",
        "begins_at": 8_040,
        "sent": "its first event, in topic 'shop.public.orders', partition 0, offset 120, is at 8104",
    },
    "TransactionWentBack": {"transaction": "753", "lsn": 8_040, "last": 9_120},
    "TransactionTopicDivided": {"topic": "shop.transaction", "partitions": 2},
    "DecisionRefused": {"problem": "time 3 of 'orders' is already sealed", "fix": "decide about an open time"},
    "EncodingRefused": {"problem": "a decimal or a timestamp is out of range for its type"},
    "BlockingCheckFailed": {"kind": "blocking checks", "detail": "id_values_to_be_unique"},
    "EnvelopeBreach": {"detail": '{"id": 1} has diff -1'},
    "GeneratorRefused": {"problem": "data/topics/orders is not empty", "fix": "give an empty folder"},
    "Indeterminate": {"detail": "the log could not be read back"},
    "MalformedLine": {"file": "data/topics/orders/0.jsonl", "problem": "is not JSON"},
    "MalformedTopic": {
        "file": "data/topics/orders/zero.jsonl",
        "problem": "is not named after a partition",
        "fix": "rename it, or remove it",
    },
    "NoCheckout": {"folder": "/opt/tidelake"},
    "NotRewritable": {
        "detail": "it was made from the offsets 120 to 239 of orders:0, and they cannot be read: the brokers have "
        "deleted them",
        "fix": FILE_FROM_COPY,
    },
    "OptionRefused": {"problem": "--serve and --textfile cannot be combined", "fix": "run the command twice"},
    "PredicateRefused": {"problem": "cannot be parsed", "fix": "write a condition on the columns"},
    "QueryRefused": {
        "query": "select * from ordres",
        "problem": "reads 'ordres', which is not a collection",
        "fix": "did you mean 'orders'?",
    },
    "EngineRefused": {
        "engine": "duckdb",
        "problem": "the envelope 'toy' of 'orders' is from another package",
        "fix": "read it with Spark: --engine spark",
    },
    "RegistryUnreachable": {"detail": "connection refused"},
    "RunSwept": {"detail": "its run began before the last sweep"},
    "VersionCleanedUp": {"detail": "the log was cleaned up in the meantime"},
    "SchemaRefused": {"reason": "maps cannot be compared or grouped; encode the map as JSON text"},
    "StatementRefused": {
        "problem": "the statement does not have exactly `data` and an integer `diff`",
        "fix": 'write it as {"data": {…}, "diff": 1}',
    },
    "ReadFailed": {"step": "read", "kind": "OutOfMemoryException", "detail": "failed to allocate data of size 32 MiB"},
    "StepFailed": {"kind": "OutOfMemoryError", "detail": "Java heap space"},
    "BagRefused": {"row": '{"id": 5}', "times": -1, "copies_max": 100_000},
    "NoView": {"reason": "the table has stored unavailable values"},
    "SnapshotTorn": {"time": 33, "snapshot": 30, "following": 45, "collection": "wallets"},
    "CollectionLags": {"upper": 5, "others": ("customers",), "forgotten_by": None},
    "SubscriptionLapsed": {
        "detail": "its lease expired while its subscription was at time 7, and since of 'orders' is now [9]",
    },
    "TimelinesDiffer": {
        "first": "orders",
        "first_timeline": "shop",
        "second": "visits",
        "second_timeline": "wall clock",
    },
    "TookTooLong": {"kind": "limit", "detail": "was cancelled: the collection had not finished after 600 s"},
    "StoreUnreadable": {"detail": "data/store/catalog: permission denied"},
    "StoreUnwritable": {"detail": "data/store/catalog: permission denied"},
    "BucketMissing": {"detail": "NoSuchBucket", "store": "s3://lake/shop"},
    "ConditionalWritesMissing": {"detail": "a second put replaced the first one", "store": "s3://lake/shop"},
    "SparkLacksStore": {"detail": "it has no S3AFileSystem", "store": "s3://lake/shop"},
    "StoreAccessDenied": {"detail": "AccessDenied", "store": "s3://lake/shop/catalog", "access": "list"},
    "StoreBusy": {"detail": "other writers always came first", "store": "s3://lake/shop/published/orders"},
    "StoreUnreachable": {"detail": "connection refused", "store": "s3://lake/shop/catalog"},
    "WrittenRowsMissing": {
        "detail": "Spark wrote 1,200 rows, but the listed files have 800",
        "store": "s3://lake/shop/c/…/updates/_run=ingest-7-5d1c…",
    },
    "WrongRegion": {"detail": "PermanentRedirect", "store": "s3://lake/shop"},
    "UnknownTopic": {"topic": "ordres", "topics": ("orders", "visits"), "collection": None},
    "TopicUnreachable": {"detail": "connection refused"},
    "TopicUnwritable": {"detail": "not authorized"},
}
"""Examples for the fields of individual errors."""
_BY_KIND: dict[str, object] = {"int": 7, "str": "…", "object": "…", "_Time": 7}


@dataclass(frozen=True)
class ErrorPage:
    """The runbook's entry for an error."""

    name: str
    """The name of its class, which logs and reports show."""
    family: str
    """The name of the class that says who has to act."""
    meaning: str
    fact: str
    """Its text, with example values."""
    hint: str | None
    cause: str
    act: str
    commands: tuple[str, ...]
    exit_status: str

    @property
    def slug(self) -> str:
        """The name of its page on the site."""
        return slug_of(self.name)

    def as_text(self) -> str:
        """Return the page for a terminal."""
        lines = [f"{self.name} ({self.family})", "", _filled(self.meaning), "", _indented(f"error: {self.fact}")]
        if self.hint:
            lines.append(_indented(f"hint: {self.hint}"))
        lines += ["", _filled(f"Cause: {self.cause}"), "", _filled(f"What to do: {self.act}"), ""]
        lines += ["Commands:", *(f"  {command}" for command in self.commands), ""] if self.commands else []
        return "\n".join([*lines, f"Exit status: {self.exit_status}"]) + "\n"

    def as_markdown(self) -> str:
        """Return the page for the site."""
        shown = f"error: {self.fact}" + (f"\nhint: {self.hint}" if self.hint else "")
        parts = [f"# {self.name}", self.meaning, f"```text\n{shown}\n```"]
        parts += [f"**Cause.** {self.cause}", f"**What to do.** {self.act}"]
        if self.commands:
            parts.append("```text\n" + "\n".join(self.commands) + "\n```")
        parts.append(f"**Exit status.** {self.exit_status[0].upper()}{self.exit_status[1:]}.")
        return "\n\n".join(parts) + "\n"


def _filled(text: str) -> str:
    return fill(text, _WIDTH, break_long_words=False, break_on_hyphens=False)


def _indented(text: str) -> str:
    return indent(_filled(text), "  ")


def pages() -> list[ErrorPage]:
    """Return the pages of all errors, in the order of the table in `tidelake.errors`."""
    return [page_of(error) for error in all_errors()]


def all_errors() -> Iterator[type[TidelakeError]]:
    """Yield the classes that can be raised: all but the root and the classes that only group others."""
    waiting = list(reversed(FAMILIES))
    while waiting:
        error = waiting.pop()
        if error in ENTRIES or not (error.__subclasses__()):
            yield error
        waiting += reversed([child for child in error.__subclasses__() if child.__module__ == TidelakeError.__module__])


def page_of(error: type[TidelakeError]) -> ErrorPage:
    """Return the page of an error."""
    entry, shown = ENTRIES[error], example(error)
    return ErrorPage(
        name=error.__name__,
        family=family_of(error).__name__,
        meaning=(error.__doc__ or "").strip().partition("\n")[0],
        fact=shown.fact,
        hint=shown.hint,
        cause=entry.cause,
        act=entry.act,
        commands=entry.commands,
        exit_status=f"{exit_status(error)} from `tidelake`; {_IN_A_COLLECTION}",
    )


def find_page(name: str) -> ErrorPage:
    """Return the page of the error with this name; case, hyphens, spaces and underscores do not matter.

    Raises:
        OptionRefused: no error has this name.
    """
    named = {_plain(error.__name__): error for error in all_errors()}
    found = named.get(_plain(name))
    if found is not None:
        return page_of(found)
    close = [named[plain].__name__ for plain in get_close_matches(_plain(name), named, n=3)]
    hint = f"did you mean {' or '.join(close)}?" if close else "`tidelake errors` lists them"
    raise OptionRefused(f"there is no error '{name}'", hint)


def _plain(name: str) -> str:
    return re.sub(r"[-_ ]", "", name).lower()


def slug_of(name: str) -> str:
    """Return the name of an error's page.

    >>> slug_of("TopicGap")
    'topic-gap'
    """
    return re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower()


def family_of(error: type[TidelakeError]) -> type[TidelakeError]:
    """Return the family of an error: its ancestor just below the root."""
    return next(above for above in error.__mro__ if TidelakeError in above.__bases__)


def exit_status(error: type[TidelakeError]) -> int:
    """Return the exit status of the command line after an error."""
    return 1 if issubclass(error, EXIT_ONE) else 2


def example(error: type[TidelakeError]) -> TidelakeError:
    """Return an error with example values."""
    own = _OWN_VALUES.get(error.__name__, {})
    return error(*(own.get(name, _VALUES.get(name, _BY_KIND.get(kind, "…"))) for name, kind in error.fields().items()))


def with_reference(error: Exception) -> str:
    """Return the text of an error, followed by the command that shows its page, if it has one.

    >>> from tidelake.errors import SealedTime
    >>> print(with_reference(SealedTime(3, (5,))))
    time 3 is before upper [5], so it is already sealed
    see: tidelake errors SealedTime
    """
    return f"{error}\nsee: tidelake errors {type(error).__name__}" if type(error) in ENTRIES else str(error)
