"""Histories of a simulated machine: despite all faults, nothing is lost or out of order.

The histories of the day are in `test_histories.py`; here are the first ones, and single ones.
"""

from __future__ import annotations

import pytest

from tests.simulation import seeds
from tests.simulation.history import History

HISTORIES = 8_400
BLOCK = 1_200


@pytest.mark.full
@pytest.mark.parametrize("first", range(0, HISTORIES, BLOCK))
def test_nothing_is_lost_in_the_first_histories(first: int) -> None:
    totals = seeds.run("postgres", range(first, first + BLOCK))
    # enough has happened
    assert totals.starts > 2 * BLOCK
    assert totals.changes > 20 * BLOCK
    assert 0 < totals.lost < BLOCK // 10


@pytest.mark.full
def test_a_standby_that_takes_over_between_two_sessions_loses_nothing() -> None:
    totals = seeds.run("postgres-failover", range(200))
    assert totals.starts > 2 * 200
    assert totals.lost


@pytest.mark.full
def test_what_lies_between_two_halves_of_a_slice_is_not_lost() -> None:
    assert seeds.run("postgres-halves", range(200)).changes > 20 * 200


def test_a_seed_is_one_history() -> None:
    # this seed has no position with the machine's real time
    one, two = History(2), History(2)
    one.run()
    two.run()
    assert one.checkpoint == two.checkpoint
    assert one.world.turns == two.world.turns
    assert one.checkpoint.commits
