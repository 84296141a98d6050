"""The span of the oplog, for metrics. Planner.

MongoDB manual, "Oplog Size": the oplog is a capped collection, so its oldest entries leave when new ones come.
"""

from __future__ import annotations

from contextlib import closing

from tailrace.config import Config
from tailrace.connectors.mongodb.server.connection import Address, connect
from tailrace.log.retention import LogRetention


def retention(config: Config) -> LogRetention:
    """Return the time of the oplog's oldest entry, and the seconds that its entries span at present."""
    with closing(connect(Address.of(config, soon=True))) as client:
        oplog = client["local"]["oplog.rs"]
        ends = [oplog.find_one({}, {"ts": 1}, sort=[("$natural", order)]) for order in (1, -1)]
    times = [end["ts"].time for end in ends if end is not None]
    return LogRetention(oldest_s=float(times[0]), kept_s=float(times[-1] - times[0])) if times else LogRetention()
