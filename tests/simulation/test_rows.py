"""Histories of tables with rows: snapshots, windows and altered tables, whatever dies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tailrace.connectors.postgres import catalog
from tests.simulation.database import Database
from tests.simulation.history import run
from tests.simulation.mutants import (
    OF_ROWS,
    Mutant,
    snapshots_are_read_before_they_are_flushed,
    snapshots_do_not_wait_for_standbys,
)
from tests.simulation.rows import CrashingHistory, RowsHistory, WaitingHistory
from tests.simulation.server import Odds, Rows
from tests.simulation.sessions import TableSession
from tests.simulation.world import Process

HISTORIES = 150
ENOUGH = 300
"""A mutant must be found by so many histories."""
KINDS = {
    snapshots_do_not_wait_for_standbys: WaitingHistory,
    snapshots_are_read_before_they_are_flushed: CrashingHistory,
}
"""Those of which one in a thousand plain histories would find a fault."""


def test_tables_are_delivered_as_they_were_and_wholly() -> None:
    totals = run(range(HISTORIES), RowsHistory)
    # that anything happened
    assert totals.starts > 2 * HISTORIES
    assert totals.changes > 10 * HISTORIES
    assert totals.lost < HISTORIES // 10


@pytest.mark.parametrize("kind", [WaitingHistory, CrashingHistory])
def test_a_snapshot_shows_what_lasts_and_all_that_the_log_does_not_bring(kind: type[RowsHistory]) -> None:
    run(range(40), kind)


@pytest.mark.parametrize("mutant", OF_ROWS, ids=lambda mutant: mutant.__name__)
def test_a_known_fault_is_found(mutant: Mutant) -> None:
    with mutant(), pytest.raises(AssertionError):
        run(range(ENOUGH), KINDS.get(mutant, RowsHistory))


class Renaming(TableSession):
    """A session beside which somebody renames a key while columns are asked for."""

    def execute(self, statement: str | bytes, values: Sequence[Any] = (), *, binary: bool = False) -> Rows:
        found = super().execute(statement, values, binary=binary)
        assert isinstance(self.server, Renamed)
        if statement == catalog._COLUMNS and self.server.renames:
            self.server.renames -= 1
            self.server.rename_key("a")
        return found


class Renamed(Database):
    renames = 3

    def session(self, process: Process) -> TableSession:
        return Renaming(self, process)


def test_a_key_is_renamed_while_a_query_looks_at_its_tables() -> None:
    class History(RowsHistory):
        def _server(self, odds: Odds) -> Database:
            return Renamed(self.rng, odds, lambda: self.checkpoint.forgettable, 0.0)

    run(range(5), History)
