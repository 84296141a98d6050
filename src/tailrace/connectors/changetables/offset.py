"""The offset of a query over change tables: how far each database is read, and the snapshots that are running."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tailrace.columns.table import TableId
from tailrace.connectors.changetables.dialect import Key
from tailrace.connectors.changetables.eras import Eras
from tailrace.connectors.changetables.position import Read, stored
from tailrace.connectors.checkpoint import ordered, understood
from tailrace.snapshot.progress import NO_PROGRESS, Progress


@dataclass(frozen=True, slots=True)
class Reached:
    """One database has been read through the commit at `position`; `eras` are its tables' change tables there."""

    position: Read
    eras: Eras


@dataclass(frozen=True, slots=True)
class TablesPosition:
    """How far each database has been read, by name."""

    databases: Mapping[str, Reached]

    def is_before(self, other: TablesPosition) -> bool:
        """Whether `other` is further in one of the databases that both have."""
        common = self.databases.keys() & other.databases.keys()
        return any(self.databases[name].position < other.databases[name].position for name in common)


@dataclass(frozen=True, slots=True)
class SnapshotChunk:
    """The rows `(after, upto]` of the snapshot's table `place`, by key; None leaves a side open."""

    number: int
    place: int
    after: Key | None
    upto: Key | None


@dataclass(frozen=True, slots=True)
class TablesSnapshot:
    """A snapshot of `tables` (those that have rows, in order), taken from `at_us` (µs since 1970) on.

    It has been read to the key `last` of the table `place`, and is complete when `place` is behind the last table.
    `chunks` are those of the batch that ends here. `first` names the databases whose first captured table has rows:
    where it is empty, no row is marked `first`. `conditions` are statements by table, of a blocking snapshot's
    signal. `count` numbers the chunks.
    """

    tables: tuple[TableId, ...]
    at_us: int
    first: tuple[str, ...] = ()
    place: int = 0
    last: Key | None = None
    chunks: tuple[SnapshotChunk, ...] = ()
    count: int = 0
    conditions: tuple[tuple[TableId, str], ...] = ()

    @property
    def is_complete(self) -> bool:
        return self.place >= len(self.tables)

    def to_json(self) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "at_us": self.at_us,
            "chunks": [[one.number, one.place, _texts(one.after), _texts(one.upto)] for one in self.chunks],
            "count": self.count,
            "first": list(self.first),
            "place": self.place,
            "tables": [[one.database, one.schema, one.table] for one in self.tables],
        }
        if self.last is not None:
            fields["last"] = list(self.last)
        if self.conditions:
            fields["conditions"] = [
                [table.database, table.schema, table.table, text] for table, text in self.conditions
            ]
        return fields

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> TablesSnapshot:
        return cls(
            tuple(TableId(*names) for names in fields["tables"]),
            fields["at_us"],
            tuple(fields["first"]),
            fields["place"],
            _key(fields.get("last")),
            tuple(
                SnapshotChunk(number, place, _key(after), _key(upto)) for number, place, after, upto in fields["chunks"]
            ),
            fields["count"],
            tuple((TableId(*names), text) for *names, text in fields.get("conditions", ())),
        )


def _texts(key: Key | None) -> list[str] | None:
    return None if key is None else list(key)


def _key(texts: list[str] | None) -> Key | None:
    return None if texts is None else tuple(texts)


@dataclass(frozen=True, slots=True)
class TablesOffset:
    """`databases` by name; `snapshot` the latest snapshot until the first batch of the log after it; `heartbeat_ms`
    the time of the newest heartbeat, in ms since 1970, 0 when there was none; `progress` belongs to signals.

    Rows of a snapshot may be newer than the position that it began at. `shown_us` says of each database at what time,
    in µs since 1970 by its own clock, all of them were read; only until the log has passed that time, and only where
    somebody asks for tables at one moment. `lineages` says of each database what `Session.lineage` did.
    """

    databases: Mapping[str, Reached] = field(default_factory=dict)
    snapshot: TablesSnapshot | None = None
    heartbeat_ms: int = 0
    progress: Progress = NO_PROGRESS
    shown_us: Mapping[str, int] = field(default_factory=dict)
    lineages: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_initial(self) -> bool:
        return not self.databases

    @property
    def log(self) -> TablesPosition:
        """How far the change tables have been read."""
        return TablesPosition(self.databases)

    @property
    def place(self) -> str:
        """Where records stand that belong to no change: behind the last commit of the first database."""
        first = next(iter(sorted(self.databases)), None)
        if first is None:
            return ""
        position = self.databases[first].position
        return (position + b"\xff" * len(position)).hex().upper()

    def going_on(self, snapshot: TablesSnapshot | None, progress: Progress) -> TablesOffset:
        return replace(self, snapshot=snapshot, progress=progress)

    def to_json(self) -> dict[str, Any]:
        """With the keys of every object in order: Spark compares offsets as text."""
        fields: dict[str, Any] = {
            "databases": {
                name: {"commit": reached.position.hex(), "eras": reached.eras.to_text()}
                for name, reached in sorted(self.databases.items())
            }
        }
        if self.heartbeat_ms:
            fields["heartbeat_ms"] = self.heartbeat_ms
        if self.progress != NO_PROGRESS:
            fields["progress"] = self.progress.to_json()
        if self.shown_us:
            fields["shown_us"] = dict(self.shown_us)
        if self.lineages:
            fields["lineages"] = dict(self.lineages)
        if self.snapshot is not None:
            fields["snapshot"] = self.snapshot.to_json()
        return ordered(fields)

    @classmethod
    @understood
    def from_json(cls, fields: Mapping[str, Any]) -> TablesOffset:
        """The offset of what `to_json` gives. Raises PositionLost for anything else."""
        snapshot = fields.get("snapshot")
        return cls(
            {
                name: Reached(stored(one["commit"]), Eras.from_text(one["eras"]))
                for name, one in fields["databases"].items()
            },
            None if snapshot is None else TablesSnapshot.from_json(snapshot),
            fields.get("heartbeat_ms", 0),
            Progress.from_json(fields.get("progress", {})),
            fields.get("shown_us", {}),
            fields.get("lineages", {}),
        )
