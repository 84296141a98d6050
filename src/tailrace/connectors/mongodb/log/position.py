"""Position: a place in a replica set's oplog or in a change stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NewType

WHOLE = (1 << 31) - 1
"""The number behind every change of a timestamp."""


@dataclass(frozen=True, slots=True)
class Position:
    """Behind the change `number` (from 1) among those with the timestamp `time`.

    `time` is a BSON timestamp: seconds since 1970 in the upper 32 bits, the increment in the lower. A number counts
    every change that the log shows, captured or not (a stream shows what its filter lets through), so that it names the
    same change at every reading with the same lists. `token` is the
    resume token there, a BSON document in base64; an oplog has none. `hash` and `term` are what the oplog's entry says
    of itself (`h` before MongoDB 4.2, `t` since 3.2): another entry with the same timestamp is not the one that was
    read. Positions are ordered by time and number.
    """

    time: int = 0
    number: int = 0
    token: str = ""
    hash: int | None = None
    term: int | None = None

    @property
    def key(self) -> tuple[int, int]:
        return self.time, self.number

    def is_before(self, other: Position) -> bool:
        return self.key < other.key

    def to_json(self) -> dict[str, Any]:
        fields: dict[str, Any] = {"number": self.number, "time": [self.time >> 32, self.time & 0xFFFFFFFF]}
        if self.hash is not None:
            fields["hash"] = self.hash
        if self.term is not None:
            fields["term"] = self.term
        if self.token:
            fields["token"] = self.token
        return dict(sorted(fields.items()))

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Position:
        seconds, increment = fields["time"]
        return cls(
            seconds << 32 | increment,
            fields["number"],
            fields.get("token", ""),
            fields.get("hash"),
            fields.get("term"),
        )

    def __str__(self) -> str:
        return f"{self.time >> 32}:{self.time & 0xFFFFFFFF}:{self.number}"


START = Position()
"""Before everything: what a query without checkpoint has."""

Read = NewType("Read", Position)
"""How far the server has sent the log: taken from its answers, and never from what was asked for."""

Committed = NewType("Committed", Position)
"""Where a batch ended that Spark has in its commit log: the sink has written all before it."""

Releasable = NewType("Releasable", Position)
"""Up to here nothing is needed any more. Made by `releasable` alone."""


def releasable(committed: Committed) -> Releasable:
    """What Spark has committed is not asked for again. The one place where something may be given up."""
    return Releasable(committed)
