"""Scans the events of a tick for those that cannot be read yet, and for the rows of snapshots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidelake.decode.debezium.columns import (
    AFTER,
    BEGINS_SNAPSHOT,
    CONNECTOR,
    END,
    ENDS_SNAPSHOT,
    IN_SNAPSHOT,
    OPERATION,
    PLACE_IN_LOG,
    PROCESSED,
    TABLE,
    TRANSACTION,
)
from tidelake.decode.debezium.positions import POSTGRESQL
from tidelake.decode.debezium.transaction_parts import read_parts, with_ends
from tidelake.errors import ConfigurationError
from tidelake.protocol.transactions import Blocked, Snapshot
from tidelake.settings.transactions import TransactionSettings
from tidelake.store.decision import AcceptGap, Decision, parked_in

NO_TRANSACTION = "belongs to no transaction: the connector did not have `provide.transaction.metadata=true`"
NO_SNAPSHOT = "is a row of an incremental snapshot, which transactions do not announce"


class EventScan:
    """The events of a range, with what has to be known before their rows are decoded."""

    def __init__(self, name: str, settings: TransactionSettings, raw: DataFrame, decisions: Sequence[Decision]) -> None:
        self.name, self.settings = name, settings
        self.parked = parked_in(decisions)
        self.accepted = [decision.offsets for decision in decisions if isinstance(decision, AcceptGap)]
        self.parts = read_parts(raw)

    def blocked(self, ends: DataFrame) -> list[Blocked]:
        """Return the first event of each partition that cannot be read yet.

        Args:
            ends: the transactions whose ENDs were read; see `with_ends`.

        Raises:
            ConfigurationError: an event is from another connector, or from another table.

        Cost: one pass over the range, which reads a few fields of each event.
        """
        events = with_ends(self.parts, ends, TRANSACTION, F.col(AFTER))
        is_parked = F.coalesce(F.col(TRANSACTION).isin(list(self.parked)), F.lit(False))
        is_blocked = F.col(END).isNull() & ~F.col(IN_SNAPSHOT) & ~is_parked
        for offsets in self.accepted:
            here = F.col("offset").between(offsets.start, offsets.end - 1) & (F.col("partition") == offsets.partition)
            is_blocked = is_blocked & (F.col(TRANSACTION).isNotNull() | (F.col("topic") != offsets.topic) | ~here)
        place = F.struct("offset", TRANSACTION, AFTER, PROCESSED, OPERATION)
        foreign = F.col(CONNECTOR) != POSTGRESQL
        elsewhere = F.col(TABLE) != self.settings.table
        rows = events.groupBy("partition").agg(
            F.min(F.when(is_blocked, place)).alias("first"),
            F.max(F.when(foreign, F.col(CONNECTOR))).alias("foreign"),
            F.max(F.when(elsewhere, F.col(TABLE))).alias("elsewhere"),
        )
        blocked = []
        for row in rows.collect():
            self._refuse(row["foreign"], row["elsewhere"])
            if (first := row["first"]) is not None:
                reason = ""
                if first[TRANSACTION] is None:
                    reason = NO_SNAPSHOT if first[OPERATION] == "r" else NO_TRANSACTION
                after = None if first[AFTER] < 0 else first[AFTER]
                place_of = (row["partition"], first["offset"])
                blocked.append(Blocked(*place_of, reason, first[TRANSACTION], after, first[PROCESSED]))
        return blocked

    def snapshots(self, firsts: Mapping[int, int]) -> dict[int, Snapshot]:
        """Return the snapshots with rows in the range, by their places in the log.

        Args:
            firsts: by partition, the offset to which the range was shortened.
        """
        is_before: Column = F.lit(True)
        for partition, offset in firsts.items():
            is_before = is_before & ((F.col("partition") != partition) | (F.col("offset") < offset))
        rows = self.parts.where(F.col(IN_SNAPSHOT) & is_before).groupBy(PLACE_IN_LOG)
        facts = {"rows": F.count(F.lit(1)), "ended": F.max(ENDS_SNAPSHOT), "first_marked": F.max(BEGINS_SNAPSHOT)}
        found = rows.agg(*(column.alias(name) for name, column in facts.items())).collect()
        return {row[0]: Snapshot(row[0], row["rows"], row["ended"], row["first_marked"]) for row in found}

    def _refuse(self, connector: str | None, table: str | None) -> None:
        if connector is not None:
            raise ConfigurationError(
                "collections.yaml",
                f"collections.{self.name}.framing",
                f"the topic {self.settings.topics[0]} is written by the connector '{connector}', whose transactions do "
                "not state commit positions that can be compared",
                "`framing: transactions` reads PostgreSQL's connector; use `framing: reclock` for this topic",
            )
        if table is not None:
            topic, ours = self.settings.topics[0], self.settings.table
            raise ConfigurationError(
                "collections.yaml",
                f"collections.{self.name}.table",
                f"the topic {topic} has events of the table '{table}', not of '{ours}'",
                "correct `table`, or let the connector write each table to a topic of its own: counts are by table",
            )
