"""Status of a query over the binary log from its offsets: place, bytes of lag, progress of the snapshot. Driver."""

from __future__ import annotations

from tailrace.connectors.binlog.log.position import BinlogPosition, number_of
from tailrace.connectors.binlog.offset import BinlogOffset
from tailrace.connectors.source_status import Offsets, SnapshotStatus, SourceStatus, tables
from tailrace.snapshot.plan import SnapshotPlan


def describe(end: Offsets, newest: Offsets) -> SourceStatus:
    """Return the status of a query that has read to the offset `end`; `newest` is the newest that the planner knows."""
    if "log" not in end:
        return SourceStatus(tables=tables(end, newest))
    offset = BinlogOffset.from_json(dict(end))
    read = offset.log
    head = BinlogPosition.from_json(newest["log"]) if "log" in newest else BinlogPosition()
    plan, done = (None, 0) if offset.snapshot is None else (offset.snapshot.plan, offset.snapshot.done)
    chunks = [] if plan is None else [(str(one), len(SnapshotPlan((one,), plan.chunk_pages))) for one in plan.tables]
    total = sum(count for _, count in chunks)
    return SourceStatus(
        position=str(read) if read.file else "",
        lag_bytes=_lag(read, head),
        snapshot=SnapshotStatus(done, total) if done < total else None,
        tables=tables(end, newest, chunks, done),
        whole=offset.snapshot is None and read.consumed is None and read.held is None and not offset.late,
    )


def _lag(read: BinlogPosition, head: BinlogPosition) -> int | None:
    """Return the bytes of log between two positions; None if they are in different files, whose sizes are unknown."""
    if not read.file or not head.file or (read.epoch, number_of(read.file)) != (head.epoch, number_of(head.file)):
        return None
    reached = read.end if read.consumed is None else read.start
    return max(0, head.end - reached)
