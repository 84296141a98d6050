"""The span of the oplog. Planner.

MongoDB manual, "Replica Set Oplog": the oplog is a capped collection. Once it has its full size, new entries replace
the oldest, unless `storage.oplogMinRetentionHours` keeps them.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any

from tailrace.config import Config
from tailrace.connectors.mongodb.server.connection import Address, connect
from tailrace.connectors.mongodb.server.faults import explained
from tailrace.log.retention import LogRetention

_SETTING = "the oplog's size (replSetResizeOplog) or storage.oplogMinRetentionHours"


@explained
def retention(config: Config) -> LogRetention:
    """Return the time of the oplog's oldest entry, and the seconds that its entries span now and will span once it is
    full."""
    with closing(connect(Address.of(config, soon=True))) as client:
        oplog = client["local"]["oplog.rs"]
        ends = [oplog.find_one({}, {"ts": 1}, sort=[("$natural", order)]) for order in (1, -1)]
        fill, least_s = _fill(client), _least(client)
    times = [end["ts"].time for end in ends if end is not None]
    if not times:
        return LogRetention()
    span_s = float(times[-1] - times[0])
    # at the rate at which the current entries were written
    lasting_s = max(span_s / fill, least_s)
    return LogRetention(oldest_s=float(times[0]), kept_s=span_s, lasting_s=lasting_s, setting=_SETTING)


def _fill(client: Any) -> float:
    """Return the fraction of the oplog's size that is in use, at most 1; 1 if the server does not show it."""
    from pymongo.errors import OperationFailure

    try:
        found = client["local"].command("collStats", "oplog.rs")
    except OperationFailure:
        return 1.0
    used, size = float(found.get("size") or 0), float(found.get("maxSize") or 0)
    return min(max(used / size, 1e-6), 1.0) if size else 1.0


def _least(client: Any) -> float:
    """Return the seconds for which the server keeps entries even if the oplog is full; 0 if it does not show them."""
    from pymongo.errors import OperationFailure

    try:
        found = client.admin.command("serverStatus").get("oplogTruncation", {})
    except OperationFailure:
        # needs the role clusterMonitor
        return 0.0
    return float(found.get("oplogMinRetentionHours") or 0) * 3600
