"""The component `tidelake.Lake`: a lake in somebody else's Dagster project, described by a `defs.yaml`."""

from pathlib import Path
from typing import Literal, Optional

from dagster import Component, ComponentLoadContext, Definitions, Model, Resolvable
from pydantic import Field

from orchestration.location import build_location
from orchestration.settings import Environment


class Lake(Component, Model, Resolvable):
    """The assets, checks, jobs, schedules and sensors of a lake."""

    config: str = Field(description="The path of collections.yaml, relative to the folder of defs.yaml.")
    prefix: str = Field(
        default="",
        description="The prefix of the names of jobs, schedules and sensors, if the project already uses these names.",
    )
    schedules: Literal["running", "stopped"] = Field(
        default="stopped", description="Whether schedules and sensors start with the location."
    )
    spark_master: Optional[str] = Field(  # noqa: UP045, the component's schema is made from this annotation
        default=None, description="The URL of a Spark master; by default all cores of this machine."
    )
    tick_cron: str = Field(default=Environment().tick_cron, description="When to ingest, seal, validate and merge.")
    current_cron: str = Field(default=Environment().current_cron, description="When to rebuild the `current` tables.")
    nightly_cron: str = Field(
        default=Environment().nightly_cron, description="When to validate and compact everything."
    )

    parallel_runs: int = Field(
        default=Environment().parallel_runs, ge=1, description="Into how many runs a schedule divides the collections."
    )

    def build_defs(self, context: ComponentLoadContext) -> Definitions:
        """Build the definitions.

        Raises:
            ConfigurationError: the file is missing, or something in it outside the collections' blocks is invalid.
        """
        return build_location(
            Environment(
                config_file=(Path(context.path) / self.config).absolute(),
                config_required=True,
                spark_master=self.spark_master,
                schedules=self.schedules,
                tick_cron=self.tick_cron,
                current_cron=self.current_cron,
                nightly_cron=self.nightly_cron,
                parallel_runs=self.parallel_runs,
                prefix=self.prefix,
                owns_location=False,
            )
        )
