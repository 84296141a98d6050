"""Health of an observed query, in the words of Debezium Server's probes. Driver."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tailrace.monitoring.observation import Observation

LIVE, READY, STARTED, ALL = "live", "ready", "started", "all"


class Health:
    """Answers whether the query lives, is ready, and has started.

    The query lives while it starts, and then while its loop turns; without a sign of life for `timeout_s` seconds it is
    stuck. It is ready while its loop turns, the session to the database stands, the server keeps its slot, and no
    single writer waits for its destination. It has started after its first batch, or once it has found that there is
    nothing to deliver.
    """

    def __init__(self, observation: Observation, timeout_s: float, clock: Callable[[], float] = time.time) -> None:
        self._observation = observation
        self.timeout_s = timeout_s
        self._clock = clock
        # the number of lost sessions at the latest look
        self._lost = 0

    def checks(self, group: str) -> dict[str, bool]:
        """Return the checks of a group by name: True for UP, False for DOWN."""
        observation = self._observation
        phase = observation.phase
        # a start may take long, and has a probe of its own
        is_turning = phase == "running" and self._clock() - observation.alive_s < self.timeout_s
        is_live = is_turning or phase == "starting"
        found = {"debezium": is_turning}
        if group == LIVE:
            return {"debezium": is_live}
        if group in (READY, ALL):
            found |= self._ready(phase)
        return found

    def has_planner(self) -> bool:
        """Return True unless the planner's process has written no numbers within the time-out."""
        written_s = self._observation.measures().get("at_s")
        return written_s is None or self._clock() - written_s < self.timeout_s

    def has_tried_again(self) -> bool:
        """Return True if the planner has lost sessions since the last call: it repeats a call for them, and lives."""
        lost = sum(self._observation.measures().get("reading", {}).get("setbacks", {}).values())
        before, self._lost = self._lost, lost
        return bool(lost > before)

    def _ready(self, phase: str) -> dict[str, bool]:
        measures, ending = self._observation.measures(), self._observation.ending
        kind = "" if ending is None or ending.error is None else type(ending.error).__name__
        own_slots = [slot for slot in measures.get("retention", {}).get("slots", []) if slot["is_own"]]
        is_running, sink = phase == "running", self._observation.sink
        return {
            "source": is_running and bool(measures.get("reading", {}).get("is_connected")),
            "sink": is_running and kind != "SinkError" and not (sink is not None and sink.is_waiting),
            "checkpoint": is_running and kind != "PositionLost",
            "slot": is_running and all(slot["status"] != "lost" for slot in own_slots),
        }

    def answer(self, group: str) -> tuple[bool, dict[str, Any]]:
        """Return True if all checks of the group are UP, and the answer's body, to be sent as JSON."""
        checks = self.checks(group)
        is_up = all(checks.values())
        words = {True: "UP", False: "DOWN"}
        return is_up, {
            "status": words[is_up],
            "checks": [{"name": name, "status": words[is_passed]} for name, is_passed in checks.items()],
        }
