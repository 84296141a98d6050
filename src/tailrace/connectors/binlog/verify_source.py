"""A snapshot for comparison with tables, and the keys that changed between two positions. Driver."""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np

from tailrace.columns.table import TableSchema
from tailrace.config import Config
from tailrace.connectors.binlog.consistent_read import HeldSnapshot
from tailrace.connectors.binlog.log.form import form_of
from tailrace.connectors.binlog.log.position import BinlogPosition, number_of
from tailrace.connectors.binlog.log.row_log import BinlogRowLog
from tailrace.connectors.binlog.offset import BinlogOffset
from tailrace.connectors.binlog.planner import OUTSIDE, BinlogSource
from tailrace.connectors.binlog.server.connection import connect, dialect_of, rows
from tailrace.connectors.binlog.server.errors import explained
from tailrace.connectors.binlog.snapshot.keys import quoted
from tailrace.connectors.binlog.snapshot.tasks import Consecutive, SnapshotTask
from tailrace.connectors.checkpoint import stored_commands
from tailrace.connectors.consistent_read import TouchedKeys
from tailrace.errors import PositionLost
from tailrace.events.event_settings import EventSettings
from tailrace.events.mapping import SourceForm
from tailrace.log.contracts import NO_LIMITS, Task
from tailrace.log.rows.partitioning import changes_of
from tailrace.snapshot.progress import Progress

_PLAIN = re.compile(r"[ -&(-\[\]-~]*")


class ComparedSnapshot:
    """Implements tailrace.connectors.consistent_read.ComparedSource."""

    form: SourceForm | None
    # the server does not store a pipeline's position
    committed: str = ""
    position: str
    tables: Sequence[TableSchema]

    def __init__(self, config: Config, settings: EventSettings) -> None:
        """Raises TailraceError."""
        self._config, self._settings = config, settings
        self._held: HeldSnapshot | None = None
        self.form = form_of(dialect_of(config))
        connect(config).close()

    def take(self) -> None:
        self._held = explained(HeldSnapshot)(self._config, self._settings)
        self.position, self.tables = self._held.position, self._held.tables

    def of_table(self, table: TableSchema) -> Sequence[Task]:
        assert self._held is not None
        found: list[Task] = []
        for task in self._held.tasks:
            of = task.tasks if isinstance(task, Consecutive) else (task,)
            found += [one for one in of if isinstance(one, SnapshotTask) and one.table.id == table.id]
        return found

    def is_running(self) -> bool | None:
        return None

    def is_told(self) -> bool:
        # the snapshot shows nothing after its position
        return True

    def touched(self, table: TableSchema, after: str, upto: str) -> TouchedKeys:
        if not table.key:
            return TouchedKeys((), True)
        try:
            found = explained(self._touched)(table, after, upto)
        except PositionLost:
            found = None
        return TouchedKeys((), True) if found is None else TouchedKeys(tuple(zip(*sorted(found), strict=True)))

    def _touched(self, table: TableSchema, after: str, upto: str) -> set[tuple[bytes, ...]] | None:
        """Return the keys of a table that changed between two positions; None if a change lacks its key."""
        config = replace(self._config, typed=self._config.typed | {"signal.data.collection": None})
        commands = stored_commands(self._config)
        found: set[tuple[bytes, ...]] = set()
        with closing(BinlogSource(config, self._settings, OUTSIDE)) as source:
            start = self._position(after)
            if start is None:
                return None
            target = source.present()
            with closing(
                source.open(BinlogOffset(start, progress=Progress(commands=commands)), None, target)
            ) as opened:
                at = start
                while True:
                    opened.refresh()
                    end = opened.plan(at, NO_LIMITS, target)
                    if end == at:
                        if opened.has_seen(target):
                            return found
                        opened.check()
                        opened.wait(0.5)
                        continue
                    keys = self._keys(opened.changes(at, end), table, upto)
                    if keys is None:
                        return None
                    found |= keys
                    at = end

    def _position(self, text: str) -> BinlogPosition | None:
        """Return the log position for a `position` of the row schema; None if the server no longer has its file."""
        number, start = int(text[4:12], 16), int(text[12:24], 16)
        with closing(connect(self._config)) as session:
            files = [str(row[0]) for row in rows(session, "show binary logs")]
        name = next((file for file in files if number_of(file) == number), None)
        return None if name is None else BinlogPosition(name, start, start + 1)

    def _keys(self, changes: Any, table: TableSchema, upto: str) -> set[tuple[bytes, ...]] | None:
        versions = [replace(one, oid=1 if one.id == table.id else 0) for one in changes.versions]
        found: set[tuple[bytes, ...]] = set()
        assert self.form is not None
        for batch in changes_of(BinlogRowLog(self.form), changes.rows, versions, 1) if changes.rows else ():
            names = {column.name: place for place, column in enumerate(batch.table.columns)}
            if (batch.op == ord("t")).any() or any(name not in names for name in table.key):
                return None
            places = [names[name] for name in table.key]
            known = np.zeros(len(batch), np.bool_)
            for image in (batch.before, batch.after):
                if image is None:
                    continue
                carried = np.ones(len(batch), np.bool_) if image.present is None else image.present.copy()
                for place in places:
                    lacking = image.unavailable[place]
                    if lacking is not None:
                        carried &= ~lacking
                texts = zip(*(image.columns[place].to_pylist() for place in places), strict=True)
                found |= {key for key, has in zip(texts, carried.tolist(), strict=True) if has}
                known |= carried
            if not known.all():
                return None
        return found

    def condition(self, names: Sequence[str], keys: Sequence[Sequence[Any]]) -> str:
        shown = [", ".join(map(_literal, key)) for key in keys]
        listed = ", ".join(shown) if len(names) == 1 else ", ".join(f"({row})" for row in shown)
        columns = ", ".join(map(quoted, names))
        return f"{columns} in ({listed})" if len(names) == 1 else f"({columns}) in ({listed})"

    def close(self) -> None:
        if self._held is not None:
            self._held.close()


def compared(config: Config, settings: EventSettings) -> ComparedSnapshot:
    """See tailrace.connectors.consistent_read.Comparing."""
    return explained(ComparedSnapshot)(config, settings)


def _literal(value: Any) -> str:
    """Return a value as an SQL literal."""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, bytes | bytearray):
        return f"x'{bytes(value).hex()}'"
    if isinstance(value, datetime.datetime):
        return f"'{value.replace(tzinfo=None).isoformat(' ')}'"
    if isinstance(value, str | datetime.date | datetime.time):
        text = str(value)
        return f"'{text}'" if _PLAIN.fullmatch(text) and "--" not in text else f"_utf8mb4 x'{text.encode().hex()}'"
    return str(value)
