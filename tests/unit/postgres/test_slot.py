"""The slot's position in the planner."""

from __future__ import annotations

from threading import Thread

import pytest

from tailrace.connectors.postgres.log import slot
from tailrace.connectors.postgres.protocol.position import confirmed
from tailrace.process.runtime import THREADS


@pytest.mark.parametrize("stands", [10, 12])
def test_who_waits_for_an_acknowledgement_is_woken_where_the_slot_is_there_already(
    stands: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slot, "ASK_SECONDS", 3600.0)
    found = slot.Slot("s", 1, THREADS)
    found.acknowledge(confirmed(10))
    waiting = Thread(target=found.wait, daemon=True)
    waiting.start()
    found.found_at(confirmed(stands))
    waiting.join(30)
    assert not waiting.is_alive()
