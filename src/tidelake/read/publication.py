"""The published table of a collection, its state, and its number of rows. Needs no JVM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from tidelake.catalog.catalog import Catalog
from tidelake.errors import DamagedTable
from tidelake.spark.engine_errors import engine_fact
from tidelake.storage.location import Location
from tidelake.store.entry import Collection
from tidelake.store.publication import Publication
from tidelake.store.published import WRITER, Published, published_table, read_table_state
from tidelake.store.table_log import newest_version


@dataclass(frozen=True)
class PublishedContents:
    """The publication that is bound to a collection."""

    publication: Publication
    table: Location
    shown: Published | None
    """The state that the table shows; None until the collection is first published to it, or if there is a problem."""
    problem: str | None = None
    """Why the table cannot be read, or no longer shows the contents; None if nothing is wrong with it."""
    changed_by: str | None = None
    """The other engine that has changed the table since the contents were published, or None."""

    def as_json(self) -> dict[str, Any]:
        """Return the path and what the table shows as JSON values.

        `rows` counts rows of the table, which are distinct unless it is a bag; `contents_rows` counts rows of the
        contents.
        """
        shown = self.shown
        names = ("as_of", "rows", "contents_rows", "published_at_ms")
        values = {name: None if shown is None else getattr(shown, name) for name in names}
        return {"path": str(self.table), **values, "problem": self.problem, "changed_by": self.changed_by}


class ContentsRows(NamedTuple):
    """The number of rows that the contents had AS OF a time."""

    rows: int
    """Rows of the contents: a row that occurs three times counts three times."""
    as_of: int


def publication_of(collection: Collection, may_be_stale: bool = False) -> PublishedContents | None:
    """Return the publication of a collection's name; None if there is none, or if it belongs to another collection.

    Args:
        collection: the collection.
        may_be_stale: whether the binding may be the last one that this process has seen; see `OpenTable`.

    Cost: the logs of the name and of the table.
    """
    publication = Catalog(collection.paths.store).publication(collection.name, may_be_stale)
    if publication is None or publication.collection_id != collection.entry.id:
        return None
    table = published_table(collection, publication)
    try:
        shown, changed_by = read_table_state(table)
    except DamagedTable as error:
        return PublishedContents(publication, table, None, error.fact)
    except OSError as error:
        return PublishedContents(publication, table, None, f"{table} cannot be read: {engine_fact(error)}")
    # After a rebinding, the table shows the contents of the earlier collection until the next commit.
    own = shown if shown is not None and shown.collection_id == collection.entry.id else None
    if shown is None and changed_by not in (None, WRITER):
        problem = (
            f"{changed_by} has written to {table}; the next `tidelake current {collection.name}` writes all rows again"
        )
        return PublishedContents(publication, table, None, problem, changed_by)
    return PublishedContents(publication, table, own)


def was_published_as(collection: Collection, name: str) -> bool:
    """Return whether a collection was published under `name`, an earlier name of it.

    Cost: as for `publication_of`.
    """
    publication = Catalog(collection.paths.store).publication(name)
    if publication is None or publication.collection_id != collection.entry.id:
        return False
    return newest_version(published_table(collection, publication)) >= 0


def contents_rows(collection: Collection) -> ContentsRows | None:
    """Return the number of rows of the contents when they were last published.

    None if they never were, or if the published table has a problem.
    """
    published = publication_of(collection)
    if published is None or published.shown is None:
        return None
    return ContentsRows(published.shown.contents_rows, published.shown.as_of)


def older_table(collection: Collection) -> Location | None:
    """Return the table that an earlier release published; None if there is none, or if it was deleted.

    It stays readable, but is no longer rebuilt.
    """
    return collection.paths.current if newest_version(collection.paths.current) >= 0 else None
