"""What a database brings so that its log can be read and kept: a feed, and the stretches that it reads. Planner.

Positions are of the database's own kind, in the order of its log. A place that a batch must not pass (`Upto`) may be
said in other words than a position.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, Protocol, Self, TypeVar

from tailrace.columns.batch import Bytes, Int64s

# How often a disk that takes nothing is tried again: it does not become free by itself, and the server keeps its log.
DISK_RETRIES = 8


class Position(Protocol):
    """A place in the log."""

    def is_before(self, other: Self, /) -> bool: ...


P = TypeVar("P", bound=Position)
Upto = TypeVar("Upto")
Committed = TypeVar("Committed")
Taken = TypeVar("Taken")
Upto_contra = TypeVar("Upto_contra", contravariant=True)
Committed_contra = TypeVar("Committed_contra", contravariant=True)
Taken_co = TypeVar("Taken_co", covariant=True)


class Stretch(Protocol[P, Upto_contra, Taken_co]):
    """A run of the log as it was read: raw bytes, and the captured changes in them, its rows, in the log's order."""

    @property
    def data(self) -> Bytes:
        """The raw bytes, which may wait on disk."""

    def __len__(self) -> int:
        """How many rows there are."""

    def first_after(self, position: P, /) -> int:
        """The index of the first row behind `position`."""

    def rows_upto(self, upto: Upto_contra, /) -> int:
        """How many rows a batch may have that must not pass `upto`."""

    def size(self, first: int, last: int, /) -> int:
        """The bytes from row `first` to the end of row `last` - 1; 0 where there is none."""

    def sizes(self, first: int, last: int, /) -> Int64s:
        """The bytes from row `first` to the end of each of the rows `[first, last)`."""

    def end(self, start: P, first: int, last: int, upto: Upto_contra | None, /) -> P | None:
        """The last place among the rows up to `last` where a batch should end; None: there is none.

        The batch begins at `start` and has the rows from `first` on; -1: it has rows of earlier stretches.
        """

    def cut(self, row: int, start: P, /) -> P:
        """The position behind `row`, wherever that is, of a batch that begins at `start`."""

    def leads_to(self, before: P, /) -> P:
        """How far the log has been read with the stretch, when it had been read to `before`."""

    def is_passed(self, position: P, /) -> bool:
        """Whether nothing of the stretch is needed any more by batches that begin at `position`."""

    def joined(self, other: Self, /) -> Self | None:
        """This stretch and the one that follows it as one; None: they stay two."""

    def extent(self, first: int, last: int, /) -> tuple[int, int]:
        """The part of `data` that the rows `[first, last)` need."""

    def without_data(self) -> Self:
        """The same, with the raw bytes elsewhere; positions are known without them."""

    def with_data(self, data: Bytes, low: int, high: int, /) -> Self:
        """The same with `data`, the part `[low, high)` of the raw bytes, for the rows that need no more."""

    def taken(self, first: int, last: int, /) -> Taken_co:
        """The rows `[first, last)` in the form in which a batch is handed out."""


@dataclass(frozen=True, slots=True)
class Step(Generic[P, Upto, Taken]):
    """What a feed has read: a stretch to be kept. Where `is_wanted` is false nothing is lost without it."""

    stretch: Stretch[P, Upto, Taken]
    is_wanted: bool


@dataclass(frozen=True, slots=True)
class Setback:
    """Why a session has ended that another one may mend.

    Of this `kind`, `limit` are tried again in a row (-1: for ever), with pauses that double from `first` to `longest`
    seconds. `text` is for the log, and holds no data.
    """

    kind: str
    text: str
    limit: int
    first: float
    longest: float

    def of_disk(self) -> Setback:
        """The same where the disk has taken nothing."""
        return replace(self, kind="disk", limit=DISK_RETRIES if self.limit < 0 else min(self.limit, DISK_RETRIES))

    def pause(self, failures: int) -> float:
        """How long to wait after so many earlier failures in a row, in s."""
        return min(self.longest, self.first * 2.0 ** min(failures, 64))


class LogFeed(Protocol[P, Committed_contra, Upto, Taken]):
    """A database's log behind what has been kept of it. It knows nothing of Spark.

    The reader's thread calls the first part: `open`, then `read` and `keep` in turn, and `close` at the end of each
    session, whatever has ended it. Nothing that the second part shows has moved before the stretch that it describes
    was kept; the planner's thread calls that part meanwhile.
    """

    def open(self) -> None:
        """Begin a session behind what was kept last."""

    def read(self, is_asked: bool, is_hurried: Callable[[], bool], /) -> Step[P, Upto, Taken] | None:
        """The next step; None: nothing new for a while.

        With `is_asked` someone waits for what the server has sent until now. While it waits for the server it asks
        `is_hurried` again after each `hurry`: then it returns what is there.
        """

    def keep(self, step: Step[P, Upto, Taken], /) -> None:
        """The stretch of the step that was read last has been kept. Fails never."""

    def rest(self) -> None:
        """Nothing can be read for now: answer the server, so that the session lasts."""

    def close(self) -> None:
        """End the session, if there is one."""

    def setback(self, error: Exception, /) -> Setback | None:
        """What `error` means to the session that it has ended; None: another one would end with it too."""

    def lasting(self, error: BaseException, /) -> BaseException:
        """The error that the planner sees when no other session follows."""

    @property
    def progress(self) -> int:
        """Grows with what the server has sent; failures are counted anew then."""

    @property
    def is_behind(self) -> bool:
        """Whether a backlog is being read."""

    @property
    def is_prompt(self) -> bool:
        """Whether `read` returns within a moment when it is asked."""

    def hurry(self) -> None:
        """Let `read` ask `is_hurried` again."""

    def want(self, target: int, /) -> None:
        """Someone waits until the log has been read to `target`: get there soon."""

    def has_read(self, target: int, /) -> bool:
        """Whether everything before `target`, a place as the database counts it, has been kept."""

    def has_passed(self, position: P, /) -> bool:
        """Whether the log has been read so far that nothing up to `position` is to come."""

    def reached(self) -> Callable[[P], P]:
        """How far the log has been read by now: what moves a position there that no row follows.

        It returns the position itself where that is not behind it.
        """

    def forget(self, position: Committed_contra, /) -> P:
        """Let the server forget in time what is not needed behind `position`; returns it as a position."""
