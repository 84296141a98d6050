"""Histories of a query over change tables, as of SQL Server and Db2."""

from __future__ import annotations

import pytest

from tests.simulation import seeds

HISTORIES = 400


@pytest.mark.full
def test_nothing_is_lost_in_the_first_histories() -> None:
    totals = seeds.run("changetables", range(HISTORIES))
    # enough has happened
    assert totals.starts > 2 * HISTORIES
    assert totals.changes > 20 * HISTORIES
    assert totals.lost < HISTORIES // 4


@pytest.mark.parametrize("seed", [20015671, 20017008])
def test_the_present_is_read_by_a_session_that_has_reached_it(seed: int) -> None:
    """Histories in which a session is lost between two calls, and the next session is with a replica that lags."""
    seeds.run("changetables", [seed])
