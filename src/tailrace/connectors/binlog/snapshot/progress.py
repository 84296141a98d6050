"""SnapshotProgress: the state of a running snapshot in an offset. No I/O."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Any

from tailrace.connectors.binlog.snapshot.keys import Key, KeyRange
from tailrace.connectors.binlog.snapshot.point import Point, RowOrigin
from tailrace.snapshot.plan import Chunk, SnapshotPlan


@dataclass(frozen=True, slots=True)
class SnapshotProgress:
    """A snapshot of which `done` chunks have been read.

    A table of the plan has one page more than it has `bounds`, and each page is a chunk. All rows show the place
    `point`, even if they are read after a restart. `epoch` is the epoch of the log position at the point. Rows of a
    signal show `origin` instead.
    """

    plan: SnapshotPlan
    bounds: tuple[tuple[Key, ...], ...]
    point: Point
    done: int
    epoch: int = 0
    origin: RowOrigin | None = None

    @property
    def is_complete(self) -> bool:
        return self.done >= len(self.plan)

    def range_of(self, chunk: Chunk) -> KeyRange:
        """Return the keys of a chunk."""
        own = self.bounds[self.plan.tables.index(chunk.table)]
        place = chunk.first_page
        return KeyRange(own[place - 1] if place else None, own[place] if place < len(own) else None)

    def to_json(self) -> dict[str, Any]:
        point = self.point
        fields: dict[str, Any] = {
            "bounds": [[list(key) for key in keys] for keys in self.bounds],
            "done": self.done,
            "plan": self.plan.to_json(),
            "point": [point.file, point.pos, point.gtids, point.at_us, point.is_exact],
        }
        if self.origin is not None:
            fields["origin"] = list(astuple(self.origin))
        return fields | {"epoch": self.epoch} if self.epoch else fields

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> SnapshotProgress:
        bounds = tuple(tuple(tuple(key) for key in keys) for keys in fields["bounds"])
        plan, point = SnapshotPlan.from_json(fields["plan"]), Point(*fields["point"])
        origin = RowOrigin(*fields["origin"]) if "origin" in fields else None
        return cls(plan, bounds, point, fields["done"], fields.get("epoch", 0), origin)
