"""Read Db2's rows to compare them with a copy: see tailrace.connectors.changetables.verify_source. Driver."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from tailrace.config import Config
from tailrace.connectors.changetables.dialect import CaptureTable
from tailrace.connectors.changetables.verify_source import ComparedTables
from tailrace.connectors.db2.dialect import Db2Session
from tailrace.connectors.db2.server.catalog import literal, quoted
from tailrace.errors import PrerequisiteError
from tailrace.events.event_settings import EventSettings


def compared(config: Config, settings: EventSettings) -> ComparedTables:
    """Implements tailrace.connectors.consistent_read.Comparing."""
    return ComparedTables(config, settings, *WRITTEN, _demand)


def _demand(session: Db2Session, captures: Sequence[CaptureTable]) -> None:
    """Raise PrerequisiteError for a table that may hide rows from this user: a repair would remove them from the
    copy."""
    controlled = session.catalog().controlled()
    for one in captures:
        if (one.source.schema, one.source.table) in controlled:
            raise PrerequisiteError(
                f"{one.source} cannot be compared: permissions, masks or labels hide rows or values of it from some "
                "users, and nothing tells whether from this one.",
                "Compare the other tables, by --table.",
            )


def _value(value: Any) -> str:
    """Return a value of a key as a constant."""
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, bytes | bytearray):
        return f"X'{bytes(value).hex().upper()}'"
    if isinstance(value, int | Decimal):
        return format(value, "f" if isinstance(value, Decimal) else "d")
    return literal(value.isoformat(" ") if isinstance(value, datetime) else str(value))


WRITTEN = quoted, _value
"""The functions that write a name and a value."""
