"""The lines that the reader's thread reads, their positions, and offsets. Planner."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tailrace.columns.batch import Bytes, Int64s
from tailrace.config import Config
from tailrace.connectors.checkpoint import ordered, understood
from tailrace.errors import ConnectionFailed, PositionLost
from tailrace.log.contracts import IndexedRun, LogFeed, QueryOffset, Setback, Step
from toylog import database

Lines = list[tuple[int, bytes]]
"""Some lines, each with the position after it."""


@dataclass(frozen=True, order=True)
class Line:
    """The place after so many lines; -1: before the log."""

    number: int

    def is_before(self, other: Line) -> bool:
        return self < other


@dataclass(frozen=True)
class ToySnapshot:
    """A snapshot of `tables` at the position of its offset, of which `done` are in a batch. A chunk is a table."""

    tables: tuple[str, ...]
    done: int = 0

    @property
    def is_complete(self) -> bool:
        return self.done == len(self.tables)


@dataclass(frozen=True)
class ToyOffset(QueryOffset):
    """The offset at the end of a batch."""

    log: Line = Line(-1)
    snapshot: ToySnapshot | None = field(default=None, kw_only=True)

    @property
    def place(self) -> str:
        return f"{max(self.log.number, 0):032X}"

    def to_json(self) -> dict[str, Any]:
        taken = {} if self.snapshot is None else {"snapshot": [self.snapshot.done, *self.snapshot.tables]}
        return ordered({"line": self.log.number} | taken | self.shared_json())

    @classmethod
    @understood
    def from_json(cls, fields: dict[str, Any]) -> ToyOffset:
        taken = ToySnapshot(tuple(fields["snapshot"][1:]), fields["snapshot"][0]) if "snapshot" in fields else None
        return cls(Line(fields["line"]), snapshot=taken, **cls.shared_from(fields))


@dataclass(frozen=True, slots=True)
class Run(IndexedRun[Line, Lines]):
    """The lines after `start`, one after another in `data`; `ends` has where each of them ends. Each is a row."""

    start: int
    ends: Int64s
    data: Bytes

    def __len__(self) -> int:
        return len(self.ends)

    def first_after(self, position: Line) -> int:
        return min(max(position.number - self.start, 0), len(self))

    def size(self, first: int, last: int) -> int:
        return self._end(last) - self._end(first) if first < last else 0

    def cut(self, row: int, start: Line) -> Line:
        return Line(self.start + row + 1)

    def leads_to(self, before: Line) -> Line:
        return max(before, Line(self.start + len(self)))

    def without_data(self) -> Run:
        return replace(self, data=np.empty(0, np.uint8))

    def with_data(self, first: int, last: int, read: Callable[[int, int], Bytes]) -> Run:
        low, high = self._end(first), self._end(last)
        return replace(self, data=read(low, high), ends=np.clip(self.ends, low, high) - low)

    def taken(self, first: int, last: int) -> Lines:
        texts = (self.data[self._end(row) : self._end(row + 1)].tobytes() for row in range(first, last))
        return list(enumerate(texts, self.start + first + 1))

    def _end(self, rows: int) -> int:
        return int(self.ends[rows - 1]) if rows else 0


class LinesFeed(LogFeed[Line, Line, Lines]):
    """The lines of the log after `start`."""

    progress = 0

    def __init__(self, config: Config, start: Line) -> None:
        self._config, self._path, self._kept = config, config["log.file"], start

    def open(self) -> None:
        end = len(database.lines(self._path))
        if end < self._kept.number:
            text = f"The log ends at line {end}, before the checkpoint at line {self._kept.number}."
            raise PositionLost(text, "Delete the checkpoint to start again.")

    def read(self, is_asked: bool, is_hurried: Callable[[], bool]) -> Step[Line, Lines] | None:
        found = database.lines(self._path, self._kept.number)
        self.progress += 1
        if not found:
            time.sleep(0.01)
            return None
        ends = np.cumsum([len(line) for line in found], dtype=np.int64)
        return Step(Run(self._kept.number, ends, np.frombuffer(b"".join(found), np.uint8)), True)

    def keep(self, step: Step[Line, Lines]) -> None:
        self._kept = step.run.leads_to(self._kept)

    def close(self) -> None:
        """Do nothing: nothing stays open between two reads."""

    def setback(self, error: BaseException) -> Setback:
        if not isinstance(error, ConnectionFailed):
            return Setback.last(error)
        retries, longest_ms = self._config["errors.max.retries"], self._config["retriable.restart.connector.wait.ms"]
        return Setback("session", error.message, retries, 0.1, longest_ms / 1000, error)

    def has_read(self, target: Line) -> bool:
        return target <= self._kept

    has_passed = has_read

    def reached(self, start: Line) -> Line:
        return max(start, self._kept)
