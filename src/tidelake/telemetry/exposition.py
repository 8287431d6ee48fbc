"""Metrics, their samples, and the text format in which Prometheus reads them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PREFIX = "tidelake_"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""The content type of `exposition`."""

_FILE_MODE = 0o644
_LABEL_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_HELP_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n"})


@dataclass(frozen=True)
class Metric:
    """A gauge: its name without the prefix, one sentence, and the names of its labels."""

    name: str
    text: str
    labels: tuple[str, ...] = ("collection",)


@dataclass(frozen=True)
class Sample:
    """One value of a metric, with a value for each of its labels."""

    metric: Metric
    values: tuple[str, ...]
    value: float


def exposition(samples: Iterable[Sample]) -> str:
    r"""Write samples in Prometheus's text format, grouped by metric, in the order of each metric's first sample.

    >>> rows = Metric("rows", "Stored statements.")
    >>> print(exposition([Sample(rows, ("orders",), 3), Sample(rows, ('a"b',), 0.5)]), end="")
    # HELP tidelake_rows Stored statements.
    # TYPE tidelake_rows gauge
    tidelake_rows{collection="orders"} 3
    tidelake_rows{collection="a\"b"} 0.5
    """
    by_metric: dict[Metric, list[Sample]] = {}
    for sample in samples:
        by_metric.setdefault(sample.metric, []).append(sample)
    lines: list[str] = []
    for metric, group in by_metric.items():
        name = PREFIX + metric.name
        lines += [f"# HELP {name} {metric.text.translate(_HELP_ESCAPES)}", f"# TYPE {name} gauge"]
        lines += [f"{name}{_labels(sample)} {sample.value!r}" for sample in group]
    return "".join(f"{line}\n" for line in lines)


def _labels(sample: Sample) -> str:
    pairs = zip(sample.metric.labels, sample.values, strict=True)
    text = ",".join(f'{label}="{value.translate(_LABEL_ESCAPES)}"' for label, value in pairs)
    return f"{{{text}}}" if text else ""


def write_textfile(file: Path, samples: Iterable[Sample]) -> None:
    """Write samples to a file that a collector reads. The collector sees the previous file or this one, never a part.

    Raises:
        OSError: the file cannot be written; the previous file is kept.
    """
    text = exposition(samples)
    descriptor, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as output:
            output.write(text)
        os.chmod(name, _FILE_MODE)
        os.replace(name, file)
    except OSError:
        os.unlink(name)
        raise
