"""Completes names of collections in shells."""

from __future__ import annotations

import os
from pathlib import Path

import typer


def complete_name(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the names in the settings that begin with the typed text; empty if the file cannot be read."""
    import yaml

    file = Path(ctx.params.get("config") or os.environ.get("TIDELAKE_CONFIG") or "collections.yaml")
    try:
        document = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):  # a shell cannot show an error
        return []
    blocks = document.get("collections") if isinstance(document, dict) else None
    names = map(str, blocks) if isinstance(blocks, dict) else ()
    return sorted(name for name in names if name.startswith(incomplete))
