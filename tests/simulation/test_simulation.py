"""Histories of a simulated machine: whatever dies, whenever, nothing is lost and no order is broken.

`make simulate` runs others, as many as is wanted.
"""

from __future__ import annotations

import pytest

from tailrace.errors import DecodeError
from tests.simulation import mutants
from tests.simulation.course import run
from tests.simulation.history import History
from tests.simulation.kinds import FailoverHistory, PromotedHistory
from tests.simulation.mutants import MUTANTS, Mutant

HISTORIES = 8_400
BLOCK = 1_200
ENOUGH = 1_000
"""A mutant must be found by so many histories."""
KINDS = {
    mutants.a_log_counts_as_read_before_it_is_known: PromotedHistory,
    mutants.a_stream_begins_whatever_the_server: FailoverHistory,
}
"""The histories that find a fault soon, where others need many."""


@pytest.mark.parametrize("first", range(0, HISTORIES, BLOCK))
def test_nothing_is_lost_whatever_happens(first: int) -> None:
    totals = run(History, range(first, first + BLOCK))
    # that anything happened
    assert totals.starts > 2 * BLOCK
    assert totals.changes > 20 * BLOCK
    assert 0 < totals.lost < BLOCK // 10


def test_a_standby_that_takes_over_between_two_sessions_loses_nothing() -> None:
    totals = run(FailoverHistory, range(200))
    assert totals.starts > 2 * 200
    assert totals.lost


def test_what_lies_between_two_halves_of_a_slice_is_not_lost() -> None:
    with mutants.halves_lie_apart():
        assert run(History, range(200)).changes > 20 * 200


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_known_fault_is_found(mutant: Mutant) -> None:
    # what the checks say, and no fault of the mutant itself
    shown = DecodeError if mutant is mutants.the_open_transaction_outlives_its_session else AssertionError
    with mutant(), pytest.raises(shown):
        run(KINDS.get(mutant, History), range(ENOUGH))


def test_a_seed_is_one_history() -> None:
    # one without a position of the machine's own time
    one, two = History(2), History(2)
    one.run()
    two.run()
    assert one.checkpoint == two.checkpoint
    assert one.world.turns == two.world.turns
    assert one.checkpoint.commits
