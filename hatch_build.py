"""Puts the application folders into wheels as `tidelake.app`: see docs/decisions/wheel.md."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDERS = ("jobs", "assets", "expectations", "orchestration")
PACKAGE = "tidelake.app"
_IMPORT = re.compile(rf"^(\s*)from ({'|'.join(FOLDERS)})([.\s])", re.MULTILINE)
_OTHER_IMPORT = re.compile(rf"^\s*import ({'|'.join(FOLDERS)})\b.*", re.MULTILINE)


class ApplicationFolders(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the folders to a wheel, with their imports rewritten; an editable installation needs no copies."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the rewritten files to a temporary folder, and tell the builder to include them."""
        if version == "editable":
            return
        root = Path(self.root)
        self._written = tempfile.TemporaryDirectory(prefix="tidelake-wheel-")
        application = {
            path: f"tidelake/app/{path.relative_to(root).as_posix()}"
            for folder in FOLDERS
            for path in sorted((root / folder).rglob("*"))
            if path.is_file() and "__pycache__" not in path.parts
        }
        package = {path: path.relative_to(root / "src").as_posix() for path in sorted((root / "src").rglob("*.py"))}
        for number, (path, target) in enumerate((package | application).items()):
            if path.suffix != ".py":
                build_data["force_include"][str(path)] = target
                continue
            text = path.read_text(encoding="utf-8")
            rewritten = rewritten_imports(text, path)
            if rewritten != text or path in application:
                copy = Path(self._written.name, f"{number}.py")
                copy.write_text(rewritten, encoding="utf-8")
                build_data["force_include"][str(copy)] = target
        start = Path(self._written.name, "__init__.py")
        start.write_text('"""The application folders of the checkout: jobs, assets, expectations, orchestration."""\n')
        build_data["force_include"][str(start)] = "tidelake/app/__init__.py"
        build_data["force_include"][str(root / "jars.lock")] = "tidelake/spark/jars.lock"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the temporary folder."""
        if version != "editable":
            self._written.cleanup()


def rewritten_imports(text: str, path: Path) -> str:
    """Return a module with the imports of the application folders changed to those of the wheel.

    Raises:
        ValueError: the module has an import of a folder that would bind the folder's name.
    """
    if (other := _OTHER_IMPORT.search(text)) is not None:
        raise ValueError(f"{path}: write `from … import …` instead of `{other[0].strip()}`, which wheels cannot rename")
    return _IMPORT.sub(rf"\1from {PACKAGE}.\2\3", text)
