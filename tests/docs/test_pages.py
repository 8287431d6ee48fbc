"""The pages themselves: links lead somewhere, and every command, setting and variable is explained as it is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from pydantic import BaseModel

from assets.family import TOPIC_COMPLETE
from expectations.suite import rules_of
from orchestration.settings import CRON_VARIABLES, VARIABLES, Environment
from tests.docs.blocks import MARKERS, PAGES, PROJECT, Block, all_blocks
from tests.expectations.test_suite import settings as settings_of
from tidelake.cli import app
from tidelake.configuration import CollectionSettings, load_settings
from tidelake.kafka_configuration import KafkaSettings
from tidelake.registry_configuration import RegistrySettings

README = (PROJECT / "README.md").read_text(encoding="utf-8")
_PICTURE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")
_LINK = re.compile(r"(?<!!)\[[^\]\n]*(?:\n[^\]\n]*)?\]\(([^)\s]+)\)")
_EVENT = """{"type": "record", "name": "event", "fields": [
    {"name": "before", "type": ["null", {"type": "record", "name": "row", "fields": [{"name": "id", "type": "long"}]}]},
    {"name": "after", "type": ["null", "row"]}]}"""
_RECORD = '{"type": "record", "name": "one", "fields": [{"name": "page", "type": "string"}]}'


def prose_of(page: Path) -> str:
    """A page without its fenced blocks and code spans."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`\n]*`(?!\])", "", text)


def anchors_of(page: Path) -> set[str]:
    """What its headings can be linked by."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def table_rows(first_column: str) -> dict[str, list[str]]:
    """The rows of all tables of the README whose first column has this name, by what stands in it between backticks."""
    rows: dict[str, list[str]] = {}
    inside = False
    for line in README.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        inside = bool(cells) and (inside or cells[0] == first_column)
        if inside and cells[0].startswith("`"):
            rows[cells[0].strip("`")] = cells[1:]
    return rows


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT)))
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    broken = []
    for target in _LINK.findall(prose_of(page)):
        if target.startswith(("http://", "https://")):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        if not file.exists() or (anchor and anchor not in anchors_of(file)):
            broken.append(target)
    assert not broken


def test_every_picture_is_shown_with_words_and_is_small() -> None:
    shown = set()
    for page in PAGES:
        for words, target in _PICTURE.findall(page.read_text(encoding="utf-8")):
            file = (page.parent / target).resolve()
            assert words, target
            assert file.read_bytes().startswith(b"\x89PNG"), target
            assert file.stat().st_size < 250_000, target
            shown.add(file)
    assert shown == set((PROJECT / "docs" / "images").iterdir())


def test_every_check_is_explained_with_what_a_failure_does() -> None:
    text = (PROJECT / "docs" / "reports.md").read_text(encoding="utf-8")
    explained = dict(re.findall(r"^\| `(\w+)`[^|]*\|[^|]*\| ([^|]*) \|$", text, flags=re.MULTILINE))
    rules = {
        rule.name: rule
        for family in ("plain", "append_only", "upsert", "debezium")
        for framing in ("cdcv2", "reclock")
        for rule in rules_of(settings_of(family, framing))
        if family != "plain" or framing == "cdcv2"
    }
    assert set(explained) == {*rules, TOPIC_COMPLETE}
    for name, rule in rules.items():
        assert explained[name].startswith("blocks") == rule.blocking, name
        assert ("warning" in explained[name]) == any(
            one.warning for family in ("plain", "upsert") for one in rules_of(settings_of(family)) if one.name == name
        ), name


def test_every_decision_is_in_the_index() -> None:
    folder = PROJECT / "docs" / "decisions"
    linked = set(_LINK.findall((folder / "README.md").read_text(encoding="utf-8")))
    assert linked == {page.name for page in folder.glob("*.md")} - {"README.md"}


def test_every_decision_has_the_same_parts() -> None:
    parts = ["Problem", "What success is", "Decision", "Alternatives", "Measured"]
    for page in (PROJECT / "docs" / "decisions").glob("*.md"):
        if page.name != "README.md":
            assert re.findall(r"^## (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE) == parts, page.name


def test_the_glossary_is_in_order_and_its_index_is_whole() -> None:
    text = (PROJECT / "docs" / "glossary.md").read_text(encoding="utf-8")
    words = [word.lower() for word in re.findall(r"^### (.+)$", text, flags=re.MULTILINE)]
    index = re.findall(r"\[([^\]]+)\]\(#", text.partition("### ")[0])
    assert words == sorted(words)
    assert index == words


@pytest.mark.parametrize("block", all_blocks("bash", "python", "yaml"), ids=str)
def test_a_block_that_is_not_run_says_why(block: Block) -> None:
    assert not block.marker or block.marker in MARKERS
    assert not block.marker or block.remark.strip()


def test_every_command_and_its_options_of_weight_are_in_the_readme() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    rows = table_rows("Command")
    assert {row.split()[1] for row in rows} == set(commands)
    for name in ("read", "resolve"):
        row = next(" ".join(cells) for command, cells in rows.items() if command.split()[1] == name)
        for option in commands[name].params:
            flag = option.opts[0]
            if flag.startswith("--") and flag not in ("--config", "--json"):
                assert f"`{flag}`" in row, flag


def test_every_setting_is_explained_with_its_default(tmp_path: Path) -> None:
    explained = {key: cells[-1].strip("`") for key, cells in table_rows("Key").items()}
    fields: dict[str, Any] = {
        {"record_schema": "schema", "topics": "topic"}.get(name, name): field
        for name, field in CollectionSettings.model_fields.items()
        if name not in ("name", "topics_folder", "value_schema", "bare_schema", "kafka", "registry")
        and not name.startswith("refused_")
    }
    assert set(explained) == {*fields, "envelope", "store", "topics", "data_docs", "kafka", "registry", "collections"}
    for key, field in fields.items():
        default = field.get_default(call_default_factory=True)
        expected = "must be given" if field.is_required() else str(default) if default else "none"
        assert explained[key] == expected, key
    file = tmp_path / "collections.yaml"
    file.write_text("collections: {}\n", encoding="utf-8")
    settings = load_settings(file)
    for key in ("store", "topics", "data_docs"):
        assert tmp_path / explained[key] == getattr(settings, key)


@pytest.mark.parametrize(("column", "settings"), [("Kafka key", KafkaSettings), ("Registry key", RegistrySettings)])
def test_every_setting_of_a_server_is_explained_with_its_default(column: str, settings: type[BaseModel]) -> None:
    explained = {key: cells[-1].strip("`") for key, cells in table_rows(column).items()}
    fields = settings.model_fields.items()
    assert explained == {
        name: "must be given" if field.is_required() else str(field.default or "none") for name, field in fields
    }


def test_the_example_of_all_settings_is_one(tmp_path: Path) -> None:
    (block,) = [block for block in all_blocks("yaml") if block.marker == "settings"]
    for name in re.findall(r"\S+\.avsc", block.text):
        (tmp_path / name).write_text(_EVENT if name.endswith("-event.avsc") else _RECORD, encoding="utf-8")
    (tmp_path / "collections.yaml").write_text(block.text, encoding="utf-8")
    families = [one.family for one in load_settings(tmp_path / "collections.yaml").collections]
    raw = ["append_only", "append_only", "debezium", "upsert"]
    assert families == ["plain", "append_only", "debezium", "upsert", *raw]
    document = yaml.safe_load(block.text)
    used = {*document, *(key for one in document["collections"].values() for key in one)}
    assert used == set(table_rows("Key"))


def test_every_variable_is_explained_with_its_default() -> None:
    explained = {name: cells[-1].strip("`") for name, cells in table_rows("Variable").items()}
    assert set(explained) == set(VARIABLES)
    defaults = Environment()
    for field, name in CRON_VARIABLES.items():
        assert explained[name] == getattr(defaults, field)
    assert explained["TIDELAKE_SCHEDULES"] == defaults.schedules
