"""Reads the block of one collection into the settings of its framing."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tidelake.schema.change_events import row_record_of
from tidelake.settings.block import Block
from tidelake.settings.cdcv2 import Cdcv2Settings
from tidelake.settings.collection import CollectionSettings
from tidelake.settings.current import CurrentSettings
from tidelake.settings.expectations import read_expectations
from tidelake.settings.kafka import KafkaSettings
from tidelake.settings.object_store import FolderPlace
from tidelake.settings.publish import PublishSettings
from tidelake.settings.reclock import ReclockSettings
from tidelake.settings.registry import RegistrySettings, uses_registry
from tidelake.settings.row_retention import read_row_retention
from tidelake.settings.terms import ENVELOPES, EnvelopeTerms, framing_terms, load_plugin, one_of
from tidelake.settings.transactions import TransactionSettings

SETTINGS: dict[str, type[CollectionSettings]] = {
    "cdcv2": Cdcv2Settings,
    "reclock": ReclockSettings,
    "transactions": TransactionSettings,
}
"""The type of a collection's settings, by its framing."""
_RESERVED = frozenset({"topic_complete", "announced_updates_arrive", "holds_end", "merges_keep_contents", "sound"})
"""Names of checks and outputs that belong to the steps of a collection, not to its validation."""
DIFF = "_diff"
"""The column of the contents that says how many times a row occurs."""
_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
NAME_RULE = "lower-case letters, digits and _, starting with a letter"
_FIX = "see docs/reference/configuration.md"


@dataclass(frozen=True)
class Sources:
    """The sources of topics and schemas, for all collections."""

    topics: FolderPlace
    kafka: KafkaSettings | None
    registry: RegistrySettings | None


def is_collection_name(text: str) -> bool:
    """Return whether a collection may have this name in the settings; `NAME_RULE` states the rule.

    >>> is_collection_name("orders_2"), is_collection_name("Orders")
    (True, False)
    """
    return _NAME.fullmatch(text) is not None


def read_collection(name: str, block: Block, sources: Sources) -> CollectionSettings:
    """Read a collection's block.

    Raises:
        ConfigurationError: names the field, the problem and the fix.
    """
    if not is_collection_name(name):
        block.fail("is not a valid name", f"use {NAME_RULE}")
    if not isinstance(block.value, dict):
        block.fail("is empty or not a mapping", "give at least family, topic and schema")
    for plugin in (block.get("framing"), block.get("envelope")):
        if isinstance(plugin, str) and plugin not in SETTINGS and plugin not in ENVELOPES:
            load_plugin(plugin)
    block.check_keys(set().union(*(kind.written_keys() for kind in SETTINGS.values())))
    framing, terms = block.get("framing", "cdcv2"), _read_envelope(block)
    if not isinstance(framing, str) or framing not in SETTINGS:
        block.child("framing").fail(f"input should be {one_of(SETTINGS)}, not {framing!r}", _FIX)
    kind = SETTINGS[framing]
    _refuse_foreign_keys(block, kind)
    looks_up_ids = uses_registry(block, sources.registry)
    values = {key: value for key, value in block.value.items() if key not in kind.READ_APART}
    values |= {"name": name, "framing": framing, "envelope": terms.name, "topics_folder": sources.topics}
    values |= kind.read(block, terms, looks_up_ids)
    values["topics"] = kind.read_topics(block)
    if looks_up_ids:
        values["registry"] = sources.registry
    if block.get("source") == "kafka":
        if sources.kafka is None:
            block.child("source").fail("is 'kafka', but no cluster is given", "add a `kafka:` block")
        values["kafka"] = sources.kafka
    _check_blocks(block)
    settings = block.validate(kind, values, _FIX)
    if "keep_rows" in block:
        rule = read_row_retention(
            block.child("keep_rows"), settings.record_schema, settings.keep, terms.name, settings.mints_times
        )
        settings = settings.model_copy(update={"keep_rows": rule})
    if "expectations" not in block:
        return settings
    own = read_expectations(block.child("expectations"), _columns_of(settings), _check_names(settings))
    return settings.model_copy(update={"expectations": own})


def _check_blocks(block: Block) -> None:
    """Refuse blocks inside a collection's block that are no mappings, or have unknown keys."""
    for name, kind, example in (
        ("publish", PublishSettings, "publish: {to: orders_cdc}"),
        ("current", CurrentSettings, "current: {skip_errors: true}"),
    ):
        inner = block.child(name)
        if inner.value is None:
            continue
        if not isinstance(inner.value, dict):
            inner.fail("is not a mapping", f"write it as `{example}`")
        inner.check_keys(kind.model_fields)


def _refuse_foreign_keys(block: Block, kind: type[CollectionSettings]) -> None:
    """Refuse keys that only other framings have, first of all a key that shows which framing is meant."""
    foreign = [key for key in block.value if key not in kind.written_keys()]
    for key in foreign:
        owners = [framing for framing, other in SETTINGS.items() if key in other.written_keys()]
        if len(owners) == 1 and SETTINGS[owners[0]].IS_SUGGESTED:
            meant = f"`framing: {owners[0]}`"
            block.child(key).fail(f"is only allowed with {meant}", f"leave it out, or write {meant}")
    if foreign:
        kind.refuse(block.child(foreign[0]))


def _columns_of(settings: CollectionSettings) -> list[str]:
    """Return the columns of the contents; empty if they are not known yet, because the source can add some."""
    record = settings.record_schema
    if not record or settings.spec().evolves:
        return []
    if settings.terms.of_changes and framing_terms(settings.framing).identifies_by_data:
        record = row_record_of(record)
    return [*(column["name"] for column in record["fields"]), DIFF]


def _check_names(settings: CollectionSettings) -> set[str]:
    """Return the names of the checks that collections of this kind have."""
    framing, terms = framing_terms(settings.framing), settings.terms
    return {*framing.checks, *framing.key_checks, *terms.checks, *_RESERVED}


def _read_envelope(block: Block) -> EnvelopeTerms:
    """Read the envelope of a collection, which its block may give as `family` instead."""
    envelope, family = block.get("envelope"), block.get("family")
    by_family = {terms.family: terms for terms in ENVELOPES.values()}
    if envelope is None:
        if "family" not in block:
            block.child("family").fail("is missing", f"use one of: {', '.join(by_family)}")
        if not isinstance(family, str) or family not in by_family:
            block.child("family").fail(
                f"input should be {one_of(by_family)}, not {family!r}", "see docs/reference/configuration.md"
            )
        return by_family[family]
    terms = ENVELOPES.get(envelope) if isinstance(envelope, str) else None
    if terms is None:
        block.child("envelope").fail(f"is not an envelope: {envelope!r}", f"use one of: {', '.join(ENVELOPES)}")
    if family is not None and family != terms.family:
        block.child("envelope").fail(
            f"is '{envelope}', but family is '{family}': both name the envelope", "leave one of them out"
        )
    return terms
