"""Where `make bench-peers` puts what is no part of the product: other environments, compiled readers."""

from __future__ import annotations

from pathlib import Path

BUILT = Path(__file__).resolve().parents[2] / ".peers"
HINT = "run `make bench-peers`"
