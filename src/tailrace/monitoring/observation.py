"""Observation: the known state of a running query, from Spark's progress and the planner's numbers. Driver."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

from tailrace.connectors.source_status import MEASURES, Describe, Offsets, SourceStatus, TableProgress
from tailrace.errors import TailraceError
from tailrace.metrics.distribution import Histogram
from tailrace.metrics.reports import FILE
from tailrace.metrics.tally import OPS, OTHER, SinkCounts
from tailrace.monitoring.status import Status, offset_of

HISTORY_SECONDS = 3600.0
"""The span of the history of rate and lag."""

HISTORY_STEP_SECONDS = 10.0
"""The shortest time between two points of the history, which bounds its length."""

FAILED_KINDS = {
    1: "other", 2: "configuration", 3: "connection", 4: "prerequisite", 5: "position", 6: "decoding", 7: "conversion",
    8: "sink", 9: "jvm", 10: "process", 11: "disk", 12: "registry", 14: "checkpoint",
}  # fmt: skip
"""The kind of an error in metrics, by its exit code."""


@dataclass(slots=True)
class SnapshotWatch:
    """The latest snapshot since the start: its tables and pauses. Times are in s since 1970, 0 without a snapshot."""

    is_running: bool = False
    is_paused: bool = False
    total: int = 0
    remaining: int = 0
    began_s: float = 0.0
    ended_s: float = 0.0
    paused_s: float = 0.0
    _looked_s: float = 0.0

    def see(self, status: Status, now: float) -> None:
        """Update the watch by a progress record that came at the time `now`."""
        reading = status.snapshot is not None or bool(status.tables)
        held = set(status.commands.get("paused", ())) - {table.table for table in status.tables}
        # a snapshot whose tables are all paused is not over
        is_running = reading or bool(held)
        if is_running and not self.is_running:
            self.began_s, self.ended_s, self.paused_s, self.total = now, 0.0, 0.0, 0
        if self.is_running and self.is_paused:
            self.paused_s += now - self._looked_s
        if self.is_running and not is_running:
            self.ended_s = now
        waiting = max((len(table.waiting) for table in status.tables), default=0)
        self.remaining = len(status.tables) + waiting + len(held)
        if status.snapshot is not None and status.snapshot.unit == "tables":
            self.remaining = max(self.remaining, status.snapshot.of - status.snapshot.done)
            self.total = status.snapshot.of
        self.total = max(self.total, self.remaining)
        self.is_paused = any(table.paused for table in status.tables) or (is_running and not reading)
        self.is_running, self._looked_s = is_running, now

    def seconds(self, now: float) -> float:
        """Return the duration of the latest snapshot so far."""
        return (self.ended_s or now) - self.began_s if self.began_s else 0.0


@dataclass(slots=True)
class Ending:
    """The end of a query: its error, or None if it was stopped or has reached its end."""

    at_s: float
    error: TailraceError | None


@dataclass(slots=True)
class PipelineNames:
    """The names of a pipeline: its own name, its `topic.prefix`, and its connector; "" if not known yet."""

    pipeline: str = ""
    server: str = ""
    connector: str = ""


class Observation:
    """The observation of one query. All methods may be called by any thread.

    `describe` returns a connector's function that describes offsets. `names` are known from the planner's file at the
    latest. `clock` returns s since 1970. `sink` has the counts of a sink with a single writer.
    """

    def __init__(
        self,
        describe: Callable[[str], Describe],
        names: PipelineNames | None = None,
        clock: Callable[[], float] = time.time,
        sink: SinkCounts | None = None,
    ) -> None:
        self.sink = sink
        self._describe = describe
        self._clock = clock
        self._lock = threading.Lock()
        self._measures: dict[str, Any] = {}
        self._place: Path | None = None
        self._folder: Path | None = None
        self._version: tuple[int, int] = (0, 0)
        self._status: Status | None = None
        self.names = names or PipelineNames()
        self.started_s = clock()
        self.ticked_s = 0.0
        self.alive_s = self.started_s
        self.batches = 0
        self.events = 0
        self.quarantined = 0
        self.committed_s = 0.0
        self.ending: Ending | None = None
        self.snapshot = SnapshotWatch()
        self.durations = {name: Histogram() for name in ("batch", "write", "commit")}
        self._last_batch = -1
        self._end: Offsets = {}
        # a batch's end, the log's end, and the bytes between them, as last computed
        self._last_lag: tuple[Offsets, Offsets, int | None] = ({}, {}, None)
        self._history: deque[tuple[float, float, float | None, int | None]] = deque()

    # --- what is observed ----------------------------------------------------------------------------------------

    def look_in(self, folder: Path) -> None:
        """Look for the planner's file in `folder`, which only this query uses, until a progress record names the file.

        There is no progress record until the query has found changes to deliver.
        """
        self._folder = folder

    def update(self, progress: Mapping[str, Any]) -> None:
        """Take over a progress record of Spark, as parsed JSON. The same record may come several times."""
        now = self._clock()
        source: Mapping[str, Any] = (progress.get("sources") or [{}])[0]
        newest = source.get("latestOffset")
        with suppress(ValueError, TypeError):
            newest = json.loads(newest) if isinstance(newest, str) else newest
        place = newest.get(MEASURES) if isinstance(newest, dict) else None
        with self._lock:
            if isinstance(place, str):
                self._place = Path(place)
            self._read()
            status = Status.of(progress, self._described)
            self._end = offset_of(source.get("endOffset"))
            self._status = status
            self.ticked_s = self.alive_s = now
            self.snapshot.see(status, now)
            # without new rows Spark keeps reporting, under the number of the next batch
            if status.events and status.batch != self._last_batch:
                self._last_batch = status.batch
                self.batches += 1
                self.events += status.events
                self.quarantined += status.quarantined
                self.committed_s = now
                took = progress.get("durationMs") or {}
                for name, parts in _DURATIONS.items():
                    self.durations[name].add(sum(took.get(part, 0) for part in parts) / 1000)
            self._note(now, status)

    def catch_up(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Take over the progress records, oldest first, of batches after the last one that is known."""
        for record in records:
            if record["batchId"] > self._last_batch:
                self.update(record)

    def tick(self) -> None:
        """Note that Spark has asked for a batch and found none."""
        self.ticked_s = self.alive_s = self._clock()

    def beat(self) -> None:
        """Note that Spark works on a batch."""
        self.alive_s = self._clock()

    def end(self, error: TailraceError | None) -> None:
        """Note that the query has ended; `error` is its failure, None if it was stopped or has reached its end."""
        with self._lock:
            self._read()
            if self.ending is None:
                self.ending = Ending(self._clock(), error)

    def _described(self, end: Mapping[str, Any], newest: Mapping[str, Any]) -> SourceStatus:
        return self._describe(self.names.connector)(end, newest)

    def _note(self, now: float, status: Status) -> None:
        """Add a point to the history, or replace the last one if it is young."""
        kept = self._history
        point = (now, status.rate, self._lag_s(status, now), self._lag_bytes(status))
        if len(kept) > 1 and now - kept[-2][0] < HISTORY_STEP_SECONDS:
            kept.pop()
        kept.append(point)
        while kept[0][0] < now - HISTORY_SECONDS:
            kept.popleft()

    def _lag_s(self, status: Status | None, now: float) -> float | None:
        """Return the age of the moment up to which everything is delivered, 0 if nothing waits; None before the first
        change."""
        reading = self._measures.get("reading") or {}
        # the planner may wait for its database in a call, and has found nothing before it
        is_known = reading.get("is_connected") or self.ending is not None
        if self._measures.get("is_idle") and is_known and not reading["held_bytes"]:
            return 0.0
        whole_s: float = self._measures.get("whole_s", 0.0)
        if whole_s:
            return max(0.0, now - whole_s)
        return None if status is None else status.lag_s

    def _lag_bytes(self, status: Status) -> int | None:
        """Return the bytes of log after the last batch; None if unknown.

        A reader that waits for a slow sink does not learn the log's end. So the end that the server reports to the
        watch of its retention counts too.
        """
        newest = (self._measures.get("retention") or {}).get("newest")
        server_lag = None
        if newest is not None and self._end and self.ending is None:
            if (self._end, newest) != self._last_lag[:2]:
                with suppress(Exception):
                    server_lag = self._described(self._end, newest).lag_bytes
                self._last_lag = self._end, newest, server_lag
            server_lag = self._last_lag[2]
        return max((lag for lag in (server_lag, status.lag_bytes) if lag is not None), default=None)

    # --- the planner's numbers -----------------------------------------------------------------------------------

    def _read(self) -> None:
        """Read the planner's file if it has changed; keep the last numbers if the file is gone with the planner."""
        place = self._place
        if place is None and self._folder is not None:
            place = next(self._folder.glob(f"*/{FILE}"), None)
        if place is None:
            return
        with suppress(OSError, ValueError):
            found = place.stat()
            # the planner replaces the file, so each version has an inode and a time of its own
            version = (found.st_ino, found.st_mtime_ns)
            if version == self._version:
                return
            self._measures = json.loads(place.read_text("utf-8"))
            self._version = version
            named = PipelineNames(*(str(self._measures[name]) for name in ("name", "server", "connector")))
            self.names = PipelineNames(self.names.pipeline or named.pipeline, named.server, named.connector)

    def measures(self) -> Mapping[str, Any]:
        """Return the newest numbers of the planner, as its file has them; empty before the first batch."""
        with self._lock:
            if self.ending is None:
                self._read()
            return self._measures

    # --- the state -----------------------------------------------------------------------------------------------

    @property
    def phase(self) -> str:
        """`starting`, `running`, `ended` or `failed`."""
        if self.ending is not None:
            return "ended" if self.ending.error is None else "failed"
        return "running" if self.ticked_s else "starting"

    def state(self) -> dict[str, Any]:
        """Return the state as `tailrace status --json` prints it."""
        measures = self.measures()
        with self._lock:
            now, status = self._clock(), self._status
            reading = measures.get("reading") or {}
            retention = measures.get("retention") or {}
            error = None if self.ending is None else self.ending.error
            return {
                "pipeline": self.names.pipeline,
                "server": self.names.server,
                "connector": self.names.connector,
                "version": version_of("tailrace"),
                "state": self.phase,
                "error": None if error is None else told(error),
                "at_s": now,
                "started_s": self.started_s,
                "ended_s": None if self.ending is None else self.ending.at_s,
                "committed_s": self.committed_s or None,
                "batch": None if status is None else status.batch,
                "batches": self.batches,
                "events": self.events,
                "rate": 0.0 if status is None or self.ending is not None else status.rate,
                "lag_s": self._lag_s(status, now),
                "lag_bytes": None if status is None else self._lag_bytes(status),
                "position": "" if status is None else status.position,
                "is_connected": bool(reading.get("is_connected")) and self.ending is None,
                "setbacks": reading.get("setbacks", {}),
                "spool": {"bytes": reading.get("held_bytes", 0), "limit_bytes": reading.get("limit_bytes", 0)},
                "quarantined": self.quarantined,
                "snapshot": self._snapshot(status, now),
                "tables": self._tables(measures, status),
                "commands": {} if status is None else dict(status.commands),
                "slots": retention.get("slots", []),
                "log": {
                    name: retention.get(name)
                    for name in ("oldest_s", "kept_s", "lasting_s", "behind_s", "percent", "level")
                },
                "history": [list(point) for point in self._history],
            }

    def _snapshot(self, status: Status | None, now: float) -> dict[str, Any]:
        watch, found = self.snapshot, None if status is None else status.snapshot
        return {
            "state": "paused"
            if watch.is_paused
            else "running"
            if watch.is_running
            else "done"
            if watch.ended_s
            else "",
            "seconds": watch.seconds(now),
            "tables": watch.total,
            "tables_remaining": watch.remaining,
            "done": None if found is None else found.done,
            "of": None if found is None else found.of,
            "unit": None if found is None else found.unit,
        }

    def _tables(self, measures: Mapping[str, Any], status: Status | None) -> list[dict[str, Any]]:
        """Return the tables as entries of the state.

        First come tables that are in a snapshot, wait for it, or are paused, then those with the most changes; the rest
        share an entry.
        """
        tally = measures.get("tally") or {}
        counts, quarantined = dict(tally.get("events", {})), tally.get("quarantined", {})
        reading = {} if status is None else {progress.table: progress for progress in status.tables}
        paused = set() if status is None else set(status.commands.get("paused", ()))
        most = measures.get("most_tables", 0)
        waiting = dict.fromkeys(
            name for progress in reading.values() for name in progress.waiting[:most] if name not in reading
        )
        first = dict.fromkeys([*reading, *sorted(paused), *waiting])
        ranked = sorted(counts.keys() - {OTHER}, key=lambda table: (table not in first, -sum(counts[table]), table))
        shown = [*(name for name in first if name not in counts), *ranked[:most]]
        rest = [*ranked[most:], *({OTHER} & counts.keys())]
        if rest:
            counts[OTHER] = [sum(of) for of in zip(*(counts[table] for table in rest), strict=True)]
            shown.append(OTHER)
        return [
            {
                "table": table,
                "phase": _phase(reading.get(table), table in paused, table in waiting),
                "events": dict(zip(OPS, counts.get(table, [0] * len(OPS)), strict=True)),
                "quarantined": sum(
                    sum(quarantined.get(name, {}).values()) for name in (rest if table == OTHER else [table])
                ),
                "rows": None if table not in reading else reading[table].done,
                "rows_expected": None if table not in reading else reading[table].of,
                "unit": None if table not in reading else reading[table].unit,
            }
            for table in shown
        ]


_DURATIONS = {
    "batch": ("triggerExecution",),
    "write": ("addBatch",),
    "commit": ("walCommit", "commitOffsets"),
}
"""The parts of Spark's `durationMs` that make a stage."""


def _phase(reading: TableProgress | None, is_paused: bool, is_waiting: bool) -> str:
    if is_paused:
        return "reading paused"
    if reading is None:
        return "snapshot waiting" if is_waiting else "streaming"
    return "snapshot paused" if reading.paused else "snapshot"


def told(error: TailraceError) -> dict[str, Any]:
    """Return an error as an entry of the state: kind, exit code, message and remedy."""
    kind = FAILED_KINDS.get(error.exit_code, "other")
    return {"kind": kind, "exit_code": error.exit_code, "message": error.message, "remedy": error.remedy}
