"""Positions in PostgreSQL's log, and the LSN's text form.

A change is identified by `(commit LSN, ordinal in the transaction)`. An LSN alone identifies nothing: the changes
of interleaved transactions go back and forth in LSN, and the rows of one COPY share one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


def lsn_text(lsn: int) -> str:
    """`16/B374D848`, as PostgreSQL prints a pg_lsn."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_value(text: str) -> int:
    """The 64-bit value of a pg_lsn's text; raises ValueError for anything else."""
    high, slash, low = text.partition("/")
    if not slash:
        raise ValueError(f"not an LSN: {text!r}")
    return int(high, 16) << 32 | int(low, 16)


@dataclass(frozen=True, slots=True)
class LogPosition:
    """How far the log has been read: through a whole transaction, or through the first changes of one.

    `commit_lsn` is the LSN of the transaction's commit record. `consumed` is None when the whole transaction has
    been read, else the number of its changes that have been. `end_lsn` is the end of the last commit that was read
    completely, 0 when none was seen since the slot's creation or the last snapshot. `idle_lsn`, where it is not 0,
    tells that the log holds no captured change from there up to it. `at_us` is the time of the last commit that was
    read completely, in µs since 1970, 0 where it is not known; it is no part of the position. The zero position
    stands before the first change that the slot holds.

    A logical message outside of transactions counts as a transaction of its own. The LSN that it is sent with is
    the end of its record, where a commit record may begin, so its commit LSN is one byte less: its record's last.
    """

    commit_lsn: int = 0
    end_lsn: int = 0
    consumed: int | None = None
    idle_lsn: int = 0
    at_us: int = field(default=0, compare=False)

    @property
    def safe_lsn(self) -> int:
        """The slot may be advanced to here, and reading resumes here."""
        return max(self.end_lsn, self.idle_lsn)

    def is_before(self, other: LogPosition) -> bool:
        if self.commit_lsn != other.commit_lsn:
            return self.commit_lsn < other.commit_lsn
        mine = float("inf") if self.consumed is None else self.consumed
        theirs = float("inf") if other.consumed is None else other.consumed
        return mine < theirs

    def to_json(self) -> dict[str, Any]:
        """Offsets are compared as text by Spark: plain strings and integers, nothing that varies between calls."""
        fields: dict[str, Any] = {"commit": lsn_text(self.commit_lsn), "end": lsn_text(self.end_lsn)}
        if self.consumed is not None:
            fields["consumed"] = self.consumed
        if self.idle_lsn:
            fields["idle"] = lsn_text(self.idle_lsn)
        if self.at_us:
            fields["at_us"] = self.at_us
        return fields

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> LogPosition:
        return cls(
            lsn_value(fields["commit"]),
            lsn_value(fields["end"]),
            fields.get("consumed"),
            lsn_value(fields.get("idle", "0/0")),
            fields.get("at_us", 0),
        )


START = LogPosition()
