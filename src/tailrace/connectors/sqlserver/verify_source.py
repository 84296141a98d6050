"""Read SQL Server's rows to compare them with a copy: see tailrace.connectors.changetables.verify_source. Driver."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from typing import Any

from tailrace.config import Config
from tailrace.connectors.changetables.dialect import CaptureTable
from tailrace.connectors.changetables.verify_source import ComparedTables
from tailrace.connectors.sqlserver.server import coverage
from tailrace.connectors.sqlserver.values.texts import quoted
from tailrace.events.event_settings import EventSettings


def compared(config: Config, settings: EventSettings) -> ComparedTables:
    """Implements tailrace.connectors.consistent_read.Comparing."""

    def demand(session: Any, captures: Sequence[CaptureTable]) -> None:
        coverage.demand_sight(session, captures, settings.shaping.shows)

    return ComparedTables(config, settings, *WRITTEN, demand)


def _value(value: Any) -> str:
    """Return a value of a key as a constant ("Constants (Transact-SQL)")."""
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, bytes | bytearray):
        return f"0x{bytes(value).hex()}"
    if isinstance(value, int | Decimal):
        return format(value, "f" if isinstance(value, Decimal) else "d")
    # ISO 8601 with a T, which does not depend on language settings
    text = value.isoformat() if isinstance(value, date) else str(value)
    return "N'" + text.replace("'", "''") + "'"


WRITTEN = quoted, _value
"""The functions that write a name and a value."""
