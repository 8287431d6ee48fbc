"""Append-only collections: what is there stays there; any other diff than a positive one is the source's error."""

from __future__ import annotations

from dagster import AssetsDefinition

from assets.family import Family, build_assets
from tidelake.configuration import CollectionSettings

APPEND_ONLY = Family(
    name="append_only",
    statement="A statement adds its data, as often as its diff says.",
    refusal=(
        "A diff that is not positive is the source's error: it goes to the quarantine, and its time stays unsealed "
        "until somebody decides."
    ),
)

RAW_APPEND_ONLY = Family(
    name="append_only",
    statement="Each record is an event, and two equal records are two events; a tick seals what it reads.",
    refusal="A record without a value, or whose value does not fit, goes to the quarantine.",
)


def append_only_assets(settings: CollectionSettings) -> list[AssetsDefinition]:
    """The assets of one append-only collection."""
    return build_assets(settings, RAW_APPEND_ONLY if settings.framing == "reclock" else APPEND_ONLY)
