"""`tidelake generate` writes a topic, but not over an existing one."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.commands import run


def test_generate_writes_a_topic_and_refuses_to_write_it_again(tmp_path: Path) -> None:
    done = run("generate", "orders", "--updates", "200", "--times", "10", "--writers", "2", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["truth"]["updates"] == 200
    assert list((tmp_path / "data" / "topics" / "orders").glob("*.parquet"))
    again = run("generate", "orders", "--updates", "200", "--times", "10", cwd=tmp_path)
    assert again.returncode == 2
    assert "hint:" in again.stderr
