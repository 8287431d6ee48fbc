"""The environment variables, which choose the collections, the Spark master and the schedules."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from orchestration.shares import Share
from tidelake.errors import ConfigurationError
from tidelake.spark.installation import CHECKOUT

PROJECT = CHECKOUT or Path.cwd()
"""The project's folder: the checkout or, if Tidelake was installed from a wheel, the current folder."""
DEFAULT_CONFIG = PROJECT / "collections.yaml"
VARIABLES: dict[str, str] = {
    "TIDELAKE_CONFIG": "the collections.yaml to use; by default the one in the project's folder",
    "TIDELAKE_HOME": "the folder of `.jars` and `.logs`; by default the checkout or, without one, ~/.cache/tidelake",
    "TIDELAKE_SPARK_MASTER": "the URL of a Spark master; by default all cores of this machine",
    "TIDELAKE_SCHEDULES": "`running` starts the schedules with the location; by default they are `stopped`",
    "TIDELAKE_TICK_CRON": "when to ingest, seal, validate and merge; by default every 5 minutes",
    "TIDELAKE_CURRENT_CRON": "when to rebuild the `current` tables; by default every hour",
    "TIDELAKE_NIGHTLY_CRON": "when to validate and compact everything; by default at 02:30 UTC",
    "TIDELAKE_PARALLEL_RUNS": "into how many runs, each with a JVM, a schedule divides the collections; by default 1",
    "TIDELAKE_SHARE": "the share of the collections that this code location has, such as `2/10`; by default all",
    "TIDELAKE_LOG_FORMAT": "`json` makes each log line of a job a JSON object; by default it is text",
    "TIDELAKE_LOG_FILE": "a file to which jobs append their log lines, in addition to standard error",
    "TIDELAKE_METRICS_FOLDER": "an existing folder in which each step leaves its last outcome, for node_exporter",
}
"""The meaning of every variable. All are optional."""


class Environment(BaseModel):
    """The checked values of the environment variables."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    config_file: Path = DEFAULT_CONFIG
    config_required: bool = False
    """Whether the file must exist because a variable names it. The default file may be missing."""
    spark_master: str | None = None
    schedules: Literal["running", "stopped"] = "stopped"
    tick_cron: str = "*/5 * * * *"
    current_cron: str = "17 * * * *"
    nightly_cron: str = "30 2 * * *"
    parallel_runs: int = 1
    """Into how many runs a schedule divides the collections."""
    share: Share = Share()
    """Which of the collections the code location has."""
    prefix: str = ""
    """The prefix of the names of jobs, schedules and sensors, which tells them from those of other lakes and shares."""

    owns_location: bool = True
    """Whether the lake is the whole code location; if so, it also sets the location's executor."""

    def job(self, name: str) -> str:
        """Return the name of a job, a schedule or a sensor in this code location."""
        return f"{self.prefix}{name}"

    @property
    def has_config(self) -> bool:
        """Whether to read the file: it exists, or must exist."""
        return self.config_required or self.config_file.exists()


def read_environment(variables: Mapping[str, str] | None = None) -> Environment:
    """Read the environment. An empty variable counts as unset.

    Args:
        variables: the variables; None reads those of the process.

    Raises:
        ConfigurationError: names the variable, the problem and the fix.
    """
    present = {name: value for name, value in (os.environ if variables is None else variables).items() if value}
    schedules = present.get("TIDELAKE_SCHEDULES", "stopped")
    if schedules not in ("running", "stopped"):
        raise ConfigurationError(
            "environment",
            "",
            f"TIDELAKE_SCHEDULES is {schedules!r}, which is neither 'running' nor 'stopped'",
            "write `running` or `stopped`",
        )
    parallel = present.get("TIDELAKE_PARALLEL_RUNS", "1")
    if not parallel.isdecimal() or int(parallel) < 1:
        raise ConfigurationError(
            "environment",
            "",
            f"TIDELAKE_PARALLEL_RUNS is {parallel!r}, which is not a number of runs",
            "write a whole number, 1 or more",
        )
    share = Share.read(present.get("TIDELAKE_SHARE", "1/1"))
    crons = {field: present[name] for field, name in CRON_VARIABLES.items() if name in present}
    return Environment(
        config_file=Path(present.get("TIDELAKE_CONFIG", DEFAULT_CONFIG)).absolute(),
        config_required="TIDELAKE_CONFIG" in present,
        spark_master=present.get("TIDELAKE_SPARK_MASTER"),
        schedules=schedules,
        parallel_runs=int(parallel),
        share=share,
        prefix=share.prefix,
        **crons,
    )


CRON_VARIABLES = {
    "tick_cron": "TIDELAKE_TICK_CRON",
    "current_cron": "TIDELAKE_CURRENT_CRON",
    "nightly_cron": "TIDELAKE_NIGHTLY_CRON",
}
"""The variable of each cron expression, by field of `Environment`."""
