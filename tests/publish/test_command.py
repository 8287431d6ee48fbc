"""`tidelake publish` without `--to` takes the topic from the collection's `publish` block."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.cli.commands import call
from tests.lakes.lake import NAME, Lake, progress, updates
from tests.stops import stop_at
from tidelake.errors import OptionRefused, PublishedTopicCut

pytestmark = pytest.mark.spark


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession) -> Lake:
    """A collection that the settings publish to the topic `out`."""
    lake = Lake(tmp_path, spark, publish={"to": "out"})
    lake.send(updates((1, 1, 1)), progress([0], [2], {1: 1}))
    lake.run()
    return lake


def published(lake: Lake, *options: str) -> str:
    """Call the command without `--to`."""
    return call("publish", NAME, *options, "--config", str(lake.file))


@pytest.mark.parametrize("options", [("--from", "1"), ("--shards", "2"), ("--skip-errors",), ("--kafka",)])
def test_an_option_that_the_block_decides_is_refused(lake: Lake, options: tuple[str, ...]) -> None:
    with pytest.raises(OptionRefused, match=f"{options[0]} is given without --to"):
        published(lake, *options)
    assert not (lake.topic.parent / "out").exists()


def test_a_cut_can_be_accepted(lake: Lake) -> None:
    assert "1 update" in published(lake)
    lake.send(updates((2, 2, 1)), progress([2], [3], {2: 1}))
    lake.run()
    stop_at("publish.after_progress", lambda: published(lake))
    for file in sorted((lake.topic.parent / "out").glob("*.parquet"))[:-1]:
        file.unlink()
    with pytest.raises(PublishedTopicCut, match="--accept-cut"):
        published(lake)
    assert "1 update" in published(lake, "--accept-cut")
    assert "nothing new" in published(lake)
