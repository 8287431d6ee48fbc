"""The attributes that all assets of a collection have."""

from __future__ import annotations

from typing import TypedDict


class Attributes(TypedDict):
    """Those arguments of Dagster's `asset` that are the same for all assets of a collection."""

    group_name: str
    kinds: set[str]
    tags: dict[str, str]
    owners: list[str]
    code_version: str
