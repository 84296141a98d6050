"""What Db2's rows are compared by: see tailrace.connectors.changetables.compared. Driver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from tailrace.config import Config
from tailrace.connectors.changetables.compared import ComparedTables
from tailrace.connectors.db2.server.catalog import literal, quoted
from tailrace.errors import SinkError
from tailrace.events.settings import EventSettings


def compared(config: Config, settings: EventSettings) -> ComparedTables:
    """See tailrace.connectors.held.Comparing."""
    return Db2Compared(config, settings, quoted, literal)


class Db2Compared(ComparedTables):
    """The same, without a repair: the rows that a signal has asked for by their keys do not come for certain."""

    def condition(self, names: Sequence[str], keys: Sequence[Sequence[Any]]) -> NoReturn:
        raise SinkError(
            "tailrace verify --repair is not supported for Db2.",
            "Have the tables that differ read by an incremental snapshot without conditions; rows that only a table "
            "has are left by it.",
        )
