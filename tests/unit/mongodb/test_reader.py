"""The reader of MongoDB's log over a feed in memory: what it holds, what it raises, and when it stops to wait."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from tailrace.connectors.mongodb.log.chunk import Chunk, Rows
from tailrace.connectors.mongodb.log.position import Committed, Position, Read, releasable
from tailrace.connectors.mongodb.log.reader import LogReader
from tailrace.errors import ConnectionFailed, PositionLost
from tailrace.serde.memory import readonly

SIZE = 100
ALL = 1 << 62
LOST = PositionLost("It is gone.", "Start again.")


def chunk(first: int, count: int = 1) -> Chunk:
    """Changes of `SIZE` bytes each, with the timestamps from `first` on."""
    data = readonly(np.frombuffer((SIZE.to_bytes(4, "little") + bytes(SIZE - 4)) * count, np.uint8))
    time = np.arange(first, first + count, dtype=np.int64)
    one = np.ones(count, np.int64)
    rows = Rows(data, np.arange(count) * SIZE, time, one, np.full(count, ord("c"), np.uint8), np.zeros(count, np.int32))
    return Chunk(rows, Read(Position(first + count - 1, 1)), None, len(data))


class Feed:
    """Gives what `script` holds, one after another, and then nothing; an exception is raised."""

    def __init__(self, *script: Chunk | BaseException) -> None:
        self.caught_up_at = 0
        self.answered_at = 0
        self._script = iter(script)
        self.done = threading.Event()

    def open(self, position: Position) -> None: ...

    def read(self) -> Chunk | None:
        found = next(self._script, None)
        if isinstance(found, BaseException):
            self.done.set()
            raise found
        if found is None:
            self.done.set()
            self.done.wait(0.001)
            return None
        self.caught_up_at = found.reached.time
        return found

    def close(self) -> None: ...


@pytest.fixture
def read() -> Iterator[Callable[..., tuple[LogReader, Feed]]]:
    """Starts readers over scripts; all end after the test."""
    made: list[LogReader] = []

    def start(*script: Chunk | BaseException, **options: int) -> tuple[LogReader, Feed]:
        feed = Feed(*script)
        made.append(LogReader(feed, Position(), **options))  # type: ignore[arg-type]
        made[-1].start()
        return made[-1], feed

    yield start
    for one in made:
        one.close()


def drained(reader: LogReader, start: Position, rows: int = ALL) -> list[int]:
    """The timestamps of all changes behind `start`, batch by batch, each committed before the next is planned."""
    found: list[int] = []
    while True:
        end = reader.plan(start, rows, ALL)
        if end == start:
            return found
        found += [time for part in reader.take(start, end) for time in part.time.tolist()]
        reader.release(releasable(Committed(end)))
        start = end


def test_what_was_read_before_an_error_is_delivered_before_it_is_raised(
    read: Callable[..., tuple[LogReader, Feed]],
) -> None:
    """The server may not have it any more."""
    reader, feed = read(chunk(1, 3), chunk(4, 2), LOST)
    assert feed.done.wait(10)
    while not reader.has_failed:
        pass
    found: list[int] = []
    start = Position()
    for _ in range(5):
        end = reader.plan(start, 1, ALL)
        reader.check()
        assert not reader.is_filling(ALL)
        found += [time for part in reader.take(start, end) for time in part.time.tolist()]
        reader.release(releasable(Committed(end)))
        start = end
    assert found == [1, 2, 3, 4, 5]
    with pytest.raises(PositionLost):
        reader.plan(start, 1, ALL)
    with pytest.raises(PositionLost):
        reader.check()


def test_a_batch_that_no_longer_fits_the_spool_is_read_again_all_the_same(
    read: Callable[..., tuple[LogReader, Feed]],
) -> None:
    reader, _ = read(*(chunk(number, 2) for number in range(1, 20, 2)), memory_limit=3 * SIZE)
    end = Position(15, 1)
    assert reader.read_through(end, 10)
    assert sum(len(part) for part in reader.take(Position(), end)) == 15
    # no further than that: what follows fits no more
    assert reader.reached == Position(16, 1)
    reader.release(releasable(Committed(end)))
    assert reader.read_through(Position(20, 1), 10)


def test_a_replay_that_the_log_cannot_give_ends_with_the_error(read: Callable[..., tuple[LogReader, Feed]]) -> None:
    reader, _ = read(chunk(1, 2), LOST)
    with pytest.raises(PositionLost):
        reader.read_through(Position(5, 1), 10)


@pytest.mark.parametrize("fault", [MemoryError(), SystemExit(), AttributeError("x")])
def test_a_thread_that_ends_is_never_waited_for(
    read: Callable[..., tuple[LogReader, Feed]], fault: BaseException
) -> None:
    reader, _ = read(chunk(1), fault)
    with pytest.raises(ConnectionFailed, match=type(fault).__name__):
        reader.read_through(Position(5, 1), 10)


def test_a_chunk_that_cannot_be_kept_ends_the_thread_and_is_not_counted_as_read(
    read: Callable[..., tuple[LogReader, Feed]],
) -> None:
    broken = Chunk(None, Read(Position(9, 1)), None, 1)  # type: ignore[arg-type]
    reader, _ = read(chunk(1), broken)
    with pytest.raises(ConnectionFailed):
        reader.read_through(Position(9, 1), 10)
    assert reader.reached == Position(1, 1)
    assert drained_until_error(reader) == [1]


def drained_until_error(reader: LogReader) -> list[int]:
    end = reader.plan(Position(), ALL, ALL)
    return [time for part in reader.take(Position(), end) for time in part.time.tolist()]


def test_batches_hold_every_change_once(read: Callable[..., tuple[LogReader, Feed]]) -> None:
    reader, _ = read(chunk(1, 3), chunk(4), chunk(5, 4))
    assert reader.read_through(Position(8, 1), 10)
    assert drained(reader, Position(), 2) == [1, 2, 3, 4, 5, 6, 7, 8]


def test_nothing_is_newer_than_what_was_planned_while_no_change_waits(
    read: Callable[..., tuple[LogReader, Feed]],
) -> None:
    reader, _ = read(chunk(1, 3))
    assert reader.read_through(Position(3, 1), 10)
    assert reader.newest(Position(1, 1)) == Position(3, 1)
    reader.release(releasable(Committed(Position(3, 1))))
    assert reader.newest(Position(7, 1)) == Position(7, 1)
