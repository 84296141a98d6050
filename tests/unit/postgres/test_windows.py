"""Streamed: the transactions of the log that a snapshot may not show yet."""

from __future__ import annotations

import numpy as np

from tailrace.columns.batch import Flags, Int64s
from tailrace.connectors.postgres.log.visibility import UnsettledTransactions, VisibleTransactions

LATE = VisibleTransactions.parse("3000000000:3000000010:3000000005")


def test_transactions_count_until_a_snapshot_shows_them() -> None:
    streamed = UnsettledTransactions()
    streamed.add(np.array([2_999_999_999, 3_000_000_005, 3_000_000_011]), np.array([10, 20, 30]))
    assert streamed.hidden(LATE, 25) == 1
    assert len(streamed) == 2
    assert streamed.hidden(VisibleTransactions.parse("3000000012:3000000012:")) == 0
    assert len(streamed) == 0


def test_a_message_outside_of_transactions_hides_nothing() -> None:
    """Its id is 0, which belongs to the next 2^32 transactions once more than half of these have gone by."""
    streamed = UnsettledTransactions()
    streamed.add(np.array([0, 2_999_999_999]), np.array([5, 10]))
    assert streamed.hidden(LATE, 100) == 0
    assert len(streamed) == 0


class Interrupted(VisibleTransactions):
    """A snapshot during which the reader reaches a server that was promoted."""

    streamed: UnsettledTransactions

    def shows(self, xids: Int64s) -> Flags:
        self.streamed.clear()
        return super().shows(xids)


def test_what_another_server_had_is_not_waited_for() -> None:
    streamed = UnsettledTransactions()
    streamed.add(np.array([3_000_000_005]), np.array([20]))
    streamed.clear()
    assert streamed.hidden(LATE) == 0
    # also while another thread asks
    streamed.add(np.array([3_000_000_005]), np.array([20]))
    snapshot = Interrupted(LATE.xmin, LATE.xmax, LATE.in_progress, LATE.before_lsn)
    object.__setattr__(snapshot, "streamed", streamed)
    assert streamed.hidden(snapshot) == 1
    assert len(streamed) == 0
    assert streamed.hidden(LATE) == 0
