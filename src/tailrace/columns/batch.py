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
    """The transactions that a batch's changes belong to; a change names its own by index.

    `commit_us` is the commit's time in µs since 1970 UTC. What else is known of a transaction differs by connector.
    """

    commit_us: Int64s

    def __len__(self) -> int: ...


@dataclass(slots=True)
class CapturedTransactions:
    """The transactions of change tables: `commit_lsn` is a `binary` array of their commits' LSNs.

    The bytes are the server's own, 10 or 16. Those of one server have one length, so that they sort as bytes. Zeros
    stand for a snapshot taken before anything was captured, whose source blocks have no LSN.
    """

    commit_lsn: pa.Array
    commit_us: Int64s

    def __len__(self) -> int:
        return len(self.commit_us)


@dataclass(slots=True)
class Transactions:
    """The transactions of a log of numbered positions; see Commits.

    `xid` the server's 32-bit transaction id; `commit_lsn` the LSN of the commit record; `commit_us` the commit's
    time in µs since 1970 UTC; `previous_end` the end LSN of the commit before it in the log, -1 when none was seen.
    """

    xid: Int64s
    commit_lsn: Int64s
    commit_us: Int64s
    previous_end: Int64s

    def __len__(self) -> int:
        return len(self.xid)

    def part(self, which: slice | Int32s | Int64s) -> Transactions:
        """Some of them."""
        return Transactions(self.xid[which], self.commit_lsn[which], self.commit_us[which], self.previous_end[which])

    @classmethod
    def joined(cls, parts: Sequence[Transactions]) -> Transactions:
        """Those of the parts, one after another."""
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in cls.__slots__))


@dataclass(slots=True)
class Image:
    """One side of the changes, before or after: one text column per table column.

    `present[i]` says whether row i has this image at all; None means that every row has it. `columns[j]` is a
    `binary` array of the values as the server's output functions write them, in the database's encoding (UTF-8);
    null means SQL NULL, or that the log did not carry the column. `unavailable[j]`, where it is not None, marks
    the rows whose value is an unchanged TOAST value that the log did not carry (its text is null).
    """

    present: Flags | None
    columns: list[pa.Array]
    unavailable: list[Flags | None]


@dataclass(slots=True)
class ChangeBatch:
    """The changes of one version of one table, in log order.

    `op` holds the ASCII codes of c, u, d, t or r. `lsn` is the LSN of the change itself: of a log the start of its
    message, an int64; of change tables a `binary` array of the server's bytes, null where a source block has none.
    `ordinal` is the change's place within the transaction, counted over every change of the transaction from 0; of
    change tables, among the rows of one change LSN. `command` numbers the operations within a transaction, where
    they are ordered by it; None where there are no such numbers. `(transactions.commit_lsn[transaction[i]],
    ordinal[i])` is the position that identifies the event; of change tables `command` and `lsn` stand between the two.
    For snapshot rows (`r`) `marker` says what Debezium's `source.snapshot` shows; None means FALSE throughout.
    `before` and `after` may be None when no row has that image. In an update, `before` is present only if the log
    carried an old tuple.

    Where transaction metadata is wanted, `total_order` and `table_order` are the numbers, from 1, of the change's
    first event among all captured events of its transaction, and among those of its table. `messages` are the raw
    messages of the changes, bytes and offsets, where they came in any. `xmin` is what source blocks show of the slot,
    None where nothing is known. `serial` is the source block's event_serial_no, an int64 array: null where a block has
    none, None when it has none throughout. `reselected` counts the values of each change that were read again from the
    table: 0 where that was wanted and not possible, -1 where it was not wanted; None when none was. `superseded` is the
    number of changes that are not here, since only the last ones of each key were wanted.
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
        """The changes `[low, high)`."""
        if low == 0 and high == len(self):
            return self
        found = self.some(lambda values: values[low:high], lambda values: values[low:high])
        if self.messages is not None:
            found.messages = self.messages[0], self.messages[1][low : high + 1]
        found.superseded = 0 if low else self.superseded
        return found

    def some(self, numbers: Callable[[Any], Any], column: Callable[[Any], Any]) -> ChangeBatch:
        """Some of the changes: `numbers` takes them of numpy's arrays, `column` of Arrow's. It has no raw messages; its
        warnings are the same list."""

        def of(values: Any) -> Any:
            if values is None:
                return None
            return column(values) if isinstance(values, pa.Array) else numbers(values)

        def image(side: Image | None) -> Image | None:
            if side is None:
                return None
            columns = [column(one) for one in side.columns]
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
    """What the row schema's `position` says: 16 hexadecimal digits of a number; a text stands as it is.

    The text of change tables is the hexadecimal digits, in capitals, of the LSNs of commit and change, and between the
    two of the command, where there is one: it sorts in log order.
    """
    return f"{position:016X}" if isinstance(position, int) else position


# Two hexadecimal digits for every byte, as they lie in memory.
_DIGITS = np.frombuffer(bytes(range(256)).hex().upper().encode(), np.uint16).copy()


def position_texts(positions: Int64s) -> pa.Array:
    """`position_text` of many numbers."""
    digits = _DIGITS[np.ascontiguousarray(positions, ">i8").view(np.uint8)]
    bounds = np.arange(len(positions) + 1, dtype=np.int32) * 16
    return pa.StringArray.from_buffers(len(positions), pa.py_buffer(bounds), pa.py_buffer(digits))


@dataclass(frozen=True, slots=True)
class Counts:
    """The events of one transaction: in all, and by table, in the order in which END lists them.

    Tables are called as `events.names.collection` calls them.
    """

    total: int
    tables: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Boundary:
    """The beginning or end of a transaction, for transaction metadata.

    `xid` is the number that the server gives a transaction, or else the text that names it in events. `lsn` is the
    LSN of its first message, or the end LSN of its commit (0 where `xid` is a text); `commit_lsn` its position
    as `position_text` takes it; `commit_us` the commit's time in µs since 1970; `ordinal` sorts it among the
    transaction's changes; `counts` is None at the beginning.
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

    `xid` is None for one outside of transactions. `lsn` is its own LSN, `previous_end` the end LSN of the commit
    before it, None when none was seen; `commit_lsn` and `ordinal` are its position, `commit_us` the time of its
    commit in µs since 1970 (outside of transactions: of the commit before it); `total_order` its number among the
    events of its transaction, None where it has none or numbers are not wanted.
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
