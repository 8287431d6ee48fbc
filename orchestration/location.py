"""Builds the code location from the environment; it starts neither Spark nor a run."""

from __future__ import annotations

import logging
from collections.abc import Callable

from dagster import AssetsDefinition, AssetSpec, Definitions, MetadataValue, in_process_executor

from assets.append_only import append_only_assets
from assets.debezium import debezium_assets
from assets.family import Family, build_assets, pool_of
from assets.plain import plain_assets
from assets.upsert import upsert_assets
from expectations.checks import build_checks
from orchestration.jobs import build_jobs
from orchestration.resources import LakeResource
from orchestration.schedules import build_schedules, build_sensors
from orchestration.sensors import build_new_offsets_sensor
from orchestration.settings import Environment
from tidelake.settings.collection import CollectionSettings
from tidelake.settings.lake import Settings, load_settings

log = logging.getLogger("tidelake")

FAMILIES: dict[str, Callable[[CollectionSettings], list[AssetsDefinition]]] = {
    "plain": plain_assets,
    "append_only": append_only_assets,
    "upsert": upsert_assets,
    "debezium": debezium_assets,
}
"""The assets of each `family` in `collections.yaml`."""

_NOTE = """`{file}` does not exist yet. Write it, then reload this location:

```yaml
store: data/store
topics: data/topics
collections:
  orders:
    family: plain          # or append_only, upsert or debezium
    topic: orders          # the folder data/topics/orders
    schema: orders.avsc    # the Avro record schema of the data
```

To use another file, set `TIDELAKE_CONFIG` to its path.
"""


def build_location(environment: Environment) -> Definitions:
    """Build all assets, checks, jobs, schedules and sensors of the collections that the environment names.

    Raises:
        ConfigurationError: `collections.yaml` or a variable is invalid.
    """
    settings = load_settings(environment.config_file) if environment.has_config else None
    if settings is None or not settings.collections:
        return _empty_location(environment)
    return _location(environment, settings)


def _location(environment: Environment, settings: Settings) -> Definitions:
    collections = settings.collections
    defs = Definitions(
        assets=[definition for collection in collections for definition in _assets_of(collection)],
        asset_checks=[build_checks(collection, pool_of(collection.name)) for collection in collections],
        schedules=build_schedules(environment),
        sensors=[*build_sensors(), build_new_offsets_sensor(environment, settings)],
        resources={"lake": LakeResource(config_file=str(environment.config_file), master=environment.spark_master)},
        executor=in_process_executor,
        metadata={
            "collections.yaml": MetadataValue.path(str(environment.config_file)),
            "store": MetadataValue.path(str(settings.store)),
            "data docs": MetadataValue.path(str(settings.data_docs / "index.html")),
        },
    )
    return Definitions.merge(defs, build_jobs([collection.name for collection in collections]))


def _assets_of(collection: CollectionSettings) -> list[AssetsDefinition]:
    """Return the assets of a collection; those of a plug-in's envelope have generic descriptions."""
    build = FAMILIES.get(collection.family)
    if build is not None:
        return build(collection)
    statement = f"The envelope `{collection.envelope}` says what a statement means."
    return build_assets(collection, Family(collection.family, statement, refusal=""))


def _empty_location(environment: Environment) -> Definitions:
    """Return a location that explains how to add the first collection."""
    log.warning("no collections: write %s, or set TIDELAKE_CONFIG to another file", environment.config_file)
    note = AssetSpec(
        "add_a_collection",
        group_name="start_here",
        description=_NOTE.format(file=environment.config_file.name),
    )
    return Definitions(assets=[note], sensors=build_sensors(), executor=in_process_executor)
