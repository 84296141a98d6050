"""Status of a query over the binary log from its offsets: place, bytes of lag, progress of the snapshot. Driver."""

from __future__ import annotations

from collections.abc import Mapping

from tailrace.connectors.binlog.log.position import BinlogPosition, number_of
from tailrace.connectors.binlog.offset import BinlogOffset
from tailrace.connectors.source_status import Offsets, SnapshotStatus, SourceStatus, mapping, tables
from tailrace.snapshot.plan import SnapshotPlan


def describe(end: Offsets, newest: Offsets) -> SourceStatus:
    """Return the status of a query that has read to the offset `end`; `newest` is the newest known offset."""
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
        lag_bytes=_lag(read, head, mapping(newest.get("files"))),
        snapshot=SnapshotStatus(done, total) if done < total else None,
        tables=tables(end, newest, chunks, done),
        whole=offset.snapshot is None and read.consumed is None and read.held is None and not offset.late,
    )


def _lag(read: BinlogPosition, head: BinlogPosition, sizes: Mapping[str, int]) -> int | None:
    """Return the bytes of log between two positions; None if a file between them has no known size."""
    if not read.file or not head.file or read.epoch != head.epoch:
        return None
    reached = read.end if read.consumed is None else read.start
    first, last = number_of(read.file), number_of(head.file)
    if first >= last:
        return max(0, head.end - reached) if first == last else 0
    between = {number_of(file): size for file, size in sizes.items() if first <= number_of(file) < last}
    return sum(between.values()) - reached + head.end if len(between) == last - first else None
