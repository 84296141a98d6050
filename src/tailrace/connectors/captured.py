"""What a connector says of the tables that are captured at this moment, for the schema of typed rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailrace.columns.table import TableSchema

if TYPE_CHECKING:
    from tailrace.config import Config
    from tailrace.events.form import SourceForm
    from tailrace.events.settings import EventSettings


@dataclass(frozen=True, slots=True)
class Captured:
    """The captured tables, each with the key that its events get, and the connector's part of events.

    `position` is that of the log at which they are so, as the column `position` shows it: a change of a table that is
    committed after it is behind it.
    """

    tables: tuple[TableSchema, ...]
    position: str
    form: SourceForm


Capturing = Callable[["Config", "EventSettings"], Captured]
"""What asks the server; it opens a session and closes it. Raises TailraceError."""
