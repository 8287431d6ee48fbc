"""The folder in which `make bench-peers` builds what peers need; none of it is part of the product."""

from __future__ import annotations

from pathlib import Path

BUILT = Path(__file__).resolve().parents[2] / ".peers"
HINT = "run `make bench-peers`"
