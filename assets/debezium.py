"""Collections of change events: their contents are the rows that the events change."""

from __future__ import annotations

from dagster import AssetsDefinition

from assets.family import Family, build_assets
from assets.names import Names
from tidelake.settings.collection import CollectionSettings
from tidelake.settings.terms import framing_terms

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

RECLOCKED_DEBEZIUM = Family(
    name="debezium",
    statement=(
        "A change event sets the row of its key, or deletes it; what counts is the order in the source, not the order "
        "of arrival. A tick seals what it reads."
    ),
    refusal=(
        "An unusable event puts its key in error until a later event sets or deletes the row. A record without a key "
        "is quarantined."
    ),
)

DEBEZIUM_TRANSACTIONS = Family(
    name="debezium",
    statement=(
        "A change event takes effect at the commit of its transaction. Seal counts the events of each transaction, and "
        "compares their number with the one in its END. The contents are rows: the newest row for each key, or the sum "
        "of all rows if the collection has no key."
    ),
    refusal=(
        "An unusable event puts its key in error; if it has no key, or the collection has none, it is quarantined. If "
        "an event is quarantined, or repeated with other contents before its transaction is sealed, the time of the "
        "transaction stays unsealed until an operator decides."
    ),
)


def debezium_assets(names: Names, settings: CollectionSettings) -> list[AssetsDefinition]:
    """Return the assets of one collection of change events."""
    if settings.mints_times:
        return build_assets(names, settings, RECLOCKED_DEBEZIUM)
    is_counted = framing_terms(settings.framing).counts_positions
    return build_assets(names, settings, DEBEZIUM_TRANSACTIONS if is_counted else DEBEZIUM)
