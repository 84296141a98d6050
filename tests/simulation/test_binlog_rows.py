"""Histories of tables of MySQL and MariaDB with rows: snapshots and windows, with faults."""

from __future__ import annotations

import pytest

from tailrace.connectors.binlog.log import indexed_run
from tests.simulation import seeds

HISTORIES = 300


@pytest.mark.full
def test_snapshots_and_changes_lead_to_the_rows_of_the_tables() -> None:
    totals = seeds.run("binlog-rows", range(HISTORIES))
    # enough has happened
    assert totals.starts > 2 * HISTORIES
    assert totals.changes > 20 * HISTORIES
    assert 0 < totals.lost < HISTORIES // 3


@pytest.mark.full
def test_a_server_that_takes_over_while_a_snapshot_runs_loses_nothing() -> None:
    seeds.run("binlog-rows-failover", range(60))


@pytest.mark.full
def test_no_snapshot_shows_rows_as_they_were_before_what_was_delivered() -> None:
    seeds.run("binlog-rows-lagging", range(60))


@pytest.mark.parametrize("seed", [11, 47, 161, 300, 1045])
def test_histories_that_have_found_something(seed: int) -> None:
    """A table is altered between a snapshot's point and its plan; a session ends within an answer, or within a row; a
    lock outlives the attempt to take a point; a window is opened on a server whose log is not read yet."""
    seeds.run("binlog-rows", [seed])


@pytest.mark.parametrize("most", [0, 1])
def test_runs_stay_apart_that_would_have_too_many_joints(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """These seeds find positions that lack transactions between joined runs."""
    monkeypatch.setattr(indexed_run, "MOST_JOINTS", most)
    joined = indexed_run.IndexedRun.joined

    def watched(run: indexed_run.IndexedRun, other: indexed_run.IndexedRun) -> indexed_run.IndexedRun | None:
        found = joined(run, other)
        assert found is None or len(found.joints) <= most
        return found

    monkeypatch.setattr(indexed_run.IndexedRun, "joined", watched)
    seeds.run("binlog-rows", [37, 34, 9])
