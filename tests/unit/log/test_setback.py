"""How long a reader waits before it tries again."""

from __future__ import annotations

import pytest

from tailrace.log.feed import Setback


@pytest.mark.parametrize(("failures", "seconds"), [(0, 0.2), (1, 0.4), (5, 6.4), (6, 10.0), (5_000, 10.0)])
def test_pauses_grow_to_the_longest_however_long_the_server_is_away(failures: int, seconds: float) -> None:
    assert Setback("session", "", -1, 0.2, 10.0).pause(failures) == pytest.approx(seconds)
