"""The output of a command that fails: a short text with a hint, and a traceback only with `--debug`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from tests.cli.commands import TIDELAKE, call, run
from tests.lakes.lake import NAME, Lake, progress, updates
from tidelake import __version__
from tidelake.cli.app import app
from tidelake.cli.render import print_rows
from tidelake.errors import OptionRefused, PredicateRefused, UnknownColumn, UpperError

_BROKEN = """
import sys
from tidelake.cli import app
def verify(*arguments, **options):
    secret = "5ecret"
    raise RuntimeError("something \\x07unexpected")
app.app.command("broken")(lambda: verify())
sys.argv = ["tidelake", *{arguments!r}]
app.main()
"""


def broken(*arguments: str) -> subprocess.CompletedProcess[str]:
    script = _BROKEN.format(arguments=arguments)
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)


def test_an_unexpected_error_prints_two_lines_and_a_traceback_only_on_request() -> None:
    done = broken("broken")
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        r"error: RuntimeError: something \x07unexpected",
        "hint: this is a bug in Tidelake or in a library; `tidelake --debug …` shows where it happens",
    ]
    debugged = broken("--debug", "broken")
    assert "Traceback" in debugged.stderr
    assert "5ecret" not in debugged.stderr.replace('secret = "5ecret"', "")


def test_the_version_is_printed() -> None:
    assert run("--version").stdout == f"tidelake {__version__}\n"


def test_completion_names_the_collections_of_the_settings(tmp_path: Path) -> None:
    (tmp_path / "collections.yaml").write_text("collections: {orders: {}, others: {}, visits: {}}", encoding="utf-8")
    words = {"_TIDELAKE_COMPLETE": "complete_bash", "COMP_WORDS": "tidelake read o", "COMP_CWORD": "2"}
    script = "import sys; sys.argv = ['tidelake']; from tidelake.cli.app import app; app(prog_name='tidelake')"
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env=os.environ | words,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["orders", "others"]


def test_a_mistyped_command_gets_a_suggestion() -> None:
    done = CliRunner().invoke(app, ["ingset"])
    assert done.exit_code == 2
    assert "Did you mean one of: 'ingest', " in " ".join(done.output.replace("│", "").split())


def test_help_has_no_colours_if_the_environment_says_so() -> None:
    environment = os.environ | {"NO_COLOR": "1", "FORCE_COLOR": "1", "TERM": "xterm-256color"}
    done = subprocess.run([*TIDELAKE, "--help"], env=environment, capture_output=True, text=True, check=True)
    assert "\x1b[3" not in done.stdout


def test_values_are_escaped_and_cut(capsys: pytest.CaptureFixture[str]) -> None:
    values = [
        "\x1b]0;title\x07",
        "two\nlines",
        "\u202egnp.exe",
        "x" * 1_048_576,
        b"\x00" * 1_048_576,
        "[red]",
        "\x9b31m",
    ]
    print_rows("values", ["value"], [{"value": value} for value in values])
    printed = capsys.readouterr().out
    for text in (r"\x1b]0;title\x07", r"two\nlines", r"\u202egnp.exe", "(1,048,576 characters)", "[red]", r"\x9b31m"):
        assert text in printed
    assert not {"\x1b", "\x07", "\u202e", "\x9b"} & set(printed)
    assert len(printed) < 5_000


@pytest.mark.spark
def test_before_the_first_seal_a_read_says_that_nothing_is_sealed(lake: Lake) -> None:
    lake.send(updates((1, 1, 1)))
    lake.run()
    with pytest.raises(UpperError, match=r"nothing is sealed yet, so time 0 cannot be read: upper is \[0\]\nhint: run"):
        call("read", NAME, "--config", str(lake.file))
    with pytest.raises(OptionRefused, match="the quarantine of 'prices' is empty"):
        call("quarantine", NAME, "--reason", "undecodable", "--config", str(lake.file))


@pytest.mark.spark
def test_wrong_names_and_times_are_refused_with_a_hint(contradicted: Lake) -> None:
    config = ("--config", str(contradicted.file))
    with pytest.raises(UnknownColumn, match=r"no column 'prise'\nhint: did you mean 'price'\? Use one of: id, price"):
        call("read", NAME, "--columns", "prise", *config)
    with pytest.raises(PredicateRefused, match=r"'prise' is not a column\nhint: did you mean 'price'\?"):
        call("read", NAME, "--where", "prise > 3", *config)
    with pytest.raises(OptionRefused, match=r"states times as numbers without a unit"):
        call("read", NAME, "--as-of", "2026-11-23T10:00:00Z", *config)
    with pytest.raises(OptionRefused, match=r"--as-of is 'now', which is not a time of 'prices'"):
        call("read", NAME, "--as-of", "now", *config)
    with pytest.raises(OptionRefused, match=r"but no collection of the lake is reclocked"):
        call("sql", f"select * from {NAME}", "--as-of", "2026-11-23T10:00:00Z", *config)
    assert "undecodable" in call("quarantine", NAME, "--reason", "undecodable", *config)
    with pytest.raises(OptionRefused, match=r"'undecodeable'\nhint: did you mean 'undecodable'\?"):
        call("quarantine", NAME, "--reason", "undecodeable", *config)


@pytest.mark.spark
@pytest.mark.sweep
def test_a_wrong_predicate_prints_a_short_error_even_in_a_separate_process(tmp_path: Path, spark: SparkSession) -> None:
    lake = Lake(tmp_path, spark)
    lake.send(updates((1, 1, 1)), progress([0], [2], {1: 1}))
    lake.run()
    for where in ("price >", "cast(concat('a', id) as int) > 0"):
        done = run("read", NAME, "--where", where, "--config", str(lake.file))
        assert done.returncode == 2
        assert done.stdout == ""
        assert len(done.stderr) < 800, done.stderr
        assert "org.apache" not in done.stderr
        assert done.stderr.count("\n") <= 4, done.stderr
        assert "is invalid: \n" not in done.stderr


def test_help_describes_arguments_and_options() -> None:
    shown = " ".join(CliRunner().invoke(app, ["explain", "--help"]).output.replace("│", "").split())
    assert "The collection's name." in shown
    assert "The collections.yaml that names the store and the topics." in shown
