"""CaptureHistory: the change tables of captured tables, each with its first position and the table's schema. No I/O.

The time in which one change table is read for a captured table is an era (CapturePeriod). When a second change table is
made, a new era begins at its start (Debezium: "schema evolution of SQL Server"), and the older change table is read up
to this position. Eras are part of the offset: a batch that is planned again after a restart reads the same change
tables with the same schemas.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

from tailrace.columns.table import Column, TableId, TableSchema
from tailrace.connectors.changetables.dialect import CaptureTable, Position
from tailrace.connectors.changetables.position import following, preceding


@dataclass(frozen=True, slots=True)
class CapturePeriod:
    """An era: changes of `table.id` with a commit position `>= since` are in `capture`, until the next era begins.

    `table` has all captured columns, with the table's own key; its `version` counts the eras of a table from 1.
    """

    capture: CaptureTable
    table: TableSchema
    since: Position


@dataclass(frozen=True, slots=True)
class PeriodPart:
    """The part `(after, upto]` of an era: one query of one change table."""

    era: CapturePeriod
    after: Position
    upto: Position


@dataclass(frozen=True, slots=True)
class CaptureHistory:
    """The eras of one database's captured tables; the eras of one table are in order."""

    entries: tuple[CapturePeriod, ...] = ()

    def of(self, table: TableId) -> list[CapturePeriod]:
        return [era for era in self.entries if era.table.id == table]

    def latest(self) -> list[CapturePeriod]:
        """Return the last era of each table, in the order of the tables' names."""
        last: dict[TableId, CapturePeriod] = {}
        for era in self.entries:
            last[era.table.id] = era
        return [last[table] for table in sorted(last)]

    def at(self, position: Position) -> list[CapturePeriod]:
        """Return the era of each table at `position`: the last one that has begun, else the first."""
        found: dict[TableId, CapturePeriod] = {}
        for era in self.entries:
            if era.table.id not in found or era.since <= position:
                found[era.table.id] = era
        return [found[table] for table in sorted(found)]

    def with_(self, era: CapturePeriod) -> CaptureHistory:
        """Return a copy with one more era, the last of its table."""
        older = self.of(era.table.id)
        version = older[-1].table.version + 1 if older else 1
        numbered = replace(era, table=replace(era.table, version=version))
        return CaptureHistory((*self.entries, numbered))

    def without(self, tables: Iterable[TableId]) -> CaptureHistory:
        gone = set(tables)
        return CaptureHistory(tuple(era for era in self.entries if era.table.id not in gone))

    def after(self, position: Position) -> CaptureHistory:
        """Return a copy without eras that have nothing left to read after `position`."""
        kept = []
        for era in self.entries:
            end = self.end(era)
            if end is None or end > position:
                kept.append(era)
        return CaptureHistory(tuple(kept))

    def noting(self, starts: Mapping[tuple[str, int], Position], read: Position) -> CaptureHistory:
        """Return a copy with the starts of change tables that had no start when they were found.

        `starts` has them by name and object id. `read` is the position up to which changes were read. Without a start,
        clean-ups would not be noticed. A start after `read` is not used: it may be the result of a clean-up.
        """

        def noted(era: CapturePeriod) -> CapturePeriod:
            start = starts.get((era.capture.name, era.capture.object_id), era.capture.start)
            if any(era.capture.start) or start > following(read):
                return era
            return replace(era, capture=replace(era.capture, start=start))

        return CaptureHistory(tuple(noted(era) for era in self.entries))

    def end(self, era: CapturePeriod) -> Position | None:
        """Return the last position of `era`; None while it has no end."""
        follows = [other.since for other in self.of(era.table.id) if other.table.version > era.table.version]
        ends = [*follows[:1], *([era.capture.stop] if era.capture.stop is not None else [])]
        return preceding(min(ends)) if ends else None

    def spans(self, after: Position, upto: Position) -> list[PeriodPart]:
        """Return the parts of eras to read for `(after, upto]`; the parts of one table are in order."""
        found = []
        for era in self.entries:
            end = self.end(era)
            low = max(after, preceding(era.since))
            high = upto if end is None else min(upto, end)
            if low < high:
                found.append(PeriodPart(era, low, high))
        return found

    def to_text(self) -> str:
        """Return the eras as text for an offset: compressed JSON, the same for the same eras."""
        return _text(self.entries)

    @classmethod
    def from_text(cls, text: str) -> CaptureHistory:
        return cls(_entries(text))


# Cached, because every offset holds the eras, and they rarely change from batch to batch.
@lru_cache(maxsize=32)
def _text(entries: tuple[CapturePeriod, ...]) -> str:
    fields = [[_capture(era.capture), _table(era.table), era.since.hex()] for era in entries]
    text = json.dumps(fields, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


@lru_cache(maxsize=32)
def _entries(text: str) -> tuple[CapturePeriod, ...]:
    fields = json.loads(zlib.decompress(base64.b64decode(text)))
    return tuple(
        CapturePeriod(_read_capture(one), _read_table(table), bytes.fromhex(since)) for one, table, since in fields
    )


def begun_by(captures: Sequence[CaptureTable], position: Position) -> CaptureTable:
    """Return the newest of one table's change tables that has begun at `position`; the oldest one if none has."""
    ordered = sorted(captures, key=lambda one: (one.start, one.created_us))
    begun = [one for one in ordered if one.start <= position]
    return begun[-1] if begun else ordered[0]


def _capture(capture: CaptureTable) -> list[Any]:
    source = capture.source
    return [
        [source.database, source.schema, source.table],
        capture.name,
        capture.change_schema,
        capture.change_table,
        capture.start.hex(),
        None if capture.stop is None else capture.stop.hex(),
        list(capture.columns),
        list(capture.key),
        capture.object_id,
        capture.source_id,
        capture.created_us,
        *([True] if capture.is_partial else []),
    ]


def _read_capture(fields: list[Any]) -> CaptureTable:
    source, name, schema, table, start, stop, columns, key, *rest = fields
    end = None if stop is None else bytes.fromhex(stop)
    return CaptureTable(
        TableId(*source), name, schema, table, bytes.fromhex(start), end, tuple(columns), tuple(key), *rest
    )


def _table(table: TableSchema) -> dict[str, Any]:
    return asdict(table)


def _read_table(fields: dict[str, Any]) -> TableSchema:
    own = fields.get("own")
    return TableSchema(
        **{
            **fields,
            "id": TableId(**fields["id"]),
            "columns": tuple(_column(column) for column in fields["columns"]),
            "key": tuple(fields["key"]),
            "own": None if own is None else tuple(own),
        }
    )


def _column(fields: dict[str, Any]) -> Column:
    element = fields.get("element")
    return Column(
        **{
            **fields,
            "enum_labels": tuple(fields.get("enum_labels", ())),
            "element": None if element is None else _column(element),
            "fields": tuple(_column(part) for part in fields.get("fields", ())),
        }
    )
