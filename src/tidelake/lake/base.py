"""The base of a lake and its collections: settings, the store, and the errors of engines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pyarrow as pa
from deltalake.exceptions import DeltaError

from tidelake.catalog.catalog import Catalog
from tidelake.errors import ConfigurationError, StoreUnreadable, StoreUnwritable
from tidelake.settings.collection import CollectionSettings
from tidelake.settings.lake import Settings
from tidelake.storage import blobs
from tidelake.store.entry import Collection
from tidelake.store.layout import Store


@contextmanager
def engine_errors() -> Iterator[None]:
    """Raise an engine's error about a store's files as a Tidelake error."""
    try:
        yield
    except (OSError, pa.ArrowException, DeltaError) as error:
        fact = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise (StoreUnwritable if blobs.is_failed_write(error) else StoreUnreadable)(fact) from error


class OpenedStore:
    """A lake's settings, and its store: what a collection needs from the lake."""

    def __init__(
        self, settings: Settings, refused: Mapping[str, ConfigurationError] | None = None, read_only: bool = False
    ) -> None:
        """Take settings that have already been read; nothing is opened yet.

        Args:
            settings: the settings of the lake and of its valid collections.
            refused: the error of each collection whose block is invalid, by name.
            read_only: see `Lake.open`.
        """
        self.settings, self.refused, self.read_only = settings, dict(refused or {}), read_only

    @property
    def catalog(self) -> Catalog:
        """The catalog of the store; nothing is opened yet."""
        return Catalog(Store(self.settings.store, self.read_only))

    def __repr__(self) -> str:
        return f"Lake({str(self.settings.file)!r})"


class StoredCollection:
    """A collection by its name: its settings, and the newest state that the store has of it."""

    def __init__(self, lake: OpenedStore, settings: CollectionSettings) -> None:
        """Take the collection's settings; nothing is opened yet."""
        self.lake, self.settings = lake, settings

    @property
    def name(self) -> str:
        """Its name in the settings."""
        return self.settings.name

    @property
    def id(self) -> str:
        """The id of the collection that has this name now; no other collection ever gets this id."""
        return self._stored().entry.id

    def stored(self) -> Collection:
        """Return the collection as the store has it: its newest entry, and where its tables are."""
        with engine_errors():
            return self._stored()

    def __repr__(self) -> str:
        return f"LakeCollection({self.name!r})"

    @property
    def _catalog(self) -> Catalog:
        return self.lake.catalog

    def _stored(self) -> Collection:
        return self._catalog.find(self.name)
