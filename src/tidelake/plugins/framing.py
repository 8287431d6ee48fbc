"""The protocol and the registry of framings, which detect completeness and copies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol

from pyspark.sql import DataFrame, SparkSession

from tidelake.forms.form import Form
from tidelake.plugins.tick import Tick
from tidelake.settings.collection import CollectionSettings
from tidelake.settings.framings import SETTINGS
from tidelake.settings.terms import FRAMINGS, FramingTerms, look_up
from tidelake.store.entry import Collection
from tidelake.topic.topic import Topic


class Framing(Protocol):
    """A framing, which is fixed when a collection is created."""

    terms: ClassVar[FramingTerms]
    """The terms for settings and the store."""
    settings: ClassVar[type[CollectionSettings]]
    """The settings that a user can write."""

    def tick(
        self, spark: SparkSession, collection: Collection, settings: CollectionSettings, topics: Sequence[Topic]
    ) -> Tick:
        """Make a tick of ingest; nothing is read yet."""

    def proofs(self, collection: Collection, lower: int) -> Mapping[int, Mapping[str, Any]]:
        """Return the proof of each sealed time at or after `lower`: announced, counted, copies and decision."""

    def recount(self, rows: DataFrame, collection: Collection, form: Form) -> list[dict[str, Any]]:
        """Count the rows of sealed times independently of seal, for `validate` to compare with the proofs.

        Returns:
            A row for each time, with `time`, `recounted`, `diff_min`, `diff_sum`, `times_hash` and `contents_hash`,
            which is None if diffs are not summed. If keys can have two values, it also has `doubled`. If statements
            only add rows, it may also have `left`, `left_recounted` and `added_min`, about rows removed by retention.

        Cost: one exchange of the rows, or two if keys may be left with two rows.
        """


PLUGINS: dict[str, Framing] = {}
"""The framings in use, by name. A framing of another package is added when `look_up` first looks for it."""


def register_framing(framing: Framing) -> None:
    """Register a framing; settings accept its name from now on."""
    name = framing.terms.name
    FRAMINGS[name], SETTINGS[name] = framing.terms, framing.settings
    PLUGINS[name] = framing


def framing_of(name: str) -> Framing:
    """Return the framing with this name, as in settings and the catalog.

    Raises:
        UnknownPlugin: neither this process nor an installed package has it.
    """
    return look_up("framing", PLUGINS, name)
