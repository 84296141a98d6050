"""The planner's reader of the slot; its methods are called by the planner's thread."""

from __future__ import annotations

from tailrace.connectors.postgres.log.feed import PostgresFeed
from tailrace.connectors.postgres.log.identity import ServerId
from tailrace.connectors.postgres.log.indexed_run import Rows
from tailrace.connectors.postgres.protocol.position import Committed, FlushedLsn, LogPosition
from tailrace.connectors.postgres.schema.history import History
from tailrace.log import reader


class PostgresLogReader(reader.LogReader[LogPosition, Committed, int, Rows]):
    """Reads the slot from the position at which `feed` starts."""

    def __init__(self, feed: PostgresFeed) -> None:
        memory, disk = feed.settings.memory_limit, feed.settings.disk_limit
        super().__init__(feed, feed.start, memory_limit=memory, disk_limit=disk, runtime=feed.runtime)
        self.feed = feed
        self.versions = feed.relations.versions

    def close(self) -> None:
        super().close()
        self.feed.end()

    @property
    def gear(self) -> str:
        """The way in which the log is read now: `streaming`, `catch-up`, or `starting`."""
        return self.feed.gear

    @property
    def server(self) -> ServerId | None:
        """The server whose log is read; known from the first session on."""
        return self.feed.server

    @property
    def head_lsn(self) -> FlushedLsn:
        """The last known end of the server's flushed log."""
        return self.feed.head_lsn

    @property
    def lag(self) -> int:
        """Bytes of the log up to `head_lsn` that have not been read."""
        return max(0, self.feed.head_lsn - self.feed.progress)

    @property
    def unchanged(self) -> int:
        """The number of updates left out because they changed no column that is delivered."""
        return self.feed.indexer.unchanged

    def extend(self, lsn: FlushedLsn) -> None:
        """Move the target of a reader that has one on to `lsn`."""
        self.feed.extend(lsn)

    def history(self, start: LogPosition, end: LogPosition) -> History:
        """Return the history of the tables that the offset at the end of the batch `(start, end]` records."""
        return self.feed.relations.history.upto(start, end)
