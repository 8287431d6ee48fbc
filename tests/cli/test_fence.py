"""`tidelake fence` sets the only writer of a collection. These tests do not start a JVM."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.commands import call
from tests.golden.shown import unpack
from tidelake import open_lake
from tidelake.catalog.catalog import Catalog
from tidelake.errors import ArgumentRefused, OptionRefused, UnknownCollection, WriterFenced
from tidelake.settings.lake import Settings
from tidelake.store.layout import Store

NAME = "plain"


def open_for_writing(settings: Settings, writer: str | None) -> None:
    Catalog(Store(settings.store), writer).open_or_create(settings.collection(NAME).spec())


def test_a_fence_admits_only_the_named_writer_until_the_fence_is_lifted(tmp_path: Path) -> None:
    """The store is from an earlier version of Tidelake, so its entries name no writer."""
    config = unpack(tmp_path)
    settings = open_lake(config).settings
    open_lake(config).collection(NAME).verify()  # warns about missing markers; later commands do not
    open_for_writing(settings, "old")
    fenced = json.loads(call("fence", NAME, "--writer", "new", "--json", "--config", str(config)))
    assert fenced == {"name": NAME, "epoch": 1, "writer": "new"}
    with pytest.raises(WriterFenced, match=f"tidelake fence {NAME} --writer old"):
        open_for_writing(settings, "old")
    open_for_writing(settings, "new")
    call("fence", NAME, "--anyone", "--config", str(config))
    open_for_writing(settings, None)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ([], OptionRefused),
        (["--writer", "a", "--anyone"], OptionRefused),
        (["--writer", "a b"], ArgumentRefused),
        (["--writer", ""], ArgumentRefused),
    ],
    ids=str,
)
def test_a_fence_without_exactly_one_valid_writer_is_refused(
    tmp_path: Path, options: list[str], error: type[Exception]
) -> None:
    config = tmp_path / "collections.yaml"
    (tmp_path / "data/topics/one").mkdir(parents=True)
    block = "{family: plain, topic: one, schema: {type: record, name: r, fields: [{name: a, type: long}]}}"
    config.write_text(f"collections: {{one: {block}}}\n", encoding="utf-8")
    with pytest.raises(error):
        call("fence", "one", *options, "--config", str(config))
    with pytest.raises(UnknownCollection):
        call("fence", "one", "--anyone", "--config", str(config))
