"""The offset of a query over the binary log: its position, the definitions of tables there, its snapshot. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tailrace.connectors.binlog.log.position import START, BinlogPosition
from tailrace.connectors.binlog.snapshot.progress import SnapshotProgress
from tailrace.connectors.checkpoint import ordered, understood
from tailrace.log.contracts import QueryOffset


@dataclass(frozen=True, slots=True)
class BinlogOffset(QueryOffset):
    """The offset at the end of a batch.

    `log` is the position in the log, `schemas` the definitions of tables there, as the text of a
    `schema.definitions.State`; "" if they are read from the catalog. `late` are the tables that were added to the query
    and of which no snapshot has read all rows. `lists` are the lists that select tables, as the text of
    `lists_text`; "" in offsets of earlier versions.
    """

    log: BinlogPosition = START
    schemas: str = ""
    late: tuple[tuple[str, str], ...] = ()
    lists: str = ""
    snapshot: SnapshotProgress | None = field(default=None, kw_only=True)

    @property
    def place(self) -> str:
        """The place in the log for records that belong to no change."""
        return self.log.text()

    def to_json(self) -> dict[str, Any]:
        fields: dict[str, Any] = {"log": self.log.to_json()}
        if self.schemas:
            fields["schemas"] = self.schemas
        if self.late:
            fields["late"] = [list(name) for name in self.late]
        if self.lists:
            fields["lists"] = self.lists
        if self.snapshot is not None:
            fields["snapshot"] = self.snapshot.to_json()
        return ordered(fields | self.shared_json())

    @classmethod
    @understood
    def from_json(cls, fields: dict[str, Any]) -> BinlogOffset:
        """Return the offset of the fields that `to_json` returned. Raises PositionLost for anything else."""
        snapshot = fields.get("snapshot")
        return cls(
            BinlogPosition.from_json(fields["log"]),
            schemas=fields.get("schemas", ""),
            late=tuple((database, table) for database, table in fields.get("late", ())),
            lists=fields.get("lists", ""),
            snapshot=None if snapshot is None else SnapshotProgress.from_json(snapshot),
            **cls.shared_from(fields),
        )
