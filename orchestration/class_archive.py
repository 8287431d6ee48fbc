"""Creates an archive of the classes that Spark loads, by running most jobs on a small topic.

`make setup` runs `python -m orchestration.class_archive`, which does nothing if the archive exists.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

from jobs import compact, current, ingest, seal, validate
from tidelake.generator.generate import generate
from tidelake.generator.options import GenerateOptions
from tidelake.spark.class_archive import archive_of_this_java, archives, options_to_make
from tidelake.spark.session import start_session

_MODULE = f"{__package__}.class_archive"
_TIMEOUT_S = 600.0
_EXIT_TIMEOUT_S = 120.0


def main() -> int:
    """Create the archive if it is missing. If that fails, the exit status is still 0: the archive only saves time."""
    archive = archive_of_this_java()
    if archive.exists():
        return 0
    archive.parent.mkdir(parents=True, exist_ok=True)
    print("classes: archiving the classes that Spark loads, so that it starts faster (190 MB; half a minute, once)")
    with tempfile.TemporaryDirectory(prefix=".classes-", dir=archive.parent) as folder:
        unfinished = Path(folder) / "classes.jsa"
        command = [sys.executable, "-c", f"from {_MODULE} import work; work({folder!r}, {str(unfinished)!r})"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
        if done.returncode != 0 or not unfinished.exists():
            output = "\n".join(done.stderr.splitlines()[-5:])
            print(f"classes: no archive; everything works without one, but starts more slowly. Last output:\n{output}")
            return 0
        for other in archives():
            other.unlink()
        unfinished.replace(archive)
    return 0


def work(folder: str, archive: str) -> None:
    """Generate a topic and run all jobs but `publish` on it, in a JVM that writes the archive when it exits.

    Args:
        folder: a folder for the topic and the store.
        archive: the file to write.
    """
    root = Path(folder)
    options = GenerateOptions(name="orders", updates=2_000, times=20, writers=2, copies=0.2, undecodable=1)
    generate(options, root / "topics", root)
    block = {"family": "plain", "topic": "orders", "schema": "orders.avsc"}
    config = root / "collections.yaml"
    config.write_text(yaml.safe_dump({"store": "store", "topics": "topics", "collections": {"orders": block}}))
    java = " ".join(options_to_make(Path(archive)))
    spark = start_session("tidelake-classes", settings={"spark.driver.extraJavaOptions": java})
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    for job in (ingest, seal, validate, current, compact, current):
        job.main(["--config", str(config)])
    spark.stop()
    process: subprocess.Popen[bytes] = gateway.proc
    gateway.shutdown()
    assert process.stdin is not None
    process.stdin.close()  # PySpark's JVM exits when this closes
    process.wait(_EXIT_TIMEOUT_S)


if __name__ == "__main__":
    sys.exit(main())
