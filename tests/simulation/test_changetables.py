"""Histories of a query over change tables, as SQL Server and Db2 have them."""

from __future__ import annotations

import pytest

from tests.simulation.changetables import TablesHistory
from tests.simulation.course import run
from tests.simulation.mutants import OF_TABLES, Mutant, a_failed_call_is_not_rolled_back

HISTORIES = 400
ENOUGH = 60
"""A mutant must be found by so many histories."""
SELDOM = range(150, 250)
"""A start that fails and is tried again, with rows that no change repeats, is seldom."""


def test_nothing_is_lost_whatever_happens() -> None:
    totals = run(TablesHistory, range(HISTORIES))
    # that anything happened
    assert totals.starts > 2 * HISTORIES
    assert totals.changes > 20 * HISTORIES
    assert totals.lost < HISTORIES // 4


@pytest.mark.parametrize("seed", [20015671, 20017008])
def test_the_present_is_read_by_a_session_that_has_reached_it(seed: int) -> None:
    """Histories in which a session is lost between two looks, and the next one is with a replica that is behind."""
    run(TablesHistory, [seed])


@pytest.mark.parametrize("mutant", OF_TABLES, ids=lambda mutant: mutant.__name__)
def test_a_known_fault_is_found(mutant: Mutant) -> None:
    # what the checks say, and no fault of the mutant itself; a planner that is half begun knows of no database
    with (
        mutant(),
        pytest.raises((AssertionError, KeyError) if mutant is a_failed_call_is_not_rolled_back else AssertionError),
    ):
        run(TablesHistory, SELDOM if mutant is a_failed_call_is_not_rolled_back else range(ENOUGH))
