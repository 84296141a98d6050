"""ChangeBatch: the changes of one version of one table, in log order, as columns of server text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.columns.table import TableSchema

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]


class Marker(IntEnum):
    """The `snapshot` marker of a change's source block, one code per row."""

    FALSE = 0
    TRUE = 1
    FIRST = 2
    FIRST_IN_DATA_COLLECTION = 3
    LAST_IN_DATA_COLLECTION = 4
    LAST = 5
    INCREMENTAL = 6


class Commits(Protocol):
    """The transactions of a batch's changes; a change refers to its transaction by index.

    `commit_us` is the commit's time in µs since 1970 UTC. Other properties differ by connector.
    """

    commit_us: Int64s

    def __len__(self) -> int: ...


@dataclass(slots=True)
class CapturedTransactions:
    """The transactions of change tables: `commit_lsn` is a `binary` array of their commits' LSNs.

    The bytes are the server's own, 10 or 16, with the same length throughout a server, so they sort as bytes. Zeros
    stand for a snapshot taken before anything was captured, whose source blocks have no LSN.
    """

    commit_lsn: pa.Array
    commit_us: Int64s

    def __len__(self) -> int:
        return len(self.commit_us)


@dataclass(slots=True)
class Transactions:
    """The transactions of a log with numbered positions; see Commits.

    `xid` is the server's 32-bit transaction id; `commit_lsn` the LSN of the commit record; `commit_us` the commit's
    time in µs since 1970 UTC; `previous_end` the end LSN of the previous commit in the log, -1 if none was seen.
    """

    xid: Int64s
    commit_lsn: Int64s
    commit_us: Int64s
    previous_end: Int64s

    def __len__(self) -> int:
        return len(self.xid)

    def part(self, which: slice | Int32s | Int64s) -> Transactions:
        """Return some of the transactions."""
        return Transactions(self.xid[which], self.commit_lsn[which], self.commit_us[which], self.previous_end[which])

    @classmethod
    def joined(cls, parts: Sequence[Transactions]) -> Transactions:
        """Return the transactions of the parts, one after another."""
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in cls.__slots__))


@dataclass(slots=True)
class Image:
    """A side of the changes, before or after: one text column per table column.

    `present[i]`: row i has this image; None means that every row has it. `columns[j]` is a `binary` array of the values
    as the server's output functions write them, in UTF-8; null means SQL NULL, or that the log did not carry the
    column. `unavailable[j]`, unless None, marks the rows with an unchanged TOAST value that the log did not carry
    (their text is null).
    """

    present: Flags | None
    columns: list[pa.Array]
    unavailable: list[Flags | None]


@dataclass(slots=True)
class ChangeBatch:
    """The changes of one version of one table, in log order.

    - `op`: ASCII codes of c, u, d, r or t.
    - `lsn`: the LSN of each change. For a log, the start of its message, an int64; for change tables, a `binary` array
      of the server's bytes, null if the source block has none.
    - `ordinal`: the change's place in its transaction, counted from 0 over every change of the transaction; for change
      tables, among the rows of one change LSN.
    - `command`: numbers of the operations within a transaction, if these order its changes, else None.
    - `marker`: Debezium's `source.snapshot` of snapshot rows (`r`); None means FALSE throughout.
    - `before`, `after`: None if no row has that image. In an update, `before` is present only if the log carried an old
      tuple.
    - `total_order`, `table_order`: numbers, from 1, of the change's first event among all captured events of its
      transaction, and among those of its table; only with transaction metadata.
    - `messages`: the raw messages of the changes, bytes and offsets, if there are any.
    - `xmin`: the slot's xmin for source blocks; None if unknown.
    - `serial`: the source block's event_serial_no, an int64 array; null if a block has none, None if no block has one.
    - `reselected`: the number of values of each change that were read again from the table: 0 if that was requested but
      impossible, -1 if it was not requested; None if it was requested for no change.
    - `superseded`: the number of changes left out because only the last change of each key was requested.

    `(transactions.commit_lsn[transaction[i]], ordinal[i])` identifies the event; for change tables `command` and `lsn`
    stand between the two.
    """

    table: TableSchema
    op: Bytes
    lsn: Int64s | pa.Array
    transaction: Int32s
    ordinal: Int64s
    transactions: Commits
    before: Image | None
    after: Image | None
    marker: Bytes | None = None
    total_order: Int64s | None = None
    table_order: Int64s | None = None
    messages: tuple[Bytes, Int64s] | None = None
    xmin: int | None = None
    serial: pa.Array | None = None
    warnings: list[str] = field(default_factory=list)
    command: Int64s | None = None
    reselected: Int32s | None = None
    superseded: int = 0

    def __len__(self) -> int:
        return len(self.op)

    def part(self, low: int, high: int) -> ChangeBatch:
        """Return the changes `[low, high)`."""
        if low == 0 and high == len(self):
            return self
        found = self.some(lambda values: values[low:high], lambda values: values[low:high])
        if self.messages is not None:
            found.messages = self.messages[0], self.messages[1][low : high + 1]
        found.superseded = 0 if low else self.superseded
        return found

    def some(self, numbers: Callable[[Any], Any], column: Callable[[Any], Any]) -> ChangeBatch:
        """Return some of the changes: `numbers` selects from numpy's arrays, `column` from Arrow's.

        The result has no raw messages and shares the list of warnings.
        """

        def of(values: Any) -> Any:
            if values is None:
                return None
            return column(values) if isinstance(values, pa.Array) else numbers(values)

        def image(side: Image | None) -> Image | None:
            if side is None:
                return None
            columns = [column(values) for values in side.columns]
            return Image(of(side.present), columns, [of(flags) for flags in side.unavailable])

        return replace(
            self,
            op=of(self.op),
            lsn=of(self.lsn),
            transaction=of(self.transaction),
            ordinal=of(self.ordinal),
            before=image(self.before),
            after=image(self.after),
            marker=of(self.marker),
            serial=of(self.serial),
            total_order=of(self.total_order),
            table_order=of(self.table_order),
            command=of(self.command),
            reselected=of(self.reselected),
            messages=None,
        )


def position_text(position: int | str) -> str:
    """Return the row schema's `position`: a number as 16 hexadecimal digits, a text unchanged.

    The text of change tables has the hexadecimal digits, in capitals, of the LSNs of commit and change, with the
    command between them if there is one. It sorts in log order.
    """
    return f"{position:016X}" if isinstance(position, int) else position


# Two hexadecimal digits for every byte, in memory order.
_DIGITS = np.frombuffer(bytes(range(256)).hex().upper().encode(), np.uint16).copy()


def position_texts(positions: Int64s) -> pa.Array:
    """Return `position_text` of many numbers."""
    digits = _DIGITS[np.ascontiguousarray(positions, ">i8").view(np.uint8)]
    bounds = np.arange(len(positions) + 1, dtype=np.int32) * 16
    return pa.StringArray.from_buffers(len(positions), pa.py_buffer(bounds), pa.py_buffer(digits))


@dataclass(frozen=True, slots=True)
class Counts:
    """The number of events of one transaction: the total, and by table in the order of END.

    Tables have the names of `events.names.collection`.
    """

    total: int
    tables: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Boundary:
    """The beginning or end of a transaction, for transaction metadata.

    `xid` is the server's number of the transaction, or else its text in events. `lsn` is the LSN of its first message,
    or the end LSN of its commit (0 if `xid` is a text); `commit_lsn` its position in the form that `position_text`
    expects; `commit_us` the commit's time in µs since 1970; `ordinal` sorts it among the transaction's changes;
    `counts` is None at the beginning.
    """

    xid: int | str
    lsn: int
    commit_lsn: int | str
    commit_us: int
    ordinal: int
    counts: Counts | None


@dataclass(frozen=True, slots=True)
class LogicalMessage:
    """A message that an application has written into the log.

    `xid` is None outside of transactions. `lsn` is the message's LSN, `previous_end` the end LSN of the commit before
    it, None if none was seen. `commit_lsn` and `ordinal` are its position. `commit_us` is the time of its commit, in µs
    since 1970 (outside of transactions: of the commit before it). `total_order` is its number among the events of its
    transaction, None if it has none or numbers are not requested.
    """

    prefix: str
    content: bytes
    lsn: int
    xid: int | None
    commit_lsn: int
    commit_us: int
    previous_end: int | None
    ordinal: int
    total_order: int | None
