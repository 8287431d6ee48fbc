"""The collections of a store that the settings do not name. Needs no JVM."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from tidelake.catalog.catalog import Catalog
from tidelake.errors import TidelakeError
from tidelake.spark.engine_errors import engine_fact
from tidelake.store.layout import Store


@dataclass(frozen=True)
class Orphaned:
    """A collection of the store that the settings do not name."""

    name: str
    id: str | None
    created_at_ms: int | None
    error: str | None = None
    """Why it cannot be read, or None. If it cannot, the other fields except the name are unknown."""

    @property
    def sentence(self) -> str:
        """The problem, and what can be done about it."""
        if self.error is not None:
            return f"UNREADABLE: {self.error}"
        return f"orphaned: the settings do not name it; name it, or drop it: `tidelake drop {self.name} --apply`"

    def as_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return asdict(self)


def read_orphaned(store: Store, names: Iterable[str]) -> list[Orphaned]:
    """Return the collections that have none of these names, sorted by name; unreadable ones are included.

    Cost: that of `Catalog.others`.
    """
    try:
        found = Catalog(store).others(names)
    except TidelakeError as error:
        return [Orphaned(str(store.names), None, None, str(error))]
    except (OSError, pa.ArrowException) as error:
        return [Orphaned(str(store.names), None, None, engine_fact(error))]
    return [
        Orphaned(name, None, None, str(each))
        if isinstance(each, TidelakeError)
        else Orphaned(name, each.id, each.created_at_ms)
        for name, each in found.items()
    ]
