"""The archive of the classes that Spark loads: the JVM maps it instead of reading and verifying each class.

It is valid for one Java, one PySpark and one location of the jars; with any other, the JVM silently starts without it.
`orchestration.class_archive` creates it.

Source: docs/decisions/class-archive.md; JEP 350, "Dynamic CDS Archives".
"""

import hashlib
import importlib.metadata
import importlib.util
import os
import subprocess
from pathlib import Path

from tidelake.spark.jars import jars_folder, java_command, locked_jars

_NAME = "classes-{}.jsa"
_SILENT = "-Xlog:cds=off,cds+dynamic=off,class+path=off"
"""With these options, the JVM does not report a mismatch in the output of a command."""


def archives(folder: Path | None = None) -> list[Path]:
    """Return the archives next to the jars; there is only one, except while the set-up replaces it."""
    return sorted(jars_folder(folder).glob(_NAME.format("*")))


def archive_of_this_java(folder: Path | None = None) -> Path:
    """Return the path of the archive for this Java, this PySpark and these jars.

    Cost: a Java process that prints its version.
    """
    environment = {name: value for name, value in os.environ.items() if not name.endswith("JAVA_OPTIONS")}
    java = subprocess.run([java_command(), "-version"], env=environment, capture_output=True, text=True, check=True)
    spark = importlib.util.find_spec("pyspark")
    assert spark is not None
    jars = [str(jars_folder(folder) / jar.file_name) for jar in locked_jars()]
    identity = "\n".join([java.stderr, importlib.metadata.version("pyspark"), str(spark.origin), *jars])
    return jars_folder(folder) / _NAME.format(hashlib.sha256(identity.encode()).hexdigest()[:12])


def options_to_use() -> list[str]:
    """Return the JVM's options that map the archive; an empty list if there is no archive."""
    existing = archives()
    return [f'"-XX:SharedArchiveFile={existing[-1]}"', _SILENT] if existing else []


def options_to_make(archive: Path) -> list[str]:
    """Return the JVM's options that write an archive of all loaded classes at exit."""
    return [f'"-XX:ArchiveClassesAtExit={archive}"', _SILENT]
