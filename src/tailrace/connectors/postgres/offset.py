"""The offset of a PostgreSQL query: its position in the log, and its snapshots. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tailrace.connectors.checkpoint import ordered, understood
from tailrace.connectors.postgres.log.identity import ServerId
from tailrace.connectors.postgres.log.visibility import VisibleTransactions
from tailrace.connectors.postgres.protocol.position import START, LogPosition
from tailrace.connectors.postgres.schema.history import NOTHING, StoredHistory, packed, unpacked
from tailrace.connectors.postgres.schema.inventory import UNKNOWN, Inventory
from tailrace.connectors.postgres.snapshot.session import SnapshotOrigin, SnapshotProgress
from tailrace.log.contracts import QueryOffset
from tailrace.records.hypertables import NO_HYPERTABLES, Hypertables
from tailrace.snapshot.plan import SnapshotPlan


@dataclass(frozen=True, slots=True)
class PostgresOffset(QueryOffset):
    """The offset at the end of a batch.

    `log` is the position up to which the log was read. `visible` are transactions that a snapshot has shown and that
    the log may still contain. `xmin` is the slot's catalog xmin in the source blocks of the batch that ends here; 0:
    none. `schemas` are the facts about tables that the log does not carry. `server` is the server whose log was read;
    None in offsets of earlier versions, and if no log is read. `hypertables` are the facts that the TimescaleDb
    transform needs about the tables. `inventory` are the captured tables that the query has found.
    """

    log: LogPosition = START
    visible: VisibleTransactions | None = None
    xmin: int = 0
    schemas: StoredHistory = NOTHING
    server: ServerId | None = None
    hypertables: Hypertables = NO_HYPERTABLES
    inventory: Inventory = UNKNOWN
    snapshot: SnapshotProgress | None = field(default=None, kw_only=True)

    @property
    def place(self) -> int:
        """The place in the log of records that belong to no change."""
        return self.log.commit_lsn

    @property
    def reached_lsn(self) -> int:
        """The LSN up to which the log has been delivered; a snapshot delivers what committed before its LSN."""
        taken = 0 if self.snapshot is None else self.snapshot.origin.lsn
        shown = 0 if self.visible is None else self.visible.before_lsn
        return max(self.log.reached_lsn, taken, shown)

    def to_json(self) -> dict[str, Any]:
        fields: dict[str, Any] = {"log": self.log.to_json()}
        if self.snapshot is not None:
            origin = self.snapshot.origin
            fields["snapshot"] = {
                "done": self.snapshot.done,
                "lsn": origin.lsn,
                "plan": self.snapshot.plan.to_json(),
                "at_us": origin.at_us,
                "xid": origin.xid,
            }
            if origin.previous_end >= 0:
                fields["snapshot"]["previous_end"] = origin.previous_end
            if origin.xmin:
                fields["snapshot"]["xmin"] = origin.xmin
        if self.visible is not None:
            fields["visible"] = self.visible.to_json()
        if self.xmin:
            fields["xmin"] = self.xmin
        if self.schemas != NOTHING:
            fields["schemas"] = self.schemas.to_text()
        if self.server is not None:
            fields["server"] = self.server.to_json()
        if self.hypertables.of:
            fields["hypertables"] = packed(self.hypertables.to_json())
        if self.inventory != UNKNOWN:
            fields["inventory"] = packed(self.inventory.to_json())
        return ordered(fields | self.shared_json())

    @classmethod
    @understood
    def from_json(cls, fields: dict[str, Any]) -> PostgresOffset:
        """Return the offset for a result of `to_json`. Raises PositionLost for anything else."""
        snapshot = fields.get("snapshot")
        visible = fields.get("visible")
        return cls(
            LogPosition.from_json(fields["log"]),
            visible=None if visible is None else VisibleTransactions.from_json(visible),
            xmin=fields.get("xmin", 0),
            # offsets of earlier versions have no schemas: the catalog is queried, as in those versions
            schemas=StoredHistory.from_text(fields["schemas"]) if "schemas" in fields else NOTHING,
            server=ServerId.from_json(fields["server"]) if "server" in fields else None,
            hypertables=Hypertables.from_json(unpacked(fields["hypertables"]))
            if "hypertables" in fields
            else NO_HYPERTABLES,
            inventory=Inventory.from_json(unpacked(fields["inventory"])) if "inventory" in fields else UNKNOWN,
            snapshot=None
            if snapshot is None
            else SnapshotProgress(
                SnapshotPlan.from_json(snapshot["plan"]),
                SnapshotOrigin(
                    snapshot["lsn"],
                    snapshot["xid"],
                    snapshot["at_us"],
                    snapshot.get("previous_end", -1),
                    snapshot.get("xmin", 0),
                ),
                snapshot["done"],
            ),
            **cls.shared_from(fields),
        )
