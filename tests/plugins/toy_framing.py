"""A toy framing: the time of a tick is the number of offsets that have been read so far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pyspark.sql import SparkSession

from tidelake.framings.reclock import Reclock
from tidelake.ingest.reclock import RecordTick
from tidelake.plugins.envelope import envelope_of
from tidelake.plugins.framing import register_framing
from tidelake.settings.collection import CollectionSettings
from tidelake.settings.reclock import ReclockSettings
from tidelake.settings.terms import FramingTerms
from tidelake.store.entry import Collection
from tidelake.topic.topic import Topic


class _Settings(ReclockSettings):
    framing: Literal["counted"] = "counted"  # type: ignore[assignment]  # the base class has its own tag


class _Tick(RecordTick):
    def mint(self) -> int:
        return sum(self.ends().values())


class Counted(Reclock):
    """Like `reclock`, but without a clock."""

    terms = FramingTerms(
        "counted",
        mints_times=True,
        identifies_by_data=False,
        checks=("announced_is_recounted", "frontier_moves"),
        key_checks=(),
    )
    settings = _Settings

    def tick(
        self, spark: SparkSession, collection: Collection, settings: CollectionSettings, topics: Sequence[Topic]
    ) -> RecordTick:
        assert isinstance(settings, _Settings)
        return _Tick(spark, collection, settings, topics, envelope_of(settings.envelope))


def register() -> None:
    """Register this framing, so that collections can use it."""
    register_framing(Counted())
