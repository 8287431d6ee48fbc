"""The settings of CDCv2 collections, whose messages state times, diffs and progress."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Literal, NoReturn

from tidelake.schema.change_events import row_record_of
from tidelake.settings.block import Block
from tidelake.settings.collection import CollectionSettings, CollectionSpec
from tidelake.settings.registry import RECORD_SUBJECTS
from tidelake.settings.schemas import check_framed, check_key_allowed, read_key, read_schema, read_schema_ids
from tidelake.settings.terms import EnvelopeTerms


class Cdcv2Settings(CollectionSettings):
    """A stream of CDCv2 messages in one or several topics; the messages state times, diffs, and counts of updates."""

    framing: Literal["cdcv2"] = "cdcv2"
    before: Literal["whole", "key"] = "whole"
    """For change events with a key: `whole` if `before` is the whole row; `key` if it may be only the key, or null."""

    IS_SUGGESTED: ClassVar = False

    def spec(self) -> CollectionSpec:
        """Return the specification for the store."""
        return replace(super().spec(), before=self.before)

    @classmethod
    def refuse(cls, place: Block) -> NoReturn:
        """Refuse a settings key that only other framings have."""
        reason = ""
        if place.field.endswith(".format"):
            reason = ", which are Avro"
        if place.field.endswith(".evolution"):
            reason = ": the data identifies a statement, so the columns are fixed"
        place.fail(
            f"is not allowed for CDCv2 messages{reason}", "leave it out; a reclocked topic has `framing: reclock`"
        )

    @classmethod
    def read(cls, block: Block, terms: EnvelopeTerms, looks_up_ids: bool) -> dict[str, Any]:
        """Read the schema, the schemas by id, and the key; see `CollectionSettings.read`."""
        if block.get("subject") in RECORD_SUBJECTS:
            block.child("subject").fail("names a record, but a CDCv2 message is a union", "leave it out")
        if "schema" not in block:
            block.child("schema").fail("is missing", "give an .avsc file or the schema itself")
        record = read_schema(block.child("schema"))
        ids = read_schema_ids(block.child("schema_ids"), record, may_lack=not terms.of_changes)
        check_framed(block, ids, looks_up_ids)
        if "before" in block and not (terms.of_changes and block.get("key") is not None):
            fix = "leave it out, or add `key`" if terms.of_changes else "leave it out: only `family: debezium` has it"
            block.child("before").fail("is only allowed for change events that have a key", fix)
        return {"value_schema": record, "schema_ids": ids, "key": _read_key(block, terms, record)}


def _read_key(block: Block, terms: EnvelopeTerms, record: dict[str, Any]) -> tuple[str, ...]:
    place = block.child("key")
    check_key_allowed(block, terms)
    row = record
    if terms.of_changes:
        with block.child("schema").refusing("correct the schema"):
            row = row_record_of(record)
    if terms.key != "required" and place.value is None:
        return ()
    return read_key(place, row, may_be_null=not terms.of_changes)
