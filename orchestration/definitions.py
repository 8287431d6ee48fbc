"""The code location that `workspace.yaml` names."""

from __future__ import annotations

from orchestration.location import build_location
from orchestration.settings import read_environment

defs = build_location(read_environment())
