"""The three jobs, each one run in one process with one Spark session, for all collections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dagster import AssetSelection, define_asset_job
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from expectations.checks import checks_name

TICK = "tick"
CURRENT = "rebuild_current"
NIGHTLY = "nightly"


def build_jobs(names: Sequence[str]) -> list[UnresolvedAssetJobDefinition]:
    """The jobs over these collections.

    Checks on `seal` are part of all three, so that damage is looked for before anything is built on a collection.
    """
    seals = AssetSelection.assets(*([name, "seal"] for name in names))
    checks = AssetSelection.checks_for_assets(*([name, "seal"] for name in names))
    ingests = AssetSelection.assets(*([name, "ingest"] for name in names))
    compacts = AssetSelection.assets(*([name, "compact"] for name in names))
    currents = AssetSelection.assets(*([name, "current"] for name in names))
    return [
        define_asset_job(
            TICK,
            selection=ingests | seals | checks | compacts,
            description="Ingest, seal, validate what is new, merge within a budget, for all collections.",
        ),
        define_asset_job(
            CURRENT,
            selection=checks | currents,
            description="Validate what is new, then bring every `current` table to upper.",
        ),
        define_asset_job(
            NIGHTLY,
            selection=checks | compacts,
            config=_full(names),
            description="Validate all that compaction has left, write the Data Docs, then compact everything.",
        ),
    ]


def _full(names: Sequence[str]) -> dict[str, Any]:
    steps = [step for name in names for step in (checks_name(name), f"{name}__compact")]
    return {"ops": {step: {"config": {"full": True}} for step in steps}}
