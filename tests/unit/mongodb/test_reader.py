"""The reader of MongoDB's log, over a feed in memory, keeps, raises and stops as it should."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
from bson import decode, encode

from tailrace.connectors.mongodb.log.feed import MongoFeed, ReaderSettings
from tailrace.connectors.mongodb.log.indexed_run import ChangeArrays, IndexedRun, encoded
from tailrace.connectors.mongodb.log.position import ChangePosition, Committed, Read
from tailrace.connectors.mongodb.log_session import MongoLogSession
from tailrace.connectors.mongodb.values import fields
from tailrace.errors import ConnectionFailed, PositionLost
from tailrace.kernels.buffers import readonly
from tailrace.log.contracts import Limits
from tailrace.log.reader import LogReader

SIZE = 100
ALL = 1 << 62
LOST = PositionLost("It is gone.", "Start again.")


def run(first: int, count: int = 1) -> IndexedRun:
    """Return changes of `SIZE` bytes each, with the timestamps from `first` on."""
    data = readonly(np.frombuffer((SIZE.to_bytes(4, "little") + bytes(SIZE - 4)) * count, np.uint8))
    time = np.arange(first, first + count, dtype=np.int64)
    one = np.ones(count, np.int64)
    rows = ChangeArrays(
        data, np.arange(count) * SIZE, time, one, np.full(count, ord("c"), np.uint8), np.zeros(count, np.int32)
    )
    return IndexedRun.of(rows, Read(ChangePosition(first + count - 1, 1)), None, len(data))


def event_run(first: int, count: int) -> IndexedRun:
    """Return change events of different sizes, each with its resume token, with the timestamps from `first` on."""
    times = range(first, first + count)
    documents = [encode({"_id": {"_data": f"token {time}"}, "x": "y" * (time % 7)}) for time in times]
    at = np.cumsum([0, *map(len, documents)])[:-1]
    data = readonly(np.frombuffer(b"".join(documents), np.uint8))
    (tokens,), _ = fields.locate(data, at, ("_id",))
    one = np.ones(count, np.int64)
    kinds, names = np.full(count, ord("c"), np.uint8), np.zeros(count, np.int32)
    rows = ChangeArrays(data, at, np.array(times, np.int64), one, kinds, names)
    last = Read(ChangePosition(first + count - 1, 1, encoded(data, int(tokens[-1]))))
    return IndexedRun.of(rows, last, tokens, len(data))


def transaction_run() -> IndexedRun:
    """Return two changes of which the second stands first in the data, as those of a transaction may."""
    documents = [encode({"second": 1}), encode({"first": "a longer one"})]
    data = readonly(np.frombuffer(b"".join(documents), np.uint8))
    at, time = np.array([len(documents[0]), 0], np.int64), np.array([5, 5], np.int64)
    kinds, names = np.full(2, ord("c"), np.uint8), np.zeros(2, np.int32)
    rows = ChangeArrays(data, at, time, np.array([1, 2], np.int64), kinds, names)
    return IndexedRun.of(rows, Read(ChangePosition(5, 2)), None, len(data))


class Feed:
    """A feed that yields the items of `script`, and then nothing; an exception in it is raised."""

    def __init__(self, *script: IndexedRun | BaseException) -> None:
        self.caught_up_at = 0
        self.answered_at = 0
        self._script = iter(script)
        self.done = threading.Event()

    def open(self, position: ChangePosition) -> None: ...

    def read(self) -> IndexedRun | None:
        found = next(self._script, None)
        if isinstance(found, BaseException):
            self.done.set()
            raise found
        if found is None:
            self.done.set()
            self.done.wait(0.001)
            return None
        self.caught_up_at = max(self.caught_up_at, found.reached.time)
        return found

    def close(self) -> None: ...


class Log(MongoLogSession):
    """The part of a log that reads; the tests take rows, and need no tasks."""

    def __init__(self, feed: MongoFeed) -> None:
        memory, disk = feed.settings.memory_limit, feed.settings.disk_limit
        LogReader.__init__(self, feed, feed.start, memory_limit=memory, disk_limit=disk)
        self.feed = feed


@pytest.fixture
def read() -> Iterator[Callable[..., tuple[Log, Feed]]]:
    """Yield a factory of readers over scripts, which end after the test."""
    made: list[Log] = []

    def start(*script: IndexedRun | BaseException, **options: int) -> tuple[Log, Feed]:
        feed = Feed(*script)
        made.append(Log(MongoFeed(feed, ChangePosition(), ReaderSettings(**options))))  # type: ignore[arg-type]
        made[-1].start()
        return made[-1], feed

    yield start
    for one in made:
        one.close()


def documents(reader: Log, start: ChangePosition, rows: int) -> list[tuple[ChangePosition, list[bytes]]]:
    """Return the end of each batch, and its documents."""
    found = []
    while True:
        end = reader.plan(start, Limits(rows, ALL), None)
        if end == start:
            return found
        parts = reader.take(start, end)
        sizes = [fields.sizes_of(part.data, part.at).tolist() for part in parts]
        texts = [
            part.data[at : at + size].tobytes()
            for part, of in zip(parts, sizes, strict=True)
            for at, size in zip(part.at.tolist(), of, strict=True)
        ]
        found.append((end, texts))
        reader.release(Committed(end))
        start = end


def drained(reader: Log, start: ChangePosition, rows: int = ALL) -> list[int]:
    """Return the timestamps of all changes after `start`, batch by batch, each committed before the next is planned."""
    found: list[int] = []
    while True:
        end = reader.plan(start, Limits(rows, ALL), None)
        if end == start:
            return found
        found += [time for part in reader.take(start, end) for time in part.time.tolist()]
        reader.release(Committed(end))
        start = end


def test_what_was_read_before_an_error_is_delivered_before_it_is_raised(
    read: Callable[..., tuple[Log, Feed]],
) -> None:
    """The server may no longer have the changes."""
    reader, feed = read(run(1, 3), run(4, 2), LOST)
    assert feed.done.wait(10)
    while not reader.has_failed:
        pass
    found: list[int] = []
    start = ChangePosition()
    for _ in range(5):
        end = reader.plan(start, Limits(1, ALL), None)
        reader.check()
        assert not reader.is_filling(ALL)
        found += [time for part in reader.take(start, end) for time in part.time.tolist()]
        reader.release(Committed(end))
        start = end
    assert found == [1, 2, 3, 4, 5]
    with pytest.raises(PositionLost):
        reader.plan(start, Limits(1, ALL), None)
    with pytest.raises(PositionLost):
        reader.check()


def test_a_batch_that_no_longer_fits_the_spool_is_read_again_all_the_same(
    read: Callable[..., tuple[Log, Feed]],
) -> None:
    reader, _ = read(*(run(number, 2) for number in range(1, 20, 2)), memory_limit=3 * SIZE, disk_limit=0)
    end = ChangePosition(15, 1)
    assert sum(len(part) for part in reader.take(ChangePosition(), end)) == 15
    # No further, because the next changes exceed the limit.
    assert reader.feed.reached_position == ChangePosition(16, 1)
    reader.release(Committed(end))
    assert sum(len(part) for part in reader.take(end, ChangePosition(20, 1))) == 5


def test_a_replay_that_the_log_cannot_give_ends_with_the_error(
    read: Callable[..., tuple[Log, Feed]],
) -> None:
    reader, _ = read(run(1, 2), LOST)
    with pytest.raises(PositionLost):
        reader.take(ChangePosition(), ChangePosition(5, 1))


@pytest.mark.parametrize("fault", [MemoryError(), SystemExit(), AttributeError("x")])
def test_a_thread_that_ends_is_never_waited_for(read: Callable[..., tuple[Log, Feed]], fault: BaseException) -> None:
    reader, _ = read(run(1), fault)
    with pytest.raises(ConnectionFailed, match=type(fault).__name__):
        reader.take(ChangePosition(), ChangePosition(5, 1))


def test_a_chunk_that_cannot_be_kept_ends_the_thread_and_is_not_counted_as_read(
    read: Callable[..., tuple[Log, Feed]],
) -> None:
    broken = replace(run(9), rows=None)  # type: ignore[arg-type]
    reader, _ = read(run(1), broken)
    with pytest.raises(ConnectionFailed):
        reader.take(ChangePosition(), ChangePosition(9, 1))
    assert reader.feed.reached_position == ChangePosition(1, 1)
    assert drained_until_error(reader) == [1]


def drained_until_error(reader: Log) -> list[int]:
    end = reader.plan(ChangePosition(), Limits(ALL, ALL), None)
    return [time for part in reader.take(ChangePosition(), end) for time in part.time.tolist()]


def test_batches_hold_every_change_once(read: Callable[..., tuple[Log, Feed]]) -> None:
    reader, _ = read(run(1, 3), run(4), run(5, 4))
    reader.take(ChangePosition(), ChangePosition(8, 1))
    assert drained(reader, ChangePosition(), 2) == [1, 2, 3, 4, 5, 6, 7, 8]


def test_nothing_is_newer_than_what_was_planned_while_no_change_waits(
    read: Callable[..., tuple[Log, Feed]],
) -> None:
    reader, _ = read(run(1, 3))
    reader.take(ChangePosition(), ChangePosition(3, 1))
    reader._planned = ChangePosition(1, 1)
    assert reader.newest() == ChangePosition(3, 1)
    reader.release(Committed(ChangePosition(3, 1)))
    reader._planned = ChangePosition(7, 1)
    assert reader.newest() == ChangePosition(7, 1)


@pytest.mark.parametrize("rows", [1, 2, 3, 100])
def test_changes_that_wait_on_disk_are_those_that_were_read(read: Callable[..., tuple[Log, Feed]], rows: int) -> None:
    script = [event_run(1, 4), event_run(5, 3), event_run(8, 5)]
    in_memory, _ = read(*script)
    on_disk, _ = read(*script, memory_limit=1)
    for reader in (in_memory, on_disk):
        reader.take(ChangePosition(), ChangePosition(12, 1))
    assert [one.place is not None for one in on_disk.spool._held] == [False, True, True]
    expected = documents(in_memory, ChangePosition(), rows)
    found = documents(on_disk, ChangePosition(), rows)
    assert found == expected
    # A token is part of its position.
    assert [end for end, _ in found] == [end for end, _ in expected]
    assert len(on_disk.spool) == 0


def test_changes_on_disk_need_not_stand_in_their_order(read: Callable[..., tuple[Log, Feed]]) -> None:
    reader, _ = read(run(1), transaction_run(), memory_limit=1)
    reader.take(ChangePosition(), ChangePosition(5, 2))
    found = [decode(text) for _, texts in documents(reader, ChangePosition(1, 1), 1) for text in texts]
    assert found == [{"first": "a longer one"}, {"second": 1}]


def test_what_was_read_and_not_kept_has_not_been_read() -> None:
    feed = MongoFeed(Feed(run(1), run(2, 4), run(1)), ChangePosition())
    feed.open()
    kept = feed.read(False, lambda: False)
    assert kept is not None
    feed.keep(kept)
    assert feed.read(False, lambda: False) is not None
    # The disk has refused it, and the session begins anew.
    feed.close()
    feed.open()
    again = feed.read(False, lambda: False)
    assert again is not None
    feed.keep(again)
    assert feed.has_read(ChangePosition(1))
    assert not feed.has_read(ChangePosition(2))
    assert not feed.has_passed(ChangePosition(2, 1))


def test_nothing_has_been_read_before_the_server_has_answered() -> None:
    # Its log may end before the position.
    feed = MongoFeed(Feed(run(6)), ChangePosition(5, 1))
    feed.open()
    assert not feed.has_read(ChangePosition(3))
    assert feed.read(False, lambda: False) is not None
    assert feed.has_read(ChangePosition(3))
