"""Random damage to data files of several MiB, which readers verify only in part: each answer is right, or an error.

A reader of a small file verifies all of it. In a large file, the digests in the log cover the footer and the page
headers, checksums cover what follows each header, and nothing covers the page indexes.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import cache
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from jobs import compact, current, validate
from tests.crash.questions import NOT_COMPARED, Refused
from tests.lakes.damage import changed_bytes, replace_file
from tests.lakes.lake import NAME, Lake
from tests.lakes.large_lakes import LARGE, check_structure, large_files, linked_copy, writing_session
from tests.lakes.published import table_of
from tests.sweeps import seeds
from tidelake import open_lake
from tidelake.errors import TidelakeError
from tidelake.storage.page_headers import chunks_of, headers_of
from tidelake.store.files import read_rows
from tidelake.store.layout import RUN

pytestmark = [pytest.mark.spark, pytest.mark.sweep]

CASES = 12
"""The number of cases for each lake, seed and group of changes."""
_IN_A_PART = ("page header", "page index", "footer", "dictionary", "page")
_OF_THE_FILE = (
    "a flipped bit",
    "truncated",
    "a zeroed block",
    "appended bytes",
    "deleted",
    "another file's bytes",
)
_JOBS: dict[str, Callable[[Lake], Any]] = {
    "validate": lambda lake: validate.run(lake.spark, lake.settings, full=True),
    "compact": lambda lake: compact.run(lake.spark, lake.settings),
    "current": lambda lake: current.run(lake.spark, lake.settings),
}


class LargeLake:
    """A lake with large files, and what readers say about it while nothing is damaged."""

    def __init__(self, name: str, lake: Lake) -> None:
        self.name, self.lake = name, lake
        check_structure(lake)
        self.answers = answers_about(lake)
        assert not _refused(self.answers), self.answers


def answers_about(lake: Lake) -> dict[str, Any]:
    """The answer of each reader, or the error that it raises."""
    collection = open_lake(lake.file).collection(NAME)
    since, last = collection.since or 0, (collection.upper or 1) - 1

    def read(as_of: int, **more: Any) -> Callable[[], Any]:
        return lambda: _sums(collection.snapshot(lake.spark, as_of, **more).contents)

    return {
        "contents at since": _asked(read(since)),
        "contents": _asked(read(last)),
        "a word": _asked(read(last, where="word = 'word 77'")),
        "a range": _asked(read(last, where="id between 20000 and 20100")),
        "two columns": _asked(read(last, columns=("id", "word"))),
        "difference": _asked(lambda: _sums(collection.diff(lake.spark, since, last).rows)),
        "status": _asked(lambda: _status(collection)),
        "trace": _asked(lambda: [asdict(fate) for fate in collection.trace(NAME, 0, 3)]),
        "rows in Arrow": _asked(lambda: _rows_in_arrow(lake)),
    }


def _asked(ask: Callable[[], Any]) -> Any:
    """An answer, or the error: also a Spark error, because a DataFrame is read after `snapshot` has returned."""
    try:
        return ask()
    except (TidelakeError, PySparkException, Py4JJavaError) as error:
        return Refused(type(error).__name__)


def _sums(rows: DataFrame) -> tuple[Any, ...]:
    """The number of rows, the sum of their diffs, and a hash that does not depend on their order."""
    columns = [name for name in rows.columns if name != "_diff"]
    hashed = F.xxhash64(*columns).cast("decimal(38,0)") * F.col("_diff")
    return tuple(rows.agg(F.count("*"), F.sum("_diff"), F.sum(hashed)).collect()[0])


def _status(collection: Any) -> dict[str, Any]:
    status = collection.status()
    assert status is not None
    if status.damaged is not None:
        raise TidelakeError
    return {name: value for name, value in asdict(status).items() if name not in NOT_COMPARED}


def _rows_in_arrow(lake: Lake) -> int:
    """A hash of the stored rows, as readers without a JVM see them."""
    table = lake.table
    rows = read_rows(table.path, table.files(), table.schema()).select(["id", "word", "text", "_time"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows.combine_chunks())
    return hash(bytes(sink.getvalue()))


def _refused(answers: Mapping[str, Any]) -> list[str]:
    return [name for name, answer in answers.items() if isinstance(answer, Refused)]


class Cases:
    """Damages copies of a large lake, and compares all answers."""

    def __init__(self, large: LargeLake, folder: Path) -> None:
        self.large, self.folder = large, folder
        self.outcomes: Counter[tuple[str, str, str]] = Counter()

    def check(self, number: int, random: Random, changes: tuple[str, ...]) -> None:
        """Damage a file, ask every reader, and run one of the jobs."""
        lake = linked_copy(self.large.lake, self.folder / f"case-{number}")
        file = random.choice(large_files(lake))
        path, change = (lake.table.path / file.path).local, random.choice(changes)
        self._damage(lake, path, change, random)
        about = (self.large.name, number, change, file.path)
        found = answers_about(lake)
        wrong = {
            name: (self.large.answers[name], answer)
            for name, answer in found.items()
            if not isinstance(answer, Refused) and answer != self.large.answers[name]
        }
        assert not wrong, (about, wrong)
        assert [damage.file for damage in open_lake(lake.file).collection(NAME).verify(deep=True).damages] == [
            file.path
        ], about
        job = random.choice(sorted(_JOBS))
        outcome = self._run(lake, job, about)
        refused = len(_refused(found))
        by_readers = "refused" if refused == len(found) else "partly refused" if refused else "equal"
        self.outcomes[change, by_readers, f"{job} {outcome}"] += 1
        shutil.rmtree(lake.root)

    def _damage(self, lake: Lake, path: Path, change: str, random: Random) -> None:
        data = path.read_bytes()
        if change in _IN_A_PART:
            start, end = random.choice(_parts(path)[change])
            changed = bytearray(data)
            bit = random.randrange(8 * start, 8 * end)
            changed[bit // 8] ^= 1 << bit % 8
            replace_file(path, bytes(changed))
        elif change == "deleted":
            path.unlink()
        elif change == "another file's bytes":
            others = [lake.table.path / file.path for file in lake.table.files()]
            replace_file(path, random.choice([o.local for o in others if o.local != path]).read_bytes())
        else:
            new = data
            while new == data:
                new = changed_bytes(change, data, random)
            replace_file(path, new)

    def _run(self, lake: Lake, job: str, about: Any) -> str:
        """Run a job; if it succeeds, the contents must still be the same."""
        try:
            report = _JOBS[job](lake)
        except TidelakeError:
            return "refused"
        if not report.ok:
            return "refused"
        if job == "compact":
            found = answers_about(lake)
            for name in ("contents", "a word", "a range", "two columns"):
                assert found[name] == self.large.answers[name] or isinstance(found[name], Refused), (about, name)
        elif job == "current":
            rows = DeltaTable(str(table_of(lake.collection))).to_pyarrow_table()
            shown = lake.spark.createDataFrame(rows.select(["id", "word", "text"]))
            assert _sums(shown.withColumn("_diff", F.lit(1)))[2] == self.large.answers["contents"][2], about
        return "done"


def _parts(path: Path) -> dict[str, list[tuple[int, int]]]:
    """Where the parts of a Parquet file are."""
    size = path.stat().st_size
    footer = size - 8 - int.from_bytes(path.read_bytes()[-8:-4], "little")
    with pa.OSFile(str(path)) as source:
        headers = [
            (position, position + len(header))
            for chunk in chunks_of(source)
            for position, header in headers_of(source, chunk)
        ]
    metadata = pq.read_metadata(path)
    chunks = [
        metadata.row_group(group).column(column)
        for group in range(metadata.num_row_groups)
        for column in range(metadata.num_columns)
    ]
    dictionaries = [
        (chunk.dictionary_page_offset, chunk.data_page_offset) for chunk in chunks if chunk.dictionary_page_offset
    ]
    ends = [
        min(chunk.data_page_offset, chunk.dictionary_page_offset or chunk.data_page_offset)
        + chunk.total_compressed_size
        for chunk in chunks
    ]
    return {
        "page header": headers,
        "page index": [(max(ends), footer)],
        "footer": [(footer, size)],
        "dictionary": dictionaries or headers,
        "page": [(start, end) for (_, start), (end, _) in pairwise(headers) if end > start],
    }


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Callable[[str], LargeLake]:
    """The lakes with large files, by name; each is made once."""
    session = writing_session(spark)
    return cache(lambda name: LargeLake(name, LARGE[name](tmp_path_factory.mktemp(name), session)))


@pytest.mark.parametrize("changes", [_IN_A_PART, _OF_THE_FILE], ids=["parts", "files"])
@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize("seed", seeds())
def test_whatever_is_damaged_in_a_large_file_no_wrong_answer_is_given(
    large: Callable[[str], LargeLake], tmp_path: Path, seed: int, name: str, changes: tuple[str, ...]
) -> None:
    cases = Cases(large(name), tmp_path)
    for number in range(CASES):
        cases.check(number, Random(f"{seed} {name} {changes} {number}"), changes)
    if table := os.environ.get("TIDELAKE_DAMAGE_TABLE"):
        with Path(table).open("a", encoding="utf-8") as lines:
            for key, count in sorted(cases.outcomes.items()):
                lines.write("\t".join([f"large {RUN}", *key, str(count)]) + "\n")
    assert sum(cases.outcomes.values()) == CASES
