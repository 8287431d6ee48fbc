"""The resource that all steps of a run share: a Spark session, and settings that are checked before the first step."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from dagster import ConfigurableResource, InitResourceContext
from pydantic import PrivateAttr

from jobs.lake import check_lake
from orchestration.dead_runs import mark_process
from tidelake.settings.lake import Settings, load_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkResource(ConfigurableResource[None]):
    """One Spark session. It starts with the first step that needs it, and ends with the process."""

    master: str | None = None
    """The URL of a Spark master; None uses all cores of this machine, or the master that spark-submit chose."""

    def session(self) -> "SparkSession":
        """Return the Spark session. The first call takes a few seconds, as it starts the session."""
        from tidelake.spark.session import start_session  # imported here, because loading the location needs no Spark

        return start_session("tidelake", self.master)


class LakeResource(SparkResource):
    """The session and the settings. An invalid setting fails the run before its first step."""

    config_file: str
    _settings: Settings | None = PrivateAttr(default=None)

    def setup_for_execution(self, context: InitResourceContext) -> None:
        """Read and check all settings.

        Raises:
            ConfigurationError: a setting is wrong; nothing was written.
        """
        if context.instance is not None and context.run is not None:
            mark_process(context.instance, context.run.run_id)
        from tidelake.telemetry.start import start_telemetry  # imported here, because loading needs no Delta

        start_telemetry(os.environ)
        settings = load_settings(Path(self.config_file))
        check_lake(settings)  # unreachable brokers fail the steps that need them, not the run
        self._settings = settings

    @property
    def settings(self) -> Settings:
        """The settings in `collections.yaml` when the run began."""
        assert self._settings is not None, "the resource was not set up"
        return self._settings
