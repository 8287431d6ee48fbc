"""Reads the `publish` block of a collection: the topic that it is published to as CDCv2."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from tidelake.settings.block import Frozen
from tidelake.settings.source import is_path_text


class PublishSettings(Frozen):
    """The settings that the first publisher of a topic commits; later changes are refused, except to `shards`."""

    to: str
    """The name of the topic in Kafka, or of the folder below `topics`."""
    source: Literal["files", "kafka"] = "files"
    """Where the topic is: in a folder, or in Kafka, where it must exist."""
    encoding: Literal["avro", "confluent"] = "avro"
    """Whether messages are bare Avro, or begin with the id of the schema in the lake's registry."""
    skip_errors: bool = False
    """Whether keys in error are published as keys without a row; if not, publishing waits for a good value."""
    shards: int | None = Field(default=None, ge=1, le=1_000)
    """The number of shards that several publishers share; by default, the current number, which is 1 at first."""

    @field_validator("to")
    @classmethod
    def _to_is_a_name(cls, to: str) -> str:
        if not to.strip() or "/" in to or to.startswith((".", "_")) or not is_path_text(to):
            raise ValueError("should be a topic's name, which has no `/` and does not begin with `.` or `_`")
        return to
