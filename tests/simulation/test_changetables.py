"""Histories of a query over change tables, as SQL Server and Db2 have them."""

from __future__ import annotations

import pytest

from tests.simulation import seeds

HISTORIES = 400


@pytest.mark.full
def test_nothing_is_lost_in_the_first_histories() -> None:
    totals = seeds.run("changetables", range(HISTORIES))
    # that anything happened
    assert totals.starts > 2 * HISTORIES
    assert totals.changes > 20 * HISTORIES
    assert totals.lost < HISTORIES // 4


@pytest.mark.parametrize("seed", [20015671, 20017008])
def test_the_present_is_read_by_a_session_that_has_reached_it(seed: int) -> None:
    """Histories in which a session is lost between two looks, and the next one is with a replica that is behind."""
    seeds.run("changetables", [seed])
