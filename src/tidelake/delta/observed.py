"""Counting rows on their way through a plan, in the same pass that writes them."""

from __future__ import annotations

from threading import Thread
from typing import Any

from pyspark.sql import Column, DataFrame, Observation

_WAIT_S = 10.0


class Observed:
    """A frame whose rows are counted when an action runs over it.

    An optimizer that finds out before the action that a plan is empty removes the counting too, and then Spark waits
    for the numbers for ever. So the wait has a bound, and after it the numbers are asked for by a job of their own.
    """

    def __init__(self, frame: DataFrame, *aggregates: Column) -> None:
        self._source, self._aggregates = frame, aggregates
        self._observation = Observation()
        self.frame = frame.observe(self._observation, *aggregates)

    def values(self) -> dict[str, Any]:
        """The aggregates by their names, once an action has run over `frame`."""
        found: dict[str, Any] = {}
        waiting = Thread(target=lambda: found.update(self._observation.get), daemon=True)
        waiting.start()
        waiting.join(_WAIT_S)
        if not found:
            row = self._source.agg(*self._aggregates).first()
            assert row is not None
            found = row.asDict()
        return found
