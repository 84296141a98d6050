"""Histories of a query over a replica set."""

from __future__ import annotations

import pytest

from tests.simulation import mutants
from tests.simulation.course import run
from tests.simulation.kinds import SignallingHistory, TailingHistory
from tests.simulation.mongodb import MongoHistory
from tests.simulation.mutants import OF_MONGODB, Mutant

HISTORIES = 600
ENOUGH = 300
"""A mutant must be found by so many histories."""
KINDS = {
    mutants.a_planned_window_counts_as_delivered: SignallingHistory,
    mutants.a_window_gives_what_has_changed: SignallingHistory,
    mutants.a_tail_is_taken_at_its_word: TailingHistory,
}
"""The histories that find a fault soon, where others need many."""


def test_nothing_is_lost_whatever_happens() -> None:
    totals = run(MongoHistory, range(HISTORIES))
    # that anything happened
    assert totals.starts > 2 * HISTORIES
    assert totals.changes > 20 * HISTORIES
    assert 0 < totals.lost < HISTORIES // 5


@pytest.mark.parametrize("kind", [SignallingHistory, TailingHistory])
def test_what_is_seldom_elsewhere(kind: type[MongoHistory]) -> None:
    run(kind, range(25))


@pytest.mark.parametrize("mutant", OF_MONGODB, ids=lambda mutant: mutant.__name__)
def test_a_known_fault_is_found(mutant: Mutant) -> None:
    # what the checks say, and no fault of the mutant itself
    with mutant(), pytest.raises(AssertionError):
        run(KINDS.get(mutant, MongoHistory), range(ENOUGH))


def test_a_seed_is_one_history() -> None:
    one, two = MongoHistory(1), MongoHistory(1)
    one.run()
    two.run()
    assert one.counts() == two.counts()
    assert one.world.turns == two.world.turns
    assert one.checkpoint.sink == two.checkpoint.sink
    assert one.checkpoint.commits
