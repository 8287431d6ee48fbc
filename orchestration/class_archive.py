"""Makes the archive of the classes that Spark loads, by taking a small topic through the jobs.

`make setup` runs it, and it does nothing where the archive is there: `python -m orchestration.class_archive`.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

from jobs import compact, current, ingest, seal, validate
from tidelake.delta.session import start_session
from tidelake.generator.generate import generate
from tidelake.generator.options import GenerateOptions
from tidelake.setup.classes import archive_of_this_java, archives, options_to_make

_MODULE = "orchestration.class_archive"
_TIMEOUT_S = 600.0
_EXIT_TIMEOUT_S = 120.0


def main() -> int:
    """Make it where it is missing; 0 also where none could be made, as all that it saves is time."""
    archive = archive_of_this_java()
    if archive.exists():
        return 0
    print("classes: an archive of what Spark loads, so that it starts in less time (190 MB; half a minute, once)")
    with tempfile.TemporaryDirectory(prefix=".classes-", dir=archive.parent) as folder:
        made = Path(folder) / "classes.jsa"
        command = [sys.executable, "-c", f"from {_MODULE} import work; work({folder!r}, {str(made)!r})"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
        if done.returncode != 0 or not made.exists():
            said = "\n".join(done.stderr.splitlines()[-5:])
            print(f"classes: there is none; everything works without it, and starts more slowly. Said last:\n{said}")
            return 0
        for other in archives():
            other.unlink()
        made.replace(archive)
    return 0


def work(folder: str, archive: str) -> None:
    """Generate a topic and run every job on it, in a JVM that writes the archive when it ends.

    Args:
        folder: for the topic and the store.
        archive: the file.
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
    process.stdin.close()  # PySpark's JVM ends with this
    process.wait(_EXIT_TIMEOUT_S)


if __name__ == "__main__":
    sys.exit(main())
