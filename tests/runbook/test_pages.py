"""Every error has a page with its cause and its remedy, on the site and on the command line."""

from __future__ import annotations

import ast
import json
import re
import subprocess
from functools import cache
from pathlib import Path

import click
import pytest
import typer

from tests.cli.commands import call, run
from tests.docs.blocks import PROJECT
from tests.docs.hooks import reference
from tidelake.cli.app import app
from tidelake.errors import DamagedTable, OptionRefused, StoreUnreadable, TidelakeError, TopicGap, UpperError
from tidelake.runbook.entries import ENTRIES
from tidelake.runbook.page import ErrorPage, all_errors, exit_status, find_page, page_of, pages, with_reference

PAGES = pages() if set(all_errors()) == set(ENTRIES) else []


def below(error: type[TidelakeError]) -> set[type[TidelakeError]]:
    own = {child for child in error.__subclasses__() if child.__module__ == "tidelake.errors"}
    return own.union(*map(below, own))


def created_in_the_code() -> set[str]:
    """The names of the errors that a module imports from `tidelake.errors` and creates."""
    found: set[str] = set()
    for folder in ("src", "jobs", "assets", "expectations", "orchestration"):
        for path in (PROJECT / folder).rglob("*.py"):
            nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
            imports = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.module == "tidelake.errors"]
            imported = {alias.name for node in imports for alias in node.names}
            called = {node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
            found |= imported & called
    return found & {error.__name__ for error in below(TidelakeError)}


def test_every_error_has_a_cause_and_a_remedy() -> None:
    listed = {error.__name__ for error in all_errors()}
    assert listed == {error.__name__ for error in ENTRIES}
    assert created_in_the_code() <= listed
    assert len(PAGES) == len(ENTRIES) > 50


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_says_everything_in_sentences(page: ErrorPage) -> None:
    for sentence in (page.meaning, page.cause, page.act):
        assert sentence[0].isupper() or sentence[0] == "`", sentence
        assert sentence.endswith("."), sentence
    text, markdown = page.as_text(), page.as_markdown()
    for part in (page.name, page.cause.split()[0], page.exit_status):
        assert part in text
    assert all(command in text and command in markdown for command in page.commands)
    assert page.fact in markdown and "…" not in page.fact.replace("c/…/", "").replace("5d1c…", "").replace("run=…", "")
    assert all(len(line) <= 100 for line in text.splitlines() if not line.startswith("  tidelake"))


@cache
def commands_of_the_program() -> dict[tuple[str, ...], set[str]]:
    return known_commands(typer.main.get_command(app))


def known_commands(command: click.Command, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], set[str]]:
    found = {path: {option for parameter in command.params for option in parameter.opts if option.startswith("--")}}
    for name, child in getattr(command, "commands", {}).items():
        found |= known_commands(child, (*path, name))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_commands_of_a_page_exist_with_their_options(page: ErrorPage) -> None:
    known = commands_of_the_program()
    for command in page.commands:
        program, *words = command.split()
        if program != "tidelake":
            assert program in {"date", "df", "make", "pip", "tail"}
            continue
        names = [word for word in words if re.fullmatch("[a-z]+", word)]
        path = max((path for path in known if path == tuple(names[: len(path)])), key=len)
        assert path or "COMMAND" in words, command
        options = {word for word in words if word.startswith("--")} - {"--help"}
        assert options <= known[path], command


def test_the_command_line_refers_to_the_page_of_its_error(tmp_path: Path) -> None:
    done = run("status", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert done.stderr.endswith("\nsee: tidelake errors ConfigurationError\n")
    shown = run("errors", "ConfigurationError", cwd=tmp_path)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "Cause: `collections.yaml`, a file that it names" in shown.stdout


def test_a_job_refers_to_the_page_of_its_error(tmp_path: Path) -> None:
    command = [".venv/bin/python", "-m", "jobs.seal", "--config", str(tmp_path / "none.yaml")]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith("\nsee: tidelake errors ConfigurationError\n")


def test_the_text_of_an_error_itself_does_not_change() -> None:
    error = UpperError(7, (7,))
    assert (
        str(error)
        == "time 7 is not before upper [7]\nhint: wait until upper has passed this time, or read before upper"
    )
    assert with_reference(error) == f"{error}\nsee: tidelake errors UpperError"
    assert with_reference(ValueError("no page")) == "no page"


@pytest.mark.parametrize("name", ["TopicGap", "topicgap", "topic-gap", "TOPIC_GAP"])
def test_a_page_is_found_however_its_name_is_written(name: str) -> None:
    assert find_page(name) == page_of(TopicGap)
    assert call("errors", name).startswith("TopicGap (SourceError)\n")


def test_the_error_about_an_unknown_name_suggests_the_nearest_ones() -> None:
    with pytest.raises(OptionRefused, match=r"there is no error 'TopicGab'\nhint: did you mean TopicGap or "):
        find_page("TopicGab")
    with pytest.raises(OptionRefused, match="hint: `tidelake errors` lists them"):
        find_page("42")


def test_all_errors_are_listed_below_their_family() -> None:
    shown = call("errors").splitlines()
    assert shown.index("SourceError") < shown.index(next(line for line in shown if line.startswith("  TopicGap ")))
    assert len([line for line in shown if line.startswith("  ")]) == len(PAGES)
    assert [page["name"] for page in json.loads(call("errors", "--json"))] == [page.name for page in PAGES]
    assert json.loads(call("errors", "TopicGap", "--json"))["exit_status"].startswith("2 from `tidelake`")


def test_the_exit_status_is_that_of_the_command_line() -> None:
    assert (exit_status(DamagedTable), exit_status(StoreUnreadable), exit_status(TopicGap)) == (1, 1, 2)


def test_the_reference_lists_every_error_with_a_link() -> None:
    table = reference.errors()
    for page in PAGES:
        assert f"[`{page.name}`](errors/{page.slug}.md)" in table
