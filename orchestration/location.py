"""Builds the code location from the environment; it starts neither Spark nor a run."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from dagster import (
    AssetCheckKey,
    AssetKey,
    AssetsDefinition,
    AssetSpec,
    Definitions,
    ExecutorDefinition,
    FilesystemIOManager,
    MetadataValue,
    in_process_executor,
)

from assets.append_only import append_only_assets
from assets.debezium import debezium_assets
from assets.family import Family, build_assets
from assets.names import Names
from assets.options import RunOptions
from assets.plain import plain_assets
from assets.topics import build_topics
from assets.upsert import upsert_assets
from expectations.checks import build_checks, checks_of, validation_specs
from orchestration.alerts import build_alerts_sensor
from orchestration.jobs import CURRENT, NIGHTLY, TICK, build_jobs
from orchestration.refused import refused_check, refused_keys, refused_spec
from orchestration.resources import LakeResource
from orchestration.schedules import Selection, build_schedules, build_sensors
from orchestration.sensors import build_new_offsets_sensor
from orchestration.settings import Environment
from orchestration.store_sensor import build_store_sensor
from tidelake.settings.collection import CollectionSettings
from tidelake.settings.lake import LoadedSettings, load_valid_settings

log = logging.getLogger("tidelake")

FAMILIES: dict[str, Callable[[Names, CollectionSettings], list[AssetsDefinition]]] = {
    "plain": plain_assets,
    "append_only": append_only_assets,
    "upsert": upsert_assets,
    "debezium": debezium_assets,
}
"""The assets of each `family` in `collections.yaml`."""

_NOTE = """`{file}` does not exist yet, or names no collections. Write it, then reload this location:

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

    A collection whose block is invalid is shown with its error; the others load and run. If the environment names a
    share of the collections, the location has only these. A share may be empty.

    Raises:
        ConfigurationError: a variable, or something in `collections.yaml` outside the collections' blocks, is invalid.
    """
    loaded = load_valid_settings(environment.config_file) if environment.has_config else None
    if loaded is None or not (loaded.settings.collections or loaded.refused):
        return _empty_location(environment)
    return _location(environment, loaded)


def _location(environment: Environment, loaded: LoadedSettings) -> Definitions:
    names, share = Names(loaded.settings.lake), environment.share
    shown = refused_keys(names, loaded.refused, [collection.name for collection in loaded.settings.collections])
    invalid = {name: key for name, key in shown.items() if share.has(name)}
    collections = share.of(names, loaded.settings.collections)
    if not (collections or invalid):
        return Definitions(sensors=build_sensors(environment), executor=_executor(environment))
    settings = loaded.settings.model_copy(update={"collections": tuple(collections)})
    for name in invalid:
        log.error("a collection is left out: %s", loaded.refused[name])
    defs = Definitions(
        assets=[
            *build_topics(names, collections),
            *(definition for collection in collections for definition in _assets_of(names, collection)),
            *(refused_spec(key, loaded.refused[name]) for name, key in invalid.items()),
        ],
        asset_checks=[
            *(checks for collection in collections for checks in build_checks(names, collection)),
            *(refused_check(key, name, environment.config_file) for name, key in invalid.items()),
        ],
        schedules=build_schedules(environment, _selections(names, collections)),
        sensors=[
            *build_sensors(environment),
            build_new_offsets_sensor(names, environment, settings),
            build_store_sensor(names, environment, settings),
        ],
        resources={
            names.resource: LakeResource(config_file=str(environment.config_file), master=environment.spark_master),
            names.options: RunOptions(),
            names.handover: FilesystemIOManager(),
        },
        executor=_executor(environment),
        metadata={
            "lake": settings.lake,
            "collections.yaml": MetadataValue.path(str(environment.config_file)),
            "store": MetadataValue.path(str(settings.store)),
            "data docs": MetadataValue.path(f"{settings.data_docs}/index.html"),
        },
    )
    if settings.alerts is not None:
        keys = [key for checks in defs.asset_checks or () for key in checks.check_keys]
        jobs = [environment.job(job) for job in (TICK, CURRENT, NIGHTLY)]
        alerts = build_alerts_sensor(environment, settings, settings.alerts, keys, jobs)
        defs = Definitions.merge(defs, Definitions(sensors=[alerts]))
    return Definitions.merge(defs, build_jobs(names, environment, collections, list(invalid.values())))


def _executor(environment: Environment) -> ExecutorDefinition | None:
    """Return the executor of the location; None in another project, which has its own."""
    return in_process_executor if environment.owns_location else None


def _selections(names: Names, collections: Sequence[CollectionSettings]) -> dict[str, Callable[[], Selection]]:
    """Return, for each job, a function that gives what each collection contributes to a run."""

    def checks(collection: CollectionSettings) -> list[AssetCheckKey]:
        return [spec.key for spec in validation_specs(names, collection)]

    return {
        TICK: lambda: [(_of_a_tick(names, own), checks_of(names, own)) for own in collections],
        CURRENT: lambda: [([names.current(own.name)], checks(own)) for own in collections],
        NIGHTLY: lambda: [([], checks_of(names, own)) for own in collections],
    }


def _of_a_tick(names: Names, collection: CollectionSettings) -> list[AssetKey]:
    """Return the assets of a collection that a tick materializes."""
    published = [] if collection.publish is None else [names.published(collection.name)]
    return [names.collection(collection.name), *published]


def _assets_of(names: Names, collection: CollectionSettings) -> list[AssetsDefinition]:
    """Return the assets of a collection; those of a plug-in's envelope have generic descriptions."""
    build = FAMILIES.get(collection.family)
    if build is not None:
        return build(names, collection)
    statement = f"The envelope `{collection.envelope}` says what a statement means."
    return build_assets(names, collection, Family(collection.family, statement, refusal=""))


def _empty_location(environment: Environment) -> Definitions:
    """Return a location that explains how to add the first collection."""
    log.warning("no collections: write %s, or set TIDELAKE_CONFIG to another file", environment.config_file)
    note = AssetSpec(
        "add_a_collection",
        group_name="start_here",
        description=_NOTE.format(file=environment.config_file.name),
    )
    return Definitions(assets=[note], sensors=build_sensors(environment), executor=in_process_executor)
