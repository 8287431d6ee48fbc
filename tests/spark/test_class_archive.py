"""The class archive: the JVM uses an archive that fits, and silently ignores one that does not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from orchestration import class_archive
from tidelake.spark import class_archive as classes
from tidelake.spark.jars import jars_folder, java_command

STARTS = """
import sys
from tidelake.spark.session import start_session
spark = start_session("tests", settings={"spark.driver.extraJavaOptions": sys.argv[1]})
print("rows", spark.range(3).count())
"""


def started(*options: str) -> subprocess.CompletedProcess[str]:
    """Start a session whose JVM has these options, in a process of its own, and return the ended process."""
    command = [sys.executable, "-c", STARTS, " ".join(options)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.spark
def test_a_session_maps_the_archive_that_the_setup_has_made() -> None:
    assert class_archive.main() == 0
    assert [path.name for path in classes.archives()] == [classes.archive_of_this_java().name]
    # With -Xshare:on, a JVM that cannot map its archive exits.
    mapped = started(*classes.options_to_use(), "-Xshare:on")
    assert mapped.stdout.splitlines()[-1] == "rows 3", mapped.stderr


def test_an_archive_that_does_not_fit_is_silently_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "classes-0.jsa").write_bytes(b"no archive")
    monkeypatch.setattr(classes, "jars_folder", lambda folder=None: tmp_path)
    options = [option.strip('"') for option in classes.options_to_use()]
    run = subprocess.run([java_command(), *options, "-version"], capture_output=True, text=True, check=False)
    plain = subprocess.run([java_command(), "-version"], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (0, plain.stdout, plain.stderr.replace(", sharing", ""))


def test_each_java_and_each_set_of_jars_has_an_archive_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = classes.archive_of_this_java()
    assert here.parent == jars_folder()
    other_jars = classes.archive_of_this_java(tmp_path).name
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho another Java >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert len({here.name, other_jars, classes.archive_of_this_java().name}) == 3
