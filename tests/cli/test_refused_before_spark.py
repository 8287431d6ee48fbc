"""A read that the log shows to be impossible is refused before Spark starts, with the same error as in DuckDB."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest
import yaml

from tests.cli.commands import invoke
from tests.golden.shown import unpack
from tidelake import open_lake
from tidelake.cli import engine
from tidelake.errors import ArgumentRefused, SinceError, TidelakeError, UnknownCollection, UnknownColumn, UpperError


class Started(BaseException):
    """Raised in place of a start of Spark."""


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake whose collection `upsert` can be read at the times [2, 9). Nothing was ingested into `unread`."""
    file = unpack(tmp_path_factory.mktemp("golden"))
    document = yaml.safe_load(file.read_text(encoding="utf-8"))
    document["collections"]["unread"] = document["collections"]["plain"]
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    collection = open_lake(file).collection("upsert")
    assert (collection.since, collection.upper) == (2, 9)
    return file


@pytest.fixture(autouse=True)
def no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_: object, **__: object) -> NoReturn:
        raise Started

    monkeypatch.setattr(engine, "start_spark", start)
    monkeypatch.setattr("tidelake.spark.session.start_session", start)


def refusal(*arguments: str | Path) -> TidelakeError:
    with pytest.raises(TidelakeError) as caught:
        invoke(*map(str, arguments))
    return caught.value


@pytest.mark.parametrize(
    ("command", "error"),
    [
        ("read upsert --as-of 9", UpperError),
        ("read upsert --as-of 1", SinceError),
        ("read upsert --columns pieces,nope", UnknownColumn),
        ("diff upsert --from 2 --to 9", UpperError),
        ("diff upsert --from 1 --to 8", SinceError),
        ("diff upsert --from 2 --to 8 --columns nope", UnknownColumn),
        ("changes upsert --after 2 --through 9", UpperError),
        ("changes upsert --after 1", SinceError),
        ("changes upsert --after 5 --through 4", ArgumentRefused),
        ("changes upsert --columns nope", UnknownColumn),
        ("subscribe upsert --as-of 9", UpperError),
        ("subscribe upsert --as-of 1 --wait 1h", SinceError),
        ("subscribe upsert --after 1", SinceError),
        ("subscribe upsert --as-of 5 --until 4", ArgumentRefused),
        ("subscribe upsert --columns nope", UnknownColumn),
        ("subscribe unread", UnknownCollection),
    ],
)
def test_a_read_that_cannot_be_answered_starts_neither_engine(
    config: Path, command: str, error: type[TidelakeError]
) -> None:
    with_spark, with_duckdb = (
        refusal(*command.split(), "--engine", name, "--config", config) for name in ("spark", "duckdb")
    )
    assert type(with_spark) is error
    assert str(with_spark) == str(with_duckdb)


@pytest.mark.parametrize(
    "command",
    [
        "read upsert --as-of 8 --columns pieces",
        "diff upsert --from 8 --to 2",
        "changes upsert",
        "subscribe upsert --as-of 9 --wait 1h",
        "subscribe upsert --after 20",
        "subscribe upsert --no-snapshot",
    ],
)
def test_a_read_that_can_be_answered_or_waited_for_starts_spark(config: Path, command: str) -> None:
    with pytest.raises(Started):
        invoke(*command.split(), "--engine", "spark", "--config", str(config))


@pytest.mark.parametrize(("as_of", "error"), [("9", UpperError), ("1", SinceError)])
def test_a_comparison_at_a_time_that_is_not_there_does_not_start_spark(
    config: Path, as_of: str, error: type[TidelakeError]
) -> None:
    done = invoke("compare", str(config), "upsert", str(config), "upsert", "--as-of", as_of)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.endswith(f"\nsee: tidelake errors {error.__name__}\n")
