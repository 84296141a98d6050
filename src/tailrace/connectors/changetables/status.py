"""The status of a query over change tables, from its offsets: the commit up to which each database was read. Driver."""

from __future__ import annotations

from tailrace.connectors.changetables.offset import TablesOffset
from tailrace.connectors.source_status import Offsets, SnapshotStatus, SourceStatus, mapping, tables


def describe(end: Offsets, newest: Offsets) -> SourceStatus:
    """Return the status of a query that has read to the offset `end`; `newest` is the newest known offset.

    The distance between two positions has no unit, so the lag is unknown unless it is 0.
    """
    if "databases" not in end:
        return SourceStatus(tables=tables(end, newest))
    offset = TablesOffset.from_json(end)
    read = {name: reached.position.hex() for name, reached in sorted(offset.databases.items())}
    texts = {name: position.upper() for name, position in read.items()}
    head = mapping(newest.get("newest"))
    snapshot = offset.snapshot
    return SourceStatus(
        position=", ".join(f"{name} {text}" for name, text in texts.items())
        if len(texts) > 1
        else "".join(texts.values()),
        lag_s=0.0 if read and all(position >= head.get(name, "~") for name, position in read.items()) else None,
        snapshot=None
        if snapshot is None or snapshot.is_complete
        else SnapshotStatus(snapshot.place, len(snapshot.tables), "tables"),
        tables=tables(end, newest),
        # the commits of two databases have no common order
        whole=snapshot is None and not offset.shown_us and len(read) == 1,
    )
