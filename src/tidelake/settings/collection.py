"""The settings that collections of all framings share, and the specification of a collection for the store."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar, Literal, NoReturn

from pydantic import Field, field_validator

from tidelake.settings.block import Block, Frozen
from tidelake.settings.current import CurrentSettings
from tidelake.settings.durations import duration_of
from tidelake.settings.expectations import OwnExpectation
from tidelake.settings.kafka import KafkaSettings
from tidelake.settings.object_store import FolderPlace
from tidelake.settings.publish import PublishSettings
from tidelake.settings.registry import RegistrySettings, Subject
from tidelake.settings.row_retention import RowRetention
from tidelake.settings.source import read_topics
from tidelake.settings.terms import EnvelopeTerms, envelope_terms, framing_terms

Source = Literal["files", "kafka"]
Encoding = Literal["avro", "confluent"]
WALL_CLOCK = "wall clock"
"""The timeline of reclocked collections that name no other. Names have no spaces, so none clashes with it."""
_TIMELINE = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")
_OWNER = re.compile(r"team:[A-Za-z0-9_.-]+|[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,}")
STALLED_AFTER_S = 86_400


@dataclass(frozen=True)
class CollectionSpec:
    """Everything that the store needs to create a collection, or to check that settings fit an existing one.

    Args:
        record_schema: the columns of the table; empty if the settings have no schema.
        value_schema: the schema of records' values, without the columns that are added to them; for change events,
            the schema of the row.
        of_changes: whether `value_schema` is the row of change events, with Debezium's type names.
        evolves: whether new columns may appear.
    """

    name: str
    framing: str
    envelope: str
    record_schema: dict[str, Any]
    value_schema: dict[str, Any] = field(default_factory=dict)
    of_changes: bool = False
    evolves: bool = False
    format: str = "avro"
    key: tuple[str, ...] = ()
    before: Literal["whole", "key"] = "whole"


class CollectionSettings(Frozen):
    """The settings of every collection; each framing adds its own in a subclass."""

    name: str
    framing: str
    """How completeness and copies are detected; fixed once the collection exists."""
    envelope: str
    """The meaning of a statement; fixed once the collection exists."""
    topics: tuple[str, ...]
    """The names of the topics. A table with transactions has one topic of events; other collections may have more."""
    topics_folder: FolderPlace
    source: Source = "files"
    """Where the topics are: in folders below `topics`, or in Kafka."""
    kafka: KafkaSettings | None = None
    """The cluster, if the topics are in Kafka."""
    registry: RegistrySettings | None = None
    """Where schema ids are looked up, if they are not listed."""
    subject: Subject = "topic"
    """How the registry's subjects for the topics are named."""
    value_schema: dict[str, Any] = Field(default_factory=dict)
    """`schema`: the schema of a statement's data or of a record's value; empty if it comes from the source."""
    encoding: Encoding = "avro"
    """Whether messages are bare Avro or begin with a schema id."""
    schema_ids: dict[int, dict[str, Any]] = Field(default_factory=dict)
    """For Confluent framing: the writer's schema for each id."""
    key: tuple[str, ...] = ()
    """The columns that identify a row: the key of upserts, or the primary key of the source table."""
    keep: Literal["all"] | int | timedelta = "all"
    """The retention rule. `all`: every time stays readable. A number: every time that is at most this far before upper.
    A duration, such as 7d: every state that was the newest at some moment of the last 7 days."""
    keep_rows: RowRetention | None = None
    """For append-only collections: how long rows stay in the contents, by a column that states a point in time."""
    timeline: str | None = None
    """A name shared by collections whose times mean the same thing, so that they can be read at one time: streams of
    one source, or reclocked topics to which each run of ingest gives the same time."""
    bag: bool = False
    """Whether the published table repeats a row as often as it occurs, at most 100,000 times, instead of having the
    column `_diff`; only allowed without a key. A row that occurs a negative number of times is refused."""
    current: CurrentSettings | None = None
    """What the [published table](../operations.md#published-tables) does with keys in error."""
    messages_per_tick_max: int = Field(default=200_000, ge=1)
    """Maximum number of messages in one tick of ingest."""
    merge_rows_max: int = Field(default=5_000_000, ge=1)
    """Maximum number of rows that the merges of one scheduled run may read; the nightly compaction has no limit."""
    stalled_after_s: int = Field(default=STALLED_AFTER_S, ge=1)
    """How long upper may stay unchanged before a check warns."""
    hold_age_max_s: int = Field(default=7 * 86_400, ge=1)
    """How old a hold may be before a check warns."""

    verify_every_days: int = Field(default=30, ge=0)
    """How many nightly validations it takes to verify every byte of every file; 0 verifies none."""
    show_values: bool = False
    """Whether reports show the keys and values of quarantined messages, or only their sizes."""
    owners: tuple[str, ...] = ()
    """Who is responsible, for Dagster: e-mail addresses, and teams as `team:NAME`."""

    publish: PublishSettings | None = None
    """The topic that Dagster publishes the collection to, as CDCv2: see [Publishing](../guides/publishing.md)."""

    expectations: tuple[OwnExpectation, ...] = ()
    """The expectations about the contents, in addition to the checks of every collection."""

    READ_APART: ClassVar[frozenset[str]] = frozenset(
        {"family", "envelope", "topic", "schema", "schema_ids", "key", "expectations", "keep_rows"}
    )
    """The keys whose values need more than a check of their type."""

    IS_SUGGESTED: ClassVar[bool] = True
    """Whether to suggest this framing in the error about a key that no other framing has. If not, the error is
    that of the collection's own framing; see `refuse`."""

    @property
    def topic(self) -> str:
        """The names of the topics, as text."""
        return ", ".join(self.topics)

    @property
    def statement_topics(self) -> tuple[str, ...]:
        """The names of the topics with the collection's statements."""
        return self.topics

    def key_of(self, topic: str) -> str:
        """Return the settings key that names one of the topics."""
        return "topic"

    @property
    def terms(self) -> EnvelopeTerms:
        """The terms of the envelope."""
        return envelope_terms(self.envelope)

    @property
    def mints_times(self) -> bool:
        """Whether ingest mints and seals the times of the records that it reads."""
        return framing_terms(self.framing).mints_times

    @property
    def timeline_name(self) -> str:
        """The timeline that it names; by default, the wall clock if it is reclocked, or else a timeline of its own."""
        if self.timeline is not None:
            return self.timeline
        return WALL_CLOCK if self.mints_times else f"collection {self.name}"

    @property
    def family(self) -> str:
        """The name of the envelope's module in `assets/`."""
        return self.terms.family

    @property
    def record_schema(self) -> dict[str, Any]:
        """The columns of the table; empty if the schema comes from the source."""
        return self.value_schema

    def spec(self) -> CollectionSpec:
        """Return the specification for the store."""
        return CollectionSpec(self.name, self.framing, self.envelope, self.record_schema, key=self.key)

    @classmethod
    def written_keys(cls) -> set[str]:
        """Return the keys that a collection's block may have in the file."""
        inner = {"name", "topics", "topics_folder", "kafka", "registry", "value_schema"}
        return (set(cls.model_fields) - inner) | {"family", "topic", "schema"}

    @classmethod
    def refuse(cls, place: Block) -> NoReturn:
        """Refuse a settings key that only other framings have."""
        place.fail(f"is not allowed for the framing '{cls.model_fields['framing'].default}'", "leave it out")

    @classmethod
    def read(cls, block: Block, terms: EnvelopeTerms, looks_up_ids: bool) -> dict[str, Any]:
        """Read the keys of `READ_APART` that each framing reads in its own way, such as the schema; return the fields.

        Args:
            block: the collection's block.
            terms: the terms of the collection's envelope.
            looks_up_ids: whether schema ids are looked up in a registry.

        Raises:
            ConfigurationError: a field is invalid.
        """
        raise NotImplementedError

    @classmethod
    def read_topics(cls, block: Block) -> tuple[str, ...]:
        """Read the names of all topics that a collection reads; those with its statements come first.

        Raises:
            ConfigurationError: a name is missing or invalid.
        """
        return read_topics(block.child("topic"))

    def check_beside(self, block: Block, others: Sequence[CollectionSettings]) -> None:
        """Refuse settings that contradict those of the collections before this one in the file.

        Raises:
            ConfigurationError: a field contradicts the settings of another collection.
        """

    @field_validator("owners", mode="before")
    @classmethod
    def _owners_are_addresses_or_teams(cls, owners: Any) -> Any:
        names = [owners] if isinstance(owners, str) else owners
        if not isinstance(names, list | tuple) or not all(
            isinstance(name, str) and _OWNER.fullmatch(name) for name in names
        ):
            raise ValueError("should be e-mail addresses, or teams as `team:NAME`")
        return tuple(names)

    @field_validator("timeline")
    @classmethod
    def _timeline_is_a_name(cls, timeline: str | None) -> str | None:
        if timeline is not None and not _TIMELINE.fullmatch(timeline):
            raise ValueError("should be a name: letters, digits and _, beginning with a letter")
        return timeline

    @field_validator("keep", mode="before")
    @classmethod
    def _keep_is_a_distance_or_a_duration(cls, keep: Any) -> Any:
        if isinstance(keep, timedelta) or keep == "all" or (type(keep) is int and keep >= 0):
            return keep
        duration = duration_of(keep)
        if duration is None:
            rule = "a distance before upper (a whole number, 0 or more), or a duration such as 12h or 7d"
            raise ValueError(f"should be 'all', {rule}")
        return duration
