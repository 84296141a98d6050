"""What a running query says of its batches: how far they lead, and when they had ended. Driver."""

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
    """The progress of all batches that Spark remembers."""
    return [json.loads(progress.json) for progress in query.recentProgress]


def newest(query: StreamingQuery) -> Progress | None:
    """The progress of the newest batch; None before the first."""
    time.sleep(0.2)  # what is asked more often takes its share of the cores
    last = query.lastProgress
    return None if last is None else json.loads(last.json)


def offset(progress: Progress) -> dict[str, Any]:
    """Where the batch ends; {} before the first."""
    end = progress["sources"][0]["endOffset"]
    return (json.loads(end) if isinstance(end, str) else end) or {}


def delivered(progress: Progress | None) -> int:
    """The LSN of the last commit that was delivered when the batch had ended; 0 before the first."""
    return 0 if progress is None else lsn_value(offset(progress).get("log", {}).get("commit", "0/0"))


def ended_at(progress: Progress) -> int:
    """When a batch had ended, in ns since 1970: everything in it was delivered, and Spark had committed it."""
    begun = datetime.fromisoformat(progress["timestamp"]).timestamp()
    return int(begun * 1e9 + progress["durationMs"]["triggerExecution"] * 1e6)


def ended(query: StreamingQuery) -> bool:
    """False; raises what ended the query, or RuntimeError when nothing did."""
    if query.isActive:
        return False
    raise query.exception() or RuntimeError("the query ended by itself")
