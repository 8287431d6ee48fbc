"""The resources that all steps of a run share: a Spark session, and the collections of a lake."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dagster import ConfigurableResource, InitResourceContext
from pydantic import PrivateAttr

from jobs.lake import open_collection
from orchestration.dead_runs import mark_process
from tidelake.errors import ConfigurationError
from tidelake.settings.collection import CollectionSettings
from tidelake.settings.lake import LoadedSettings, Settings, load_valid_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelake.read.current import Wanted
    from tidelake.store.entry import Collection


class SparkResource(ConfigurableResource[None]):
    """One Spark session. It starts with the first step that needs it, and ends with the process."""

    master: str | None = None
    """The URL of a Spark master; None uses all cores of this machine, or the master that spark-submit chose."""

    def session(self) -> "SparkSession":
        """Return the Spark session. The first call takes a few seconds, as it starts the session."""
        from tidelake.spark.session import start_session  # imported here, because loading the location needs no Spark

        return start_session("tidelake", self.master, jar_sets=self._jar_sets())

    def _jar_sets(self) -> tuple[str, ...]:
        return ()


class LakeResource(SparkResource):
    """The session and the settings. An invalid block stops the steps of its own collection, and no others."""

    config_file: str
    _loaded: LoadedSettings | None = PrivateAttr(default=None)
    _wanted: "dict[str, Wanted] | None" = PrivateAttr(default=None)

    def setup_for_execution(self, context: InitResourceContext) -> None:
        """Read all settings.

        Raises:
            ConfigurationError: something outside the blocks of collections is invalid; nothing was written.
        """
        if context.instance is not None and context.run is not None:
            mark_process(context.instance, context.run.run_id)
        from tidelake.telemetry.start import start_telemetry  # imported here: a location loads without Delta

        start_telemetry(os.environ)
        self._loaded = load_valid_settings(Path(self.config_file))

    @property
    def settings(self) -> Settings:
        """The valid settings in `collections.yaml` when the run began."""
        assert self._loaded is not None, "the resource was not set up"
        return self._loaded.settings

    def _jar_sets(self) -> tuple[str, ...]:
        return self.settings.jar_sets

    @property
    def refused(self) -> Mapping[str, ConfigurationError]:
        """The error of each collection whose block was invalid when the run began."""
        assert self._loaded is not None, "the resource was not set up"
        return self._loaded.refused

    def settings_of(self, name: str) -> CollectionSettings:
        """Return the settings of a collection.

        Raises:
            ConfigurationError: its block is invalid, or is gone.
        """
        if name in self.refused:
            raise self.refused[name]
        return self.settings.collection(name)

    def wanted_tables(self, rebuild: bool, is_published: Callable[[str], bool]) -> "Mapping[str, Wanted]":
        """Return the table to publish for each collection; the first call chooses the times for the whole run."""
        if self._wanted is None:
            from jobs.current import wanted_tables

            self._wanted = wanted_tables(self.settings, rebuild, is_published)
        return self._wanted

    def open(self, name: str) -> "Collection":
        """Check the settings of a collection against its topics and the store, and open or create the collection.

        Raises:
            TidelakeError: its block is invalid, or it cannot be opened.
        """
        self.settings_of(name)
        return open_collection(self.session(), self.settings, name)
