"""Counts the rows of a plan in the same pass that writes them."""

from __future__ import annotations

import json
from threading import Thread
from typing import Any

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

_WAIT_S = 10.0
_ALL = "all"


class Observed:
    """A DataFrame whose rows are counted when an action runs over it.

    If the optimizer detects before the action that a plan is empty, it removes the counting as well, and Spark would
    wait for the numbers forever. So the wait is bounded; after it, a separate job computes the numbers.
    """

    def __init__(self, frame: DataFrame, *aggregates: Column) -> None:
        """Count the rows of a frame.

        Args:
            frame: the rows.
            aggregates: whole numbers, booleans or texts, each with a name.
        """
        self._source, self._aggregates = frame, aggregates
        self._observation = Observation()
        # As one text: each value of an observation takes several round trips to the JVM.
        together = F.to_json(F.struct(*aggregates), {"ignoreNullFields": "false"})
        self.frame = frame.observe(self._observation, together.alias(_ALL))

    def values(self) -> dict[str, Any]:
        """Return the aggregates by name, once an action has run over `frame`."""
        numbers: dict[str, Any] = {}

        def wait() -> None:
            # `Observation.get` copies the JVM's map into a dict, which takes 60 round trips.
            observed: Any = self._observation._jo
            numbers.update(json.loads(observed.getAsJava().get(_ALL)))

        waiting = Thread(target=wait, daemon=True)
        waiting.start()
        waiting.join(_WAIT_S)
        if not numbers:
            row = self._source.agg(*self._aggregates).first()
            assert row is not None
            numbers = row.asDict()
        return numbers
