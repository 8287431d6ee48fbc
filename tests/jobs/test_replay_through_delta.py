"""`replay --engine delta` prints what the memory engine prints, for scripts and for mangled streams with bad lines."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from jobs import ingest, seal
from tests import sweeps
from tests.protocol.scripts import CASES, Case
from tests.protocol.streams import mangled_stream
from tests.sweeps import seeds
from tidelake.catalog.catalog import Catalog
from tidelake.cli.app import app
from tidelake.errors import GeneratorRefused, NoCheckout, OptionRefused
from tidelake.generator.recorded_lines import COLUMN, problems_in, read_topic_line
from tidelake.generator.recorded_stream import Pipeline, first_line_with_a_time, make_streams, replay_through
from tidelake.protocol.json_values import identity, to_text
from tidelake.protocol.message import ANY_WIDTH
from tidelake.protocol.replay import replay_file
from tidelake.read.snapshot import snapshot
from tidelake.store.layout import Store

LIMIT = 8
STREAMS_PER_SEED = 3
IN_EVERY_RUN = "malformed: all distinct problems of a message are reported, each once"
CHOSEN = (
    "contradictions: a third diff is new evidence",
    IN_EVERY_RUN,
    "restarts: a copy is recognised after a restart",
)
SPELLINGS = {
    "a": ('{"id":1,"price":1.50}', '{"price":15e-1,"id":1}'),
    "b": ('[null,"\\u00e9"]', '[null,"é"]'),
    "c": ("12345678901234567890",),
    "d": ('""',),
}
"""The ways in which each datum of a stream may be written."""
PAIR_LINE = b'{"updates": [["a", [1, 1], 1]]}'
BAD_LINES = (
    b'{"null_record": true}',
    b'{"undecodable": true}',
    b'{"restart": {}}',
    b'{"updates": [["a", 1, 0], ["b", -1, 2]]}',
    b'{"updates": [["a", 1.5, 1]]}',
    PAIR_LINE,
    b'{"updates": []}',
    b'{"progress": {"lower": [3], "upper": [0], "counts": []}}',
    b'{"progress": {"lower": [0], "upper": [9], "counts": [[9, 1], [1, 1], [1, -1]]}}',
    b"\x02\xff",
    b"",
)


def has_integer_times(case: Case) -> bool:
    """Whether the times of a case are integers; a table can have no other times."""
    try:
        first_line_with_a_time([line for line, _ in case.steps], case.title)
    except GeneratorRefused:
        return False
    return True


INTEGER_CASES = [case for case in CASES if has_integer_times(case)]
SWEPT_CASES = [(seed, case) for seed in seeds() for case in INTEGER_CASES[seed % 10 :: 10]]
"""A tenth of the cases for each seed: ten seeds run all of them."""


@pytest.fixture
def pipeline(spark: SparkSession) -> Pipeline:
    """The real jobs in a session that is tuned for tiny data."""
    return Pipeline.for_tiny_data(spark, ingest.run, seal.run)


@pytest.fixture
def swept(interpreted: SparkSession) -> Pipeline:
    """The real jobs in a session that interprets its plans, for sweeps."""
    return Pipeline(interpreted, ingest.run, seal.run)


def through_delta(pipeline: Pipeline, folder: Path, lines: Sequence[bytes]) -> list[str]:
    """Return the output of the jobs and their tables for a stream."""
    (settings,) = make_streams(folder, 1)
    return [to_text(output) for output in replay_through(pipeline, settings, lines, "s")]


def through_memory(lines: Sequence[bytes]) -> list[str]:
    """Return the output of the reader for a stream."""
    return [to_text(output) for output in replay_file(lines, "s")]


def lines_of(rng: random.Random, stream: Sequence[Any]) -> list[bytes]:
    """Return a stream of the model as lines, mixed with lines that state nothing or cannot be used."""
    lines: list[bytes] = []
    started = False
    for message in stream:
        while rng.random() < 0.25:
            bad = rng.choice(BAD_LINES)
            if started or bad != PAIR_LINE:  # if it were the first line with a time, this would be a stream of pairs
                lines.append(bad)
        started = True
        if message[0] == "updates":
            batch = ",".join(f"[{rng.choice(SPELLINGS[data])},{time},{diff}]" for data, time, diff in message[1])
            lines.append(f'{{"updates":[{batch}]}}'.encode())
        else:
            counts = [[time, count] for time, count in message[3].items()]
            lines.append(
                to_text({"progress": {"lower": list(message[1]), "upper": list(message[2]), "counts": counts}}).encode()
            )
    return lines


def check_stream(pipeline: Pipeline, folder: Path, seed: int) -> None:
    """Check that both engines print the same output, and that the contents are the sum of the published updates."""
    rng = random.Random(seed)
    lines = lines_of(rng, mangled_stream(rng, LIMIT, pairs=False, contradictory=seed % 2 == 1))
    expected = through_memory(lines)
    assert through_delta(pipeline, folder, lines) == expected
    published: Counter[str] = Counter()
    outputs = list(replay_file(lines, "s"))
    for output in outputs:
        for data, _, diff in output["updates"]:
            published[identity(data)] += diff
    frontier = outputs[-1]["frontier"] if outputs else [0]
    if frontier == [0]:
        return
    collection = Catalog(Store(folder / "store")).find("stream_1")
    rows = snapshot(pipeline.spark, collection).contents.collect()
    assert {row[COLUMN]: row["_diff"] for row in rows} == {text: diff for text, diff in published.items() if diff}


@pytest.mark.spark
@pytest.mark.parametrize(
    "case",
    sweeps.swept(
        [case for case in INTEGER_CASES if case.title in CHOSEN],
        [case for case in INTEGER_CASES if case.title == IN_EVERY_RUN],
        ids=lambda case: case.title,
    ),
)
def test_a_script_gives_the_same_output_through_tables_and_in_memory(
    tmp_path: Path, pipeline: Pipeline, case: Case
) -> None:
    lines = [line for line, _ in case.steps]
    assert through_delta(pipeline, tmp_path / "replay", lines) == through_memory(lines)


@pytest.mark.spark
@pytest.mark.sweep
@pytest.mark.parametrize(
    ("seed", "case"), SWEPT_CASES, ids=lambda value: value.title if isinstance(value, Case) else str(value)
)
def test_every_script_gives_the_same_output_through_tables_and_in_memory(
    tmp_path: Path, swept: Pipeline, seed: int, case: Case
) -> None:
    lines = [line for line, _ in case.steps]
    assert through_delta(swept, tmp_path / "replay", lines) == through_memory(lines)


def test_at_least_170_cases_have_integer_times() -> None:
    assert len(INTEGER_CASES) >= 170
    refused = [case.title for case in CASES if case not in INTEGER_CASES]
    assert all(title.startswith("pairs: ") or title == "restarts: pair times survive a restart" for title in refused)
    assert {case.title for case in INTEGER_CASES} >= set(CHOSEN)


@pytest.mark.spark
def test_a_contradictory_stream_gives_the_same_output_through_tables_and_in_memory(
    tmp_path: Path, pipeline: Pipeline
) -> None:
    check_stream(pipeline, tmp_path / "replay", 301)


@pytest.mark.spark
@pytest.mark.sweep
@pytest.mark.parametrize("stream", range(STREAMS_PER_SEED))
@pytest.mark.parametrize("seed", seeds())
def test_a_mangled_stream_gives_the_same_output_through_tables_and_in_memory(
    tmp_path: Path, swept: Pipeline, seed: int, stream: int
) -> None:
    check_stream(swept, tmp_path / "replay", STREAMS_PER_SEED * seed + stream)


@pytest.mark.spark
def test_a_file_of_product_times_is_refused_and_does_not_stop_the_others(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelake.spark.session.start_session", lambda *_, **__: spark)
    good, pairs, store = tmp_path / "good.jsonl", tmp_path / "pairs.jsonl", tmp_path / "kept"
    pairs.write_text('{"restart": {}}\n{"updates": [["a", [1, 0], 1]]}\n')
    good.write_text('{"updates": [["a", 1, 1]]}\n{"progress": {"lower": [0], "upper": [], "counts": [[1, 1]]}}\n')
    arguments = ["replay", "--engine", "delta", "--store", str(store), str(pairs), str(good)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 1
    assert f"{pairs}, line 2: a time is a list of 2 integers" in done.stderr
    assert "hint: replay this file with --engine memory" in done.stderr
    assert f"stream_2 is {good}" in done.stderr
    assert done.stdout == CliRunner().invoke(app, ["replay", str(good)]).stdout
    status = CliRunner().invoke(app, ["status", "stream_2", "--config", str(store / "collections.yaml")])
    assert "closed" in status.stdout
    again = CliRunner().invoke(app, arguments)
    assert isinstance(again.exception, GeneratorRefused)
    assert "is not an empty folder" in str(again.exception)


def test_a_store_is_refused_by_the_memory_engine(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["replay", "--store", str(tmp_path), str(tmp_path / "none.jsonl")])
    assert isinstance(done.exception, OptionRefused)


def test_without_a_checkout_there_are_no_jobs_to_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelake.cli.application.CHECKOUT", None)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.jsonl").write_bytes(b"")
    done = CliRunner().invoke(app, ["replay", "--engine", "delta", "s.jsonl"])
    assert isinstance(done.exception, NoCheckout)
    assert "install Tidelake from its wheel, or from its checkout" in str(done.exception)


@pytest.mark.parametrize("case", INTEGER_CASES, ids=lambda case: case.title)
def test_the_bytes_in_the_topic_say_what_is_wrong_with_a_line(case: Case) -> None:
    integer_line = b'{"progress": {"lower": [0], "upper": [0], "counts": []}}'
    for line, _ in case.steps:
        _, output = replay_file([integer_line, line], "s")
        read = read_topic_line(1, line, None)
        own = [] if read.is_fact else [(error["kind"], error["time"]) for error in output["errors"]]
        if own:
            assert read.value is not None
            assert identity(problems_in(read.value, str(own[0][0]), None)) == identity(own)


def test_a_message_that_only_the_pipeline_refuses_is_reported_with_its_reason() -> None:
    good = read_topic_line(1, b'{"updates": [["a", 1, 1]]}', ANY_WIDTH)
    bad = read_topic_line(1, b'{"updates": [["a", 1, 0]]}', ANY_WIDTH)
    assert good.value is not None
    assert bad.value is not None
    assert problems_in(good.value, "undecodable", ANY_WIDTH) == [("undecodable", None)]
    assert problems_in(bad.value, "undecodable", ANY_WIDTH) == [("undecodable", None), ("zero_diff", 1)]
    assert problems_in(bad.value, "zero_diff", ANY_WIDTH) == [("zero_diff", 1)]
