"""Fetches the jars that a lock file lists into a folder, and checks their sha256.

By default, the lock file is `jars.lock`, and the folder is `.jars`.

A line `[name]` begins a set: jars that only some lakes need, such as `s3`. They are fetched into `.jars/<name>` when
a session needs them.
"""

import argparse
import hashlib
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from tidelake.spark.installation import home, jars_lock
from tidelake.spark.jar_error import JarError

SERVICES_LOCK = jars_lock().with_name("services.lock")
SERVICES_FOLDER = home() / ".jars" / "services"
"""The jars of the services that tests start: a broker, Connect and Debezium. The product does not need them."""
_SET = re.compile(r"\[([a-z0-9]+)\]")
ATTEMPTS_MAX = 3
RESOLVE_TIMEOUT_S = 900.0
_IVY_SETTINGS = """<ivysettings>
  <settings defaultResolver="public"/>
  <resolvers><ibiblio name="public" m2compatible="true" usepoms="false"/></resolvers>
</ivysettings>
"""


@dataclass(frozen=True)
class Jar:
    """One line of a lock; `sha256` is empty if the line has none yet.

    >>> Jar("io.delta", "delta-storage", "4.4.0", "").file_name
    'delta-storage-4.4.0.jar'
    >>> Jar("io.apicurio", "app", "3.0.9", "", "all", "tar.gz").coordinate
    'io.apicurio:app:3.0.9:all@tar.gz'
    """

    group: str
    artifact: str
    version: str
    sha256: str
    classifier: str = ""
    extension: str = "jar"

    @property
    def coordinate(self) -> str:
        """The coordinate as repositories write it: the line's first word."""
        variant = f":{self.classifier}@{self.extension}" if self.classifier else ""
        return f"{self.group}:{self.artifact}:{self.version}{variant}"

    @property
    def file_name(self) -> str:
        """The file name of the jar in its folder."""
        variant = f"-{self.classifier}" if self.classifier else ""
        return f"{self.artifact}-{self.version}{variant}.{self.extension}"


def jars_folder(folder: Path | None = None) -> Path:
    """Return the folder of the jars: `folder`, or by default `.jars` in the folder of `installation.home`."""
    return home() / ".jars" if folder is None else folder


def locked_jars(lock: Path | None = None, name: str = "") -> list[Jar]:
    """Read the jars of one set, in the order of the lock.

    Args:
        lock: the lock file; by default `jars.lock`.
        name: the name of the set; empty for the jars before the first set.

    Raises:
        JarError: the lock is missing, has no such set, or has an invalid line.
    """
    sets = jar_sets(lock)
    if name not in sets:
        known = ", ".join(sorted(filter(None, sets))) or "none"
        raise JarError(f"the lock has no set of jars '{name}'. hint: use one of these: {known}")
    return sets[name]


def jar_sets(lock: Path | None = None) -> dict[str, list[Jar]]:
    """Read all jars of a lock, by the name of their set; the jars before the first set have an empty name."""
    lock = jars_lock() if lock is None else lock
    try:
        lines = lock.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError as error:
        raise JarError(f"no lock file at {lock}. hint: install Tidelake again") from error
    sets: dict[str, list[Jar]] = {"": []}
    name = ""
    for line in lines:
        if header := _SET.fullmatch(line.strip()):
            name = header[1]
            sets[name] = []
        elif line.strip() and not line.startswith("#"):
            sets[name].append(_jar_of(line, lock))
    return sets


def resolve_sets(names: Iterable[str]) -> list[Path]:
    """Ensure that the jars of these sets are in place, and return their paths; raises the same errors as `resolve`."""
    paths = []
    for name in names:
        folder = jars_folder() / name
        try:
            paths += resolve(folder, java=java_command(), jars=locked_jars(name=name))
        except PermissionError as error:
            raise JarError(
                f"this user cannot write the jars of the set '{name}' to {folder}. hint: as a user who can, run "
                f"python -m tidelake.spark.jars --set {name}; or let TIDELAKE_HOME name another folder"
            ) from error
    return paths


def resolve(folder: Path | None = None, *, java: str = "java", jars: Sequence[Jar] | None = None) -> list[Path]:
    """Ensure that `folder` holds every locked jar, and return their paths in the lock's order.

    Existing jars are only checked. Missing jars are fetched into a temporary folder, checked, and moved into place, so
    that an interruption never leaves a partial jar. Files that the lock does not name are ignored.

    Args:
        folder: the folder of the jars; by default `jars_folder()`.
        java: the command that starts Java; needed only if a jar is missing.
        jars: the jars to resolve; by default `locked_jars()`.

    Raises:
        JarError: a jar's sha256 differs from the lock, or a jar could not be fetched.

    Cost: one read of each jar (about 0.1 s in total); about 10 s and a Java process if jars are missing.
    """
    folder = jars_folder(folder)
    jars = locked_jars() if jars is None else jars
    missing = [jar for jar in jars if not (folder / jar.file_name).exists()]
    for jar in jars:
        if jar not in missing:
            _check(jar, folder / jar.file_name)
    if missing:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder) as scratch:
            fetched = _fetch(missing, Path(scratch), java)
            for jar in missing:
                _check(jar, fetched[jar])
            for jar in missing:
                fetched[jar].replace(folder / jar.file_name)
    return [folder / jar.file_name for jar in jars]


def verify(paths: Iterable[Path], jars: Sequence[Jar] | None = None, verified: Set[Path] = frozenset()) -> set[Path]:
    """Check the files that are named like a locked jar, or as Ivy names it for `--packages`; ignore all others.

    Args:
        paths: the paths; they may include folders, and paths that do not exist.
        jars: the locked jars; by default those of all sets.
        verified: files that need no second check, as paths without symbolic links.

    Returns:
        The files that were checked, as paths without symbolic links.

    Raises:
        JarError: a jar's sha256 differs from the lock.
    """
    jars = [jar for locked in jar_sets().values() for jar in locked] if jars is None else jars
    known = {name: jar for jar in jars for name in (jar.file_name, f"{jar.group}_{jar.file_name}")}
    named = [path for path in paths if path.name in known and path.is_file()]
    for path in named:
        if path.resolve() not in verified:
            _check(known[path.name], path)
    return {path.resolve() for path in named}


def relock(lock: Path, java: str = "java") -> None:
    """Fetch every coordinate of `lock` again and rewrite the lock with the sha256 of the fetched jars.

    Comment lines and the order of lines are preserved.
    """
    jars = [jar for locked in jar_sets(lock).values() for jar in locked]
    with tempfile.TemporaryDirectory(prefix="relock-") as scratch:
        fetched = _fetch(jars, Path(scratch), java)
        sums = {jar.coordinate: _sha256(fetched[jar]) for jar in jars}
    lines = []
    for line in lock.read_text(encoding="utf-8").splitlines():
        coordinate = line.split()[0] if line.strip() else ""
        lines.append(f"{coordinate} {sums[coordinate]}" if coordinate in sums else line)
    lock.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main(argv: Sequence[str] | None = None) -> int:
    """Resolve the checkout's jars, or those of its services; print nothing if none is missing."""
    parser = argparse.ArgumentParser(prog="python -m tidelake.spark.jars", description=__doc__)
    parser.add_argument("--relock", action="store_true", help="rewrite the sha256 of every jar in the lock")
    parser.add_argument("--services", action="store_true", help="use services.lock and .jars/services")
    parser.add_argument("--set", default="", help="fetch the jars of this set, such as s3, into .jars/SET")
    arguments = parser.parse_args(argv)
    lock, folder = (SERVICES_LOCK, SERVICES_FOLDER) if arguments.services else (jars_lock(), jars_folder())
    folder = folder / arguments.set
    java = java_command()
    try:
        if arguments.relock:
            relock(lock, java)
        jars = locked_jars(lock, arguments.set)
        before = sum((folder / jar.file_name).exists() for jar in jars)
        paths = resolve(folder, java=java, jars=jars)
    except JarError as error:
        print(f"jars: {error}", file=sys.stderr)
        return 1
    if before < len(paths):
        print(f"jars: {len(paths) - before} fetched, {len(paths)} in place")
    return 0


def java_command() -> str:
    """Return the command that starts Java: that of `JAVA_HOME` if it is set, else the one on PATH."""
    java_home = os.environ.get("JAVA_HOME")
    return str(Path(java_home) / "bin" / "java") if java_home else "java"


def _jar_of(line: str, lock: Path) -> Jar:
    coordinate, *sums = line.split()
    parts = coordinate.split(":")
    variant = parts.pop().partition("@") if len(parts) == 4 else ("", "@", "jar")
    if len(parts) != 3 or not all((*parts, variant[2])) or len(sums) > 1:
        raise JarError(
            f"{lock.name} has the line {line!r}. hint: write group:artifact:version sha256, or "
            "group:artifact:version:classifier@extension sha256"
        )
    group, artifact, version = parts
    return Jar(group, artifact, version, sums[0].lower() if sums else "", variant[0], variant[2])


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check(jar: Jar, path: Path) -> None:
    actual = _sha256(path)
    if actual != jar.sha256:
        expected = jar.sha256 or "nothing yet"
        raise JarError(
            f"{jar.coordinate} has sha256 {actual}, but the lock says {expected} ({path}). hint: do not use this file; "
            f"remove it and run the set-up again; if the error persists, find out who changed the jar"
        )


def _fetch(jars: Sequence[Jar], scratch: Path, java: str) -> dict[Jar, Path]:
    """Fetch `jars`, without their dependencies, with the Ivy that comes with PySpark."""
    (scratch / "ivy.xml").write_text(_ivy_file(jars), encoding="utf-8")
    # A jar's own list of dependencies is not needed here, and costs more requests than the jar.
    (scratch / "settings.xml").write_text(_IVY_SETTINGS, encoding="utf-8")
    command = [
        java,
        f"-Divy.default.ivy.user.dir={scratch / 'user'}",
        *("-cp", str(_ivy_jar()), "org.apache.ivy.Main"),
        *("-cache", str(scratch / "cache")),
        *("-settings", str(scratch / "settings.xml")),
        *("-ivy", str(scratch / "ivy.xml")),
        *("-confs", "default"),
        *("-retrieve", str(scratch / "out" / "[artifact]-[revision](-[classifier]).[ext]")),
    ]
    for attempt in range(1, ATTEMPTS_MAX + 1):
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=RESOLVE_TIMEOUT_S,
                check=False,
            )
        except FileNotFoundError as error:
            raise JarError(
                f"there is no Java at {java!r}. hint: install Java 17 or 21, or correct JAVA_HOME"
            ) from error
        except subprocess.TimeoutExpired as error:
            raise JarError(f"fetching took more than {RESOLVE_TIMEOUT_S:.0f} s. hint: try again") from error
        fetched = {jar: scratch / "out" / jar.file_name for jar in jars}
        absent = [jar.coordinate for jar, path in fetched.items() if not path.exists()]
        if done.returncode == 0 and not absent:
            return fetched
        if attempt < ATTEMPTS_MAX:
            print(f"jars: attempt {attempt} of {ATTEMPTS_MAX} did not fetch all jars, trying again", file=sys.stderr)
    output = "\n".join(done.stdout.splitlines()[-20:])
    raise JarError(f"could not fetch {', '.join(absent) or 'the jars'}. hint: the last output of Ivy:\n{output}")


def _ivy_file(jars: Sequence[Jar]) -> str:
    from xml.sax.saxutils import quoteattr  # imported late: it loads urllib, and every command imports this module

    dependencies = "\n".join(
        f"    <dependency org={quoteattr(jar.group)} name={quoteattr(jar.artifact)} rev={quoteattr(jar.version)}"
        f' transitive="false" conf="default-&gt;*"><artifact name={quoteattr(jar.artifact)}'
        f" type={quoteattr(jar.extension)} ext={quoteattr(jar.extension)}"
        + (f" m:classifier={quoteattr(jar.classifier)}" if jar.classifier else "")
        + "/></dependency>"
        for jar in jars
    )
    return (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">\n'
        '  <info organisation="tidelake" module="jars"/>\n'
        '  <configurations><conf name="default"/></configurations>\n'
        f"  <dependencies>\n{dependencies}\n  </dependencies>\n"
        "</ivy-module>\n"
    )


def _ivy_jar() -> Path:
    # Located, not imported: importing PySpark costs more than everything else here.
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise JarError("PySpark is not installed. hint: install requirements.lock before the jars")
    candidates = sorted((Path(spec.origin).parent / "jars").glob("ivy-*.jar"))
    if not candidates:
        raise JarError(f"PySpark at {spec.origin} has no Ivy. hint: install the version that requirements.lock names")
    return candidates[-1]


if __name__ == "__main__":
    sys.exit(main())
