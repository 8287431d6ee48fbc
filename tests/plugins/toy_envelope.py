"""A toy envelope: a statement is a line, and each line of a reclocked topic becomes one row for each word."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidelake.decode.writers import SourceSchemas
from tidelake.forms.form import Form
from tidelake.forms.refusals import Refusal
from tidelake.forms.sums import SumForm
from tidelake.ingest.plain_records import PlainRecords, read_events
from tidelake.plugins.envelope import Envelope, RecordBatch, Records, register_envelope
from tidelake.settings.reclock import ReclockSettings
from tidelake.settings.terms import EnvelopeTerms
from tidelake.spark.runtime_constant import parameter
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Entry
from tidelake.store.layout import DIFF, TIME


def _is_empty(statement: Column) -> Column:
    return statement["data"]["text"] == ""


def _words(decoded: DataFrame, settings: ReclockSettings, schemas: SourceSchemas, time: int) -> DataFrame:
    return decoded.where(F.col("_reason").isNull()).select(
        parameter(time, F.col("offset")).alias(TIME),
        F.lit(1).cast("bigint").alias(DIFF),
        F.explode(F.split(F.col("_value")["text"], " ")).alias("text"),
    )


class Words(Envelope):
    """Splits lines into words; a line without words is refused."""

    terms = EnvelopeTerms("words", family="words")
    refusals = (Refusal("no_words", "a line has words", _is_empty),)

    def form(self, entry: Entry, table: OpenTable | None = None) -> Form:
        return SumForm(entry, table)

    def records(self, batch: RecordBatch) -> Records:
        return PlainRecords(batch, read_events, _words)


def register() -> None:
    """Register this envelope, so that collections can use it."""
    register_envelope(Words())
