"""Every error of Tidelake, in one tree. Errors are grouped by who has to act.

| family | what happened | who acts |
|---|---|---|
| `ProtocolError` | what a source states contradicts itself | the writer of the stream |
| `CodecError` | bytes cannot be decoded | nobody: they are quarantined |
| `SourceError` | a topic or a registry is unreachable or broken | its operator; data already read stays valid |
| `InvalidUsage` | the caller broke a rule; nothing was changed | the caller |
| `CapabilityError` | a right is unknown or gone | its holder |
| `CommitError` | a commit failed, or its outcome is unknown | the writer: retry, stop, or read back |
| `DamagedTable` | a table breaks its own invariants | a person, now |
| `StoreUnreadable` | a file of the store cannot be read | the operator of the store |
| `ClockAhead` | the clock of this machine is ahead; nothing was written | the operator of the machine |
| `StepFailed` | an engine failed, such as Spark | the reader of the log |

A class is a row of a table: fields, a `fact` and a `hint`. Annotations declare the fields; the constructor accepts them
in that order and keeps them as attributes and as `args`, so that an error can be pickled from an executor to the
driver. `fact` and `hint` are format strings over the attributes, with three format specs in addition to Python's:
`{time:line}` shows any value on at most one line, `{upper:frontier}` a frontier, `{names:list}` a list or `none`. If a
format string is not enough, a property takes its place. Each file of this package has one subject, and every error is
imported from the package.

>>> error = OverCount(7, 1, 2)
>>> error.fact, error.args
('time 7 has more distinct updates than announced: 2 instead of 1', (7, 1, 2))
"""

from __future__ import annotations

from tidelake.errors.base import (
    NAMES_LISTED_MAX,
    SHOWN_CHARACTERS_MAX,
    InvalidUsage,
    TidelakeError,
    Time,
    hint_for_name,
    show,
    show_frontier,
)
from tidelake.errors.capabilities import (
    CapabilityDropped,
    CapabilityError,
    CapabilityExpired,
    CapabilityForeign,
    CapabilityTaken,
    CapabilityUnknown,
    SubscriptionLapsed,
)
from tidelake.errors.catalog import (
    CollectionDropped,
    CollectionRenamed,
    NameTaken,
    UnknownCollection,
)
from tidelake.errors.commits import (
    CommitError,
    Conflict,
    Fenced,
    Indeterminate,
    RunSwept,
    WriterFenced,
)
from tidelake.errors.messages import (
    REPEATED,
    TWO_VALUES,
    CodecError,
    ConflictingCount,
    ConflictingDiff,
    Contradiction,
    EnvelopeBreach,
    MalformedMessage,
    OverCount,
    ProtocolError,
    TransactionCut,
)
from tidelake.errors.publishing import (
    PublishedTopicBehind,
    PublishedTopicColumns,
    PublishedTopicContradicts,
    PublishedTopicCut,
    PublishedTopicError,
    PublishedTopicForeign,
    PublishedTopicNotEmpty,
    PublishedTopicRecreated,
    PublishedTopicUnknown,
)
from tidelake.errors.reads import (
    BagRefused,
    CollectionForgot,
    CollectionLags,
    EngineRefused,
    KeysInError,
    NotPublished,
    NotReclocked,
    NoView,
    PredicateRefused,
    QueryRefused,
    SinceError,
    SnapshotTorn,
    TimelinesDiffer,
    UnknownColumn,
    UpperError,
)
from tidelake.errors.settings import (
    ConfigurationError,
    NoCheckout,
    SchemaRefused,
    UnknownPlugin,
)
from tidelake.errors.steps import (
    BlockingCheckFailed,
    ClockAhead,
    StepFailed,
    TookTooLong,
)
from tidelake.errors.stores import (
    BucketMissing,
    ConditionalWritesMissing,
    DamagedFiles,
    DamagedLog,
    DamagedPublication,
    DamagedTable,
    LakeReadOnly,
    NewerFormat,
    NotRewritable,
    SparkLacksStore,
    StoreAccessDenied,
    StoreUnreachable,
    StoreUnreadable,
    WrittenRowsMissing,
    WrongRegion,
)
from tidelake.errors.topics import (
    EventBlocked,
    FolderMissing,
    MalformedLine,
    MalformedTopic,
    RegistryUnreachable,
    RepeatedOffset,
    SnapshotBySignal,
    SnapshotRepeated,
    SnapshotUnfinished,
    SourceError,
    TopicChanged,
    TopicGap,
    TopicMissing,
    TopicUnreachable,
    TopicUnwritable,
    TransactionTopicDivided,
    TransactionWentBack,
    UnknownTopic,
    name_in_kafka,
)
from tidelake.errors.usage import (
    ArgumentRefused,
    CommitRefused,
    CopyRefused,
    DataRefused,
    DecisionRefused,
    EncodingRefused,
    FrontierRegression,
    GeneratorRefused,
    MixedTimes,
    OptionRefused,
    Refusal,
    SealedTime,
    StatementRefused,
)

FAMILIES: tuple[type[TidelakeError], ...] = (
    ProtocolError,
    CodecError,
    SourceError,
    InvalidUsage,
    CapabilityError,
    CommitError,
    DamagedTable,
    StoreUnreadable,
    ClockAhead,
    StepFailed,
)
"""The families, in the order of the table."""

__all__ = [
    "FAMILIES",
    "NAMES_LISTED_MAX",
    "REPEATED",
    "SHOWN_CHARACTERS_MAX",
    "TWO_VALUES",
    "ArgumentRefused",
    "BagRefused",
    "BlockingCheckFailed",
    "BucketMissing",
    "CapabilityDropped",
    "CapabilityError",
    "CapabilityExpired",
    "CapabilityForeign",
    "CapabilityTaken",
    "CapabilityUnknown",
    "ClockAhead",
    "CodecError",
    "CollectionDropped",
    "CollectionForgot",
    "CollectionLags",
    "CollectionRenamed",
    "CommitError",
    "CommitRefused",
    "ConditionalWritesMissing",
    "ConfigurationError",
    "Conflict",
    "ConflictingCount",
    "ConflictingDiff",
    "Contradiction",
    "CopyRefused",
    "DamagedFiles",
    "DamagedLog",
    "DamagedPublication",
    "DamagedTable",
    "DataRefused",
    "DecisionRefused",
    "EncodingRefused",
    "EngineRefused",
    "EnvelopeBreach",
    "EventBlocked",
    "Fenced",
    "FolderMissing",
    "FrontierRegression",
    "GeneratorRefused",
    "Indeterminate",
    "InvalidUsage",
    "KeysInError",
    "LakeReadOnly",
    "MalformedLine",
    "MalformedMessage",
    "MalformedTopic",
    "MixedTimes",
    "NameTaken",
    "NewerFormat",
    "NoCheckout",
    "NoView",
    "NotPublished",
    "NotReclocked",
    "NotRewritable",
    "OptionRefused",
    "OverCount",
    "PredicateRefused",
    "ProtocolError",
    "PublishedTopicBehind",
    "PublishedTopicColumns",
    "PublishedTopicContradicts",
    "PublishedTopicCut",
    "PublishedTopicError",
    "PublishedTopicForeign",
    "PublishedTopicNotEmpty",
    "PublishedTopicRecreated",
    "PublishedTopicUnknown",
    "QueryRefused",
    "Refusal",
    "RegistryUnreachable",
    "RepeatedOffset",
    "RunSwept",
    "SchemaRefused",
    "SealedTime",
    "SinceError",
    "SnapshotBySignal",
    "SnapshotRepeated",
    "SnapshotTorn",
    "SnapshotUnfinished",
    "SourceError",
    "SparkLacksStore",
    "StatementRefused",
    "StepFailed",
    "StoreAccessDenied",
    "StoreUnreachable",
    "StoreUnreadable",
    "SubscriptionLapsed",
    "TidelakeError",
    "Time",
    "TimelinesDiffer",
    "TookTooLong",
    "TopicChanged",
    "TopicGap",
    "TopicMissing",
    "TopicUnreachable",
    "TopicUnwritable",
    "TransactionCut",
    "TransactionTopicDivided",
    "TransactionWentBack",
    "UnknownCollection",
    "UnknownColumn",
    "UnknownPlugin",
    "UnknownTopic",
    "UpperError",
    "WriterFenced",
    "WrittenRowsMissing",
    "WrongRegion",
    "hint_for_name",
    "name_in_kafka",
    "show",
    "show_frontier",
]
