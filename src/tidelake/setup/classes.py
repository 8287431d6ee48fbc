"""The archive of the classes that Spark loads: the JVM maps it, in place of reading and checking them one by one.

It is good for one Java, one PySpark and one place of the jars; with any other the JVM goes without it and says nothing.
`orchestration.class_archive` makes it.

Source: docs/decisions/class-archive.md; JEP 350, "Dynamic CDS Archives".
"""

import hashlib
import importlib.metadata
import importlib.util
import os
import subprocess
from pathlib import Path

from tidelake.setup.jars import jars_folder, java_command, locked_jars

_NAME = "classes-{}.jsa"
_SILENT = "-Xlog:cds=off,cds+dynamic=off,class+path=off"
"""The JVM would write to a command's output that it goes without."""


def archives(folder: Path | None = None) -> list[Path]:
    """The archives that lie beside the jars: one, but for a moment when the set-up puts a new one there."""
    return sorted(jars_folder(folder).glob(_NAME.format("*")))


def archive_of_this_java(folder: Path | None = None) -> Path:
    """Where the archive lies that fits this Java, this PySpark and these jars.

    Cost: a Java process that says its version.
    """
    environment = {name: value for name, value in os.environ.items() if not name.endswith("JAVA_OPTIONS")}
    java = subprocess.run([java_command(), "-version"], env=environment, capture_output=True, text=True, check=True)
    spark = importlib.util.find_spec("pyspark")
    assert spark is not None
    jars = [str(jars_folder(folder) / jar.file_name) for jar in locked_jars()]
    made_for = "\n".join([java.stderr, importlib.metadata.version("pyspark"), str(spark.origin), *jars])
    return jars_folder(folder) / _NAME.format(hashlib.sha256(made_for.encode()).hexdigest()[:12])


def options_to_use() -> list[str]:
    """The JVM's options that map the archive; none where there is no archive."""
    found = archives()
    return [f'"-XX:SharedArchiveFile={found[-1]}"', _SILENT] if found else []


def options_to_make(archive: Path) -> list[str]:
    """The JVM's options that write an archive of all that is loaded, when it ends."""
    return [f'"-XX:ArchiveClassesAtExit={archive}"', _SILENT]
