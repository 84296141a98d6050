"""Positions in the binary log, and the properties of its rows and transactions. No I/O.

`(epoch, file, start of the transaction, place in it)` identifies a change. The epoch is the number of the server in the
sequence of servers, since each has other files. A transaction never spans files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, NamedTuple, NewType, Self, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.columns.batch import ChangeBatch, Int32s, Int64s
from tailrace.log.rows import segment
from tailrace.log.rows.segment import ByRow

WHOLE = (1 << 62) - 1


def number_of(file: str) -> int:
    """Return the number at the end of a log file's name; -1 if it has none."""
    digits = file.rpartition(".")[2]
    return int(digits) if digits.isdigit() else -1


def position_text(epoch: int, file: str, start: int) -> str:
    """Return the row schema's `position` of a transaction: it sorts in log order."""
    return f"{epoch:04X}{max(number_of(file), 0):08X}{max(start, 0):012X}"


@dataclass(frozen=True, slots=True)
class ReadingStart:
    """The place at which reading has to begin: an unfinished transaction, such as a prepared XA transaction.

    `gtids` are the transactions executed before it; `mark` is as in BinlogPosition.
    """

    file: str
    start: int
    mark: int = 0
    gtids: str = ""

    def to_json(self) -> dict[str, Any]:
        return {"file": self.file, "gtids": self.gtids, "mark": self.mark, "start": self.start}


@dataclass(frozen=True, slots=True)
class BinlogPosition:
    """A position in the log: after a whole transaction, or after the first rows of a transaction.

    - The transaction begins at `start` of `file`, with an event whose checksum is `mark` (0: unknown). The checksum
      serves to recognize the log. `gtid` is the id of the transaction if it has been read in part.
    - `consumed` is the number of rows of the transaction that have been read; None if it has been read completely.
    - `end` is the start of the next transaction. It has no meaning within a transaction.
    - `gtids` are the transactions executed up to here, without a transaction that has been read in part.
    - `epoch` counts the servers that the query has read from, and `server` is the last of them (see
      `ServerIdentity.uuid`).
    - `held` is the first transaction that is prepared and not finished.
    - `at_us` is the time of the last commit in µs since 1970; comparisons ignore it.

    If no transaction precedes a position, such as the end of the log at the start, its `start` is the byte before
    `end`. The zero position is before everything.
    """

    file: str = ""
    start: int = 0
    end: int = 0
    consumed: int | None = None
    epoch: int = 0
    gtids: str = ""
    gtid: str = ""
    server: str = ""
    mark: int = 0
    held: ReadingStart | None = None
    at_us: int = field(default=0, compare=False)

    @property
    def key(self) -> tuple[int, int, int, int]:
        """The key by which positions are ordered."""
        return self.epoch, number_of(self.file), self.start, WHOLE if self.consumed is None else self.consumed

    @property
    def resumes(self) -> ReadingStart:
        """The place at which reading begins again after this position."""
        begins = self.start if self.mark or self.consumed is not None else self.end
        return self.held or ReadingStart(self.file, begins, self.mark, self.gtids)

    def is_before(self, other: BinlogPosition) -> bool:
        return self.key < other.key

    def text(self) -> str:
        return position_text(self.epoch, self.file, self.start)

    def __str__(self) -> str:
        return f"{self.file}:{self.start if self.consumed is not None else self.end}"

    def to_json(self) -> dict[str, Any]:
        """Return the position as JSON, the same at each call: Spark compares offsets as text."""
        found: dict[str, Any] = {"end": self.end, "file": self.file, "start": self.start}
        for name in ("consumed", "epoch", "gtids", "gtid", "server", "mark", "at_us"):
            if (value := getattr(self, name)) not in (None, "", 0) or (name == "consumed" and value == 0):
                found[name] = value
        if self.held is not None:
            found["held"] = self.held.to_json()
        return dict(sorted(found.items()))

    @classmethod
    def from_json(cls, given: dict[str, Any]) -> BinlogPosition:
        held = given.get("held")
        rest = {name: value for name, value in given.items() if name != "held"}
        return cls(**rest, held=None if held is None else ReadingStart(**held))


START = BinlogPosition()

Committed = NewType("Committed", BinlogPosition)
"""A position that Spark has committed."""


class RowsEventForm(NamedTuple):
    """Properties that all rows of a rows event share.

    `op` is c, u, d or t. `before` and `after` have a byte for each column, 1 if the image has the column. With
    `is_partial` JSON values of the after image are differences. With `ends` the row has become history, and its after
    image is not delivered.
    """

    op: int
    before: bytes
    after: bytes
    is_partial: bool = False
    ends: bool = False


@dataclass(slots=True, kw_only=True)
class RowPlaces(ByRow):
    """Properties of rows that are not in their bytes.

    `pos` and `row` are the fields of source blocks. `image` is the place of the event's RowsEventForm in `images`.
    `statement` is the place of the event's statement in `statements`, -1 if there is none.
    """

    WHOLE: ClassVar[frozenset[str]] = frozenset({"images", "statements"})
    pos: Int64s
    row: Int32s
    image: Int32s
    statement: Int32s
    images: tuple[RowsEventForm, ...] = ()
    statements: tuple[bytes, ...] = ()

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        if len(parts) == 1:
            return parts[0]
        found: dict[str, Any] = {}
        for one in fields(cls):
            if one.name in cls.WHOLE:
                continue
            arrays = [getattr(part, one.name) for part in parts]
            found[one.name] = None if any(array is None for array in arrays) else np.concatenate(arrays)
        for name, of in (("image", "images"), ("statement", "statements")):
            known: dict[Any, int] = {}
            arrays = []
            for part in parts:
                places = [known.setdefault(one, len(known)) for one in getattr(part, of)]
                index = getattr(part, name)
                table = np.array([*places, -1], np.int32)
                arrays.append(table[index])
            found[name], found[of] = np.concatenate(arrays), tuple(known)
        return cls(**found)


@dataclass(slots=True)
class BinlogTransactions:
    """The transactions of a log, in its order.

    `file` is the place of the file's name in `names`; `start` is the transaction's position in the file, `begin` the
    position of its BEGIN. `source` is the place of the id's source in `names` (-1: no id), `number` the id's number.
    `thread` is the session, -1 if the log does not have it; `server_id` is the server that wrote the transaction first;
    `commit_us` is the time of the commit in µs since 1970. `names` only grows within a planner. `separator` is the
    character between source and number in an id.
    """

    epoch: Int64s
    file: Int32s
    start: Int64s
    begin: Int64s
    commit_us: Int64s
    source: Int32s
    number: Int64s
    thread: Int64s
    server_id: Int64s
    names: tuple[str, ...] = ()
    separator: str = ":"

    _ARRAYS: ClassVar[tuple[str, ...]] = (
        "epoch", "file", "start", "begin", "commit_us", "source", "number", "thread", "server_id",
    )  # fmt: skip

    def __len__(self) -> int:
        return len(self.start)

    def part(self, which: slice | Int32s | Int64s) -> BinlogTransactions:
        """Return some of the transactions."""
        arrays = {name: getattr(self, name)[which] for name in self._ARRAYS}
        return BinlogTransactions(**arrays, names=self.names, separator=self.separator)

    @classmethod
    def joined(cls, parts: Sequence[BinlogTransactions]) -> BinlogTransactions:
        """Return the transactions of the parts, one after another."""
        arrays = {name: np.concatenate([getattr(part, name) for part in parts]) for name in cls._ARRAYS}
        names = max((part.names for part in parts), key=len)
        return cls(**arrays, names=names, separator=parts[0].separator if parts else ":")

    def keys(self) -> npt.NDArray[Any]:
        """Return arrays whose order is the order of the transactions' positions."""
        numbers = np.array([number_of(name) for name in self.names] or [0], np.int64)
        return np.stack([self.epoch, numbers[self.file], self.start]) if len(self) else np.empty((3, 0), np.int64)

    def key(self, place: int) -> tuple[int, int, int]:
        return int(self.epoch[place]), number_of(self.names[self.file[place]]), int(self.start[place])

    def files(self) -> pa.Array:
        """Return the name of each transaction's file."""
        return pa.array(self.names or ("",), pa.string()).take(pa.array(self.file))

    def gtids(self) -> pa.Array:
        """Return each transaction's id as text; null without one."""
        source = pa.array(self.source, mask=self.source < 0)
        sources = pa.array(self.names or ("",), pa.string()).take(source)
        return pc.binary_join_element_wise(sources, pa.array(self.number).cast(pa.string()), self.separator)

    def ids(self) -> pa.Array:
        """Return each transaction's name in events: its id, or the place of its BEGIN without one."""
        places = pc.binary_join_element_wise("file=", self.files(), ",pos=", pa.array(self.begin).cast(pa.string()), "")
        return pc.coalesce(self.gtids(), places)

    def positions(self) -> pa.Array:
        """Return `position_text` of each transaction."""
        rows = zip(self.epoch.tolist(), self.file.tolist(), self.start.tolist(), strict=True)
        return pa.array([position_text(epoch, self.names[file], start) for epoch, file, start in rows], pa.string())

    def gtid(self, place: int) -> str:
        """Return a transaction's id; "" without one."""
        source = int(self.source[place])
        return "" if source < 0 else f"{self.names[source]}{self.separator}{int(self.number[place])}"

    def id(self, place: int) -> str:
        """Return a transaction's name in events."""
        return self.gtid(place) or f"file={self.names[self.file[place]]},pos={int(self.begin[place])}"

    def position(self, place: int) -> str:
        return position_text(int(self.epoch[place]), self.names[self.file[place]], int(self.start[place]))


Segment: TypeAlias = segment.Segment[RowPlaces, BinlogTransactions]
"""Message i is one row of a rows event: the null bits and values of its image, or of both images of an update."""

MixedSegment: TypeAlias = segment.MixedSegment[RowPlaces, BinlogTransactions]


@dataclass(slots=True)
class BinlogBatch(ChangeBatch):
    """Changes of the binary log: `lsn` is the source block's `pos`, `serial` its `row` (int32). `query` has the
    statement of each change, or null; it is None if no change has a statement."""

    query: pa.Array | None = None

    def some(self, numbers: Any, column: Any) -> ChangeBatch:
        found = ChangeBatch.some(self, numbers, column)
        assert isinstance(found, BinlogBatch)
        found.query = None if self.query is None else column(self.query)
        return found


def transactions_of(batch: ChangeBatch) -> BinlogTransactions:
    """Return the batch's transactions, with the type of the binary log."""
    return cast(BinlogTransactions, batch.transactions)


@dataclass(frozen=True, slots=True)
class ChangeContext:
    """The place of a statement that changes definitions, as its record shows it."""

    file: str
    pos: int
    gtid: str
    server_id: int
    commit_us: int
    position: str
    ordinal: int
