"""The retention of changes in change tables, for metrics. Planner."""

from __future__ import annotations

import time
from contextlib import closing

from tailrace.config import Config
from tailrace.connectors.changetables.loading import dialect
from tailrace.log.retention import LogRetention


def retention(config: Config) -> LogRetention:
    """Return the time of the oldest change, and the retention in seconds; for several databases, the smallest
    values."""
    found, spans = dialect(config), []
    for database in found.databases:
        with closing(found.connect(database)) as session:
            spans.append(session.log_span())
    ages = [age for age, _ in spans if age is not None]
    kept = [seconds for _, seconds in spans if seconds is not None]
    return LogRetention(
        oldest_s=time.time() - min(ages) if ages else None, kept_s=min(kept, default=None), setting=found.keeping
    )
