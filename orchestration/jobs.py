"""The three jobs over all collections. Each run is one process with one Spark session."""

from __future__ import annotations

from collections.abc import Sequence

from dagster import AssetSelection, Definitions, RunConfig, define_asset_job

from assets.family import CompactConfig
from expectations.checks import ValidateConfig, checks_name

TICK = "tick"
CURRENT = "rebuild_current"
NIGHTLY = "nightly"


def build_jobs(names: Sequence[str]) -> Definitions:
    """Build the jobs over these collections.

    All three include the checks of `seal`, so that damage is found before anything is built on a collection.
    """
    seals = AssetSelection.assets(*([name, "seal"] for name in names))
    checks = AssetSelection.checks_for_assets(*([name, "seal"] for name in names))
    ingests = AssetSelection.assets(*([name, "ingest"] for name in names))
    compacts = AssetSelection.assets(*([name, "compact"] for name in names))
    currents = AssetSelection.assets(*([name, "current"] for name in names))
    return Definitions(
        jobs=[
            define_asset_job(
                TICK,
                selection=ingests | seals | checks | compacts,
                description="For all collections: ingest, seal, validate new times, and merge within a budget.",
            ),
            define_asset_job(
                CURRENT,
                selection=checks | currents,
                description="Validate new times, then bring every `current` table up to upper.",
            ),
            define_asset_job(
                NIGHTLY,
                selection=checks | compacts,
                config=_full(names),
                description="Validate all updates that compaction has kept, write the Data Docs, then compact.",
            ),
        ]
    )


def _full(names: Sequence[str]) -> RunConfig:
    validations = {checks_name(name): ValidateConfig(full=True) for name in names}
    compactions = {f"{name}__compact": CompactConfig(full=True) for name in names}
    return RunConfig(ops=validations | compactions)
