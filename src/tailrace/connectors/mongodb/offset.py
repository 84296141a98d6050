"""MongoOffset: the position of a query, as Spark stores it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tailrace.connectors.checkpoint import ordered, understood
from tailrace.connectors.mongodb.log.position import START, Position
from tailrace.connectors.mongodb.records.transactions import OpenTransaction
from tailrace.connectors.mongodb.snapshot.plan import SnapshotPlan, SnapshotProgress
from tailrace.snapshot.progress import NO_PROGRESS, Progress


@dataclass(frozen=True, slots=True)
class MongoOffset:
    """The position of a query in the log and in its snapshots.

    `log` is the position up to which the log has been read. `snapshot` is the latest snapshot, kept until the first
    batch of the log after it. `heartbeat_ms` is the time of the newest heartbeat, in ms since 1970; 0 if there was
    none. `transaction` belongs to transaction metadata, `progress` to signals and incremental snapshots. `choice` holds
    the options that select the collections; "" if unknown.

    Two fields serve tables that equal the source at one moment. `shown` is the newest timestamp whose changes documents
    may already show, because a snapshot or a look-up for updates has read them; 0 once the log has passed it. `whole`
    is True if the log was read to the end of a transaction.
    """

    log: Position = START
    snapshot: SnapshotProgress | None = None
    heartbeat_ms: int = 0
    transaction: OpenTransaction | None = None
    progress: Progress = NO_PROGRESS
    shown: int = 0
    whole: bool = False
    choice: str = ""

    @property
    def is_initial(self) -> bool:
        return self == MongoOffset()

    @property
    def place(self) -> int:
        """The timestamp that records without a change of their own carry."""
        return self.log.time

    def going_on(self, snapshot: SnapshotProgress | None, progress: Progress) -> MongoOffset:
        return replace(self, snapshot=snapshot, progress=progress)

    def to_json(self) -> dict[str, Any]:
        fields: dict[str, Any] = {"log": self.log.to_json()}
        if self.snapshot is not None:
            fields["snapshot"] = {
                "at": self.snapshot.at.to_json(),
                "done": self.snapshot.done,
                "number": self.snapshot.number,
                "plan": self.snapshot.plan.to_json(),
            }
        if self.heartbeat_ms:
            fields["heartbeat_ms"] = self.heartbeat_ms
        if self.transaction is not None:
            fields["transaction"] = {
                "counts": [list(pair) for pair in self.transaction.counts],
                "name": self.transaction.name,
            }
        if self.progress != NO_PROGRESS:
            fields["progress"] = self.progress.to_json()
        if self.shown:
            fields["shown"] = self.shown
        if self.whole:
            fields["whole"] = True
        if self.choice:
            fields["choice"] = self.choice
        return ordered(fields)

    @classmethod
    @understood
    def from_json(cls, fields: dict[str, Any]) -> MongoOffset:
        """Return the offset of the fields that `to_json` gives. Raises PositionLost for anything else."""
        snapshot, transaction = fields.get("snapshot"), fields.get("transaction")
        return cls(
            Position.from_json(fields["log"]),
            None
            if snapshot is None
            else SnapshotProgress(
                SnapshotPlan.from_json(snapshot["plan"]),
                Position.from_json(snapshot["at"]),
                snapshot["done"],
                snapshot["number"],
            ),
            fields.get("heartbeat_ms", 0),
            None
            if transaction is None
            else OpenTransaction(transaction["name"], tuple((name, count) for name, count in transaction["counts"])),
            Progress.from_json(fields.get("progress", {})),
            fields.get("shown", 0),
            fields.get("whole", False),
            fields.get("choice", ""),
        )
