"""The last outcome of each step as a text file for node_exporter's textfile collector."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tidelake.telemetry.exposition import Metric, Sample, write_textfile
from tidelake.telemetry.steps import TEXTS, StepOutcome

_LABELS = ("collection", "step")
_SUCCEEDED = Metric("step_succeeded", "1 if the last run of the step on the collection succeeded, 0 if not.", _LABELS)
_ENDED = Metric("step_end_timestamp_seconds", "When the step last ended, in Unix time.", _LABELS)
_SECONDS = Metric("step_duration_seconds", "How long the last run of the step took.", _LABELS)
_COUNTS = {
    name: Metric(f"step_{name}", f"In the last run of the step: {text[0].lower()}{text[1:]}", _LABELS)
    for name, text in TEXTS.items()
}
METRICS = (_SUCCEEDED, _ENDED, _SECONDS, *_COUNTS.values())
"""All metrics of steps."""


class StepFiles:
    """Writes `tidelake-COLLECTION-STEP.prom` after each step: each step of a collection has its own file."""

    def __init__(self, folder: Path) -> None:
        """Write to this folder, which has to exist when a step ends."""
        self.folder = folder

    def record(self, outcome: StepOutcome) -> None:
        """Replace the file of the step.

        Raises:
            OSError: the file cannot be written.
        """
        write_textfile(self.folder / f"tidelake-{outcome.collection}-{outcome.step}.prom", samples_of(outcome))

    def close(self) -> None:
        """Do nothing: every file is complete."""


def samples_of(outcome: StepOutcome) -> Iterator[Sample]:
    """Return an outcome as samples."""
    labels = (outcome.collection, outcome.step)
    yield Sample(_SUCCEEDED, labels, int(outcome.error is None))
    yield Sample(_ENDED, labels, round(outcome.began_s + outcome.seconds, 3))
    yield Sample(_SECONDS, labels, round(outcome.seconds, 6))
    for name, count in outcome.counts.items():
        yield Sample(_COUNTS[name], labels, count)
