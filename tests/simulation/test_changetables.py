"""Histories of a query over change tables, as SQL Server and Db2 have them."""

from __future__ import annotations

import pytest

from tests.simulation.changetables import TablesHistory
from tests.simulation.mutants import OF_TABLES, Mutant, a_failed_call_is_not_rolled_back
from tests.simulation.world import noting

HISTORIES = 80
ENOUGH = 60
"""A mutant must be found by so many histories."""


def run(seeds: range) -> list[TablesHistory]:
    found = []
    for seed in seeds:
        with noting(seed):
            one = TablesHistory(seed)
            one.run()
        found.append(one)
    return found


def test_nothing_is_lost_whatever_happens() -> None:
    found = run(range(HISTORIES))
    # that anything happened
    assert sum(one.starts for one in found) > 2 * HISTORIES
    assert sum(len(rows) for one in found for rows in one.delivered.values()) > 20 * HISTORIES
    assert sum(one.is_lost for one in found) < HISTORIES // 4


@pytest.mark.parametrize("mutant", OF_TABLES, ids=lambda mutant: mutant.__name__)
def test_a_known_fault_is_found(mutant: Mutant) -> None:
    # what the checks say, and no fault of the mutant itself; a planner that is half begun knows of no database
    with (
        mutant(),
        pytest.raises((AssertionError, KeyError) if mutant is a_failed_call_is_not_rolled_back else AssertionError),
    ):
        run(range(ENOUGH))
