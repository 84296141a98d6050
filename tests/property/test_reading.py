"""Whatever fails, ends or restarts while a log is read, every row is delivered once and no position goes back.

The reader's thread and its server are simulated: each step of a history is drawn. Between two steps the planner may
plan and commit a batch, or be restarted with a batch to replay.
"""

from __future__ import annotations

import errno
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.connectors.postgres.log.feed import PostgresFeed
from tailrace.connectors.postgres.log.gears import Messages
from tailrace.connectors.postgres.log.reading import LogSelection, ReaderSettings, StartPosition
from tailrace.connectors.postgres.log_session import PostgresLogSession
from tailrace.connectors.postgres.protocol.pgoutput import Relation
from tailrace.connectors.postgres.protocol.position import LogPosition
from tailrace.connectors.postgres.schema.history import NOTHING, SchemaHistory
from tailrace.log.contracts import Limits
from tailrace.log.reader import LogReader
from tests.extent import examples
from tests.property.logs import SCHEMAS, Change, Known, index, log, logs, places, rows, rows_of

BEFORE = LogPosition(idle_lsn=1000, at_us=1)
"""The position of a new slot."""


class Failing(Known):
    """Table versions whose catalog sometimes cannot be queried."""

    def __init__(self) -> None:
        self.versions = SCHEMAS
        self.history = SchemaHistory(NOTHING, BEFORE)
        self.is_failing = False

    def expect(self, announced: Sequence[Relation]) -> None:
        if self.is_failing:
            raise OSError(errno.ECONNRESET, "the catalog's connection is gone")


class LeftOut:
    """The transactions that a snapshot has shown."""

    tables = None

    def __init__(self, xids: set[int]) -> None:
        self._xids = xids

    def __call__(self, xid: int, commit_lsn: int) -> bool:
        return xid in self._xids


class Log(PostgresLogSession):
    """The part of a log that reads; the simulation takes rows, and needs no tasks."""

    def __init__(self, feed: PostgresFeed) -> None:
        memory, disk = feed.settings.memory_limit, feed.settings.disk_limit
        LogReader.__init__(self, feed, feed.start, memory_limit=memory, disk_limit=disk, runtime=feed.runtime)
        self.feed = feed


class Simulation:
    """A planner with its reader over one log."""

    def __init__(self, transactions: list[list[Change]], left_out: set[int], numbered: bool, limit: int) -> None:
        self.transactions = transactions
        self.skip = LeftOut({700 + number for number in left_out}) if left_out else None
        self.numbered = numbered
        # The place of the record that ends each transaction, by its commit LSN.
        self.record = {commit: min(commit, end - 5) for _, _, commit, end in places(transactions)}
        self.end_lsn = max((end for _, _, _, end in places(transactions)), default=1000)
        self.expected = rows(index(transactions, [], BEFORE, numbered, self.skip))
        self.committed = self.given = BEFORE
        self.delivered: list[Any] = []
        self.limit = limit
        self.steps = itertools.count()
        self.begin(self.committed)

    def begin(self, position: LogPosition) -> None:
        """Start a planner at `position`."""
        self.tables = Failing()
        feed: Any = PostgresFeed(
            ReaderSettings("slot", "publication", memory_limit=self.limit, disk_limit=0),
            None,  # type: ignore[arg-type]
            database="d",
            relations=self.tables,  # type: ignore[arg-type]
            since=StartPosition(position),
            wanted=LogSelection(
                visible=self.skip,  # type: ignore[arg-type]
                numbered_without=frozenset() if self.numbered else None,
                takes=lambda prefix: prefix == "kept",
            ),
        )
        self.feed = feed
        self.reader = reader = Log(feed)
        # No thread opens a session.
        reader._has_begun = True
        self.left: list[tuple[bytes, int]] | None = None
        # A wait for the reader lets it read.
        reader.spool.wait = lambda *_: self.read(3)  # type: ignore[method-assign]

    def read(self, messages: int, failure: str = "") -> None:
        """Give the reader's thread a run of `count` messages, unless its spool is full."""
        assert next(self.steps) < 10_000, "the planner waits for ever"
        reader = self.reader
        if reader.spool.full:
            return
        if self.left is None:
            self.feed.indexer.reset()
            self.left = list(zip(*log(self.transactions, self.feed._read_lsn), strict=True))
        taken, self.left = self.left[:messages], self.left[messages:]
        if not taken:
            if not self.feed.indexer.is_open:
                self.feed._read_to(self.end_lsn)
            return
        run = self.run([message for message, _ in taken], [lsn for _, lsn in taken])
        put = reader.spool.put
        if failure == "spool":
            reader.spool.put = self.full_disk
        self.tables.is_failing = failure == "catalog"
        try:
            reader._keep(self.feed._step(run))
        except OSError:
            # The session is lost, and another one begins.
            self.left = None
        reader.spool.put = put
        self.tables.is_failing = False

    @staticmethod
    def run(messages: list[bytes], lsns: list[int]) -> Messages:
        offsets = np.zeros(len(messages) + 1, np.int64)
        np.cumsum([len(part) for part in messages], out=offsets[1:])
        return Messages(np.frombuffer(b"".join(messages), np.uint8), offsets, np.array(lsns, np.int64))

    @staticmethod
    def full_disk(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def plan(self, max_rows: int) -> LogPosition:
        """Return the end of the next batch, or the same position."""
        end = self.reader.plan(self.committed, Limits(max_rows, 1 << 20, max_rows), None)
        if end == self.committed:
            end = self.reader.idle_position(self.committed)
        self.check(end)
        return end

    def check(self, position: LogPosition) -> None:
        assert position.safe_lsn >= self.given.safe_lsn
        assert not position.is_before(self.given)
        assert LogPosition.from_json(position.to_json()) == position
        self.given = position
        # The slot still holds all that must be delivered.
        for row in self.expected[len(self.delivered) + self.planned_rows(position) :]:
            assert position.safe_lsn <= self.record[row[4]]

    def planned_rows(self, position: LogPosition) -> int:
        """Return the number of rows in the batch that ends at the position."""
        left = self.expected[len(self.delivered) :]
        return sum(not position.is_before(LogPosition(row[4], consumed=row[3] + 1)) for row in left)

    def deliver(self, end: LogPosition) -> None:
        if self.committed.is_before(end):
            self.delivered += rows_of(self.reader.take(self.committed, end))
        self.committed = end
        self.reader.release(end)

    def finish(self) -> None:
        """Read and deliver all that is left."""
        for _ in range(1000):
            end = self.plan(1 << 30)
            if end != self.committed:
                self.deliver(end)
            elif self.reader.has_read(LogPosition(self.end_lsn)) and self.left == []:
                break
            else:
                self.read(1000)
        assert without_truncates(self.delivered) == without_truncates(self.expected)


def without_truncates(found: list[Any]) -> list[Any]:
    # A truncate's tables are kept by message number, which differs from run to run.
    return [row[:2] + row[3:] for row in found]


FAILURES = st.sampled_from(["", "", "", "spool", "catalog"])
READ = st.tuples(st.just("read"), st.integers(1, 12), FAILURES)
PLAN = st.tuples(st.just("plan"), st.integers(1, 6), st.just(""))
LOST = st.tuples(st.sampled_from(["session", "restart", "replay"]), st.integers(1, 6), st.just(""))
STEPS = st.lists(st.one_of(READ, READ, PLAN, PLAN, LOST), max_size=30)


@settings(deadline=None, max_examples=examples(300))
@given(logs, STEPS, st.sets(st.integers(0, 7), max_size=4), st.booleans(), st.sampled_from([1, 100, 1 << 20]))
def test_every_row_is_delivered_once_and_no_position_goes_back(
    transactions: list[list[Change]],
    steps: list[tuple[str, int, str]],
    left_out: set[int],
    numbered: bool,
    limit: int,
) -> None:
    one = Simulation(transactions, left_out, numbered, limit)
    for what, number, failure in steps:
        if what == "read":
            one.read(number, failure)
        elif what == "plan":
            end = one.plan(number)
            if end != one.committed:
                one.deliver(end)
        elif what == "session":
            one.left = None
        elif what == "restart":
            one.begin(one.committed)
            one.given = one.committed
        else:
            end = one.plan(number)
            one.limit = 1
            one.begin(one.committed)
            one.given = one.committed
            if end != one.committed:
                one.deliver(end)
                one.check(end)
    one.finish()


def test_a_spool_full_of_a_later_transaction_does_not_hide_that_the_end_was_reached() -> None:
    # The query ends between the two, where the log has nothing that is captured.
    one = Simulation([[("I", 10, 1)], [("I", 10, 2)] * 50], set(), False, 200)
    reader = one.reader
    (_, _, first, end), (_, _, second, _) = places(one.transactions)
    one.deliver(one.plan(1))
    while not reader.spool.full:
        one.read(3)
    assert reader.has_read(LogPosition(second))
    assert not reader.has_read(LogPosition(second + 1))
    batch = reader.plan_upto(one.committed, LogPosition(end + 10), Limits(1, 1 << 20))
    assert (batch.commit_lsn, batch.consumed) == (first, None)
    one.deliver(batch)
    assert reader.plan_upto(one.committed, LogPosition(end + 10), Limits(1, 1 << 20)) == batch
    one.finish()


def test_a_replay_whose_last_transaction_has_nothing_captured_any_more_ends() -> None:
    one = Simulation([[("I", 10, 1)], [("L", 0, 1)] * 4, [("I", 10, 2)]], set(), False, 1 << 20)
    one.read(20)
    one.deliver(one.plan(1))
    end = one.plan(2)
    assert end.consumed == 2
    # The same log, whose messages are no longer wanted.
    one.transactions[1] = [("L", 0, 2)] * 4
    one.begin(one.committed)
    assert one.reader.take(one.committed, end) == []
