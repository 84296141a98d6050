"""The captured tables, as in their newest change tables, and the log position. Any process."""

from __future__ import annotations

from contextlib import closing

from tailrace.columns.table import TableId, TableSchema
from tailrace.config import Config, TableFilter
from tailrace.connectors.captured_tables import CapturedTables
from tailrace.connectors.changetables import loading
from tailrace.connectors.changetables.coverage import carried
from tailrace.connectors.changetables.dialect import CaptureTable, Position, Session
from tailrace.events.admission import Admission
from tailrace.events.event_settings import EventSettings

_LAST = "~"
"""Sorts after every hexadecimal digit: appended to a commit's position it sorts after all of its changes."""


def captured(config: Config, settings: EventSettings) -> CapturedTables:
    """Implements tailrace.connectors.captured_tables.Capturing. Raises ConnectionFailed, PrerequisiteError,
    ConfigError."""
    dialect, form = loading.dialect(config), loading.form(config.connector)
    admission, lists = Admission(settings, form), TableFilter(config)
    tables: list[TableSchema] = []
    positions: list[Position] = []
    for name in dialect.databases:
        with closing(dialect.connect(name)) as session:
            session.check()
            reached = session.newest()
            positions += [] if reached is None else [reached]
            for capture, table in newest(session, lists):
                positions.append(capture.start)
                tables.append(carried(admission.admit(table), copies=settings.copies))
    position = max(positions).hex().upper() + _LAST if positions else ""
    return CapturedTables(tuple(tables), position, form)


def newest(session: Session, lists: TableFilter) -> list[tuple[CaptureTable, TableSchema]]:
    """Return the newest change table of each captured table, with the table's schema."""
    found: dict[TableId, CaptureTable] = {}
    for capture in session.captures():
        known = found.get(capture.source)
        if lists.includes(capture.source.schema, capture.source.table) and (
            known is None or (capture.start, capture.created_us) >= (known.start, known.created_us)
        ):
            found[capture.source] = capture
    chosen = [found[table] for table in sorted(found)]
    described = session.describe(chosen) if chosen else []
    return [(one.capture, one.table) for one in described]
