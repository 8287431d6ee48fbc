"""The settings of tables whose source announces its transactions: Debezium with `provide.transaction.metadata`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, NoReturn

from tidelake.settings.block import Block
from tidelake.settings.collection import CollectionSettings
from tidelake.settings.reclock import Format, ReclockSettings
from tidelake.settings.source import read_topics
from tidelake.settings.terms import EnvelopeTerms

_NOT_ALLOWED = frozenset({"clock_ahead_max_s", "idle_upper_s", "metadata", "position", "key_schema", "key_schema_ids"})
_FIX = "see docs/guides/transactions.md"


class TransactionSettings(ReclockSettings):
    """A topic with the change events of one table, and the topic with the transactions of its connector."""

    framing: Literal["transactions"] = "transactions"  # type: ignore[assignment]  # the base class has its own tag
    format: Format = "json"
    """The format of keys and values."""
    transaction_topic: str
    """With `transactions`: the topic with the transactions of the connector, such as `shop.transaction`."""
    table: str
    """With `transactions`: the table's name in END events, such as `public.orders`; by default, it is taken from the
    topic's name."""
    captures_publication: bool = True
    """With `transactions`: whether the connector sends an event for every change that PostgreSQL publishes to it. If
    so, ingest notices when a restarted connector skips the first changes of a transaction."""

    KEY_IS_OPTIONAL: ClassVar = True

    READ_APART: ClassVar = ReclockSettings.READ_APART | {"table"}

    IS_SUGGESTED: ClassVar = True

    @property
    def timeline_name(self) -> str:
        """The timeline that is set, or else the connector's: the times of its tables are commits of one database."""
        return self.timeline or f"transactions of {self.transaction_topic}"

    @property
    def statement_topics(self) -> tuple[str, ...]:
        """The topic of the table, without the topic of transactions."""
        return self.topics[:-1]

    def key_of(self, topic: str) -> str:
        """Return the settings key that names one of the topics."""
        return "topic" if topic in self.statement_topics else "transaction_topic"

    def check_beside(self, block: Block, others: Sequence[CollectionSettings]) -> None:
        """Refuse tables of one connector whose settings do not agree on what it captures; see the base class."""
        for other in others:
            if not isinstance(other, TransactionSettings) or other.transaction_topic != self.transaction_topic:
                continue
            if other.captures_publication != self.captures_publication:
                block.child("captures_publication").fail(
                    f"is {str(self.captures_publication).lower()}, but not for '{other.name}', whose events come from "
                    "the same connector",
                    "set the same value for all tables of a connector; the default is true",
                )

    @classmethod
    def written_keys(cls) -> set[str]:
        """Return the keys that a collection's block may have in the file."""
        return super().written_keys() - _NOT_ALLOWED

    @classmethod
    def refuse(cls, place: Block) -> NoReturn:
        """Refuse a settings key that only other framings have."""
        place.fail("is not allowed for the framing 'transactions'", f"leave it out; {_FIX}")

    @classmethod
    def read_topics(cls, block: Block) -> tuple[str, ...]:
        """Read the name of the table's topic, and that of the topic of transactions, which comes last."""
        place = block.child("topic")
        topics = read_topics(place)
        if len(topics) > 1:
            place.fail("is a list, but a table with transactions has one topic", "write one block for each table")
        transactions = block.child("transaction_topic")
        if transactions.value is None:
            transactions.fail("is missing", f"name the connector's topic of transactions; {_FIX}")
        named = read_topics(transactions)
        if len(named) > 1 or named == topics:
            transactions.fail("is not the name of a single other topic", "name the connector's topic of transactions")
        return topics + named

    @classmethod
    def read(cls, block: Block, terms: EnvelopeTerms, looks_up_ids: bool) -> dict[str, Any]:
        """Read the schema, the key and the table's name; see `CollectionSettings.read`."""
        topic, transactions = cls.read_topics(block)
        if not terms.of_changes:
            block.child("framing").fail(
                f"is 'transactions', but statements of the envelope '{terms.name}' belong to no transaction",
                "use `envelope: debezium`",
            )
        if block.get("format") != "json" and not (block.get("format") == "avro" and looks_up_ids):
            block.child("format").fail(
                "is neither 'json' nor Avro with a registry" if "format" in block else "is missing",
                "write `format: json`; or `format: avro`, `encoding: confluent`, and a `registry:` block without "
                "`schema_ids`: the messages about transactions have schemas of their own",
            )
        return super().read(block, terms, looks_up_ids) | {
            "table": _read_table(block.child("table"), topic, transactions)
        }


def _read_table(place: Block, topic: str, transactions: str) -> str:
    """Read the table's name in END events; by default, the topic's name without the connector's prefix."""
    if place.value is None:
        prefix, _, last = transactions.rpartition(".")
        if last != "transaction" or not topic.startswith(f"{prefix}.") or topic == f"{prefix}.":
            place.fail(
                f"is missing, and the topics '{topic}' and '{transactions}' do not show it",
                "give the table's name as END events have it: `table: public.orders`",
            )
        return topic.removeprefix(f"{prefix}.")
    if not isinstance(place.value, str) or not place.value.strip():
        place.fail(f"is not the name of a table: {place.value!r}", "write it as END events have it: `public.orders`")
    return place.value
