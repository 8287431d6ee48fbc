"""Collections of change events: the contents are the rows that the events are about."""

from __future__ import annotations

from dagster import AssetsDefinition

from assets.family import Family, build_assets
from tidelake.configuration import CollectionSettings

DEBEZIUM = Family(
    name="debezium",
    statement=(
        "A change event takes the row `before` away and brings the row `after`. Events are counted, and the contents "
        "are the rows: with a key the newest of each, without one their sum."
    ),
    refusal=(
        "An event with neither row, or with a diff that is not positive, goes to the quarantine; a key that is left "
        "with two rows at one time breaks the envelope. The time stays unsealed until somebody decides."
    ),
)


def debezium_assets(settings: CollectionSettings) -> list[AssetsDefinition]:
    """The assets of one collection of change events."""
    return build_assets(settings, DEBEZIUM)
