"""A lost session is replaced a limited number of times, with growing pauses."""

from __future__ import annotations

import pytest

from tailrace.log.contracts import DISK_RETRIES, Setback

LOST = Setback("session", "it is gone", -1, 0.2, 10.0, OSError())


def test_pauses_grow_up_to_the_longest_and_stay_there() -> None:
    assert [LOST.pause(failures) for failures in range(5)] == [0.2, 0.4, 0.8, 1.6, 3.2]
    # The server is unreachable for days.
    assert LOST.pause(100_000) == 10.0


@pytest.mark.parametrize(("limit", "of_disk"), [(-1, DISK_RETRIES), (3, 3), (100, DISK_RETRIES), (0, 0)])
def test_a_disk_that_takes_nothing_is_tried_a_few_times(limit: int, of_disk: int) -> None:
    found = Setback("session", "it is full", limit, 0.2, 10.0, OSError()).of_disk()
    assert (found.kind, found.limit) == ("disk", of_disk)
