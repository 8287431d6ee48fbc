"""Counts the rows of a plan in the same pass that writes them."""

from __future__ import annotations

from threading import Thread
from typing import Any

from pyspark.sql import Column, DataFrame, Observation

_WAIT_S = 10.0


class Observed:
    """A DataFrame whose rows are counted when an action runs over it.

    If the optimizer detects before the action that a plan is empty, it removes the counting as well, and Spark would
    wait for the numbers forever. So the wait is bounded; after it, a separate job computes the numbers.
    """

    def __init__(self, frame: DataFrame, *aggregates: Column) -> None:
        self._source, self._aggregates = frame, aggregates
        self._observation = Observation()
        self.frame = frame.observe(self._observation, *aggregates)

    def values(self) -> dict[str, Any]:
        """Return the aggregates by name, once an action has run over `frame`."""
        numbers: dict[str, Any] = {}
        waiting = Thread(target=lambda: numbers.update(self._observation.get), daemon=True)
        waiting.start()
        waiting.join(_WAIT_S)
        if not numbers:
            row = self._source.agg(*self._aggregates).first()
            assert row is not None
            numbers = row.asDict()
        return numbers
