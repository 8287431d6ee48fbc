"""Two lakes on the same topic: the first one's process is killed and restarted, and the second one's is left alone."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from pyspark.sql import SparkSession

from tests.crash.harness import (
    Nursery,
    check_acknowledged,
    check_steps,
    collection_of,
    path_of,
    said,
    state_of,
    wait_until_stopped,
)
from tests.crash.pieces import PIECES, pieces_of
from tests.crash.scenes import CYCLE, Scene, prepare, scene_of, tear_next_entry
from tests.lakes.lake import NAME, Lake
from tests.lakes.places import copy_lake, remove_lake
from tests.lakes.published import rows_of

KEEP = 12
REPEATS_MAX = 3
"""How often a step may stop because the store does not answer."""
_PLAIN = Scene()


@dataclass(frozen=True)
class Whole:
    """How an undisturbed life ends, and how many times it passed each failpoint during its scene's piece."""

    state: dict[str, Any]
    shown: Any
    passed: Counter[str]


class Lives:
    """All lives of one seed; their common beginning is run once and copied.

    Args:
        root: the folder of the lakes.
        spark: the session.
        nursery: the parent of all victims.
        seed: the source of all randomness.
        words: the folder for the messages of victims; by default `root`.
        disturbed: given the name of a kill, returns the context in which to run the killed process and those that take
            over. With `disturbed`, steps that stop because the store does not answer are repeated.
    """

    def __init__(
        self,
        root: Path,
        spark: SparkSession,
        nursery: Nursery,
        seed: int,
        words: Path | None = None,
        disturbed: Callable[[str], AbstractContextManager[object]] | None = None,
    ) -> None:
        self.root, self.spark, self.nursery, self.seed = root, spark, nursery, seed
        self.words, self.disturbed = words or root, disturbed
        self.pieces = pieces_of(seed)
        self._bases: dict[int, Path] = {}
        self._wholes: dict[tuple[Scene, int], Whole] = {}

    def kill_at(self, place: str) -> None:
        """Kill a process at this place, let another take over, and check that the end shows no trace of the kill.

        The tests of kills make no other assertions.
        """
        scene, rng = scene_of(place), Random(f"{self.seed} {place}")
        piece = self._piece(scene)
        whole = self._whole(scene, piece)
        passes = whole.passed[place]
        assert passes, f"the scene does not reach {place}"
        lake = self._from_base(piece, f"killed-{place}")
        prepare(lake, scene.prepare, self.seed)
        words = self._words(lake)
        order = self._order(lake, scene.steps) | {"meet": scene.meet, "stop": place, "passing": rng.randrange(passes)}
        with nullcontext() if self.disturbed is None else self.disturbed(f"{self.seed} {place}"):
            assert self.nursery.run(order) == -9, self._log(lake)
            assert {"stopped": place} in said(words)
            done = self._go_on(lake, piece, scene.steps)
        self._ends_as(lake, whole, done)

    def wake_late(self, place: str, meanwhile: tuple[str, ...]) -> list[dict[str, Any]]:
        """Pause a process at a failpoint, run `meanwhile`, resume the process, and return what it wrote afterwards.

        Check that the end shows no trace of the paused process.
        """
        piece = self._piece(_PLAIN)
        whole = self._whole(_PLAIN, piece)
        lake = self._from_base(piece, f"paused-{place}-{len(meanwhile)}")
        order = self._order(lake, CYCLE) | {"stop": place, "signal": "SIGSTOP"}
        zombie = self.nursery.start(order)
        wait_until_stopped(zombie)
        assert self.nursery.run(self._order(lake, meanwhile, "others")) == 0, self._log(lake)
        others = said(self._words(lake, "others"))
        check_steps(others)
        before = len(said(self._words(lake)))
        os.kill(zombie, signal.SIGCONT)
        assert self.nursery.wait(zombie) == 0, self._log(lake)
        check_acknowledged(lake, said(self._words(lake)) + others)
        messages = said(self._words(lake))[before:]
        self._ends_as(lake, whole, self._go_on(lake, piece, CYCLE))
        return messages

    def tear(self, tables: Iterable[str]) -> None:
        """Continue after a power loss has truncated the next log entry of each of these tables."""
        piece = self._piece(_PLAIN)
        whole = self._whole(_PLAIN, piece)
        lake = self._from_base(piece, "torn")
        for table in tables:
            tear_next_entry(path_of(lake, table), Random(f"{self.seed} {table}"))
        self._ends_as(lake, whole, self._go_on(lake, piece, CYCLE))

    def fill_up(self, bytes_left: int) -> list[dict[str, Any]]:
        """Run on a disk that is almost full, then with enough space; return the messages of the first run."""
        piece = self._piece(_PLAIN)
        whole = self._whole(_PLAIN, piece)
        lake = self._from_base(piece, f"full-{bytes_left}")
        ballast = self.root / "ballast"
        free = os.statvfs(self.root)
        with ballast.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, free.f_bavail * free.f_bsize - bytes_left)
        try:
            assert self.nursery.run(self._order(lake, CYCLE)) == 0, self._log(lake)
        finally:
            ballast.unlink()
        words = said(self._words(lake))
        self._ends_as(lake, whole, self._go_on(lake, piece, CYCLE))
        return words

    def _ends_as(self, lake: Lake, whole: Whole, done: list[dict[str, Any]]) -> None:
        """Compare the end with that of an undisturbed life; `done` is what the last processes wrote."""
        shown = self._shown(lake, done)
        check_acknowledged(lake, said(self._words(lake)))
        state = state_of(lake)
        for name, value in whole.state.items():
            assert state[name] == value, f"{name} differs; {self._log(lake)}"
        assert shown == whole.shown
        remove_lake(lake.root)

    def _piece(self, scene: Scene) -> int:
        if scene.piece is not None:
            return scene.piece
        return 1 if self.seed % 3 == 0 else PIECES - 1

    def _whole(self, scene: Scene, piece: int) -> Whole:
        if (scene, piece) not in self._wholes:
            lake = self._from_base(piece, f"whole-{len(self._wholes)}")
            prepare(lake, scene.prepare, self.seed)
            words = self._words(lake)
            assert self.nursery.run(self._order(lake, scene.steps) | {"meet": scene.meet}) == 0, self._log(lake)
            (passed,) = [message["passed"] for message in said(words) if "passed" in message]
            shown = self._shown(lake, self._go_on(lake, piece, scene.steps))
            check_acknowledged(lake, said(words))
            self._wholes[scene, piece] = Whole(state_of(lake), shown, Counter(passed))
        return self._wholes[scene, piece]

    def _go_on(self, lake: Lake, piece: int, steps: tuple[str, ...]) -> list[dict[str, Any]]:
        """Run `steps`, then send each later piece and run `CYCLE`; return what the processes write."""
        words = self._words(lake)
        before = len(said(words))
        for index in range(piece, PIECES):
            if index > piece:
                lake.send(*self.pieces[index])
            assert self.nursery.run(self._order(lake, steps if index == piece else CYCLE)) == 0, self._log(lake)
        return said(words)[before:]

    def _shown(self, lake: Lake, done: list[dict[str, Any]]) -> Any:
        """The published rows, and the last report on publishing."""
        check_steps(done)
        reports = {message["step"]: message["report"]["results"].get(NAME) for message in done if "step" in message}
        assert not reports["validate"]["mismatches"], reports["validate"]
        shown = {name: reports["current"][name] for name in ("as_of", "rows", "contents_rows")}
        rows = sorted((row["id"], row["price"] or 0, row["_diff"]) for row in rows_of(collection_of(lake)))
        return shown | {"published": rows}

    def _from_base(self, piece: int, name: str) -> Lake:
        """A lake with this piece in its topic and all earlier pieces in its tables."""
        if piece not in self._bases:
            if piece:
                base = self._from_base(piece - 1, f"base-{piece}")
                assert self.nursery.run(self._order(base, CYCLE)) == 0, self._log(base)
            else:
                base = Lake(self.root / "base-0", self.spark, keep=KEEP)
            self._bases[piece] = base.root
        for earlier in self.words.glob(f"{name}.*.said.*"):  # left by an earlier life with the same name
            earlier.unlink()
        copy_lake(self._bases[piece], self.root / name)
        lake = Lake(self.root / name, self.spark, keep=KEEP)
        lake.offset = sum(map(len, self.pieces[:piece]))
        lake.send(*self.pieces[piece])
        return lake

    def _order(self, lake: Lake, steps: tuple[str, ...], who: str = "victim") -> dict[str, Any]:
        repeats = 0 if self.disturbed is None else REPEATS_MAX
        return {"config": str(lake.file), "said": str(self._words(lake, who)), "steps": steps, "repeats": repeats}

    def _words(self, lake: Lake, who: str = "victim") -> Path:
        return self.words / f"{lake.root.name}.{who}.said.jsonl"

    def _log(self, lake: Lake) -> str:
        log = self._words(lake).with_suffix(".log")
        return f"the victims' output is in {log}:\n{log.read_text()[-3000:] if log.exists() else ''}"
