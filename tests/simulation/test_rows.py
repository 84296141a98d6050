"""Histories of tables with rows: snapshots, windows and altered tables, with faults."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tailrace.connectors.postgres.schema import catalog
from tests.simulation import seeds
from tests.simulation.course import run
from tests.simulation.database import Database
from tests.simulation.rows import RowsHistory
from tests.simulation.server import Odds, Rows
from tests.simulation.sessions import TableSession
from tests.simulation.world import Process

HISTORIES = 500


@pytest.mark.full
def test_tables_are_delivered_as_they_were_and_wholly() -> None:
    totals = seeds.run("postgres-rows", range(HISTORIES))
    # enough has happened
    assert totals.starts > 2 * HISTORIES
    assert totals.changes > 10 * HISTORIES
    assert totals.lost < HISTORIES // 10


@pytest.mark.full
def test_a_standby_that_takes_over_between_two_sessions_loses_nothing() -> None:
    seeds.run("postgres-rows-failover", range(100))


@pytest.mark.parametrize("seed", [10_070, 10_401])
def test_a_snapshot_does_not_wait_for_what_a_standby_has_never_seen(seed: int) -> None:
    """Histories in which an incremental snapshot once waited for transactions of the previous server."""
    seeds.run("postgres-rows-failover", [seed])


@pytest.mark.full
@pytest.mark.parametrize("kind", ["altering", "waiting", "crashing", "moving", "windows", "blocking"])
def test_what_is_seldom_elsewhere(kind: str) -> None:
    seeds.run(f"postgres-rows-{kind}", range(25))


class Renaming(TableSession):
    """A session during whose queries of columns somebody renames a key."""

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
