"""`tidelake replay` prints a line of JSON for each line that it reads."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.commands import run


def test_replay_prints_one_line_for_each_line_read_and_fails_only_if_a_file_cannot_be_read(tmp_path: Path) -> None:
    stream = tmp_path / "s.jsonl"
    stream.write_text('{"updates": [["a", 1, 1]]}\n{"progress": {"lower": [0], "upper": [3], "counts": [[1, 1]]}}\nx\n')
    done = run("replay", stream)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0
    assert [line["line"] for line in lines] == [1, 2, 3]
    assert lines[1] == {"file": str(stream), "line": 2, "frontier": [3], "updates": [["a", 1, 1]], "errors": []}
    assert lines[2]["errors"] == [{"kind": "undecodable", "time": None}]
    missing = run("replay", tmp_path / "none.jsonl", stream)
    assert missing.returncode == 1
    assert "none.jsonl cannot be read" in missing.stderr
    assert len(missing.stdout.splitlines()) == 3


def test_the_published_example_replays_to_its_published_result() -> None:
    example = Path(__file__).parents[2] / "examples" / "published" / "replay.jsonl"
    lines = [json.loads(line) for line in run("replay", example).stdout.splitlines()]
    assert lines[-1]["frontier"] == [10]
    published = [update for line in lines for update in line["updates"]]
    assert sorted((time, diff) for _, time, diff in published) == [(4, 1), (5, -1), (5, 1), (6, -1)]
