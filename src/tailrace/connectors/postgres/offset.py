"""The offset of a PostgreSQL query: the position in the log, and the snapshot that is running or done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tailrace.connectors.postgres.position import START, LogPosition
from tailrace.connectors.postgres.snapshot import SnapshotOrigin, Visible
from tailrace.snapshot.plan import SnapshotPlan


@dataclass(frozen=True, slots=True)
class SnapshotProgress:
    """A snapshot of which `done` chunks have been read."""

    plan: SnapshotPlan
    origin: SnapshotOrigin
    done: int

    @property
    def is_complete(self) -> bool:
        return self.done >= len(self.plan)


@dataclass(frozen=True, slots=True)
class PostgresOffset:
    """`log` is how far the log has been read; `snapshot` the latest snapshot until the first batch of the log after
    it; `visible` what a snapshot has shown of the log that is still to come.
    """

    log: LogPosition = START
    snapshot: SnapshotProgress | None = None
    visible: Visible | None = None

    @property
    def is_initial(self) -> bool:
        return self == PostgresOffset()

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
        if self.visible is not None:
            fields["visible"] = self.visible.to_json()
        return dict(_sorted(fields))

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> PostgresOffset:
        snapshot = fields.get("snapshot")
        visible = fields.get("visible")
        return cls(
            LogPosition.from_json(fields["log"]),
            None
            if snapshot is None
            else SnapshotProgress(
                SnapshotPlan.from_json(snapshot["plan"]),
                SnapshotOrigin(snapshot["lsn"], snapshot["xid"], snapshot["at_us"]),
                snapshot["done"],
            ),
            None if visible is None else Visible.from_json(visible),
        )


def _sorted(value: Any) -> Any:
    """The same with the keys of every object in order: Spark compares offsets as text."""
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return value
