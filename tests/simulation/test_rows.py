"""Histories of tables with rows: snapshots, windows and altered tables, whatever dies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tailrace.connectors.postgres.schema import catalog
from tests.simulation import mutants
from tests.simulation.course import run
from tests.simulation.database import Database
from tests.simulation.kinds import (
    AlteringHistory,
    BlockingHistory,
    CrashingHistory,
    FailoverRowsHistory,
    MovingHistory,
    WaitingHistory,
    WindowsHistory,
)
from tests.simulation.mutants import OF_ROWS, Mutant
from tests.simulation.rows import RowsHistory
from tests.simulation.server import Odds, Rows
from tests.simulation.sessions import TableSession
from tests.simulation.world import Process

HISTORIES = 500
ENOUGH = 300
"""A mutant must be found by so many histories."""
SELDOM = {mutants.rows_that_moved_are_not_looked_for: 1500, mutants.what_a_transaction_drops_is_gone_before: 2500}
"""Those of which only one history in some hundred shows something."""
KINDS = {
    mutants.altered_tables_are_not_waited_for: AlteringHistory,
    mutants.what_is_in_progress_counts_as_shown: AlteringHistory,
    mutants.versions_stay_after_a_failed_run: AlteringHistory,
    mutants.what_a_transaction_drops_is_gone_before: AlteringHistory,
    mutants.a_window_closes_early: WindowsHistory,
    mutants.rows_beside_their_changes: WindowsHistory,
    mutants.a_lost_snapshot_is_an_altered_table: WindowsHistory,
    mutants.snapshots_do_not_wait_for_standbys: WaitingHistory,
    mutants.snapshots_are_read_before_they_are_flushed: CrashingHistory,
    mutants.rows_that_moved_are_not_looked_for: MovingHistory,
    mutants.what_a_snapshot_shows_is_not_from_the_log: FailoverRowsHistory,
    mutants.what_a_blocking_snapshot_shows_does_not_come_again: BlockingHistory,
}
"""The histories that find a fault soon, where others need many."""


def test_tables_are_delivered_as_they_were_and_wholly() -> None:
    totals = run(RowsHistory, range(HISTORIES))
    # that anything happened
    assert totals.starts > 2 * HISTORIES
    assert totals.changes > 10 * HISTORIES
    assert totals.lost < HISTORIES // 10


def test_a_standby_that_takes_over_between_two_sessions_loses_nothing() -> None:
    # with two in which an incremental snapshot once waited for transactions that the standby had never seen
    run(FailoverRowsHistory, [*range(100), 10_070, 10_401])


@pytest.mark.parametrize(
    "kind", [AlteringHistory, WaitingHistory, CrashingHistory, MovingHistory, WindowsHistory, BlockingHistory]
)
def test_what_is_seldom_elsewhere(kind: type[RowsHistory]) -> None:
    run(kind, range(25))


@pytest.mark.parametrize("mutant", OF_ROWS, ids=lambda mutant: mutant.__name__)
def test_a_known_fault_is_found(mutant: Mutant) -> None:
    with mutant(), pytest.raises(AssertionError):
        run(KINDS.get(mutant, RowsHistory), range(SELDOM.get(mutant, ENOUGH)))


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

    run(History, range(5))
