"""Positions in PostgreSQL's log, and the LSN's text form.

A change is identified by `(commit LSN, ordinal in the transaction)`. An LSN alone identifies nothing: the changes
of interleaved transactions go back and forth in LSN, and the rows of one COPY share one.

LSNs that must not be taken for each other have types of their own. What may be forgotten has been read, and what has
been read was flushed; a type checker accepts one for another in this direction only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NewType

FlushedLsn = NewType("FlushedLsn", int)
"""The server has flushed its log up to here. It sends nothing beyond, whatever has been written or committed there."""

ReadLsn = NewType("ReadLsn", FlushedLsn)
"""Every transaction that commits before this LSN has been read, or has no captured change.

It comes from what the server has sent (`sent`) or from an offset, never from what was asked for."""

ForgettableLsn = NewType("ForgettableLsn", ReadLsn)
"""The server may forget what commits before: Spark has committed it (`may_forget`), or the slot stands there already
(`confirmed`)."""

TargetLsn = NewType("TargetLsn", int)
"""What commits before this LSN is wanted. It may not have been flushed yet, or not even be in the log."""


def sent(lsn: int) -> ReadLsn:
    """An LSN by which the server says how far it has sent its log."""
    return ReadLsn(FlushedLsn(lsn))


NOWHERE = sent(0)


def confirmed(lsn: int) -> ForgettableLsn:
    """Where the server says that the slot stands."""
    return ForgettableLsn(sent(lsn))


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
    says that the log holds no captured change from there up to it. `at_us` is the time of the last commit that was
    read completely, in µs since 1970, 0 where it is not known; it is no part of the position. The zero position
    stands before the first change that the slot holds.

    A logical message outside of transactions counts as a transaction of its own. The LSN that it is sent with is
    the end of its record, where a commit record may begin, so its commit LSN is one byte less: its record's last.
    """

    commit_lsn: int = 0
    end_lsn: int = 0
    consumed: int | None = None
    idle_lsn: ReadLsn = NOWHERE
    at_us: int = field(default=0, compare=False)

    @property
    def safe_lsn(self) -> ReadLsn:
        """Every transaction that commits before has been read completely: reading resumes here."""
        return max(sent(self.end_lsn), self.idle_lsn)

    @property
    def reached_lsn(self) -> int:
        """The log was read up to here, at least: behind the commit record of a transaction that is read in part."""
        return max(self.safe_lsn, self.commit_lsn + 1 if self.commit_lsn else 0)

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
            sent(lsn_value(fields.get("idle", "0/0"))),
            fields.get("at_us", 0),
        )


START = LogPosition()

Committed = NewType("Committed", LogPosition)
"""A position that Spark has committed: a batch that ends there is in its commit log, and is not asked for again."""


def may_forget(position: Committed) -> ForgettableLsn:
    """What the server may forget once Spark has committed `position`; there is no other way to know it."""
    return ForgettableLsn(position.safe_lsn)
