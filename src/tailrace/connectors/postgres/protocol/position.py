"""Positions in PostgreSQL's log, and the LSN's text form. No I/O.

`(commit LSN, ordinal in the transaction)` identifies a change. An LSN alone does not: the changes of interleaved
transactions do not arrive in the order of their LSNs, and the rows of one COPY share one LSN.

LSNs that must not be confused have separate types. An acknowledged LSN has been read, and an LSN that has been read was
flushed. A type checker therefore accepts an AcknowledgedLsn as a ReadLsn, and a ReadLsn as a FlushedLsn, but not the
reverse.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NewType, TypeAlias, cast

from tailrace.columns.batch import ChangeBatch, Int64s, Transactions
from tailrace.log.rows import segment
from tailrace.log.rows.segment import ByRow

FlushedLsn = NewType("FlushedLsn", int)
"""The server has flushed its log up to this LSN. It sends nothing after it, even if later commits are written."""

ReadLsn = NewType("ReadLsn", FlushedLsn)
"""Every transaction that commits before this LSN has been read, or has no captured change.

Such an LSN comes from the server's messages (`sent`) or from an offset, never from a request.
"""

AcknowledgedLsn = NewType("AcknowledgedLsn", ReadLsn)
"""The server may forget what commits before this LSN: Spark has committed it (`acknowledged`), or the slot
is there already (`confirmed`)."""

TargetLsn = NewType("TargetLsn", int)
"""Transactions that commit before this LSN are wanted. They may not be flushed yet, or not even be in the log."""


def sent(lsn: int) -> ReadLsn:
    """Return an LSN up to which the server reports to have sent its log."""
    return ReadLsn(FlushedLsn(lsn))


NOWHERE = sent(0)


def confirmed(lsn: int) -> AcknowledgedLsn:
    """Return an LSN that the server reports as the slot's position."""
    return AcknowledgedLsn(sent(lsn))


def lsn_text(lsn: int) -> str:
    """Return an LSN as PostgreSQL prints a pg_lsn: `16/B374D848`."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_value(text: str) -> int:
    """Return the 64-bit value of a pg_lsn's text. Raises ValueError for anything else."""
    high, slash, low = text.partition("/")
    if not slash:
        raise ValueError(f"not an LSN: {text!r}")
    return int(high, 16) << 32 | int(low, 16)


@dataclass(frozen=True, slots=True)
class LogPosition:
    """A position in the log: after a whole transaction, or after the first changes of one.

    `commit_lsn` is the LSN of the transaction's commit record. `consumed` is None if the whole transaction has been
    read, else the number of its changes that have been read. `end_lsn` is the end of the last commit that was read
    completely; 0 if there was none since the slot's creation or the last snapshot. The log has no captured change from
    `end_lsn` up to `idle_lsn`, unless `idle_lsn` is 0. `at_us` is the time of the last commit that was read completely,
    in µs since 1970, 0 if unknown; comparisons ignore it. The zero position is before the first change that the slot
    holds.

    A logical message outside of transactions counts as a transaction. It is sent with the LSN of its record's end,
    where the next commit record may begin. Its commit LSN is therefore one byte less: the record's last byte.
    """

    commit_lsn: int = 0
    end_lsn: int = 0
    consumed: int | None = None
    idle_lsn: ReadLsn = NOWHERE
    at_us: int = field(default=0, compare=False)

    @property
    def safe_lsn(self) -> ReadLsn:
        """The LSN at which reading resumes: every transaction that commits before it has been read completely."""
        return max(sent(self.end_lsn), self.idle_lsn)

    @property
    def reached_lsn(self) -> int:
        """The LSN up to which the log was certainly read, including the commit record of a transaction read in part."""
        return max(self.safe_lsn, self.commit_lsn + 1 if self.commit_lsn else 0)

    def is_before(self, other: LogPosition) -> bool:
        if self.commit_lsn != other.commit_lsn:
            return self.commit_lsn < other.commit_lsn
        mine = float("inf") if self.consumed is None else self.consumed
        theirs = float("inf") if other.consumed is None else other.consumed
        return mine < theirs

    def to_json(self) -> dict[str, Any]:
        """Return the position as JSON, the same at each call: Spark compares offsets as text."""
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
"""A position that Spark has committed: a batch that ends there is in its commit log, and is never planned again."""


def acknowledged(position: Committed) -> AcknowledgedLsn:
    """Return the LSN before which the server may forget its log, once Spark has committed `position`."""
    return AcknowledgedLsn(position.safe_lsn)


@dataclass(slots=True, kw_only=True)
class RowPositions(ByRow):
    """`lsn[i]` is the LSN with which the server sent the message of row i."""

    lsn: Int64s


Segment: TypeAlias = segment.Segment[RowPositions, Transactions]
"""Message i is an Insert, Update, Delete or Truncate in the form of protocol version 1: no transaction id follows the
kind byte, also if the server sent it with another version."""

MixedSegment: TypeAlias = segment.MixedSegment[RowPositions, Transactions]


def transactions_of(batch: ChangeBatch) -> Transactions:
    """Return the batch's transactions, with PostgreSQL's type."""
    return cast(Transactions, batch.transactions)
