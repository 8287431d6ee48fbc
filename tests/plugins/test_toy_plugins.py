"""A framing or an envelope takes one file and one registration: a toy of each works with the real jobs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from dagster import AssetKey
from pyspark.sql import SparkSession

from expectations.suite import rules_of
from orchestration.location import build_location
from orchestration.settings import Environment
from tests.lakes.lake import Lake, encode, progress
from tests.lakes.raw_lake import RawLake
from tests.plugins import toy_envelope, toy_framing
from tidelake.errors import ConfigurationError, EnvelopeBreach, UnknownPlugin
from tidelake.plugins import envelope, framing
from tidelake.read.snapshot import snapshot
from tidelake.settings.framings import SETTINGS
from tidelake.settings.lake import load_settings
from tidelake.settings.terms import ENVELOPES, FRAMINGS

pytestmark = pytest.mark.spark

LINE = {"type": "record", "name": "line", "fields": [{"name": "text", "type": "string"}]}


@pytest.fixture
def toys() -> Iterator[None]:
    """Register both toys for a test."""
    toy_envelope.register()
    toy_framing.register()
    yield
    forget_toys()


def forget_toys() -> None:
    """Unregister the toys, if they are registered."""
    tables: list[tuple[dict[str, Any], str]] = [(ENVELOPES, "words"), (envelope.PLUGINS, "words")]
    tables += [(FRAMINGS, "counted"), (SETTINGS, "counted"), (framing.PLUGINS, "counted")]
    for table, name in tables:
        table.pop(name, None)


def words_of(lake: Lake, as_of: int | None = None) -> dict[str, int]:
    rows: list[Any] = snapshot(lake.spark, lake.collection, as_of).contents.collect()
    return {row["text"]: row["_diff"] for row in rows}


def test_a_raw_topic_goes_through_a_toy_framing_and_a_toy_envelope(
    tmp_path: Path, spark: SparkSession, toys: None
) -> None:
    lake = RawLake(tmp_path, spark, framing="counted", envelope="words", schema=LINE)
    lake.put({"text": "a b"}, {"text": "b"}, {"text": 7})
    assert lake.ingest().updates_stored == 3
    lake.put({"text": "c"})
    lake.ingest()
    assert [binding.time for binding in lake.times] == [3, 4]
    assert lake.seal().sealed_by_ingest
    assert (words_of(lake, 3), words_of(lake)) == ({"a": 1, "b": 2}, {"a": 1, "b": 2, "c": 1})
    assert [reason for _, reason in lake.quarantined()] == ["wrong_type"]
    validated = lake.validate(full=True)
    assert (validated.mismatches, [row["recounted"] for row in validated.times]) == ([], [3, 1])
    rules = [rule.name for rule in rules_of(lake.settings.collections[0])]
    assert rules == ["announced_is_recounted", "sum_of_diffs_is_as_recorded", "frontier_moves"]


def test_a_statement_that_a_toy_envelope_refuses_is_quarantined_and_holds_back_its_time(
    tmp_path: Path, spark: SparkSession, toys: None
) -> None:
    lake = Lake(tmp_path, spark, "words", schema=LINE)
    good, bad = ({"data": {"text": text}, "time": time, "diff": 1} for text, time in (("a", 1), ("", 2)))
    lake.send(encode([good], LINE), encode([bad], LINE), progress([0], [3], {1: 1, 2: 1}))
    sealed = lake.run()
    assert (sealed.upper, [type(error) for error in sealed.contradictions]) == (2, [EnvelopeBreach])
    assert "a line has words" in str(sealed.contradictions[0])
    assert lake.quarantined() == [(1, "no_words")]
    assert words_of(lake, 1) == {"a": 1}
    assert not lake.validate(full=True).damaged


def test_a_name_that_is_not_registered_is_refused(tmp_path: Path, spark: SparkSession) -> None:
    with pytest.raises(ConfigurationError, match="is not an envelope: 'words'"):
        RawLake(tmp_path, spark, envelope="words", schema=LINE)
    known = "'cdcv2', 'reclock' or 'transactions'"
    with pytest.raises(ConfigurationError, match=f"framing: input should be {known}, not 'counted'"):
        RawLake(tmp_path, spark, framing="counted", schema=LINE)


def test_a_plugin_that_is_not_installed_is_refused_by_name() -> None:
    with pytest.raises(UnknownPlugin, match=r"the envelope 'words' is not installed\n.*tidelake\.plugins"):
        envelope.envelope_of("words")
    with pytest.raises(UnknownPlugin, match="the framing 'counted' is not installed"):
        framing.framing_of("counted")


def test_every_built_in_name_of_the_settings_has_its_plugin() -> None:
    assert {name: envelope.envelope_of(name).terms.name for name in ENVELOPES} == {name: name for name in ENVELOPES}
    assert {name: framing.framing_of(name).terms.name for name in FRAMINGS} == {name: name for name in FRAMINGS}


def test_settings_load_an_envelope_that_another_package_provides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site" / "words_plugin-1.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: words-plugin\nVersion: 1\n", encoding="utf-8")
    entry_point = "[tidelake.plugins]\nwords = tests.plugins.toy_envelope:register\n"
    (package / "entry_points.txt").write_text(entry_point, encoding="utf-8")
    monkeypatch.syspath_prepend(str(package.parent))
    block = {"topic": "lines", "envelope": "words", "schema": LINE}
    file = tmp_path / "collections.yaml"
    file.write_text(yaml.safe_dump({"lake": "poems", "collections": {"lines": block}}), encoding="utf-8")
    try:
        assert load_settings(file).collection("lines").terms.name == "words"
        definitions = build_location(Environment(config_file=file)).resolve_asset_graph()
        assert AssetKey(["poems", "lines"]) in definitions.get_all_asset_keys()
    finally:
        forget_toys()
