"""The options of one run, which the launchpad shows as typed fields."""

from typing import Optional

from dagster import ConfigurableResource
from pydantic import Field


class RunOptions(ConfigurableResource[None]):
    """What can be chosen for a run, besides its job."""

    collections: list[str] = Field(default=[], description="Only these collections; if empty, all of the job's.")
    validate_all: bool = Field(
        default=False,
        description="Recount all updates that compaction has kept, not only new times, and write the Data Docs.",
    )
    validate_from: Optional[int] = Field(  # noqa: UP045, Dagster does not accept `int | None` here
        default=None, description="Recount from this time onwards, even times that were already validated."
    )
    compact: bool = Field(
        default=False,
        description="Merge the collections' data files, within a budget, if no blocking check has failed.",
    )
    compact_all: bool = Field(default=False, description="Merge all sealed rows into one set of files.")
    rebuild: bool = Field(default=False, description="Write all rows of the `current` tables, not only what changed.")
    retries: int = Field(
        default=3,
        ge=0,
        description="How many times a step is retried if its brokers are unreachable or a commit conflicts.",
    )
    retry_wait_s: float = Field(
        default=1.0, ge=0, description="Seconds before the first retry; each further wait is four times as long."
    )

    def selects(self, name: str) -> bool:
        """Return whether the run works on a collection."""
        return not self.collections or name in self.collections

    def wait_s(self, attempt: int) -> float:
        """Return how many seconds to wait after a failed attempt; attempts are counted from 0.

        >>> RunOptions(retry_wait_s=1).wait_s(2)
        16.0
        """
        return float(self.retry_wait_s * 4**attempt)
