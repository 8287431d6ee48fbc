"""The protocol and the registry of envelopes, which say what a statement means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tidelake.decode.writers import SourceSchemas
from tidelake.forms.form import Form
from tidelake.forms.refusals import Refusal
from tidelake.protocol.binding import Place
from tidelake.schema.columns import Column, column_types
from tidelake.settings.reclock import ReclockSettings
from tidelake.settings.terms import ENVELOPES, EnvelopeTerms, look_up
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection, Entry
from tidelake.store.files import RunFile
from tidelake.store.table_schema import updates_schema
from tidelake.topic.topic import Topic


@dataclass(frozen=True)
class RecordBatch:
    """The records that a tick of a reclocked collection reads, at one minted time."""

    spark: SparkSession
    collection: Collection
    settings: ReclockSettings
    schemas: SourceSchemas
    table: OpenTable
    time: int
    raw: DataFrame
    """The columns of `topic.RAW_SCHEMA`, and the string `topic`."""
    topics: Sequence[Topic]
    ends: Mapping[Place, int]
    """By topic and partition, the first offset that the tick has not read."""

    @property
    def table_schema(self) -> pa.Schema:
        """The columns of the table."""
        return updates_schema(self.collection.entry.record_schema, self.collection.entry.positioned)


@dataclass
class WrittenRecords:
    """The files and values that a tick wrote for its records."""

    files: list[RunFile]
    values: dict[str, int] = field(default_factory=dict)
    """Further values for the commit."""
    records: int = 0
    """Number of records. In Kafka, it may be less than the number of offsets: an offset may have no record."""
    tombstones: int = 0
    quarantined: int = 0
    errors: int = 0
    """Number of records that have a key but cannot be used otherwise; each puts its key in error."""


class Records(Protocol):
    """Turns the records of a tick into rows."""

    def decoded(self) -> DataFrame:
        """Decode the records.

        Out: the raw columns, topic, _reason string (why a record is unusable, or null), _detail string,
             _error string (why the value of its key is unknown, or null), and the columns that `write` needs.
        """

    def write(self) -> WrittenRecords:
        """Write the rows as uncommitted runs, and count them in the same pass."""


class Envelope(Protocol):
    """An envelope, which is fixed when a collection is created. Methods that few envelopes need have defaults."""

    terms: ClassVar[EnvelopeTerms]
    """The terms for settings and the store."""
    refusals: ClassVar[Sequence[Refusal]] = ()
    """The kinds of statements whose message is quarantined; the first kind that applies gives the reason."""

    def form(self, entry: Entry, table: OpenTable | None = None) -> Form:
        """Make the form of a collection's table.

        Args:
            entry: the collection's entry.
            table: the collection's updates table, at the version that the form is used for. If None, the form expects
                every kind of row: the results are the same, but may cost more.
        """

    def records(self, batch: RecordBatch) -> Records:
        """Turn records of a reclocked collection into rows; only for envelopes that need no diff."""
        raise AssertionError(f"the envelope '{self.terms.name}' makes no rows from records")

    def contents_types(self, entry: Entry) -> tuple[Column, ...]:
        """Return the columns of the contents."""
        return column_types(entry.record_schema)


PLUGINS: dict[str, Envelope] = {}
"""The envelopes in use, by name. An envelope of another package is added when `look_up` first looks for it."""


def register_envelope(envelope: Envelope) -> None:
    """Register an envelope; settings accept its name from now on."""
    name = envelope.terms.name
    ENVELOPES[name] = envelope.terms
    PLUGINS[name] = envelope


def envelope_of(name: str) -> Envelope:
    """Return the envelope with this name, as in settings and the catalog.

    Raises:
        UnknownPlugin: neither this process nor an installed package has it.
    """
    return look_up("envelope", PLUGINS, name)


def form_of(entry: Entry, table: OpenTable | None = None) -> Form:
    """Return the form of a collection's table; see `Envelope.form`."""
    return envelope_of(entry.envelope).form(entry, table)


def refusals_of(envelope: str) -> Sequence[Refusal]:
    """Return the kinds of statements that an envelope refuses; see `Envelope.refusals`."""
    return envelope_of(envelope).refusals
