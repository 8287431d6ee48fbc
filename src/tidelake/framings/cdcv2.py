"""CDCv2: messages state times and diffs, and progress statements announce the number of updates at each time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from pyspark.sql import DataFrame, SparkSession

from tidelake.forms.form import Form
from tidelake.ingest.cdcv2 import StreamTick
from tidelake.plugins.envelope import refusals_of
from tidelake.plugins.framing import Framing, register_framing
from tidelake.plugins.tick import Tick
from tidelake.protocol.order import INT64_MAX
from tidelake.settings.cdcv2 import Cdcv2Settings
from tidelake.settings.collection import CollectionSettings
from tidelake.settings.terms import FRAMINGS
from tidelake.store.entry import Collection
from tidelake.store.proofs import read_proven
from tidelake.topic.topic import Topic
from tidelake.validate.recount import recount_statements


class Cdcv2(Framing):
    """A time is complete once progress statements cover it and the announced number of distinct updates has arrived."""

    terms = FRAMINGS["cdcv2"]
    settings: ClassVar[type[CollectionSettings]] = Cdcv2Settings

    def tick(
        self, spark: SparkSession, collection: Collection, settings: CollectionSettings, topics: Sequence[Topic]
    ) -> Tick:
        """Make a tick of all topics. Their messages state the times, and seal proves that these times are complete."""
        return StreamTick(spark, collection, settings, topics, refusals_of(settings.envelope))

    def proofs(self, collection: Collection, lower: int) -> dict[int, dict[str, Any]]:
        """Read what seal has proven; only files that may have times at or after `lower` are opened."""
        proven = read_proven(collection.paths.proofs, [(lower, INT64_MAX + 1)])
        return {time: proof._asdict() for time, proof in proven.items()}

    def recount(self, rows: DataFrame, collection: Collection, form: Form) -> list[dict[str, Any]]:
        """Count distinct statements: equal data at the same time is one statement, however often it arrived."""
        return recount_statements(rows, collection, form)


def register() -> None:
    """Register the framing; `pyproject.toml` names this function as its entry point."""
    register_framing(Cdcv2())
