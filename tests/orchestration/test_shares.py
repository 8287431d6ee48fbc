"""A lake divided among several code locations, each with its own jobs and sensors: a collection is in exactly one."""

from __future__ import annotations

from pathlib import Path

import pytest
from dagster import Definitions

from orchestration.jobs import CURRENT, NIGHTLY, OBSERVE, TICK
from orchestration.location import build_location
from orchestration.settings import read_environment
from orchestration.shares import SHARES_MAX, Share
from tests.lakes.dagster_lakes import Lakes
from tidelake.errors import ConfigurationError

NAMES = [f"c{number}" for number in range(12)]


def located(lakes: Lakes, share: str) -> Definitions:
    return build_location(read_environment({"TIDELAKE_CONFIG": str(lakes.config), "TIDELAKE_SHARE": share}))


def keys_of(defs: Definitions) -> set[str]:
    return {spec.key.to_user_string() for spec in defs.resolve_all_asset_specs()}


def names_in(defs: Definitions) -> set[str]:
    return {name for name in NAMES if f"lakes/{name}" in keys_of(defs)}


@pytest.fixture
def many(tmp_path: Path) -> Lakes:
    return Lakes(tmp_path / "lakes", dict.fromkeys(NAMES, "plain"))


def test_every_asset_is_in_exactly_one_share(many: Lakes) -> None:
    shares = [keys_of(located(many, f"{number}/3")) for number in (1, 2, 3)]
    assert all(shares)
    assert sum(len(keys) for keys in shares) == len(set().union(*shares))
    assert set().union(*shares) == keys_of(located(many, ""))


def test_a_share_has_jobs_schedules_and_sensors_of_its_own(many: Lakes) -> None:
    repository = located(many, "2/3").get_repository_def()
    jobs = {f"share_2_{job}" for job in (TICK, CURRENT, NIGHTLY, OBSERVE)}
    assert jobs <= set(repository.job_names)
    assert {schedule.job_name for schedule in repository.schedule_defs} <= jobs
    assert all(sensor.name.startswith("share_2_") for sensor in repository.sensor_defs)
    assert set(located(many, "1/1").get_repository_def().job_names) >= {TICK, CURRENT, NIGHTLY, OBSERVE}


def test_a_new_collection_does_not_move_others(many: Lakes) -> None:
    before = {share: names_in(located(many, share)) for share in ("1/2", "2/2")}
    many.document["collections"]["a_new_one"] = many.document["collections"]["c0"] | {"topic": "a_new_one"}
    many.write(many.document)
    (many.config.parent / "topics" / "a_new_one").mkdir()
    assert {share: names_in(located(many, share)) for share in ("1/2", "2/2")} == before


def test_collections_of_one_timeline_and_readers_of_one_topic_stay_together(many: Lakes) -> None:
    assert len({share for share in range(3) for name in ("c0", "c1") if Share(share + 1, 3).has(name)}) == 2
    for names, setting in ((("c0", "c1", "c2"), {"timeline": "web"}), (("c2", "c3"), {"topic": "c3"})):
        for name in names:
            many.document["collections"][name] |= setting
    many.write(many.document)
    together = {"c0", "c1", "c2", "c3"}
    found = [names_in(located(many, f"{number}/3")) & together for number in (1, 2, 3)]
    assert sorted(map(len, found)) == [0, 0, 4]


def test_an_invalid_collection_is_shown_in_one_share(many: Lakes) -> None:
    many.document["collections"]["c5"]["family"] = "plein"
    many.write(many.document)
    assert sum("c5" in names_in(located(many, f"{number}/3")) for number in (1, 2, 3)) == 1


def test_an_empty_share_loads(many: Lakes) -> None:
    many.write(many.document | {"collections": {"c0": many.document["collections"]["c0"]}})
    loaded = [located(many, f"{number}/2").get_repository_def() for number in (1, 2)]
    assert sorted(f"share_{number}_{TICK}" in each.job_names for number, each in enumerate(loaded, 1)) == [False, True]


@pytest.mark.parametrize("text", ["0/3", "4/3", "2", "2/", "a/b", "-1/3", "1/0", "2/3/4", f"1/{SHARES_MAX + 1}"])
def test_an_invalid_share_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="TIDELAKE_SHARE is"):
        read_environment({"TIDELAKE_SHARE": text})
