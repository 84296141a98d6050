"""ChangePosition: a place in a replica set's oplog or in a change stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NewType

WHOLE = (1 << 31) - 1
"""A number greater than that of any change of a timestamp."""


@dataclass(frozen=True, slots=True)
class ChangePosition:
    """The place after the change `number` (from 1) of the changes with the timestamp `time`.

    `time` is a BSON timestamp: seconds since 1970 in the upper 32 bits, the increment in the lower. Numbers count all
    changes of the oplog, captured or not, or all that pass the filter of a change stream. With the same lists a change
    therefore always has the same number. `token` is the resume token, a BSON document in base64; an oplog has none.
    `hash` and `term` identify the oplog's entry (`h` before MongoDB 4.2, `t` since 3.2): after an election another
    entry may have the same timestamp. Positions are ordered by time and number.
    """

    time: int = 0
    number: int = 0
    token: str = ""
    hash: int | None = None
    term: int | None = None

    @property
    def key(self) -> tuple[int, int]:
        return self.time, self.number

    def is_before(self, other: ChangePosition) -> bool:
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
    def from_json(cls, fields: dict[str, Any]) -> ChangePosition:
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


START = ChangePosition()
"""The position of a query without checkpoint, before everything."""

Read = NewType("Read", ChangePosition)
"""A position up to which the server's answers have been read."""

Committed = NewType("Committed", ChangePosition)
"""The end of a batch in Spark's commit log: the sink has written everything up to it."""
