"""Reads the `current` block of a collection: its published table."""

from __future__ import annotations

from tidelake.settings.block import Frozen


class CurrentSettings(Frozen):
    """What the published table of a collection shows."""

    skip_errors: bool = False
    """Whether the table leaves out keys in error; if not, the table is not updated until their errors are cleared. Only
    allowed with a key."""
