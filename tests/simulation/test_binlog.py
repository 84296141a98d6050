"""Histories of a query over the binary log of MySQL and MariaDB."""

from __future__ import annotations

import pytest

from tests.simulation import seeds
from tests.simulation.binlog import BinlogHistory, Faults

HISTORIES = 600


@pytest.mark.full
def test_nothing_is_lost_in_the_first_histories() -> None:
    totals = seeds.run("binlog", range(HISTORIES))
    # enough has happened
    assert totals.starts > 2 * HISTORIES
    assert totals.changes > 20 * HISTORIES
    assert 0 < totals.lost < HISTORIES // 3


@pytest.mark.parametrize("seed", [19, 251, 571, 1016, 7003046])
def test_histories_that_have_found_something(seed: int) -> None:
    """A transaction is prepared while the log's end is looked up; a server takes over within a transaction, before the
    end of an AvailableNow query, or without having executed anything; a full spool keeps a transaction open that begins
    where such a query ends."""
    seeds.run("binlog", [seed])


def test_a_query_that_waits_for_changes_is_not_woken_while_none_arrive() -> None:
    """The reader and the planner once woke each other without end: time passes only when all wait."""
    one = BinlogHistory(4)
    odds = one.server.odds
    one.faults, one.interruption, one.available = Faults(0.0, 0.0, 0.0, 0.0), 0.0, 0.0
    odds.fails = odds.drops = odds.act = odds.prepares = 0.0
    with one.around():
        one.world.run(one._turn, lambda: one.world.turns >= 150, 151)
        now = one.world.now
        one.world.run(one._turn, lambda: one.world.now > now + 5, 3000)
        one.end()


def test_a_seed_is_one_history() -> None:
    one, two = BinlogHistory(1), BinlogHistory(1)
    one.run()
    two.run()
    assert one.counts() == two.counts()
    assert one.world.turns == two.world.turns
    assert one.checkpoint.sink == two.checkpoint.sink
    assert one.checkpoint.commits
