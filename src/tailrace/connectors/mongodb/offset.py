"""MongoOffset: the position of a query, as Spark stores it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tailrace.connectors.checkpoint import ordered, understood
from tailrace.connectors.mongodb.log.position import START, ChangePosition
from tailrace.connectors.mongodb.records.transactions import OpenTransaction
from tailrace.connectors.mongodb.snapshot.plan import SnapshotPlan, SnapshotProgress
from tailrace.log.contracts import QueryOffset


@dataclass(frozen=True, slots=True)
class MongoOffset(QueryOffset):
    """The position of a query in the log and in its snapshots.

    `log` is the position up to which the log has been read. `transaction` is the open transaction of transaction
    metadata. `choice` holds the options that select the collections, `server` the result of `connection.server_uuid`;
    "" if unknown.

    Two fields serve tables that equal the source at one moment. `shown` is the newest timestamp whose changes may
    already be in the documents of events, through a snapshot or a look-up for updates; 0 once the log has passed it.
    `whole` is True if the log was read to the end of a transaction.
    """

    log: ChangePosition = START
    transaction: OpenTransaction | None = None
    shown: int = 0
    whole: bool = False
    choice: str = ""
    server: str = ""
    snapshot: SnapshotProgress | None = field(default=None, kw_only=True)

    @property
    def place(self) -> int:
        """The timestamp for records that belong to no change."""
        return self.log.time

    def to_json(self) -> dict[str, Any]:
        fields: dict[str, Any] = {"log": self.log.to_json()}
        if self.snapshot is not None:
            fields["snapshot"] = {
                "at": self.snapshot.at.to_json(),
                "done": self.snapshot.done,
                "number": self.snapshot.number,
                "plan": self.snapshot.plan.to_json(),
            }
        if self.transaction is not None:
            fields["transaction"] = {
                "counts": [list(pair) for pair in self.transaction.counts],
                "name": self.transaction.name,
            }
        if self.shown:
            fields["shown"] = self.shown
        if self.whole:
            fields["whole"] = True
        if self.choice:
            fields["choice"] = self.choice
        if self.server:
            fields["server"] = self.server
        return ordered(fields | self.shared_json())

    @classmethod
    @understood
    def from_json(cls, fields: dict[str, Any]) -> MongoOffset:
        """Return the offset of the fields that `to_json` returned. Raises PositionLost for anything else."""
        snapshot, transaction = fields.get("snapshot"), fields.get("transaction")
        return cls(
            ChangePosition.from_json(fields["log"]),
            None
            if transaction is None
            else OpenTransaction(transaction["name"], tuple((name, count) for name, count in transaction["counts"])),
            fields.get("shown", 0),
            fields.get("whole", False),
            fields.get("choice", ""),
            fields.get("server", ""),
            snapshot=None
            if snapshot is None
            else SnapshotProgress(
                SnapshotPlan.from_json(snapshot["plan"]),
                ChangePosition.from_json(snapshot["at"]),
                snapshot["done"],
                snapshot["number"],
            ),
            **cls.shared_from(fields),
        )
