"""LogReader: the planner's one reader of the slot. Its calls are the planner's."""

from __future__ import annotations

from tailrace.connectors.postgres.log.feed import PostgresFeed
from tailrace.connectors.postgres.log.identity import ServerId
from tailrace.connectors.postgres.log.indexed_run import Rows
from tailrace.connectors.postgres.protocol.position import Committed, FlushedLsn, LogPosition
from tailrace.connectors.postgres.schema.history import History
from tailrace.log import reader


class PostgresLogReader(reader.LogReader[LogPosition, Committed, int, Rows]):
    """Reads the slot from where `feed` begins."""

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
        """How the log is read now: `streaming`, `catch-up`, or `starting`."""
        return self.feed.gear

    @property
    def server(self) -> ServerId | None:
        """Whose log it is; known from the first session on."""
        return self.feed.server

    @property
    def head_lsn(self) -> FlushedLsn:
        """How far the server's log is known to reach."""
        return self.feed.head_lsn

    @property
    def lag(self) -> int:
        """Bytes of the log that are known to be there and have not been read."""
        return max(0, self.feed.head_lsn - self.feed.progress)

    @property
    def unchanged(self) -> int:
        """How many updates were left out because they changed nothing that is shown."""
        return self.feed.indexer.unchanged

    def extend(self, lsn: FlushedLsn) -> None:
        """Let a reader that ends at a target go on to `lsn`."""
        self.feed.extend(lsn)

    def history(self, start: LogPosition, end: LogPosition) -> History:
        """What the offset at the end of the batch `(start, end]` says of the tables."""
        return self.feed.relations.history.upto(start, end)
