"""Apart from Spark and delta-rs, only `storage/blobs.py` and its backends touch the bytes of stores and topics."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidelake

SRC = Path(tidelake.__file__).parent
SEAM = {"storage/blobs.py", "storage/local_disk.py", "storage/objects.py", "storage/s3.py"}
ANYTHING = frozenset({"*"})

EXCEPTIONS: dict[str, frozenset[str]] = {
    # The `collections.yaml`, schemas next to it, and whether the folders that it names exist.
    "settings/": ANYTHING,
    # Jars, the class archive, and Java.
    "spark/": ANYTHING,
    # Recorded streams to replay, and the checkout that contains the jobs.
    "cli/": ANYTHING,
    # Certificates.
    "topic/cluster.py": frozenset({"read_text"}),
    # The cache of a registry's answers; the `open` is an HTTP client's.
    "topic/schema_registry.py": frozenset(
        {"import shutil", "exists", "mkdir", "open", "read_text", "replace", "rmtree", "write_text"}
    ),
    # The schema and the truth, which are next to a topic and never in it.
    "generator/truth.py": frozenset(
        {"is_file", "mkdir", "read_text", "read_table", "replace", "write_table", "write_text"}
    ),
    # The footer of a file that the caller has opened.
    "storage/page_headers.py": frozenset({"read_metadata"}),
    # The members of a ZIP file in memory.
    "store/head_start.py": frozenset({"open"}),
    # The style of the pages, which is a file of the package.
    "report/pages.py": frozenset({"read_text"}),
    # The temporary folder to which DuckDB spills rows.
    "query/engine.py": frozenset({"import shutil", "import tempfile"}),
    # The Avro files that Spark writes into a scratch folder.
    "publish/containers.py": frozenset({"memory_map"}),
    # Metrics for monitoring, and the log of a process.
    "telemetry/": ANYTHING,
    # `Lake.open` reads the settings; the environment may say where they are.
    "__init__.py": frozenset({"open"}),
    # The `rename` is the catalog's.
    "lake/lake.py": frozenset({"import os", "rename"}),
    # The `collections.yaml` of a replay, in an empty folder.
    "generator/recorded_stream.py": frozenset({"exists", "is_dir", "iterdir", "write_text"}),
}
"""The calls that files outside the seam may make. They touch no store or topic, except to see if a folder exists."""

MODULES = {"fsspec", "glob", "mmap", "obstore", "os", "pyarrow.dataset", "pyarrow.fs", "shutil", "tempfile"}
MODULES |= {"tidelake.storage.local_disk", "tidelake.storage.objects"}
METHODS = (
    *("glob", "hardlink_to", "is_dir", "is_file", "is_symlink", "iterdir", "lstat", "mkdir", "open", "read_bytes"),
    *("read_parquet", "read_text", "rename", "rglob", "rmdir", "rmtree", "samefile", "stat", "symlink_to"),
    *("to_parquet", "touch", "unlink", "write_bytes", "write_text"),
)
READERS = (
    *("GzipFile", "OSFile", "ParquetDataset", "ParquetFile", "ParquetWriter", "fromfile", "input_stream", "memmap"),
    *("memory_map", "output_stream", "read_metadata", "read_schema", "read_table"),
)
OF_THE_SEAM = {"BufferReader", "MockOutputStream", "open_listed", "open_verified"}
"""Calls that give bytes in memory, or open a file through the seam."""


def touches(source: str) -> Iterator[tuple[int, str]]:
    """The line and the name of each call or import that opens, lists or changes files without the seam."""
    tree = ast.parse(source)
    files = set(_names_of_files(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, f"import {alias.name}") for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom):
            names = {f"{node.module}.{alias.name}" for alias in node.names} - {"os.PathLike"}
            if any(name in MODULES or name.rpartition(".")[0] in MODULES for name in names):
                yield node.lineno, f"import {node.module}"
        elif isinstance(node, ast.Call):
            name = _name_of(node)
            if name is not None and _is_touch(node, name, files):
                yield node.lineno, name


def _is_touch(call: ast.Call, name: str, files: set[str]) -> bool:
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    if isinstance(owner, ast.Name) and owner.id == "blobs":
        return False
    if name in READERS or name == "write_table":
        at = 1 if name == "write_table" else 0
        return len(call.args) > at and not _is_file(call.args[at], files)
    if owner is None:
        return name == "open"
    if name == "exists":  # Spark's `exists` has arguments, and the catalog has an `exists` of its own
        return not call.args and not (isinstance(owner, ast.Name) and owner.id in ("self", "catalog"))
    if name == "replace":  # a string's `replace` has two arguments, a dataclass's has keywords
        return len(call.args) == 1 and not call.keywords
    return name in METHODS


def _names_of_files(tree: ast.AST) -> Iterator[str]:
    """The variables of a module that hold results of the seam."""
    for node in ast.walk(tree):
        if isinstance(node, ast.withitem) and _is_file(node.context_expr, set()):
            bound = [node.optional_vars]
        elif isinstance(node, ast.Assign) and _is_file(node.value, set()):
            bound = [*node.targets]
        else:
            continue
        yield from (target.id for target in bound if isinstance(target, ast.Name))


def _is_file(node: ast.expr, files: set[str]) -> bool:
    if isinstance(node, ast.Name):
        return node.id in files
    if isinstance(node, ast.Call) and _name_of(node) in OF_THE_SEAM:
        return True
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "blobs"
    )


def _name_of(call: ast.Call) -> str | None:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else None


def allowed(path: str) -> frozenset[str]:
    return next((calls for prefix, calls in EXCEPTIONS.items() if path.startswith(prefix)), frozenset())


@pytest.mark.parametrize("file", sorted(SRC.rglob("*.py")), ids=lambda file: file.relative_to(SRC).as_posix())
def test_only_the_seam_touches_files_of_stores_and_topics(file: Path) -> None:
    path = file.relative_to(SRC).as_posix()
    if path in SEAM or allowed(path) == ANYTHING:
        return
    calls = [f"{path}:{line}: {name}" for line, name in touches(file.read_text("utf-8")) if name not in allowed(path)]
    assert not calls, "use tidelake.storage.blobs"


def test_every_exception_is_needed() -> None:
    for prefix, calls in EXCEPTIONS.items():
        files = [file for file in SRC.rglob("*.py") if file.relative_to(SRC).as_posix().startswith(prefix)]
        names = {name for file in files for _, name in touches(file.read_text("utf-8"))}
        assert names, prefix
        assert calls in (ANYTHING, names), prefix


@pytest.mark.parametrize(
    "line",
    [
        "open(path)",
        "path.open('rb')",
        "gzip.open(path)",
        "gzip.GzipFile(path)",
        "import os",
        "from os import replace",
        "import shutil",
        "from shutil import rmtree",
        "import obstore",
        "from tidelake.storage.local_disk import LocalDisk",
        "from pyarrow import fs",
        "path.replace(other)",
        "path.exists()",
        "settings.store.is_dir()",
        "sorted(table.glob('_run=*'))",
        "path.unlink(missing_ok=True)",
        "pq.ParquetFile(path).read()",
        "pq.read_table(str(path), columns=names)",
        "pq.write_table(rows, path)",
        "pa.OSFile(path)",
    ],
)
def test_a_call_that_bypasses_the_seam_is_noticed(line: str) -> None:
    assert len(list(touches(line))) == 1


@pytest.mark.parametrize(
    "line",
    [
        "blobs.open_file(path)",
        "pq.ParquetFile(blobs.open_file(path))",
        "with blobs.writing(path) as sink:\n    pq.write_table(rows, sink)",
        "source = blobs.open_file(path)\npq.read_table(source)",
        "gzip.GzipFile(fileobj=stream)",
        "text.replace('a', 'b')",
        "replace(entry, epoch=1)",
        "F.exists(column, check)",
        "blobs.exists(path)",
        "from os import PathLike",
    ],
)
def test_a_call_through_the_seam_is_accepted(line: str) -> None:
    assert list(touches(line)) == []
