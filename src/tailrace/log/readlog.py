"""ReadLog: an open log that a thread reads ahead into a spool. Planner."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from tailrace.log.contracts import UNLIMITED, Limits, O, OpenLog, P
from tailrace.log.reader import LogReader


class ReadLog(OpenLog[O, P, int]):
    """The log in `reader`'s spool; a target is a place in the database's own numbers.

    A connector adds what is committed, when an idle position is far, and the tasks of a batch.
    """

    reader: LogReader[P, Any, Any, Any]

    @staticmethod
    @abstractmethod
    def upto(target: int) -> Any:
        """Return `target` as a limit of the spool."""

    def refresh(self) -> None:
        self.reader.refresh()

    def check(self) -> None:
        self.reader.check()

    @property
    def version(self) -> int:
        return self.reader.spool.version

    def wait(self, seconds: float, since: int) -> None:
        self.reader.wait(seconds, since)

    def is_filling(self, max_bytes: int, target: int | None = None) -> bool:
        return self.reader.is_filling(max_bytes, target)

    def plan(self, start: P, limits: Limits, target: int | None) -> P:
        return self.reader.plan(start, limits.rows, limits.bytes, None if target is None else self.upto(target))

    def whole(self, start: P) -> P:
        return self.reader.plan(start, UNLIMITED, UNLIMITED)

    def has_read(self, target: int) -> bool:
        return self.reader.has_read(target)

    def idle_position(self, start: P) -> P:
        return self.reader.idle_position(start)

    def close(self) -> None:
        self.reader.close()
