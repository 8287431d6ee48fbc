"""Transactions: the ENDs of a source's transactions state the times, and announce the number of events at each time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from pyspark.sql import DataFrame, SparkSession

from tidelake.forms.form import Form
from tidelake.framings.cdcv2 import Cdcv2
from tidelake.ingest.transactions import TransactionTick
from tidelake.plugins.envelope import envelope_of
from tidelake.plugins.framing import register_framing
from tidelake.plugins.tick import Tick
from tidelake.settings.collection import CollectionSettings
from tidelake.settings.terms import FRAMINGS
from tidelake.settings.transactions import TransactionSettings
from tidelake.store.entry import Collection
from tidelake.topic.topic import Topic
from tidelake.validate.recount import recount_positions


class Transactions(Cdcv2):
    """A time is complete once as many distinct events have arrived as the ENDs of the source announce."""

    terms = FRAMINGS["transactions"]
    settings: ClassVar[type[CollectionSettings]] = TransactionSettings

    def tick(
        self, spark: SparkSession, collection: Collection, settings: CollectionSettings, topics: Sequence[Topic]
    ) -> Tick:
        """Make a tick of the table's topic and the topic of transactions, which is the last of `topics`."""
        assert isinstance(settings, TransactionSettings)
        return TransactionTick(spark, collection, settings, topics, envelope_of(settings.envelope))

    def recount(self, rows: DataFrame, collection: Collection, form: Form) -> list[dict[str, Any]]:
        """Count distinct positions: an event may have two rows, or copies."""
        return recount_positions(rows, collection, form)


def register() -> None:
    """Register the framing; `pyproject.toml` names this function as its entry point."""
    register_framing(Transactions())
