"""The status of a MongoDB query, from its offsets: timestamps of the oplog, and the seconds between them. Driver."""

from __future__ import annotations

from tailrace.connectors.mongodb.log.position import WHOLE, ChangePosition
from tailrace.connectors.mongodb.offset import MongoOffset
from tailrace.connectors.source_status import Offsets, SnapshotStatus, SourceStatus, tables


def describe(end: Offsets, newest: Offsets) -> SourceStatus:
    """Return the status of a query that has read to the offset `end` when `newest` is the newest known offset."""
    if "log" not in end:
        return SourceStatus(tables=tables(end, newest))
    offset = MongoOffset.from_json(dict(end))
    read = offset.log
    head = ChangePosition.from_json(newest["log"]) if "log" in newest else ChangePosition()
    done, counts = 0, dict[str, int]()
    if offset.snapshot is not None:
        done = offset.snapshot.done
        for chunk in offset.snapshot.plan.chunks:
            name = ".".join(chunk.namespace)
            counts[name] = counts.get(name, 0) + 1
    total = sum(counts.values())
    return SourceStatus(
        position=_text(read) if read.time else "",
        lag_s=float(max(0, (head.time >> 32) - (read.time >> 32))) if read.time and head.time else None,
        snapshot=SnapshotStatus(done, total) if done < total else None,
        tables=tables(end, newest, list(counts.items()), done),
        whole=offset.snapshot is None and offset.whole and not offset.shown,
    )


def _text(position: ChangePosition) -> str:
    """Return the timestamp's seconds and increment, `1558965515:6`; and the number of changes read, if more of this
    timestamp may follow."""
    return str(position).removesuffix(f":{WHOLE}")
