"""Changes for assets downstream of a lake: each run takes what has changed since the asset was last materialized.

The token is the latest time whose changes the asset has taken. It is in the metadata of the asset's materialization. A
run that fails leaves it as it was, so its retry takes the same changes again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dagster import AssetExecutionContext

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidelake.lake import LakeCollection

_TOKEN, _ID = "through", "id"


@dataclass(frozen=True)
class ChangesSince:
    """The changes of a collection since an asset was last materialized."""

    after: int | None
    """The token of the last materialization; None if the updates begin with the contents AS OF `since`."""
    through: int
    """The latest time whose changes are included: the new token."""
    updates: "DataFrame"
    """The data's columns, followed by `_time` and `_diff`, as `LakeCollection.changes` returns them."""
    metadata: dict[str, int | str]
    """The new token and the collection's id, as metadata: the asset's materialization must have both."""

    @property
    def is_first(self) -> bool:
        """Whether the updates begin with the whole contents, and so replace what the asset had before."""
        return self.after is None


def changes_between(
    context: AssetExecutionContext,
    spark: "SparkSession",
    collection: "LakeCollection",
    columns: Sequence[str] = (),
    where: str | None = None,
    skip_errors: bool = False,
    from_scratch: bool = False,
) -> ChangesSince:
    """Return the changes of a collection since the asset that is being materialized was last materialized.

    The token belongs to the collection, not to its name. If the collection was dropped, and another one now has its
    name, the changes begin with the contents of the new one.

    Args:
        context: the context of the asset.
        spark: the session.
        collection: the collection; an asset may follow several.
        columns: as for `LakeCollection.changes`.
        where: as for `LakeCollection.changes`.
        skip_errors: as for `LakeCollection.changes`.
        from_scratch: ignore the last materialization.

    Raises:
        SinceError: compaction has forgotten the token, because the asset was not materialized for longer than `keep`:
            materialize the asset once with `from_scratch`. Holding the time prevents this.
        UpperError, KeysInError, UnknownColumn, PredicateRefused: as for `LakeCollection.changes`.
    """
    prefix, id = f"tidelake/{collection.lake.settings.lake}", collection.id
    place = f"{prefix}/{collection.name}"
    after = None if from_scratch else _token(_noted(context, prefix), place, id)
    found = collection.changes(spark, after, columns=columns, where=where, skip_errors=skip_errors)
    metadata: dict[str, int | str] = {f"{place}/{_TOKEN}": found.through, f"{place}/{_ID}": id}
    return ChangesSince(after, found.through, found.updates, metadata)


def _token(noted: dict[str, object], place: str, id: str) -> int | None:
    """Return the token that was noted with the collection's id, perhaps under an earlier name; None if there is none.

    Args:
        noted: the metadata of the last materialization.
        place: the prefix of the keys under which the token and the id are noted for the collection's present name.
        id: the collection's id.
    """
    places = [key.removesuffix(f"/{_ID}") for key, value in noted.items() if value == id]
    if f"{place}/{_ID}" not in noted:  # noted by an earlier release, without an id
        places.append(place)
    tokens = (noted.get(f"{each}/{_TOKEN}") for each in places)
    return next((int(str(token)) for token in tokens if token is not None), None)


def _noted(context: AssetExecutionContext, prefix: str) -> dict[str, object]:
    """Return the last materialization's metadata below a prefix."""
    event = context.instance.get_latest_materialization_event(context.asset_key)
    materialization = None if event is None else event.asset_materialization
    metadata = {} if materialization is None else materialization.metadata
    return {key: each.value for key, each in metadata.items() if key.startswith(f"{prefix}/")}
