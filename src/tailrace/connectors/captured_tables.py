"""The tables that a connector captures now, for the schema of typed rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailrace.columns.table import TableSchema

if TYPE_CHECKING:
    from tailrace.config import Config
    from tailrace.events.event_settings import EventSettings
    from tailrace.events.mapping import SourceForm


@dataclass(frozen=True, slots=True)
class CapturedTables:
    """The captured tables, each with the key of its events, and the connector's part of events.

    `position` is the log position at which the tables were read, as the column `position` shows it. Later commits have
    later positions.
    """

    tables: tuple[TableSchema, ...]
    position: str
    form: SourceForm


Capturing = Callable[["Config", "EventSettings"], CapturedTables]
"""A function that asks the server, in a session of its own. Raises TailraceError."""
