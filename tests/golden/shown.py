"""What users see of a store, as text that keeps every digit, and functions that run the jobs on it once more.

This module only uses the command line, the jobs' `main` and a plain Delta reader, so that it works with any later code.
"""

from __future__ import annotations

import hashlib
import importlib
import io
import json
import sys
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from tidelake.cli import main as tidelake

FOLDER = Path(__file__).parent
ARCHIVE = FOLDER / "store.tar.gz"
EXPECTED = FOLDER / "expected.json"

_LONGEST = 600
_CLOCK_AHEAD_MAX_S = 100 * 365 * 86_400

_STATUS = (
    *("closed", "rows", "pending", "lag_messages", "statements_pending", "late", "late_verdicts", "late_contradicted"),
    *("late_undecided", "quarantine", "quarantine_reasons", "quarantine_unexplained", "keys_in_error"),
    *("sealed_by_decision", "decided_counts", "damaged", "topic_problem", "topic_gaps"),
)
_REPORTS: dict[str, tuple[str, ...]] = {
    "ingest": (
        *("messages", "null_records", "quarantined", "progress_statements", "updates_read", "updates_stored"),
        *("updates_late", "copies_dropped", "values_in_error", "reasons"),
    ),
    "seal": ("closed", "times_sealed", "copies_cancelled", "decided", "unsealed_rows", "sealed_by_ingest"),
    "compact": (),
    "validate": ("closed", "mismatches", "quarantine", "decided", "doubled", "readable_beyond_upper", "late"),
    "current": ("rows", "rebuilt"),
}


def unpack(folder: Path) -> Path:
    """Unpack the store with its topics and settings, and return its `collections.yaml`.

    The store and the timestamps of its records grow older, so the clock is allowed to be ahead by a hundred years.
    """
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    config = folder / "collections.yaml"
    settings = config.read_text(encoding="utf-8")
    trusted = f"    framing: reclock\n    clock_ahead_max_s: {_CLOCK_AHEAD_MAX_S}\n"
    config.write_text(settings.replace("    framing: reclock\n", trusted), encoding="utf-8")
    return config


def command(*words: object) -> tuple[int, str]:
    """Run a command of Tidelake in this process, and return its exit status and output."""
    arguments, printed = sys.argv, io.StringIO()
    sys.argv = ["tidelake", *map(str, words)]
    try:
        with redirect_stdout(printed):
            tidelake()
    except SystemExit as end:
        return int(end.code or 0), printed.getvalue()
    finally:
        sys.argv = arguments
    return 0, printed.getvalue()


def job(name: str, config: Path, collection: str) -> dict[str, Any]:
    """Run a job for one collection in this process, and return its exit status and report."""
    printed = io.StringIO()
    with redirect_stdout(printed):
        status = importlib.import_module(f"jobs.{name}").main(["--config", str(config), "--collection", collection])
    return {"status": status, **_exact(printed.getvalue())}


def go_on(config: Path, collection: str, decisions: Iterable[Sequence[str]]) -> dict[str, Any]:
    """Run all jobs once, with decisions before seal, and return their reports."""
    reports: dict[str, Any] = {}
    for name, keys in _REPORTS.items():
        if name == "seal":
            for decision in decisions:
                status, _ = command("resolve", collection, *decision, "--reason", "asked", "--config", config)
                assert status == 0, decision
        report = job(name, config, collection)
        result = report["results"].get(collection, {})
        reports[name] = {"status": report["status"], **{key: result.get(key) for key in keys}}
    return reports


@dataclass
class Shown:
    """One collection as users see it.

    Args:
        config: the `collections.yaml`.
        name: the collection.
        folder: its folder in the store.
        known: the minted times to show as they are, or None for all; others, which depend on a clock, are shown as
            `new 1`, `new 2`, ….
        words: whether to also show the number of stored runs, and messages that may be reworded.
    """

    config: Path
    name: str
    folder: str
    known: Sequence[int] | None = None
    words: bool = True
    _minted: dict[int, str] = field(default_factory=dict)

    def everything(self) -> dict[str, Any]:
        """Everything that the methods below show."""
        times = self._times()
        status = self._status()
        return {
            **status,
            "times": times,
            "reads": self._reads(),
            "quarantine": self._rows_of("quarantine"),
            "late": self._rows_of("late"),
            "current": self._current(),
        }

    def _times(self) -> list[dict[str, Any]] | None:
        """The minted times, oldest first; None if the topic states times."""
        status, printed = command("times", self.name, "--json", "--limit", 10_000, "--config", self.config)
        if status != 0:
            return None
        rows = _exact(printed)["rows"]
        if self.known is not None:
            new = [row["time"] for row in rows if row["time"] not in self.known]
            self._minted = {time: f"new {number}" for number, time in enumerate(new, start=1)}
        columns = ("offsets", "records", "rows", "quarantined")
        return [{"time": self._time(row["time"]), **{column: row[column] for column in columns}} for row in rows]

    def _time(self, time: int) -> int | str:
        return self._minted.get(time, time)

    def _bound(self, time: int | None) -> int | str | None:
        """`since` or `upper`, which may be the first time after a minted time."""
        if time is None or time in self._minted or time - 1 not in self._minted:
            return time if time is None else self._time(time)
        return f"{self._minted[time - 1]} + 1"

    def _status(self) -> dict[str, Any]:
        _, printed = command("status", self.name, "--json", "--config", self.config)
        status = _exact(printed)["collections"][self.name]
        contradictions = [{"time": row["time"], "decided": row["decided"]} for row in status["contradictions"]]
        shown = {key: status[key] for key in (*_STATUS, *(["runs"] if self.words else []))}
        shown |= {"since": self._bound(status["since"]), "upper": self._bound(status["upper"])}
        return {"status": {**shown, "contradictions": contradictions}}

    def _reads(self) -> list[dict[str, Any]]:
        """The contents AS OF the first, a middle and the last readable time; reads beyond these are refused."""
        last = self._read()
        if last is None:
            return []
        first, end = last["since"], last["as_of"]
        minted = json.loads(command("times", self.name, "--json", "--limit", 10_000, "--config", self.config)[1] or "0")
        between = [row["time"] for row in minted["rows"]] if minted else list(range(first, end + 1))
        between = [time for time in between if first <= time <= end] or [end]
        reads = [self._read(time) for time in sorted({between[0], between[len(between) // 2]} - {end})]
        beyond = [*([first - 1] if first > 0 else []), *([] if last["closed"] else [end + 1])]
        assert [self._read(time) for time in beyond] == [None] * len(beyond), "a time outside [since, upper) was read"
        return [self._shown(read) for read in (*reads, last) if read is not None]

    def _read(self, as_of: int | None = None) -> dict[str, Any] | None:
        at = [] if as_of is None else ["--as-of", as_of]
        status, printed = command("read", self.name, "--json", "--skip-errors", *at, "--config", self.config)
        assert status in (0, 2), printed
        return _exact(printed) if status == 0 else None

    def _shown(self, read: Mapping[str, Any]) -> dict[str, Any]:
        bounds = {"since": self._bound(read["since"]), "upper": self._bound(read["upper"]), "closed": read["closed"]}
        return {"as_of": self._time(read["as_of"]), **bounds, "rows": _texts(read["rows"])}

    def _rows_of(self, kind: str) -> dict[str, Any]:
        """The output of `quarantine` or `late`."""
        _, printed = command(kind, self.name, "--json", "--limit", 10_000, "--config", self.config)
        output = _exact(printed)
        for row in output["rows"]:
            if not self.words:
                row.pop("detail", None)
            if "times" in row:
                row["times"] = row["times"] and [self._time(time) for time in row["times"]]
        return {key: value for key, value in output.items() if key != "name"} | {"rows": _texts(output["rows"])}

    def _current(self) -> list[str] | None:
        """The table for other engines, read by a plain Delta reader; None if there is no table.

        Since the version of Tidelake that made the store, the table has moved. It has lost the column `_diff` if the
        collection has a key; otherwise, this column is now the last one. The changes to the columns are undone here.
        """
        _, printed = command("path", self.name, "--json", "--config", self.config)
        places = json.loads(printed)
        path = places["older"] if places["publication"] is None else places["publication"]["path"]
        if path is None:
            return None
        rows = [{"_diff": 1, **row} for row in DeltaTable(path).to_pyarrow_table().to_pylist()]
        before = (
            [] if places["older"] is None else [field.name for field in DeltaTable(places["older"]).schema().fields]
        )
        later = [name for row in rows[:1] for name in (*row, "_diff") if name not in before]
        order = list(dict.fromkeys([*before, *(name for name in later if name != "_diff"), "_diff"]))
        return _texts({name: row[name] for name in order} for row in rows)


def _exact(text: str) -> Any:
    """Parse JSON, and keep the digits of fractions."""
    return json.loads(text, parse_float=lambda digits: {"number": digits})


def _texts(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Sorted rows as strings; a long row is cut, and ends with a hash of the whole row."""
    return sorted(_text(json.dumps(row, ensure_ascii=False, default=str)) for row in rows)


def _text(row: str) -> str:
    whole = hashlib.sha256(row.encode()).hexdigest()
    return row if len(row) <= _LONGEST else f"{row[:_LONGEST]} … of {len(row)} characters, sha256 {whole}"
