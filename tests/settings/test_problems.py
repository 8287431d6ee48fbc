"""All problems of settings are reported together; parts without problems can be used."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelake.errors import ConfigurationError
from tidelake.settings.lake import load_settings
from tidelake.settings.problems import find_problems

GOOD = "family: plain, topic: t, schema: {type: record, name: r, fields: [{name: id, type: long}]}"


def test_settings_without_problems_are_those_that_load(tmp_path: Path) -> None:
    (tmp_path / "topics" / "t").mkdir(parents=True)
    file = tmp_path / "collections.yaml"
    file.write_text(f"topics: topics\nstore: store\ncollections:\n  a: {{{GOOD}}}\n  b: {{{GOOD}}}\n", encoding="utf-8")
    assert find_problems(file) == (load_settings(file), [])
    file.write_text("store: store\n", encoding="utf-8")
    assert find_problems(file) == (load_settings(file), [])


def test_each_part_is_judged_by_itself_and_keeps_its_line(tmp_path: Path) -> None:
    (tmp_path / "topics" / "t").mkdir(parents=True)
    file = tmp_path / "collections.yaml"
    file.write_text(
        "topics: topics\nregistry: {url: nowhere}\ncollections:\n"
        f"  a: {{{GOOD}}}\n  B: {{{GOOD}}}\n  c: {{{GOOD}, keep: -1}}\n",
        encoding="utf-8",
    )
    settings, problems = find_problems(file)
    assert settings is not None
    assert [collection.name for collection in settings.collections] == ["a"]
    assert [problem.fact.split(": ")[:2] for problem in problems] == [
        [f"{file}, line 2", "registry.url"],
        [f"{file}, line 5", "collections.B"],
        [f"{file}, line 6", "collections.c.keep"],
    ]


@pytest.mark.parametrize(
    ("refused", "more"),
    [
        ("kafka: {bootstrap_servers: nohost}", "source: kafka"),
        ("registry: {url: nowhere}", "encoding: confluent"),
        ("registry: {url: nowhere}", "encoding: confluent, framing: reclock, subject: record"),
        ("s3: {bucket: b}", "keep: 5"),
        ("data_docs: 7", "keep: 5"),
    ],
)
def test_a_refused_part_is_no_problem_of_the_collections_that_use_it(tmp_path: Path, refused: str, more: str) -> None:
    (tmp_path / "topics" / "t").mkdir(parents=True)
    file = tmp_path / "collections.yaml"
    block = GOOD.replace("plain", "append_only")
    file.write_text(
        f"{refused}\ntopics: topics\ncollections:\n  a: {{{block}, {more}}}\n  b: {{{block}, {more}, kep: 1}}\n",
        encoding="utf-8",
    )
    settings, problems = find_problems(file)
    assert settings is not None
    assert settings.collections == ()
    assert [problem.fact.split(":")[0] for problem in problems] == [f"{file}, line 1", f"{file}, line 5"]


def test_collections_that_do_not_fit_together_are_one_problem(tmp_path: Path) -> None:
    (tmp_path / "topics" / "t").mkdir(parents=True)
    file = tmp_path / "collections.yaml"
    block = f"{{{GOOD}, publish: {{to: out}}}}"
    file.write_text(f"stor: x\ntopics: topics\ncollections:\n  a: {block}\n  b: {block}\n", encoding="utf-8")
    settings, problems = find_problems(file)
    assert settings is not None
    assert [collection.name for collection in settings.collections] == ["a"]
    assert [problem.field for problem in problems] == ["stor", "collections.b.publish.to"]


@pytest.mark.parametrize("topics", ["store", "store/topics", "."])
def test_two_keys_that_do_not_fit_together_are_one_problem(tmp_path: Path, topics: str) -> None:
    file = tmp_path / "collections.yaml"
    file.write_text(f"topics: {topics}\nstore: store\ncollections: {{}}\n", encoding="utf-8")
    _, problems = find_problems(file)
    with pytest.raises(ConfigurationError) as refused:
        load_settings(file)
    assert [str(problem) for problem in problems] == [str(refused.value)]
