"""However a history is mangled, a reader finds exactly the truth."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.generator.topics import assert_reads_as_the_truth_says, make
from tests.sweeps import swept

FAMILIES = ("plain", "append_only", "upsert", "debezium")
MANGLINGS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "redundant": {"writers": 3},
    "shards": {"shards": 3},
    "redundant shards": {"writers": 2, "shards": 4},
    "copies": {"copies": 0.5},
    "copies inside": {"copies_inside": 0.4},
    "window": {"shuffle": "window", "shuffle_window": 7},
    "full": {"shuffle": "full"},
    "split": {"split": 1.0},
    "unsealed": {"unsealed_times": 9},
    "nothing sealed": {"unsealed_times": 40},
    "late": {"late": 12},
    "undecodable": {"undecodable": 23},
    "nulls": {"nulls": 5},
    "malformed": {"malformed": 26},
    "far future": {"far_future": 4},
    "close": {"close": True},
    "closed shards": {"close": True, "shards": 2, "shuffle": "full"},
    "contradictions": {"conflicting_diff_at": (30,), "conflicting_count_at": (25, 33), "over_count_at": (28,)},
    "two contradictions at one time": {"conflicting_diff_at": (20,), "conflicting_count_at": (20,), "shuffle": "full"},
    "held back and closed": {"over_count_at": (12,), "close": True},
    "empty times": {"empty_times": 0.9},
    "all times but one are empty": {"empty_times": 1.0},
    "one update": {"updates": 1},
    "confluent": {"encoding": "confluent", "schema_id": 70_001, "undecodable": 15, "malformed": 12},
    "several files and partitions": {"partitions": 3, "messages_per_file": 7, "copies": 0.2},
    "everything": {
        "writers": 2,
        "shards": 2,
        "copies": 0.3,
        "copies_inside": 0.1,
        "shuffle": "full",
        "split": 0.7,
        "unsealed_times": 3,
        "late": 5,
        "undecodable": 10,
        "nulls": 3,
        "malformed": 8,
        "far_future": 2,
        "conflicting_diff_at": (33,),
        "partitions": 4,
        "encoding": "confluent",
    },
}
EVERYDAY = [(mangling, FAMILIES[number % 4]) for number, mangling in enumerate(MANGLINGS)]
"""Every mangling, each with one family; the families take turns."""


@pytest.mark.parametrize(("mangling", "family"), swept(product(MANGLINGS, FAMILIES), EVERYDAY, unpack=True))
def test_a_reader_finds_the_truth(tmp_path: Path, mangling: str, family: str) -> None:
    assert_reads_as_the_truth_says(make(tmp_path, family=family, seed=3, **MANGLINGS[mangling]))


@pytest.mark.parametrize("seed", swept(range(10), range(4)))
def test_a_reader_finds_the_truth_of_every_seed(tmp_path: Path, seed: int) -> None:
    family = FAMILIES[seed % 4]
    assert_reads_as_the_truth_says(make(tmp_path, family=family, seed=seed, **MANGLINGS["everything"]))


def test_negative_contents_are_read_like_any_others(tmp_path: Path) -> None:
    assert_reads_as_the_truth_says(make(tmp_path, negative=1.0, shuffle="full"))


@pytest.mark.parametrize("shuffle", ["none", "full"])
def test_an_append_only_breach_holds_its_time_back(tmp_path: Path, shuffle: str) -> None:
    made = make(tmp_path, family="append_only", breach_at=(17, 30), writers=2, copies=0.5, shuffle=shuffle, late=9)
    result = assert_reads_as_the_truth_says(made)
    assert made.truth.upper == 17
    assert result.bad["append_only_diff"] >= 4
