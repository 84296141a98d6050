"""The offset of a query over change tables: the position in each database, and the running snapshots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tailrace.columns.table import TableId
from tailrace.connectors.changetables.capture_history import CaptureHistory
from tailrace.connectors.changetables.dialect import Key
from tailrace.connectors.changetables.position import Read, stored
from tailrace.connectors.checkpoint import ordered, understood
from tailrace.log.contracts import QueryOffset


@dataclass(frozen=True, slots=True)
class DatabaseProgress:
    """The progress of one database: the log is read through the commit at `position`, and `eras` are its change
    tables."""

    position: Read
    eras: CaptureHistory


@dataclass(frozen=True, slots=True)
class TablesPosition:
    """The position in each database, by name."""

    databases: Mapping[str, DatabaseProgress]

    def is_before(self, other: TablesPosition) -> bool:
        """Return True if `other` is ahead in one of the databases that both have."""
        common = self.databases.keys() & other.databases.keys()
        return any(self.databases[name].position < other.databases[name].position for name in common)


@dataclass(frozen=True, slots=True)
class SnapshotChunk:
    """The rows `(after, upto]`, by key, of the snapshot's table with the index `place`; None leaves a side open."""

    number: int
    place: int
    after: Key | None
    upto: Key | None


@dataclass(frozen=True, slots=True)
class TablesSnapshot:
    """A snapshot of `tables` (those that have rows, in order), begun at `at_us` (µs since 1970).

    It has been read to the key `last` of the table `place`, and is complete once `place` is after the last table.
    `chunks` are the chunks of the batch that ends here. `first` names the databases whose first captured table has
    rows; in other databases no row is marked `first`. `conditions` are the statements of a blocking snapshot's signal,
    by table. `count` numbers the chunks.
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
class TablesOffset(QueryOffset):
    """The position of each database, by name, and the state of snapshots, heartbeats and signals.

    `lineages` are the results of `Session.lineage` by database.

    Rows of a snapshot may be newer than the position at which it began. `shown_us` is, by database, the time at which
    all rows had been read, in µs since 1970 by the database's clock. It is kept until the log has passed this time, and
    only for sinks of tables, which must equal the source at one moment.
    """

    databases: Mapping[str, DatabaseProgress] = field(default_factory=dict)
    shown_us: Mapping[str, int] = field(default_factory=dict)
    lineages: Mapping[str, str] = field(default_factory=dict)
    snapshot: TablesSnapshot | None = field(default=None, kw_only=True)

    @property
    def log(self) -> TablesPosition:
        """The position up to which the change tables have been read."""
        return TablesPosition(self.databases)

    @property
    def place(self) -> str:
        """The position of records without a change of their own: after the last commit of the first database."""
        first = next(iter(sorted(self.databases)), None)
        if first is None:
            return ""
        position = self.databases[first].position
        return (position + b"\xff" * len(position)).hex().upper()

    def to_json(self) -> dict[str, Any]:
        """Return the offset with the keys of every object sorted: Spark compares offsets as text."""
        fields: dict[str, Any] = {
            "databases": {
                name: {"commit": reached.position.hex(), "eras": reached.eras.to_text()}
                for name, reached in sorted(self.databases.items())
            }
        }
        if self.shown_us:
            fields["shown_us"] = dict(self.shown_us)
        if self.lineages:
            fields["lineages"] = dict(self.lineages)
        if self.snapshot is not None:
            fields["snapshot"] = self.snapshot.to_json()
        return ordered(fields | self.shared_json())

    @classmethod
    @understood
    def from_json(cls, fields: Mapping[str, Any]) -> TablesOffset:
        """Return the offset of the fields that `to_json` gives. Raises PositionLost for anything else."""
        snapshot = fields.get("snapshot")
        return cls(
            {
                name: DatabaseProgress(stored(one["commit"]), CaptureHistory.from_text(one["eras"]))
                for name, one in fields["databases"].items()
            },
            fields.get("shown_us", {}),
            fields.get("lineages", {}),
            snapshot=None if snapshot is None else TablesSnapshot.from_json(snapshot),
            **cls.shared_from(fields),
        )
