"""The only reader of the environment: which collections, which Spark, which clock."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from tidelake.errors import ConfigurationError

PROJECT = Path(__file__).resolve().parents[1]
DEFAULT_CONFIG = PROJECT / "collections.yaml"
VARIABLES: dict[str, str] = {
    "TIDELAKE_CONFIG": "the collections.yaml to use; by default the one in the project's folder",
    "TIDELAKE_SPARK_MASTER": "the URL of a Spark master; by default all cores of this machine",
    "TIDELAKE_SCHEDULES": "`running` starts the schedules with the location; by default they are `stopped`",
    "TIDELAKE_TICK_CRON": "when to ingest, seal, validate and merge; by default every 5 minutes",
    "TIDELAKE_CURRENT_CRON": "when to rebuild the `current` tables; by default every hour",
    "TIDELAKE_NIGHTLY_CRON": "when to validate and compact everything; by default at 02:30 UTC",
}
"""Every variable that is read, and what it means. None is needed."""


class Environment(BaseModel):
    """What the environment says, checked."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    config_file: Path = DEFAULT_CONFIG
    config_required: bool = False
    """Whether somebody named the file; the default one may be missing."""
    spark_master: str | None = None
    schedules: Literal["running", "stopped"] = "stopped"
    tick_cron: str = "*/5 * * * *"
    current_cron: str = "17 * * * *"
    nightly_cron: str = "30 2 * * *"

    @property
    def has_config(self) -> bool:
        """Whether there is a file to read, or one must be there."""
        return self.config_required or self.config_file.exists()


def read_environment(variables: Mapping[str, str] | None = None) -> Environment:
    """Read the environment; an empty variable is as good as none.

    Args:
        variables: in its place, for tests.

    Raises:
        ConfigurationError: naming the variable, what is wrong and what to write.
    """
    given = {name: value for name, value in (os.environ if variables is None else variables).items() if value}
    schedules = given.get("TIDELAKE_SCHEDULES", "stopped")
    if schedules not in ("running", "stopped"):
        raise ConfigurationError(
            "environment", "TIDELAKE_SCHEDULES", f"is {schedules!r}", "write `running` or `stopped`"
        )
    crons = {field: given[name] for field, name in CRON_VARIABLES.items() if name in given}
    return Environment(
        config_file=Path(given.get("TIDELAKE_CONFIG", DEFAULT_CONFIG)).absolute(),
        config_required="TIDELAKE_CONFIG" in given,
        spark_master=given.get("TIDELAKE_SPARK_MASTER"),
        schedules=schedules,
        **crons,
    )


CRON_VARIABLES = {
    "tick_cron": "TIDELAKE_TICK_CRON",
    "current_cron": "TIDELAKE_CURRENT_CRON",
    "nightly_cron": "TIDELAKE_NIGHTLY_CRON",
}
"""By field of `Environment`, the variable with its cron expression."""
