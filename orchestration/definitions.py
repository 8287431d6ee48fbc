"""The code location that `workspace.yaml` names."""

from __future__ import annotations

import gc

from orchestration.location import build_location
from orchestration.settings import read_environment

# The definitions of 1,000 collections are millions of objects that live as long as the process. Without this, the
# garbage collector would search them repeatedly, which takes a fifth of the loading time.
gc.disable()
try:
    defs = build_location(read_environment())
finally:
    gc.freeze()
    gc.enable()
