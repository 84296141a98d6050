"""SnapshotPlan: the documents of a snapshot, in chunks of `_id` ranges, in reading order. Values only.

A range is half open, `[lower, upper)` in the order of the index over `_id`, which compares across types. Bounds are
BSON values; in an offset each is the base64 of a document `{"": value}`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tailrace.connectors.mongodb.log.indexed_run import Namespace
from tailrace.connectors.mongodb.log.position import ChangePosition


@dataclass(frozen=True, slots=True)
class Chunk:
    """Documents of `namespace` in `[lower, upper)`, base64 texts as above; "" for no bound.

    `last` is True if the chunk's last document ends the snapshot.
    """

    namespace: Namespace
    lower: str = ""
    upper: str = ""
    last: bool = False


@dataclass(frozen=True, slots=True)
class SnapshotPlan:
    """The chunks in reading order; `filters` are conditions of single collections, in extended JSON."""

    chunks: tuple[Chunk, ...]
    filters: tuple[tuple[Namespace, str], ...] = ()

    def to_json(self) -> dict[str, Any]:
        collections: list[list[Any]] = []
        for chunk in self.chunks:
            if not collections or collections[-1][:2] != list(chunk.namespace):
                collections.append([*chunk.namespace, []])
            if chunk.upper:
                collections[-1][2].append(chunk.upper)
        fields: dict[str, Any] = {"collections": collections}
        if self.filters:
            fields["filters"] = [[*namespace, text] for namespace, text in self.filters]
        return fields

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> SnapshotPlan:
        split = [((database, name), bounds) for database, name, bounds in fields["collections"]]
        filters = tuple(((database, name), text) for database, name, text in fields.get("filters", ()))
        return planned(split, filters)

    def filter(self, namespace: Namespace) -> str:
        """Return the condition of a collection; "" for all documents."""
        return dict(self.filters).get(namespace, "")


def planned(
    collections: list[tuple[Namespace, list[str]]], filters: tuple[tuple[Namespace, str], ...] = ()
) -> SnapshotPlan:
    """Return the plan that reads `collections`, each cut at its bounds."""
    chunks: list[Chunk] = []
    for namespace, bounds in collections:
        edges = ["", *bounds, ""]
        chunks += [Chunk(namespace, edges[place], edges[place + 1]) for place in range(len(edges) - 1)]
    if chunks:
        end = chunks[-1]
        chunks[-1] = Chunk(end.namespace, end.lower, end.upper, True)
    return SnapshotPlan(tuple(chunks), filters)


@dataclass(frozen=True, slots=True)
class SnapshotProgress:
    """The progress of a snapshot: `done` chunks have been read; `at` is the log position of its start.

    `number` distinguishes the snapshot from an earlier one with the same plan.
    """

    plan: SnapshotPlan
    at: ChangePosition
    done: int
    number: int = 1

    @property
    def is_complete(self) -> bool:
        return self.done >= len(self.plan.chunks)
