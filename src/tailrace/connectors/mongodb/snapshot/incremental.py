"""Incremental: what the planner does for signals and incremental snapshots, beside reading the log. Planner."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tailrace.connectors.mongodb.log.chunk import Namespace
from tailrace.connectors.mongodb.records.segment import Segment
from tailrace.connectors.mongodb.snapshot.windows import Changes, Closed, Documents, LogPlace, MongoWindows
from tailrace.runtime import Runtime
from tailrace.snapshot.conditions import refusal
from tailrace.snapshot.pace import ReadingPace
from tailrace.snapshot.windows import Windows

if TYPE_CHECKING:
    from pymongo import MongoClient

# An automatic window holds up to so many chunks, and is read within about so many seconds.
MOST_CHUNKS = 64
WINDOW_PACE = 0.25


class Incremental(Windows[LogPlace, int, Documents, Closed, Changes, Segment]):
    """Signals and windows of one query over a replica set. Planner, its main thread. See MongoWindows."""

    def __init__(
        self,
        config: Mapping[str, Any],
        signals: Namespace | None,
        connect: Callable[[], MongoClient[Any]],
        captured: Callable[[], Sequence[Namespace]],
        is_captured: Callable[[str, str], bool],
        *,
        kind: str,
        present: Callable[[MongoClient[Any]], int],
        sees_majority: Callable[[Namespace], bool],
        runtime: Runtime,
    ) -> None:
        source = MongoWindows(
            config,
            signals,
            connect,
            captured,
            is_captured,
            kind=kind,
            present=present,
            sees_majority=sees_majority,
            runtime=runtime,
        )
        fixed = config["incremental.snapshot.window.chunks"]
        pace = ReadingPace(fixed, 1, MOST_CHUNKS, WINDOW_PACE, WINDOW_PACE)
        writes = signals is not None and not config["read.only"]
        super().__init__(config, source, pace, refusal(config), writes=writes, runtime=runtime)
