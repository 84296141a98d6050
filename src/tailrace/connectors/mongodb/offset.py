"""MongoOffset: how far a query has come, as Spark stores it."""

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
    """`log` is how far the log has been read; `snapshot` the latest snapshot until the first batch of the log after it;
    `heartbeat_ms` the time of the newest heartbeat, in ms since 1970, 0 when there was none; `transaction` belongs to
    transaction metadata; `progress` to signals and incremental snapshots. `shown` is the newest timestamp whose changes
    documents of a snapshot, or those that were looked up for updates, may show already; 0 where the log is past it, and
    where nobody asks for tables at one moment; `whole` says, where somebody does, that the log was read to the end of a
    transaction. `choice` is what the options said of the captured collections, empty where nobody knows.
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
        """Where records stand that belong to no change."""
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
        """The offset of what `to_json` gives. Raises PositionLost for anything else."""
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
