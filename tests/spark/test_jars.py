"""A jar that differs from the lock is refused, however the JVM came to load it."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pyspark
import pytest

from tests.docs.blocks import PROJECT
from tests.docs.shell import run_by_bash
from tidelake.spark.jar_error import JarError
from tidelake.spark.jars import Jar, jars_folder, locked_jars, verify

TAMPERED = next(jar for jar in locked_jars() if jar.artifact == "delta-storage")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The locked jars, one of which has an additional entry: that jar works, but is not the one that was locked."""
    for jar in locked_jars():
        (tmp_path / jar.file_name).symlink_to(jars_folder() / jar.file_name)
    (tmp_path / TAMPERED.file_name).unlink()
    shutil.copy(jars_folder() / TAMPERED.file_name, tmp_path / TAMPERED.file_name)
    with zipfile.ZipFile(tmp_path / TAMPERED.file_name, "a") as archive:
        archive.writestr("added.txt", "added")
    return tmp_path


def test_a_jar_with_a_known_name_is_verified_wherever_it_is(tmp_path: Path) -> None:
    jar = Jar("io.delta", "storage", "1.0", hashlib.sha256(b"locked").hexdigest())
    good, bad, ivy, unknown = (tmp_path / name for name in ("a", "b", "c", "d"))
    for path, name, data in (
        (good, "storage-1.0.jar", b"locked"),
        (bad, "storage-1.0.jar", b"changed"),
        (ivy, "io.delta_storage-1.0.jar", b"changed"),
        (unknown, "storage-2.0.jar", b"changed"),
    ):
        path.mkdir()
        (path / name).write_bytes(data)
    link = tmp_path / "storage-1.0.jar"
    link.symlink_to(good / "storage-1.0.jar")
    others = [tmp_path / "gone" / "storage-1.0.jar", unknown / "storage-2.0.jar", tmp_path]
    assert verify([link, *others], [jar]) == {good / "storage-1.0.jar"}
    for path in (bad / "storage-1.0.jar", ivy / "io.delta_storage-1.0.jar"):
        with pytest.raises(JarError, match=rf"^io\.delta:storage:1\.0 has sha256 .*{path}.*hint: do not use this file"):
            verify([link, path], [jar])
        assert verify([path], [jar], verified={path}) == {path}


def test_a_set_of_jars_is_separate_from_those_that_every_session_loads(tmp_path: Path) -> None:
    lock = tmp_path / "jars.lock"
    lock.write_text(f"# all\na:one:1 {'0' * 64}\n\n[s3]\n# some\nb:two:2 {'1' * 64}\nb:three:3 {'2' * 64}\n")
    assert [jar.artifact for jar in locked_jars(lock)] == ["one"]
    assert [jar.artifact for jar in locked_jars(lock, "s3")] == ["two", "three"]
    with pytest.raises(JarError, match=r"no set of jars 'gs'. hint: use one of these: s3"):
        locked_jars(lock, "gs")


def test_the_jars_for_s3_are_locked_and_none_of_them_hides_one_of_sparks_own() -> None:
    own = {re.sub(r"-[0-9][\w.]*$", "", path.stem) for path in (Path(pyspark.__file__).parent / "jars").glob("*.jar")}
    jars = locked_jars(name="s3")
    assert all(re.fullmatch("[0-9a-f]{64}", jar.sha256) for jar in jars)
    assert {"hadoop-aws", "s3", "spark-hadoop-cloud_2.13"} <= {jar.artifact for jar in jars}
    shared = own & {
        jar.artifact for jar in jars if (jar.group, jar.artifact) != ("software.amazon.awssdk", "annotations")
    }
    assert not shared, "the class path has these jars before Spark's own"


def check_refused(done: subprocess.CompletedProcess[str], folder: Path) -> None:
    """Check that a process ended with an error that names the jar."""
    assert done.returncode != 0, done.stdout
    errors = done.stdout + done.stderr  # spark-submit sends both streams of a job to standard output
    assert f"{TAMPERED.coordinate} has sha256" in errors
    assert f"({folder / TAMPERED.file_name}). hint: " in errors


@pytest.mark.spark
def test_a_changed_jar_given_to_spark_submit_stops_a_job_before_it_has_a_session(folder: Path) -> None:
    (folder / "collections.yaml").write_text("collections: {}\n", encoding="utf-8")
    jars = ",".join(str(folder / jar.file_name) for jar in locked_jars())
    done = run_by_bash(
        PROJECT,
        'export PATH="$PWD/.venv/bin:$PATH" PYTHONPATH="$PWD/src:$PWD" SPARK_LOCAL_IP=127.0.0.1\n'
        f'spark-submit --master "local[1]" --jars "{jars}" jobs/ingest.py --config {folder}/collections.yaml',
    )
    assert "Running Spark version" not in done.stderr
    assert "results" not in done.stdout
    check_refused(done, folder)


@pytest.mark.spark
@pytest.mark.sweep
def test_a_changed_jar_on_a_class_path_in_the_settings_stops_the_session(folder: Path) -> None:
    script = (
        "from tidelake.spark.session import start_session\n"
        f"start_session(master='local[1]', settings={{'spark.driver.extraClassPath': {str(folder / '*')!r}}})"
    )
    environment = os.environ | {"PYTHONPATH": str(PROJECT / "src")}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    check_refused(done, folder)
