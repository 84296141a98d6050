"""Status of a PostgreSQL query from its offsets: LSN, bytes of lag, progress of the snapshot. Driver."""

from __future__ import annotations

from tailrace.connectors.postgres.offset import PostgresOffset
from tailrace.connectors.postgres.protocol.position import LogPosition, lsn_text
from tailrace.connectors.source_status import Offsets, SnapshotStatus, SourceStatus, tables
from tailrace.snapshot.plan import SnapshotPlan


def describe(end: Offsets, newest: Offsets) -> SourceStatus:
    """Return the status of a query that has read to the offset `end`; `newest` is the newest offset known to the
    planner."""
    if "log" not in end:
        return SourceStatus(tables=tables(end, newest))
    offset = PostgresOffset.from_json(dict(end))
    read = offset.log.safe_lsn
    head = LogPosition.from_json(newest["log"]).safe_lsn if "log" in newest else 0
    plan, done = (None, 0) if offset.snapshot is None else (offset.snapshot.plan, offset.snapshot.done)
    chunks = [] if plan is None else [(str(one), len(SnapshotPlan((one,), plan.chunk_pages))) for one in plan.tables]
    total = sum(count for _, count in chunks)
    return SourceStatus(
        position=lsn_text(read) if read else "",
        lag_bytes=max(0, head - read) if read and head else None,
        snapshot=SnapshotStatus(done, total) if done < total else None,
        tables=tables(end, newest, chunks, done),
        whole=offset.snapshot is None and offset.log.consumed is None and not offset.inventory.partial,
    )
