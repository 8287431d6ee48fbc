"""Loads the site's hooks, which are next to the pages and belong to no package."""

from __future__ import annotations

import importlib.util
from types import ModuleType

from tests.docs.blocks import PROJECT


def load_hook(name: str) -> ModuleType:
    """Load a module from `docs/hooks`."""
    spec = importlib.util.spec_from_file_location(f"docs_hooks_{name}", PROJECT / "docs" / "hooks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


reference = load_hook("reference")
root_pages = load_hook("root_pages")
