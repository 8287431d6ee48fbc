"""The command `tidelake doctor`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from tidelake.cli.options import CONFIG, ConfigOption, JsonOption
from tidelake.cli.progress import working
from tidelake.cli.render import console, print_json, printable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tidelake.cli.doctor.finding import Finding

_STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def doctor(config: ConfigOption = CONFIG, as_json: JsonOption = False) -> None:
    """Check this machine and a lake: versions, Java, jars, disks, permissions, servers, topics, tables.

    Spark is not started. The command writes only to check that the store and the reports can be written, and changes
    no table, so it can also check a new collections.yaml; it lists all problems of the file. The exit status is 1 if
    a check fails.
    """
    with working("checking") as work:
        findings = []
        for finding in _findings(config):
            findings.append(finding)
            if not as_json:
                with work.paused():
                    _print(finding)
    if as_json:
        print_json({"ok": not _has_failed(findings), "checks": [asdict(finding) for finding in findings]})
    if _has_failed(findings):
        raise typer.Exit(1)


def _findings(config: Path) -> Iterator[Finding]:
    from tidelake.cli.doctor.finding import Finding
    from tidelake.cli.doctor.lake import lake_findings
    from tidelake.cli.doctor.machine import logs_folder, machine_findings

    yield from machine_findings()
    yield logs_folder()
    if config == CONFIG and not config.exists():
        hint = "`tidelake init` writes one; --config or TIDELAKE_CONFIG names another file"
        yield Finding("settings", "warn", "there is no collections.yaml in this folder", hint)
        return
    yield from lake_findings(config)


def _has_failed(findings: list[Finding]) -> bool:
    return any(finding.level == "fail" for finding in findings)


def _print(finding: Finding) -> None:
    from rich.text import Text

    line = Text.assemble((f"{finding.level:<4}", _STYLES[finding.level]), "  ", (finding.check, "bold"), ": ")
    line.append(printable(finding.fact))
    terminal = console()
    terminal.print(line, soft_wrap=True, highlight=False)
    if finding.hint is not None:
        terminal.print(Text(f"      {printable(finding.hint)}"), soft_wrap=True, highlight=False)
