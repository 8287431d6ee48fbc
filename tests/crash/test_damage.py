"""Random damage to any file of a store: a reader gets the true answer or an error."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.crash.questions import STEPS, Reader, Refused, go_on
from tests.lakes.damage import CATALOG, CURRENT, Damaged, Damager, by_kind
from tests.lakes.whole_store import COLLECTIONS, WholeStore
from tests.sweeps import seeds, swept
from tidelake.protocol.binding import Binding

pytestmark = pytest.mark.spark

EVERYDAY = ("plain", "raw_upsert_avro")
EVERYDAY_CASES, SWEEP_CASES = 15, 25
"""The number of cases for each collection. An everyday run checks two collections. A sweep checks all twelve for
each seed, so ten seeds make 3,000 cases."""
GOES_ON_EVERY = 12
READS_AGAIN_EVERY = 10
"""In every tenth everyday case, files are verified again even if nothing that the read depends on has changed."""
_NEIGHBOURS = dict(zip(COLLECTIONS, [*list(COLLECTIONS)[1:], next(iter(COLLECTIONS))], strict=True))
_GROWING = ("status bytes", "status runs")
"""After a tick, these answers depend on how Spark distributed the rows of the tick."""
_GOING_ON = (0, 2)
"""The `moments` of the reads after each of the `STEPS` that a collection takes next. Moment 1, a time in the middle,
is left out: it depends on the clock once a step has minted a time."""


class Undamaged:
    """The answers of the undamaged store about a collection, now and after each of the `STEPS` that it takes next."""

    def __init__(self, whole: WholeStore, spark: SparkSession, folder: Path, name: str) -> None:
        self.whole, self.name = whole, name
        self.known: dict[Any, Counter[str]] = {}
        self.elsewhere = by_kind(whole.store)
        self.answers = Reader(spark, whole, name, self.known).answers()
        assert not _refused(self.answers), self.answers
        self.neighbour = _NEIGHBOURS[name]
        self.of_neighbour = Reader(None, whole, self.neighbour).answers("status", "decisions")
        self._spark, self._folder = spark, folder
        self._stages: list[dict[str, Any]] = []

    @property
    def stages(self) -> list[dict[str, Any]]:
        """The answers before the `STEPS`, and after each, without damage."""
        if not self._stages:
            lake = self.whole.copy(self._folder / f"undamaged-{self.name}", self.name)
            reader = Reader(self._spark, lake, self.name, self.known, _GOING_ON)
            self._stages.append(self.without_clock(reader.answers()))
            for _ in go_on(self._spark, lake, self.name):
                self._stages.append(self.without_clock(reader.answers()))
            assert len(self._stages) == len(STEPS) + 1, "the undamaged collection did not take all of its steps"
        return self._stages

    def without_clock(self, answers: Mapping[str, Any]) -> dict[str, Any]:
        """Answers that can be compared: without those in `_GROWING`, and with `later` for each newly minted time."""
        upper = self.answers["status upper"]

        def shown(answer: Any) -> Any:
            if isinstance(answer, Binding) and answer.time >= upper:
                return ("later", answer.starts, answer.ends, answer.records, answer.rows, answer.quarantined)
            if isinstance(answer, list):
                return [shown(item) for item in answer]
            return "later" if isinstance(answer, int) and answer > upper else answer

        kept = {name: answer for name, answer in answers.items() if name not in _GROWING}
        return {name: shown(answer) for name, answer in kept.items()} if self.answers["times"] else kept


class Cases:
    """Damages copies of a store, and compares all answers about a collection with those of the undamaged store."""

    def __init__(self, undamaged: Undamaged, spark: SparkSession, folder: Path) -> None:
        self.undamaged, self.spark, self.folder = undamaged, spark, folder
        self.whole, self.name, self.neighbour = undamaged.whole, undamaged.name, undamaged.neighbour
        self.outcomes: Counter[tuple[str, str, str, str]] = Counter()

    def check(self, number: int, random: Random, is_deep: bool) -> None:
        """Damage a file, and ask questions.

        Every fifth case asks all questions; the others leave out some. In a sweep, every twelfth case also takes the
        `STEPS`.
        """
        label, asks_all = f"case-{number}", number % 5 == 0
        lake = self.whole.copy(self.folder / label, self.name, self.neighbour)
        damager = Damager(random, self.undamaged.elsewhere, self._earlier(lake))
        done = damager.damage(lake.folders(self.name), [lake.folder(self.neighbour)])
        # Contents depend only on `updates` and the catalog; every fifth case checks that.
        moments = (0, 1, 2) if asks_all else (random.randrange(3),) if done.table in ("updates", CATALOG) else ()
        questions = () if is_deep or asks_all or done.table == CATALOG else _questions_about(done.table, moments)
        skips_known = not is_deep and number % READS_AGAIN_EVERY != 0
        reader = Reader(self.spark, lake, self.name, self.undamaged.known, moments, skips_known)
        found = reader.answers(*questions)
        _compare([self.undamaged.answers], found, (label, done))
        is_beside = any(lake.folder(self.neighbour) in file.parents for file in done.files)
        if asks_all and done.table != CATALOG and not is_beside:
            beside = Reader(None, lake, self.neighbour).answers("status", "decisions")
            assert beside == self.undamaged.of_neighbour, (label, done, "another collection is affected")
        outcome = "refused" if _refused(found) else "equal"
        verified = self._verify(lake, done, label) if is_deep else "not verified"
        if is_deep and number % GOES_ON_EVERY == 0:
            self._go_on(lake, done, label)
        self.outcomes[done.kind, done.change, outcome, verified] += 1
        shutil.rmtree(lake.root)

    def _earlier(self, lake: WholeStore) -> Any:
        def earlier(file: Path) -> Path | None:
            before = lake.earlier / file.relative_to(lake.store)
            return before if before.is_file() else None

        return earlier

    def _verify(self, lake: WholeStore, done: Damaged, label: str) -> str:
        """If data files of the collection are damaged, check that `verify --deep` names these, and no other files.

        Returns:
            Whether the verification found damage.
        """
        damages = lake.collection(self.name).verify(deep=True).damages
        is_own = done.table != CURRENT and lake.folder(self.neighbour) not in done.files[0].parents
        if is_own and done.what == "data":
            table = lake.folder(self.name) / done.table
            own = {str(file.relative_to(table)) for file in done.files if table in file.parents}
            found = {(damage.table, damage.file) for damage in damages}
            assert found == {(done.table, file) for file in own}, (label, done, found)
        return "verify names it" if damages else "verify finds nothing"

    def _go_on(self, lake: WholeStore, done: Damaged, label: str) -> None:
        """Take the next steps. A step that succeeds takes effect; one that fails takes effect wholly or not at all."""
        reached = len(list(go_on(self.spark, lake, self.name)))
        found = Reader(self.spark, lake, self.name, self.undamaged.known, _GOING_ON).answers()
        stages = self.undamaged.stages[reached : reached + 2]
        _compare(stages, self.undamaged.without_clock(found), (label, done, reached))


def _questions_about(table: str, moments: tuple[int, ...]) -> tuple[str, ...]:
    """The questions of an everyday case about a damaged table: its own contents, and what depends on all tables."""
    own = {"quarantine": ("quarantine",), "late": ("late",), "proofs": ("late",), "bindings": ("times",)}
    return ("status", "decisions", *own.get(table, ("offsets",)), *(f"contents {moment}" for moment in moments))


def _refused(answers: Mapping[str, Any]) -> list[Refused]:
    return [answer for answer in answers.values() if isinstance(answer, Refused)]


def _compare(expected: list[dict[str, Any]], found: Mapping[str, Any], about: Any) -> None:
    wrong = {
        name: ([answers.get(name) for answers in expected], answer)
        for name, answer in found.items()
        if not isinstance(answer, Refused) and all(answer != answers.get(name) for answers in expected)
    }
    assert not wrong, (about, wrong)


@pytest.fixture(scope="module")
def undamaged(
    whole: WholeStore, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Undamaged]:
    """The undamaged store's answers about a collection, by the collection's name."""
    return cache(lambda name: Undamaged(whole, spark, tmp_path_factory.mktemp("undamaged"), name))


@pytest.mark.parametrize("name", swept(COLLECTIONS, EVERYDAY))
def test_whatever_is_damaged_no_wrong_answer_is_given(
    undamaged: Callable[[str], Undamaged], spark: SparkSession, tmp_path: Path, name: str
) -> None:
    cases = Cases(undamaged(name), spark, tmp_path)
    for number in range(1, EVERYDAY_CASES + 1):
        cases.check(number, Random(f"every day {name} {number}"), is_deep=False)
    assert sum(cases.outcomes.values()) == EVERYDAY_CASES
    assert any(outcome == "refused" for _, _, outcome, _ in cases.outcomes)


@pytest.mark.sweep
@pytest.mark.parametrize("name", COLLECTIONS)
@pytest.mark.parametrize("seed", seeds())
def test_whatever_is_damaged_no_wrong_answer_is_ever_given(
    undamaged: Callable[[str], Undamaged], interpreted: SparkSession, tmp_path: Path, seed: int, name: str
) -> None:
    cases = Cases(undamaged(name), interpreted, tmp_path)
    for number in range(1, SWEEP_CASES + 1):
        cases.check(number, Random(f"{seed} {name} {number}"), is_deep=True)
    if table := os.environ.get("TIDELAKE_DAMAGE_TABLE"):
        with Path(table).open("a", encoding="utf-8") as lines:
            for key, count in sorted(cases.outcomes.items()):
                lines.write("\t".join([*key, str(count)]) + "\n")
    assert sum(cases.outcomes.values()) == SWEEP_CASES
