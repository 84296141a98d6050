"""PlannerMeasures: the measurements of a query, in a file that the driver reads. Planner.

The planner is a separate process on the driver's host. It adds up the reports of the tasks of committed batches, and
adds the state of its reader and of the server's log. It writes all of this into one file, at most once a second. Spark
passes the file's name to the driver, together with the newest position in each progress record.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tailrace.config.formats import part_format
from tailrace.config.rows import is_typed
from tailrace.connectors.registry import find
from tailrace.connectors.source_status import MEASURES
from tailrace.metrics.distribution import Histogram, Quantiles
from tailrace.metrics.reports import FILE, Reports
from tailrace.metrics.tally import Tally

if TYPE_CHECKING:
    from tailrace.config import Config
    from tailrace.log.contracts import Offset, Planner
    from tailrace.log.retention import LogRetention, SlotState

WRITE_SECONDS = 1.0
_SHARE = 200
"""Factor of the pause after a write, over the CPU time of the write: writes take at most half a percent of a core."""

CHEAP_SECONDS = 0.01
"""CPU time of a write, in seconds, below which the file is written after each batch."""

FIRST_SAMPLE_SECONDS = 5.0
"""Seconds before the first query for the server's log, so that a short run does not make this query."""

GROWTH_SECONDS = 300.0
"""The span over which the growth of a slot's log is measured."""

STAGES = ("commit_to_read", "read_to_plan", "plan_to_task", "convert")
"""The stages of a batch that the planner measures; Spark reports the other stages."""

_log = logging.getLogger("tailrace")


class PlannerMeasures:
    """The measurements of one query since its planner started.

    `place` is the path of the file. `reports` are the reports of the tasks of the running batch.
    """

    def __init__(self, config: Config, planner: Planner, clock: Callable[[], float] = time.time) -> None:
        self._config = config
        form = "rows" if is_typed(config) or config["row.blocks"] else part_format(config, "value")
        self._format = form if isinstance(form, str) else form.name
        self._planner = planner
        self._clock = clock
        self._started_s = clock()
        self.reports = Reports()
        self.place = os.path.join(self.reports.folder, FILE)
        self._tally = Tally()
        self._behind = Quantiles()
        self._histograms = {name: Histogram() for name in ("end_to_end", *STAGES)}
        self._batches = 0
        self._planned_s = self._arrived_s = self._committed_s = 0.0
        # when the newest change of the planned batch was read; None if it was not read before the batch was planned
        self._read_s: float | None = None
        self._is_idle = False
        # everything before this time is delivered; 0 until the first idle plan or committed batch
        self._whole_s = 0.0
        self._silent = 0
        self._newest: Offset = {}
        self._growth: dict[str, deque[tuple[float, int]]] = {}
        self._retention: dict[str, Any] = {}
        self._due = self._cost_s = 0.0
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    # --- the calls of the query ----------------------------------------------------------------------------------

    def committed(self, start: Offset) -> None:
        """Note that Spark has committed `start`: the reports of the batch that ends there count from now on."""
        reports = self.reports.delivered(start)
        if reports is None:
            return
        now = self._clock()
        with self._lock:
            batch = Tally()
            for report in reports:
                batch.merge(report)
                self._histograms["convert"].add(report["ended_s"] - report["began_s"])
                self._histograms["plan_to_task"].add(report["began_s"] - self._planned_s)
            self._tally.merge(batch.to_json())
            self._batches += 1
            self._silent += not reports
            self._committed_s = now
            if batch.newest_us:
                self._whole_s = max(self._whole_s, batch.newest_us / 1e6)
                self._behind.add((now - batch.newest_us / 1e6) * 1000)
                self._histograms["end_to_end"].add(now - batch.oldest_us / 1e6)
                read_s = self._planned_s if self._read_s is None else min(self._read_s, self._planned_s)
                self._histograms["commit_to_read"].add(read_s - batch.newest_us / 1e6)
                self._histograms["read_to_plan"].add(self._planned_s - read_s)
            if self._cost_s < CHEAP_SECONDS:
                # so that the file includes the last batch before the query ends
                self._due = 0.0
        self.write()

    def planned(self, start: Offset, end: Offset) -> None:
        """Note the end of the next batch; it is `start` if there is no batch."""
        # without a session nothing is known to be whole
        self._is_idle = start == end and self._planner.reading().is_connected
        if self._is_idle:
            self._whole_s = self._clock()
        elif start != end:
            self._planned_s = self._arrived_s = self._clock()
            self._read_s = self._planner.reading().planned_read_s
        if self._thread is None:
            self.write()
            self._thread = threading.Thread(
                target=_watch, args=(weakref.ref(self), self._closed), name="tailrace-measures", daemon=True
            )
            self._thread.start()

    def reported(self, newest: Offset | None) -> Offset:
        """Return the newest position as Spark reports it, with the file's place beside it."""
        self._newest = newest or {}
        return self._newest | {MEASURES: self.place}

    def close(self) -> None:
        """Write the last numbers, and end the thread."""
        self._closed.set()
        self._due = 0.0
        self.write()

    # --- the file ------------------------------------------------------------------------------------------------

    def write(self) -> None:
        """Write the file, unless the pause after the last write is not over. Never fails."""
        with self._lock:
            if time.monotonic() < self._due:
                return
            began_s = time.thread_time()
            part = f"{self.place}.part"
            with suppress(OSError):
                with open(part, "w", encoding="utf-8") as file:
                    file.write(json.dumps(self._content()))
                os.replace(part, self.place)
            self._cost_s = time.thread_time() - began_s
            self._due = time.monotonic() + max(WRITE_SECONDS, _SHARE * self._cost_s)

    def _content(self) -> dict[str, Any]:
        config = self._config
        return {
            "at_s": self._clock(),
            "started_s": self._started_s,
            "connector": config.connector,
            "server": config.logical_name,
            "name": str(config["name"] or config.logical_name),
            "tags": config["custom.metric.tags"],
            "event_name": config.traits.event_name,
            "plugin": config.traits.bean or config.connector,
            "has_task": config.traits.bean_has_task,
            "disconnects": config.traits.bean_disconnects,
            "databases": config.get("database.names") or [],
            "most_tables": config["metrics.tables.max"],
            "queue_places": config.get("max.queue.size") or 0,
            "unchanged": (self._newest.get("unchanged", 0)) if config.get("skip.messages.without.change") else -1,
            "format": self._format,
            "reading": dataclasses.asdict(self._planner.reading()),
            "is_idle": self._is_idle,
            "arrived_s": self._arrived_s,
            "committed_s": self._committed_s,
            "batches": self._batches,
            "silent_batches": self._silent,
            "tally": self._tally.to_json(),
            "whole_s": self._whole_s,
            "behind_ms": self._behind.to_json() if config["statistics.metrics.enabled"] else {},
            "histograms": {name: one.to_json() for name, one in self._histograms.items()},
            "retention": self._retention,
        }

    # --- the server's log ----------------------------------------------------------------------------------------

    def sample(self) -> None:
        """Note the log that the server retains, from the planner or, if it has no information, from a query to the
        server.

        Never fails: after an error, no retention is known.
        """
        try:
            found = self._planner.retention()
            retaining = find(self._config.connector).load_retention() if found is None else None
            if retaining is not None:
                behind_s = 0.0 if self._is_idle else max(0.0, self._clock() - (self._whole_s or self._started_s))
                found = self._planner.heed(dataclasses.replace(retaining(self._config), behind_s=behind_s))
        except Exception as error:
            _log.debug("the server does not tell what it keeps of its log (%s)", type(error).__name__)
            found = None
        self._retention = {} if found is None else self._with_growth(found)

    def _with_growth(self, found: LogRetention) -> dict[str, Any]:
        now = self._clock()
        self._growth = {slot.name: self._growth.get(slot.name, deque(maxlen=64)) for slot in found.slots}
        slots = [dataclasses.asdict(slot) | self._forecast(slot, now) for slot in found.slots]
        return dataclasses.asdict(found) | {"at_s": now, "slots": slots, "percent": found.percent}

    def _forecast(self, slot: SlotState, now: float) -> dict[str, float | None]:
        """Return the growth of the slot's log over some minutes, and the seconds until its limit at this growth."""
        if slot.retained_bytes is None:
            return {"growth_bytes_s": None, "limit_s": None}
        known = self._growth[slot.name]
        known.append((now, slot.retained_bytes))
        while known[0][0] < now - GROWTH_SECONDS:
            known.popleft()
        if len(known) < 3:
            return {"growth_bytes_s": None, "limit_s": None}
        growth = slope(known)
        limit = slot.limit_bytes
        left = None if limit is None or growth <= 0 else max(limit - slot.retained_bytes, 0) / growth
        return {"growth_bytes_s": growth, "limit_s": left}


def slope(points: deque[tuple[float, int]]) -> float:
    """Return the slope of the line that fits the points best, by least squares; 0 if all have the same time."""
    count = len(points)
    middle_x, middle_y = (sum(point[axis] for point in points) / count for axis in (0, 1))
    spread = sum((x - middle_x) ** 2 for x, _ in points)
    return sum((x - middle_x) * (y - middle_y) for x, y in points) / spread if spread else 0.0


def _watch(owner: weakref.ref[PlannerMeasures], closed: threading.Event) -> None:
    """Write the file and sample the server's log until the owner is closed or garbage-collected."""
    due = time.monotonic() + FIRST_SAMPLE_SECONDS
    while not closed.wait(WRITE_SECONDS):
        measures = owner()
        if measures is None:
            return
        interval_s = measures._config["metrics.interval.ms"] / 1000
        if interval_s and time.monotonic() >= due:
            measures.sample()
            due = time.monotonic() + interval_s
        measures.write()
        del measures
