"""Reclocking: records state no times; each tick mints a time and binds it to the offsets that it reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from pyspark.sql import DataFrame, SparkSession

from tidelake.forms.form import Form
from tidelake.ingest.reclock import RecordTick
from tidelake.plugins.envelope import envelope_of
from tidelake.plugins.framing import Framing, register_framing
from tidelake.settings.collection import CollectionSettings
from tidelake.settings.reclock import ReclockSettings
from tidelake.settings.terms import FRAMINGS
from tidelake.store.bindings import read_bindings
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection
from tidelake.store.proofs import Proven
from tidelake.topic.topic import Topic
from tidelake.validate.recount import recount_rows


class Reclock(Framing):
    """A time is complete at once: its binding to offsets is the proof, and the tick's commit seals it."""

    terms = FRAMINGS["reclock"]
    settings: ClassVar[type[ReclockSettings]] = ReclockSettings

    def tick(
        self, spark: SparkSession, collection: Collection, settings: CollectionSettings, topics: Sequence[Topic]
    ) -> RecordTick:
        """Make a tick of all topics, at a minted time."""
        assert isinstance(settings, ReclockSettings)
        return RecordTick(spark, collection, settings, topics, envelope_of(settings.envelope))

    def proofs(self, collection: Collection, lower: int) -> dict[int, dict[str, Any]]:
        """Read the number of rows of each time from the bindings."""
        bindings = read_bindings(collection, OpenTable(collection.paths.updates), lower)
        return {
            binding.time: Proven(binding.rows, binding.rows, 0, None)._asdict() for binding in bindings if binding.rows
        }

    def recount(self, rows: DataFrame, collection: Collection, form: Form) -> list[dict[str, Any]]:
        """Count rows: equal records are separate events."""
        return recount_rows(rows, collection, form)


def register() -> None:
    """Register the framing; `pyproject.toml` names this function as its entry point."""
    register_framing(Reclock())
