"""The generated reference lists every setting, command and variable, and the example with all settings is valid."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import typer
import yaml
from pydantic import BaseModel

from orchestration.settings import CRON_VARIABLES, VARIABLES, Environment
from tests.docs.blocks import PROJECT, Block, all_blocks
from tests.docs.hooks import reference
from tidelake.cli.app import app
from tidelake.errors import ConfigurationError
from tidelake.settings.kafka import KafkaSettings
from tidelake.settings.lake import load_settings
from tidelake.settings.object_store import S3Settings
from tidelake.settings.registry import RegistrySettings

_EVENT = """{"type": "record", "name": "event", "fields": [
    {"name": "before", "type": ["null", {"type": "record", "name": "row", "fields": [{"name": "id", "type": "long"}]}]},
    {"name": "after", "type": ["null", "row"]}]}"""
_RECORD = '{"type": "record", "name": "one", "fields": [{"name": "page", "type": "string"}]}'
SETTINGS = [block for block in all_blocks("yaml") if block.marker == "settings"]


def page(name: str) -> str:
    """A page of the reference with its tables filled in."""
    return str(reference.fill((PROJECT / "docs" / "reference" / name).read_text(encoding="utf-8")))


def rows_of(table: str) -> dict[str, list[str]]:
    """The rows of a Markdown table: the first cell of each, without its backticks, is the key of the other cells."""
    rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in table.splitlines()[2:]]
    return {row[0].strip("`"): row[1:] for row in rows}


def test_every_table_of_the_reference_is_on_a_page() -> None:
    pages = "".join(path.read_text(encoding="utf-8") for path in (PROJECT / "docs" / "reference").glob("*.md"))
    assert sorted(re.findall(r"<!-- reference: ([a-z_.]+) -->", pages)) == sorted(reference.TABLES)


def test_every_command_is_explained_with_each_of_its_options() -> None:
    text = page("commands.md")
    commands = dict(reference.walk(typer.main.get_command(app)))
    assert {path[1] for path in commands} >= {"status", "read", "resolve", "generate", "replay", "topic"}
    for path, command in commands.items():
        section = text.partition(f"\n## {' '.join(path)} ")[2].partition("\n## ")[0]
        assert section, path
        for option in command.params:
            if option.opts[0].startswith("--"):
                row = next(line for line in section.splitlines() if line.startswith(f"| `{option.opts[0]}`"))
                assert row.split("|")[-2].strip(), option.opts


def test_every_key_in_the_table_of_a_collection_is_accepted(tmp_path: Path) -> None:
    file = tmp_path / "collections.yaml"
    for key in rows_of(reference.collection_settings()):
        file.write_text(f"collections: {{one: {{{key}: null}}}}\n", encoding="utf-8")
        with pytest.raises(ConfigurationError) as refused:  # required keys are missing
            load_settings(file)
        assert "is not a known key" not in str(refused.value)


def test_the_example_with_all_settings_has_every_key(tmp_path: Path) -> None:
    (block,) = [block for block in SETTINGS if block.remark.startswith("every key")]
    load_block(block, tmp_path)
    document = yaml.safe_load(block.text)
    assert set(document) == set(rows_of(reference.top_level_settings()))
    used = {key for collection in document["collections"].values() for key in collection}
    assert used == set(rows_of(reference.collection_settings()))


def test_the_values_in_the_example_with_all_settings_are_of_the_kinds_in_the_table(tmp_path: Path) -> None:
    (block,) = [block for block in SETTINGS if block.remark.startswith("every key")]
    document = yaml.safe_load(block.text)
    rows = rows_of(reference.collection_settings())
    kinds: dict[str, type] = {"integer": int, "list": list, "mapping": dict, "block": dict}
    kinds |= dict.fromkeys(("text", "path", "duration"), str)
    for name, collection in document["collections"].items():
        for key, value in collection.items():
            shown, required, _ = rows[key]
            words = shown.split(" or ")
            assert all(word in kinds or re.fullmatch(r"`\w+`( `\w+`)*", word) for word in words), key
            text = f"`{str(value).lower() if isinstance(value, bool) else value}`"
            assert any(type(value) is kinds.get(word) or text in word.split() for word in words), key
            if required == "required":
                others = {other: collection[other] for other in collection if other != key}
                left_out = document | {"collections": document["collections"] | {name: others}}
                with pytest.raises(ConfigurationError, match=rf"\b{name}\."):
                    load_block(replace(block, text=yaml.safe_dump(left_out)), tmp_path)


@pytest.mark.parametrize("block", SETTINGS, ids=str)
def test_an_example_of_settings_is_valid(block: Block, tmp_path: Path) -> None:
    load_block(block, tmp_path)


def load_block(block: Block, folder: Path) -> None:
    """Read a block as `collections.yaml`, next to files with the schemas that it names."""
    for name in re.findall(r"\S+\.avsc", block.text):
        (folder / name).write_text(_EVENT if name.endswith("-event.avsc") else _RECORD, encoding="utf-8")
    (folder / "collections.yaml").write_text(block.text, encoding="utf-8")
    assert load_settings(folder / "collections.yaml").collections


def test_the_top_level_defaults_are_those_of_the_code(tmp_path: Path) -> None:
    file = tmp_path / "collections.yaml"
    file.write_text("collections: {}\n", encoding="utf-8")
    settings = load_settings(file)
    rows = rows_of(reference.top_level_settings())
    for key in ("store", "topics", "data_docs"):
        assert tmp_path / rows[key][1].strip("`") == getattr(settings, key)


@pytest.mark.parametrize(
    ("table", "settings"),
    [("settings.kafka", KafkaSettings), ("settings.registry", RegistrySettings), ("settings.object_store", S3Settings)],
)
def test_every_setting_of_a_server_is_in_its_table_with_its_default(table: str, settings: type[BaseModel]) -> None:
    rows = {key: cells[1].strip("`") for key, cells in rows_of(reference.TABLES[table]()).items()}
    assert rows == {
        name: "required" if field.is_required() else "false" if field.default is False else str(field.default or "none")
        for name, field in settings.model_fields.items()
    }


def test_every_variable_is_in_its_table_with_its_default() -> None:
    rows = {name: cells[0].strip("`") for name, cells in rows_of(reference.variables()).items()}
    assert set(rows) == set(VARIABLES)
    for field, name in CRON_VARIABLES.items():
        assert rows[name] == getattr(Environment(), field)
    assert rows["TIDELAKE_SCHEDULES"] == Environment().schedules
