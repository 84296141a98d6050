"""The progress of a running query: the offsets and the ends of its batches. Driver."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from tailrace.connectors.postgres.protocol.position import lsn_value

Progress = Mapping[str, Any]


def told_by(query: StreamingQuery) -> list[Progress]:
    """Return the progress of all batches that Spark remembers."""
    return [json.loads(progress.json) for progress in query.recentProgress]


def newest(query: StreamingQuery) -> Progress | None:
    """Return the progress of the newest batch; None before the first."""
    time.sleep(0.2)  # asking more often would take CPU time from the query
    last = query.lastProgress
    return None if last is None else json.loads(last.json)


def offset(progress: Progress) -> dict[str, Any]:
    """Return the offset at the end of a batch; {} before the first batch."""
    end = progress["sources"][0]["endOffset"]
    return (json.loads(end) if isinstance(end, str) else end) or {}


def delivered(progress: Progress | None) -> int:
    """Return the LSN of the last commit that was delivered at the end of a batch; 0 before the first batch."""
    return 0 if progress is None else lsn_value(offset(progress).get("log", {}).get("commit", "0/0"))


def ended_at(progress: Progress) -> int:
    """Return the end of a batch in ns since 1970: all its rows were delivered and Spark had committed it."""
    begun = datetime.fromisoformat(progress["timestamp"]).timestamp()
    return int(begun * 1e9 + progress["durationMs"]["triggerExecution"] * 1e6)


def ended(query: StreamingQuery) -> bool:
    """Return False while the query runs; raise its error, or RuntimeError if it ended without an error."""
    if query.isActive:
        return False
    raise query.exception() or RuntimeError("the query ended by itself")
