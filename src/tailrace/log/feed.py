"""Contracts to read a database's log and keep it: a feed, and the stretches that it reads. Planner.

Positions are of the database's own type, in the order of its log. `Upto` is a limit that a batch must not pass; its
type may differ from that of positions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, Protocol, Self, TypeVar

from tailrace.columns.batch import Bytes, Int64s

# Retries when the disk refuses data: it does not become free by itself, and the server keeps its log meanwhile.
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
    """A run of the log: its raw bytes, and its rows, which are the captured changes in them, in log order."""

    @property
    def data(self) -> Bytes:
        """The raw bytes, which may be on disk."""

    def __len__(self) -> int:
        """Return the number of rows."""

    def first_after(self, position: P, /) -> int:
        """Return the index of the first row after `position`."""

    def rows_upto(self, upto: Upto_contra, /) -> int:
        """Return the number of rows of a batch that must not pass `upto`."""

    def size(self, first: int, last: int, /) -> int:
        """Return the bytes from row `first` to the end of row `last` - 1; 0 without rows."""

    def sizes(self, first: int, last: int, /) -> Int64s:
        """Return the bytes from row `first` to the end of each of the rows `[first, last)`."""

    def end(self, start: P, first: int, last: int, upto: Upto_contra | None, /) -> P | None:
        """Return the last place among the rows up to `last` where a batch should end; None if there is none.

        The batch begins at `start` and has the rows from `first` on; -1: it already has rows of earlier stretches.
        """

    def cut(self, row: int, start: P, /) -> P:
        """Return the position after `row`, even within a transaction, for a batch that begins at `start`."""

    def leads_to(self, before: P, /) -> P:
        """Return the position up to which the log has been read with this stretch; without it, that was `before`."""

    def is_passed(self, position: P, /) -> bool:
        """Return True if batches that begin at `position` need nothing of this stretch."""

    def joined(self, other: Self, /) -> Self | None:
        """Return this stretch and the next one as one; None to keep both."""

    def extent(self, first: int, last: int, /) -> tuple[int, int]:
        """Return the part of `data` that the rows `[first, last)` need."""

    def without_data(self) -> Self:
        """Return a copy without raw bytes. Its positions are still known."""

    def with_data(self, data: Bytes, low: int, high: int, /) -> Self:
        """Return a copy with `data`, the part `[low, high)` of the raw bytes, enough for the rows to be taken."""

    def taken(self, first: int, last: int, /) -> Taken_co:
        """Return the rows `[first, last)` in the form that a batch delivers."""


@dataclass(frozen=True, slots=True)
class Step(Generic[P, Upto, Taken]):
    """The result of one read: a stretch to keep. If `is_wanted` is False, nothing is lost without it."""

    stretch: Stretch[P, Upto, Taken]
    is_wanted: bool


@dataclass(frozen=True, slots=True)
class Setback:
    """A reason for a session's end that another session may mend.

    Failures of one `kind` are retried `limit` times in a row (-1: for ever), with pauses that double from `first` to
    `longest` seconds. `text` is for the log file and contains no data.
    """

    kind: str
    text: str
    limit: int
    first: float
    longest: float

    def of_disk(self) -> Setback:
        """Return a copy for a disk that has refused data."""
        return replace(self, kind="disk", limit=DISK_RETRIES if self.limit < 0 else min(self.limit, DISK_RETRIES))

    def pause(self, failures: int) -> float:
        """Return the seconds to wait after so many earlier failures in a row."""
        return min(self.longest, self.first * 2.0 ** min(failures, 64))


class LogFeed(Protocol[P, Committed_contra, Upto, Taken]):
    """A database's log after the part that has been kept. It knows nothing of Spark.

    The reader's thread calls the first part: `open`, then `read` and `keep` in turn, and `close` at the end of each
    session, whatever ended it. The planner's thread calls the second part meanwhile; its answers advance only once the
    stretch has been kept.
    """

    def open(self) -> None:
        """Begin a session after the last stretch that was kept."""

    def read(self, is_asked: bool, is_hurried: Callable[[], bool], /) -> Step[P, Upto, Taken] | None:
        """Return the next step; None if there is nothing new for a while.

        With `is_asked` a caller waits for what the server has sent until now. While `read` waits for the server, each
        `hurry` makes it ask `is_hurried` again; if that is True, it returns what is available.
        """

    def keep(self, step: Step[P, Upto, Taken], /) -> None:
        """Note that the stretch of the latest step has been kept. Never fails."""

    def rest(self) -> None:
        """Answer the server while nothing can be read, so that the session lasts."""

    def close(self) -> None:
        """End the session, if there is one."""

    def setback(self, error: Exception, /) -> Setback | None:
        """Return how to go on after `error` has ended the session; None if another session would fail too."""

    def lasting(self, error: BaseException, /) -> BaseException:
        """Return the error that the planner raises when no session follows."""

    @property
    def progress(self) -> int:
        """A number that grows with what the server has sent. Growth resets the count of failures."""

    @property
    def is_behind(self) -> bool:
        """True while a backlog is being read."""

    @property
    def is_prompt(self) -> bool:
        """True if `read` returns within a moment when it is asked."""

    def hurry(self) -> None:
        """Let `read` ask `is_hurried` again."""

    def want(self, target: int, /) -> None:
        """Read up to `target` soon, because a caller waits for it."""

    def has_read(self, target: int, /) -> bool:
        """Return True if everything before `target`, a place in the database's own numbers, has been kept."""

    def has_passed(self, position: P, /) -> bool:
        """Return True if no row up to `position` can follow any more."""

    def reached(self) -> Callable[[P], P]:
        """Return a function that moves a position to where the log has been read by now, if no row follows it.

        It returns the position unchanged if that is not earlier.
        """

    def forget(self, position: Committed_contra, /) -> P:
        """Let the server discard, in time, everything up to `position`; return it as a position."""
