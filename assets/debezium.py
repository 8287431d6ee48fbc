"""Collections of change events: their contents are the rows that the events change."""

from __future__ import annotations

from dagster import AssetsDefinition

from assets.family import Family, build_assets
from assets.names import Names
from tidelake.settings.collection import CollectionSettings

DEBEZIUM = Family(
    name="debezium",
    statement=(
        "A change event removes the row `before` and adds the row `after`. Seal counts events. The contents are rows: "
        "the newest row for each key, or the sum of all rows if the collection has no key."
    ),
    refusal=(
        "An event is quarantined if it has neither row, or if its diff is not positive. Two rows for one key at "
        "one logical time violate the envelope's rules. In all these cases, the time stays unsealed until an "
        "operator decides."
    ),
)


def debezium_assets(names: Names, settings: CollectionSettings) -> list[AssetsDefinition]:
    """Return the assets of one collection of change events."""
    return build_assets(names, settings, DEBEZIUM)
