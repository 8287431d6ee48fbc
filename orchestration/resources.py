"""What a run's steps share: one Spark session for all of them, and settings that are checked before the first."""

from pathlib import Path
from typing import TYPE_CHECKING

from dagster import ConfigurableResource, InitResourceContext
from pydantic import PrivateAttr

from orchestration.dead_runs import mark_process
from tidelake.configuration import Settings, check_topics, load_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkResource(ConfigurableResource[None]):
    """One session for the whole process, started by the first step that asks; it ends with the process."""

    master: str | None = None
    """The URL of a Spark master; None is every core of this machine, or what spark-submit chose."""

    def session(self) -> "SparkSession":
        """The session; the first call starts it, which takes some seconds."""
        from tidelake.delta.session import start_session  # late: looking at the location starts no JVM

        return start_session("tidelake", self.master)


class LakeResource(SparkResource):
    """The session, and the settings beside it. A wrong setting fails the run before its first step."""

    config_file: str
    _settings: Settings | None = PrivateAttr(default=None)

    def setup_for_execution(self, context: InitResourceContext) -> None:
        """Read and check all settings.

        Raises:
            ConfigurationError: something is wrong; nothing was written.
        """
        from tidelake.delta.catalog import Catalog
        from tidelake.delta.layout import Store
        from tidelake.delta.new_topics import ask_for_new_topics

        if context.instance is not None and context.run is not None:
            mark_process(context.instance, context.run.run_id)
        settings = load_settings(Path(self.config_file))
        check_topics(settings)
        catalog = Catalog(Store(settings.store))
        catalog.check(settings.collections)
        ask_for_new_topics(catalog, settings)  # brokers that cannot be asked fail the steps that need them
        self._settings = settings

    @property
    def settings(self) -> Settings:
        """What `collections.yaml` said when the run began."""
        assert self._settings is not None, "the resource was not set up"
        return self._settings
