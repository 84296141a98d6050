"""Index of the log's events: transactions, table versions and rows. Planner, the reader's thread.

Events that structure the log are read one by one; rows are only split, by a kernel, for many events at a time. The
events of an open transaction wait for its end. A run therefore ends with a transaction, unless a single transaction is
larger than `HELD_BYTES`.
"""

from __future__ import annotations

import logging
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

import numpy as np

from tailrace.columns.batch import Bytes, Int32s, Int64s
from tailrace.columns.table import TableSchema
from tailrace.connectors.binlog.log import events, row_kernels
from tailrace.connectors.binlog.log.events import HEADER, HEADER_BYTES, EventType, FormatDescription, Gtid, Query
from tailrace.connectors.binlog.log.forms import BinlogTable, formed, width_of
from tailrace.connectors.binlog.log.gtids import MariadbGtids, MysqlGtids
from tailrace.connectors.binlog.log.indexed_run import BEGIN, BOUNDARY, END, SCHEMA_CHANGE, IndexedRun, Rows
from tailrace.connectors.binlog.log.position import (
    BinlogPosition,
    BinlogTransactions,
    ReadingStart,
    RowPlaces,
    RowsEventForm,
    number_of,
)
from tailrace.connectors.binlog.log.row_log import current, key_hashes, unchanged
from tailrace.connectors.binlog.schema.statement import UNCAPTURED, Place, Statement, StatementEffects
from tailrace.connectors.binlog.schema.table_map import ColumnType, TableMap, named, parse
from tailrace.connectors.binlog.schema.tables import HISTORY_END, SHOWN_END
from tailrace.errors import DecodeError, PositionLost, PrerequisiteError
from tailrace.kernels.buffers import readonly
from tailrace.log import contracts
from tailrace.log.rows import frames
from tailrace.log.rows.numbering import NumberedRows, Numbering
from tailrace.log.spool import FilePlace, Spill

log = logging.getLogger("tailrace")

HELD_BYTES = 8 << 20
"""The most bytes of a transaction's rows that wait for its end."""
PREPARED_BYTES = 32 << 20
"""The most bytes in memory of rows of XA transactions that are not committed; further ones are in temporary files."""
FULL = 1 << 62
"""The value of `waiting` at which no more of the log is read."""

_CONTROL = re.compile(
    rb"\s*(?:/\*.*?\*/\s*)*(BEGIN|COMMIT|ROLLBACK|SAVEPOINT|RELEASE\s+SAVEPOINT|ROLLBACK\s+TO|XA\s+\w+)\b(.*)",
    re.IGNORECASE | re.DOTALL,
)
# more bytes than the head of a rows event, with two bitmaps for 4,096 columns and a partition's ids
_HEAD_BYTES = 4096


# types of events that a server may send before the format of a file
_BEFORE_FORMAT = frozenset((EventType.ROTATE, EventType.HEARTBEAT, EventType.HEARTBEAT_V2))
# types of events at the beginning of a transaction
_BEGINS = frozenset(
    (EventType.QUERY, EventType.GTID, EventType.ANONYMOUS_GTID, EventType.GTID_TAGGED, EventType.MARIADB_GTID)
)


class TableDefinitions(Protocol):
    """The definitions of tables, which the log's table maps and statements change."""

    versions: list[TableSchema]

    def begin(self) -> None:
        """Discard the changes since the last `keep`."""
        ...

    def keep(self) -> None: ...

    def captures(self, database: str, table: str, /) -> bool: ...

    def fits(self, given: TableMap, /) -> bool:
        """Return False for the map of a captured table that does not fit the table's definition after what was read."""
        ...

    def version(self, given: TableMap, at: Place, /) -> int:
        """Return the place in `versions` of the table of the following rows; UNCAPTURED if it is not captured."""
        ...

    def statement(self, given: Statement, at: Place, /) -> StatementEffects: ...


@dataclass(frozen=True, slots=True)
class IndexerState:
    """State of an indexer after the last run that was kept.

    `executed` are the transactions up to `position`. If the position is within a transaction, `counts` are its numbers
    of events by table. `unchanged` is the number of updates that were left out.
    """

    position: BinlogPosition
    executed: MysqlGtids | MariadbGtids
    counts: Mapping[str, int] = field(default_factory=dict)
    unchanged: int = 0


@dataclass(frozen=True, slots=True)
class IndexedStep(contracts.Step[BinlogPosition, Rows]):
    """An indexed run, and the indexer's state once it is kept."""

    run: IndexedRun
    after: IndexerState


@dataclass(slots=True)
class _Event:
    """A part of the log that becomes messages: the rows of an event, or a single message.

    `shape` is the place of the rows' shape (-1: a single message). `version` is the place of the table's version, or a
    kind of rows without a table. `pos` is the event's position in its file.
    """

    data: bytes | bytearray
    start: int
    end: int
    shape: int
    version: int
    op: int
    pos: int
    image: int = 0
    statement: int = -1

    @property
    def size(self) -> int:
        return self.end - self.start


@dataclass(slots=True)
class _Transaction:
    """A transaction, as far as it has been read.

    `counted` is the number of its rows in earlier runs. `begin` is the position of its BEGIN, -1 if it has none.
    `altered` is as in _Prepared.
    """

    file: int
    start: int
    mark: int
    source: int
    number: int
    commit_us: int
    server_id: int
    thread: int = -1
    begin: int = -1
    begun: bool = False
    is_alone: bool = False
    alters: str = ""
    is_xa: bool = False
    is_passed: bool = False
    is_left_out: bool = False
    events: list[_Event] = field(default_factory=list)
    size: int = 0
    counted: int = 0
    is_cut: bool = False
    end: int = 0
    statement: int = -1
    savepoint: int = -1
    held: ReadingStart | None = None
    aside: _Aside | None = None
    altered: str = ""

    @property
    def has_rows(self) -> bool:
        return bool(self.events) or self.aside is not None

    def drop_aside(self) -> None:
        rows, self.aside = self.aside, None
        if rows is not None:
            rows.close()


class _Aside:
    """The rows of an XA transaction, with their statements, until it is committed. `in_memory` is the number of bytes
    that are not in files of `spill`."""

    def __init__(self, spill: Spill) -> None:
        self._spill = spill
        self._kept: list[tuple[_Event, bytes | FilePlace, bytes | None]] = []
        self.in_memory = self.size = 0

    def put(self, event: _Event, statement: bytes | None, is_spilled: bool) -> None:
        """Keep the rows of an event. Raises SpoolFailed."""
        data = memoryview(event.data)[event.start : event.end]
        if is_spilled:
            kept: bytes | FilePlace = self._spill.append(np.frombuffer(data, np.uint8))
        else:
            kept = bytes(data)
            self.in_memory += event.size
        self.size += event.size
        self._kept.append((replace(event, data=b""), kept, statement))

    def take(self) -> Iterator[tuple[_Event, bytes | None]]:
        """Yield the events and their statements, and release each. Raises SpoolFailed."""
        self._kept.reverse()
        while self._kept:
            event, kept, statement = self._kept[-1]
            data = kept if isinstance(kept, bytes) else self._spill.read(kept, 0, kept.size).tobytes()
            self._drop()
            yield replace(event, data=data, start=0, end=len(data)), statement

    def _drop(self) -> None:
        _, kept, _ = self._kept.pop()
        if isinstance(kept, FilePlace):
            self._spill.release(kept)

    def close(self) -> None:
        while self._kept:
            self._drop()


@dataclass(frozen=True, slots=True)
class _Prepared:
    """The rows of a prepared XA transaction, and the place where it begins.

    `altered` is the name of a table whose rows could not be read, as it has another definition by now; else "".
    """

    origin: ReadingStart
    rows: _Aside
    altered: str = ""


@dataclass(slots=True)
class _Form:
    """A table map, the place of the table's version, and the places of shapes and images by event type and columns."""

    given: TableMap
    version: int
    shapes: dict[tuple[int, bytes, bytes], tuple[int, int]] = field(default_factory=dict)


class Unfinished(NamedTuple):
    """The transaction that is being read: its file and start, the position of its BEGIN, its id, and its changes so
    far."""

    file: str
    start: int
    begin: int
    gtid: str
    is_xa: bool
    changes: Callable[[], int]


class LogReplaced(PositionLost):
    """The server has another log than in the earlier reads."""


class Indexer:
    """Indexes events: `add` takes events, and `step` returns runs.

    `takes(source)` returns True if transactions whose ids have this source are delivered; None: all are. With
    `numbering` begins and ends of transactions are rows, and events are numbered. With `with_statements` rows have
    their statements. `shows(table)` returns columns: an update that changes none of them is left out; None: all updates
    are rows. With `current_only` historical rows are left out also of tables whose events show the end of their
    validity.
    """

    def __init__(
        self,
        position: BinlogPosition,
        tables: TableDefinitions,
        is_mariadb: bool,
        numbering: frozenset[str] | None = None,
        with_statements: bool = False,
        takes: Callable[[str], bool] | None = None,
        shows: Callable[[TableSchema], Iterable[str]] | None = None,
        current_only: bool = False,
    ) -> None:
        self._tables = tables
        self._is_mariadb = is_mariadb
        self._separator = "-" if is_mariadb else ":"
        self.versions: list[BinlogTable] = []
        self._version_of: dict[tuple[int, BinlogTable], int] = {}
        self._numbering = None if numbering is None else Numbering(self.versions, numbering)
        self._with_statements = with_statements
        self._takes = takes
        self._shows = shows
        self._ends = (HISTORY_END, SHOWN_END) if current_only else (HISTORY_END,)
        self._names: list[str] = []
        self._places: dict[str, int] = {}
        # shapes, and their arrays for kernels
        self._shapes: dict[tuple[bytes, bytes, bytes], int] = {}
        self._bounds: list[int] = [0]
        self._widths: list[int] = []
        self._documents: list[int] = []
        self._arrays: tuple[Int32s, Int32s, Int32s] | None = None
        self._images: list[RowsEventForm] = []
        self._image_of: dict[RowsEventForm, int] = {}
        self._spill = Spill()
        self._prepared: dict[bytes, _Prepared] = {}
        self._open: _Transaction | None = None
        self._replay: _Aside | None = None
        self.reached = IndexerState(position, self._set(position.gtids))
        self.reset(position, False)

    def _set(self, text: str) -> MysqlGtids | MariadbGtids:
        return MariadbGtids(text) if self._is_mariadb else MysqlGtids(text)

    def _name(self, name: str) -> int:
        found = self._places.get(name)
        if found is None:
            found = self._places[name] = len(self._names)
            self._names.append(name)
        return found

    # --- sessions ------------------------------------------------------------------------------------------------

    def reset(self, position: BinlogPosition, by_id: bool, server: str = "") -> None:
        """Discard what was read and not kept: a new session sends the log again from `position.resumes` on.

        `by_id` is True if the session begins by transaction ids, on another server with other positions.
        """
        self._tables.begin()
        self._by_id = by_id
        self._server = server
        self._epoch = position.epoch + by_id
        self._position = position
        self._is_checked = by_id
        # A server that has taken over may log transactions that were read before after others that were not. MySQL's
        # sets recognise them by their ids; MariaDB's, with the last id of each domain, only where the dump begins.
        has_passed = by_id or (self._epoch > 0 and not self._is_mariadb)
        self._passed = self._set(position.gtids) if has_passed and position.gtids else None
        self._has_new = not by_id
        # the transaction of which a part was read on the previous server, until its end
        self._awaited = position.gtid if by_id else ""
        origin = position.resumes
        self._executed = self._set(origin.gtids)
        self._format = FormatDescription()
        # another server sends its file and position
        self._file, self._at = ("", 0) if by_id else (origin.file, max(origin.start, 0))
        self._file_number = self._name(self._file)
        self._shown = self._at
        self._maps: dict[int, bytes] = {}
        self._forms: dict[bytes, _Form] = {}
        self._done: list[_Transaction] = []
        self._done_bytes = 0
        kept = [self._replay, *(one.rows for one in self._prepared.values())]
        if self._open is not None:
            kept.append(self._open.aside)
        for rows in kept:
            if rows is not None:
                rows.close()
        self._open = None
        self._prepared = {}
        # the rows of a committed XA transaction that are being delivered, and the events that follow it
        self._replay = None
        self._replayed: Iterator[tuple[_Event, bytes | None]] = iter(())
        self._behind: tuple[bytearray, Sequence[tuple[int, int]]] = bytearray(), ()
        self._statements: dict[bytes, int] = {}
        self._held_before = position.held
        self._last_us = position.at_us
        # the transactions before the next run, and True if transactions without captured rows may lie before it
        self._base = self._set(position.gtids)
        self._is_apart = True

    @property
    def position(self) -> BinlogPosition:
        return self.reached.position

    @property
    def unchanged(self) -> int:
        """The number of updates left out because they changed no column that is delivered."""
        return self.reached.unchanged

    @property
    def read_to(self) -> tuple[str, int]:
        """The file and the position up to which events have been read in this session."""
        return self._file, self._at

    @property
    def has_begun(self) -> bool:
        """True once this session has sent a transaction."""
        return self._is_checked

    @property
    def begun(self) -> tuple[str, int] | None:
        """The file and the position where the transaction that is being read begins; None between transactions."""
        one = self._open
        return None if one is None else (self._names[one.file], one.start)

    @property
    def unfinished(self) -> Unfinished | None:
        """The transaction that is being read; None before its BEGIN, between transactions, and if it was read
        before."""
        one = self._open
        if one is None or not one.begun or one.is_passed:
            return None
        gtid = f"{self._names[one.source]}{self._separator}{one.number}" if one.source >= 0 else ""
        return Unfinished(self._names[one.file], one.start, one.begin, gtid, one.is_xa, self._changes_so_far)

    def _changes_so_far(self) -> int:
        one = self._open
        if one is None:
            return 0
        parts = [event for event in one.events if event.version != BOUNDARY]
        data, starts, ends = _assembled(parts)
        shape = frames.frozen(np.array([event.shape for event in parts], np.int32), np.int32)
        return one.counted + int(self._cut(data, starts, ends, shape, parts)[1].sum())

    @property
    def waiting(self) -> int:
        """The number of bytes of complete transactions that are not in a run yet; `FULL` while a large XA transaction
        is delivered in parts."""
        return self._done_bytes if self._replay is None else FULL

    def keep(self, step: IndexedStep) -> None:
        self._tables.keep()
        self.reached = step.after

    def pass_over(self) -> None:
        """Discard the rows that were read."""
        while True:
            step = self.step()
            if step is not None:
                self.keep(step)
            if self._replay is None:
                return

    # --- events --------------------------------------------------------------------------------------------------

    def add(self, buffer: bytearray, spans: Sequence[tuple[int, int]]) -> None:
        """Read the next events. Raises TailraceError.

        Events after the commit of a large XA transaction wait until `step` has delivered it.
        """
        for place, (begin, end) in enumerate(spans, 1):
            self._event(buffer, begin, end)
            if self._replay is not None:
                self._behind = buffer, spans[place:]
                return

    def _event(self, buffer: bytearray, begin: int, end: int) -> None:
        if end - begin < HEADER_BYTES:
            raise DecodeError("An event of the log is shorter than its header.")
        seconds, kind, server_id, length, behind, flags = HEADER.unpack_from(buffer, begin)
        if length != end - begin:
            raise DecodeError(f"An event of the log says that it has {length} bytes, and {end - begin} were sent.")
        stop = end
        if kind == EventType.FORMAT_DESCRIPTION:
            self._format = events.format_description(bytes(buffer[begin:end]))
        if not self._format.lengths:
            if kind not in _BEFORE_FORMAT:
                raise DecodeError(f"The log begins with an event of the type {kind}, before it tells its format.")
            # events before the format may have a checksum already
            given = int.from_bytes(buffer[end - 4 : end], "little")
            mark = zlib.crc32(memoryview(buffer)[begin : end - 4])
            stop = end - 4 if mark == given else end
        elif self._format.has_checksums:
            stop -= 4
            given = int.from_bytes(buffer[stop:end], "little")
            mark = zlib.crc32(memoryview(buffer)[begin:stop])
            # the checksum of a format has been compared already
            if mark != given and kind != EventType.FORMAT_DESCRIPTION:
                raise DecodeError(events.DAMAGED)
        else:
            mark = 0
        start = self._passed_over(kind, length, behind, flags)
        if kind == EventType.XID:
            self._end(seconds)
        elif kind in events.ROWS:
            self._rows(buffer, begin + HEADER_BYTES, stop, kind)
        elif kind == EventType.TABLE_MAP:
            size = self._format.table_id_bytes
            body = bytes(buffer[begin + HEADER_BYTES : stop])
            self._maps[int.from_bytes(body[:size], "little")] = body[size:]
        else:
            if not mark and self._is_summed(kind, buffer, begin, end):
                raise DecodeError(events.DAMAGED)
            body = bytes(buffer[begin + HEADER_BYTES : stop])
            mark = mark or zlib.crc32(memoryview(buffer)[begin:stop])
            self._other(kind, body, _Header(seconds, server_id, behind, flags, start, mark))

    @staticmethod
    def _is_summed(kind: int, buffer: bytearray, begin: int, end: int) -> bool:
        """Return True if an event has a checksum although its format has none, so that the format is damaged."""
        if kind not in _BEGINS or end - begin < HEADER_BYTES + 4:
            return False
        return zlib.crc32(memoryview(buffer)[begin : end - 4]) == int.from_bytes(buffer[end - 4 : end], "little")

    def _passed_over(self, kind: int, length: int, behind: int, flags: int) -> int:
        """Advance the position in the file by an event, and return where the event begins.

        An event has its end position in 32 bits, except for events of MariaDB within a transaction.
        """
        is_made_up = flags & events.ARTIFICIAL or kind in (EventType.HEARTBEAT, EventType.HEARTBEAT_V2)
        if is_made_up or (kind in (EventType.FORMAT_DESCRIPTION, EventType.GTID_LIST) and not behind):
            return self._at
        expected = self._at + length
        if behind:
            # a server leaves out events that a replica has already, but never 2 GiB or more between two events
            gap = (behind - expected) & 0xFFFFFFFF
            if gap >= 1 << 31:
                raise DecodeError(
                    f"An event of the log says that it ends at {behind} of {self._file}, and by the lengths of all "
                    f"events it ends at {expected}."
                )
            self._at = expected + gap
            self._shown = self._at - length
        else:
            self._at = expected
        return self._at - length

    def _other(self, kind: int, body: bytes, header: _Header) -> None:
        if kind == EventType.QUERY:
            self._query(events.query(body), header)
        elif kind == EventType.QUERY_COMPRESSED:
            self._query(events.query(body, True), header)
        elif kind == EventType.GTID:
            self._begin(events.gtid(body), header)
        elif kind == EventType.MARIADB_GTID:
            self._begin(events.mariadb_gtid(body, header.server_id), header)
        elif kind == EventType.ANONYMOUS_GTID:
            self._begin(Gtid(), header)
        elif kind == EventType.GTID_TAGGED:
            self._begin(events.tagged_gtid(body), header)
        elif kind in (EventType.ROWS_QUERY, EventType.ANNOTATE_ROWS):
            if self._with_statements and self._open is not None:
                text = body[1:] if kind == EventType.ROWS_QUERY else body
                self._open.statement = self._statement_place(text)
        elif kind == EventType.ROTATE:
            self._rotate(body, header)
        elif kind == EventType.FORMAT_DESCRIPTION:
            self._maps.clear()
            if self._format.is_file_start and self._open is not None and self._open.has_rows:
                raise self._unfinished()
        elif kind == EventType.TRANSACTION_PAYLOAD:
            self._payload(events.payload(body), header)
        elif kind == EventType.XA_PREPARE:
            one_phase, xid = events.xa_prepare(body)
            self._prepare(one_phase, _xid(xid), header)
        elif kind in (EventType.HEARTBEAT, EventType.HEARTBEAT_V2):
            self._heartbeat(*events.heartbeat(kind, body, header.behind))
        elif kind == EventType.INCIDENT:
            raise PositionLost(
                f"The server says that events are missing in its log at {self._file}:{header.start} (INCIDENT).",
                "Delete the checkpoint to start again with a snapshot.",
            )
        elif kind in events.STATEMENTS:
            self._demand_rows(f"an event of the type {kind}")

    def _demand_rows(self, what: str) -> None:
        """Raise PrerequisiteError for a statement without row events, unless its transaction was read before."""
        if self._open is None or not self._open.is_passed:
            raise PrerequisiteError(
                f"A session has logged statements instead of rows (binlog_format=STATEMENT or MIXED): {what} at "
                f"{self._file}:{self._shown}. What it has changed is not in the log.",
                "Set binlog_format=ROW everywhere, then delete the checkpoint to start again with a snapshot.",
            )

    # --- transactions --------------------------------------------------------------------------------------------

    def _begin(self, found: Gtid, header: _Header) -> None:
        if found.source and self._is_mariadb == (found.source.count("-") > 1):
            raise DecodeError("A transaction's id in the log is MySQL's on MariaDB, or MariaDB's on MySQL.")
        if self._open is not None and self._open.has_rows:
            raise self._unfinished()
        self._open = self._transaction(found, header)
        # in MariaDB the id event replaces BEGIN; as in Debezium, statements without an end have a record of it, too
        if self._is_mariadb and not found.is_alone:
            self._started(-1)
        elif self._is_mariadb:
            self._add_boundary(BEGIN)
        self._open.is_xa = found.is_xa

    def _transaction(self, found: Gtid, header: _Header) -> _Transaction:
        source = self._name(found.source) if found.source else -1
        one = _Transaction(
            file=self._file_number, start=header.start, mark=header.mark, source=source, number=found.number,
            commit_us=found.commit_us if found.commit_us and found.source else header.seconds * 1_000_000,
            server_id=header.server_id, is_alone=found.is_alone, alters=found.alters,
        )  # fmt: skip
        self._check(one)
        position, key = self._position, (self._epoch, number_of(self._file), header.start)
        if not self._by_id:
            one.is_passed = key < position.key[:3] or (key == position.key[:3] and position.consumed is None)
        if self._passed is not None and found.source:
            one.is_passed |= self._passed.has(found.source, found.number)
        one.is_left_out = bool(found.source and self._takes is not None and not self._takes(found.source))
        return one

    def _check(self, one: _Transaction) -> None:
        """Raise LogReplaced if the first transaction of the session, or the transaction at the position, is another one
        than before."""
        if self._by_id:
            return
        position = self._position
        origin = position.resumes
        if not self._is_checked:
            self._is_checked = True
            if origin.mark and (self._file != origin.file or one.start != origin.start or one.mark != origin.mark):
                raise self.replaced()
        at_position = self._file == position.file and one.start == position.start
        if at_position and position.mark and one.mark != position.mark:
            raise self.replaced()

    def replaced(self) -> LogReplaced:
        """Return the error for a log that has replaced the log of the earlier reads."""
        position = self._position
        return LogReplaced(
            f"The server's log has another transaction at {position.file}:{position.start} than the one that was read "
            "there: the log was begun anew (RESET MASTER), or the server was restored or replaced.",
            "Delete the checkpoint to start again with a snapshot.",
        )

    def _unfinished(self) -> DecodeError:
        return DecodeError(f"A transaction of {self._file} has no end: it is followed by another at {self._shown}.")

    def _opened(self, header: _Header) -> _Transaction:
        """Return the open transaction. On a server without ids the first statement opens it."""
        if self._open is None:
            self._open = self._transaction(Gtid(), header)
        return self._open

    def _started(self, thread: int) -> None:
        one = self._open
        assert one is not None
        if not one.begun:
            one.begun, one.begin, one.thread = True, self._shown, thread
            self._add_boundary(BEGIN)

    def _add_boundary(self, op: int) -> None:
        """Add the record of the open transaction's begin or end, if such records are wanted."""
        if self._numbering is not None and self._open is not None:
            self._add(self._open, _Event(b"", 0, 0, -1, BOUNDARY, op, self._shown))

    def _end(self, seconds: int) -> None:
        one = self._open
        if one is None:
            raise DecodeError(f"A transaction of {self._file} ends at {self._shown} and has no beginning.")
        if one.begun:
            self._add_boundary(END)
        self._finish(one)

    def _finish(self, one: _Transaction) -> None:
        self._open = None
        self._last_us = one.commit_us
        one.end = self._at
        if one.source >= 0:
            self._executed.add(self._names[one.source], one.number)
            if self._awaited == f"{self._names[one.source]}{self._separator}{one.number}":
                self._awaited = ""
        one.held = min(
            (each.origin for each in self._prepared.values()),
            key=lambda of: (number_of(of.file), of.start),
            default=None,
        )
        if one.is_passed:
            # prepared transactions before the position are collected again
            self._held_before = one.held
            self._is_apart = True
            return
        self._has_new = True
        self._done.append(one)
        self._done_bytes += one.size

    def _add(self, one: _Transaction, event: _Event) -> None:
        one.events.append(event)
        one.size += event.size

    def _query(self, found: Query, header: _Header) -> None:
        control = _CONTROL.match(found.sql)
        if control is not None:
            word = control[1].upper()
            if self._control(b" ".join(word.split()), control[2].strip(), found, header):
                return
        one = self._opened(header)
        if not one.is_passed:
            self._statement(one, found, header)
        if not one.begun:
            self._finish(one)

    def _control(self, word: bytes, rest: bytes, found: Query, header: _Header) -> bool:
        """Apply a statement that controls transactions. Return False for other statements, such as BEGIN NOT ATOMIC."""
        one = self._opened(header) if word not in {b"COMMIT", b"ROLLBACK"} else self._open
        if word == b"BEGIN":
            self._started(found.thread)
        elif word == b"COMMIT":
            self._end(header.seconds)
        elif word == b"ROLLBACK" and rest[:2].upper() == b"TO":
            self._take_back(one, one.savepoint if one is not None else 0)
        elif word == b"ROLLBACK":
            if one is not None:
                self._take_back(one, 0)
                one.drop_aside()
                self._end(header.seconds)
        elif word == b"SAVEPOINT":
            assert one is not None
            if one.savepoint < 0:
                one.savepoint = len(one.events)
        elif word in (b"ROLLBACK TO", b"RELEASE SAVEPOINT"):
            if word == b"ROLLBACK TO":
                self._take_back(one, one.savepoint if one is not None else 0)
        elif word in (b"XA START", b"XA BEGIN"):
            assert one is not None
            one.is_xa = True
            self._started(found.thread)
        elif word == b"XA END":
            return True
        elif word in (b"XA COMMIT", b"XA ROLLBACK"):
            assert one is not None
            self._decide(one, _xid(rest), word == b"XA COMMIT", found)
        else:
            return False
        return True

    def _take_back(self, one: _Transaction | None, first: int) -> None:
        """Remove the changes of a transaction since a savepoint (0: all)."""
        if one is None:
            return
        kept, since = one.events[: max(first, 0)], one.events[max(first, 0) :]
        taken = [event for event in since if event.version != BOUNDARY]
        if one.is_cut and not first:
            raise PositionLost(
                f"A transaction of more than {HELD_BYTES >> 20} MiB in {self._file} was rolled back, and a part of it "
                "has been delivered.",
                "Delete the checkpoint to start again with a snapshot.",
            )
        tables = sorted({str(self.versions[event.version].id) for event in taken if event.version >= 0})
        if tables:
            log.warning(
                "a transaction at %s:%d was rolled back, but the log has its rows, because it has also changed tables "
                "of an engine without transactions: its rows of %s are left out; read tables of such engines by a "
                "snapshot (signal execute-snapshot)",
                self._file,
                one.start,
                ", ".join(tables),
            )  # fmt: skip
        one.events = kept + [event for event in since if event.version == BOUNDARY]
        one.size = sum(event.size for event in one.events)

    def _statement(self, one: _Transaction, found: Query, header: _Header) -> None:
        at = self._place(one, header)
        alters = one.alters
        given = Statement(found.database, found.sql, found.status, header.server_id, header.seconds, alters)
        outcome = self._tables.statement(given, at)
        # the statement may change the tables of known maps
        self._forms.clear()
        for version in outcome.truncated:
            image = self._image(RowsEventForm(ord("t"), b"", b""))
            of = self._own_version(version, None)
            self._add(one, _Event(found.sql, 0, len(found.sql), -1, of, ord("t"), self._shown, image))
        for change in outcome.changes:
            self._add(one, _Event(change, 0, len(change), -1, SCHEMA_CHANGE, 0, self._shown))

    def _place(self, one: _Transaction, header: _Header | None = None) -> Place:
        seconds = one.commit_us // 1_000_000 if header is None else header.seconds
        return Place(self._epoch, number_of(self._file), one.start, self._shown, self._file, seconds)

    # --- XA ------------------------------------------------------------------------------------------------------

    def _prepare(self, one_phase: bool, xid: bytes, header: _Header) -> None:
        one = self._open
        if one is None:
            raise DecodeError(f"An XA transaction is prepared at {self._file}:{self._shown} and has no beginning.")
        if one_phase:
            if one.aside is None or one.is_passed:
                one.drop_aside()
                self._end(header.seconds)
                return
            self._set_aside(one)
            rows, one.aside = one.aside, None
            self._deliver(one, rows)
            return
        self._set_aside(one)
        assert one.aside is not None
        origin = ReadingStart(self._file, one.start, one.mark, str(self._executed))
        self._prepared[xid] = _Prepared(origin, one.aside, one.altered)
        one.events, one.size, one.aside = [], 0, None
        self._finish(one)

    def _set_aside(self, one: _Transaction) -> None:
        """Keep the rows of an XA transaction so far until it is committed."""
        if one.aside is None:
            one.aside = _Aside(self._spill)
        used = one.aside.in_memory + sum(each.rows.in_memory for each in self._prepared.values())
        texts = list(self._statements)
        for event in one.events:
            if event.version != BOUNDARY:
                is_spilled = used + event.size > PREPARED_BYTES
                one.aside.put(event, texts[event.statement] if event.statement >= 0 else None, is_spilled)
                used += 0 if is_spilled else event.size
        one.events = [event for event in one.events if event.version == BOUNDARY]
        one.size = 0

    def _decide(self, one: _Transaction, xid: bytes, is_commit: bool, found: Query) -> None:
        prepared = self._prepared.pop(xid, None)
        if prepared is None and is_commit and not one.is_passed:
            raise PositionLost(
                f"The XA transaction {xid.decode('ascii', 'replace')} is committed at {self._file}:{one.start}, but "
                "was prepared before the place where reading began: its rows are missing.",
                "Delete the checkpoint to start again with a snapshot.",
            )
        one.events, one.size = [], 0
        one.drop_aside()
        if prepared is not None and is_commit and not one.is_passed and prepared.altered:
            raise PrerequisiteError(
                f"{prepared.altered} was altered while an XA transaction was prepared that is committed at "
                f"{self._file}:{one.start}: the form of its rows is not known any more.",
                "Begin anew with another checkpoint and a snapshot.",
            )
        if prepared is not None and is_commit and not one.is_passed:
            self._started(found.thread)
            self._deliver(one, prepared.rows)
            return
        if prepared is not None:
            prepared.rows.close()
        self._finish(one)

    def _deliver(self, one: _Transaction, rows: _Aside) -> None:
        """Add the rows that were set aside, and end the transaction. A large transaction is added in parts."""
        self._replay, self._replayed = rows, rows.take()
        self._deliver_part()

    def _deliver_part(self) -> None:
        one = self._open
        assert one is not None
        while one.size <= HELD_BYTES:
            event, statement = next(self._replayed, (None, None))
            if event is None:
                self._replay = None
                if self._numbering is not None and one.begun:
                    self._add(one, _Event(b"", 0, 0, -1, BOUNDARY, END, self._shown))
                self._finish(one)
                return
            event.statement = -1 if statement is None else self._statement_place(statement)
            self._add(one, event)

    def _statement_place(self, text: bytes) -> int:
        return self._statements.setdefault(text, len(self._statements))

    # --- rows ----------------------------------------------------------------------------------------------------

    def _rows(self, buffer: bytes | bytearray, begin: int, stop: int, kind: int) -> None:
        one = self._open
        if one is None:
            raise DecodeError(f"Rows at {self._file}:{self._shown} are in no transaction.")
        if one.is_passed and not one.is_xa:
            return
        body = bytes(memoryview(buffer)[begin : min(stop, begin + _HEAD_BYTES)])
        head = events.rows_head(kind, body, self._format)
        known = self._maps.get(head.table_id)
        if known is None:
            if head.at >= stop - begin:
                return
            raise DecodeError(f"Rows at {self._file}:{self._shown} are of a table that no map has named.")
        form = self._forms.get(known)
        if form is None:
            try:
                given = parse(known, self._is_mariadb)
            except DecodeError:
                if self._tables.captures(*named(known)):
                    raise
                # another table may have types that are not known, such as arrays of multi-valued indexes
                return
            # The definitions are those of the position, which is later. They fit the rows of a transaction that is
            # still prepared there, since it locks its tables; the rows of other transactions are not needed.
            if one.is_passed and not self._tables.fits(given):
                one.altered = f"{given.database}.{given.table}"
                return
            form = self._forms[known] = self._form(given, one)
        if len(head.before or head.after) != len(form.given):
            raise DecodeError(f"Rows at {self._file}:{self._shown} have another number of columns than their table.")
        key = kind, head.before, head.after
        found = form.shapes.get(key)
        if found is None:
            found = form.shapes[key] = self._shape(form, kind, head.before, head.after)
        shape, image = found
        data, start, end = buffer, begin + head.at, stop
        if kind in events.COMPRESSED:
            data = events.inflated(bytes(buffer[start:end]))
            start, end = 0, len(data)
        if start < end:
            op = events.ROWS[kind]
            self._add(one, _Event(data, start, end, shape, form.version, op, self._shown, image, one.statement))

    def _form(self, given: TableMap, one: _Transaction) -> _Form:
        version = self._tables.version(given, self._place(one))
        return _Form(given, version if version == UNCAPTURED else self._own_version(version, given))

    def _own_version(self, version: int, given: TableMap | None) -> int:
        """Return the place in `versions` of a definition with the form of its rows."""
        table = self._tables.versions[version]
        if given is None:
            own = BinlogTable(**{name: getattr(table, name) for name in TableSchema.__dataclass_fields__})
            # a truncate has no rows, so its form does not matter
            for place, known in enumerate(self.versions):
                if (version, known) in self._version_of and replace(known, form=()) == own:
                    return place
        else:
            own = formed(table, given)
        found = self._version_of.get((version, own))
        if found is None:
            found = self._version_of[version, own] = len(self.versions)
            self.versions.append(own)
        return found

    def _shape(self, form: _Form, kind: int, before: bytes, after: bytes) -> tuple[int, int]:
        """Return the places of a shape and of an image."""
        given = form.given
        is_partial = kind == EventType.PARTIAL_UPDATE_ROWS
        widths = [width_of(of, meta) for of, meta in zip(given.types, given.meta, strict=True)]
        first = [width for width, there in zip(widths, before, strict=False) if there]
        second = [width for width, there in zip(widths, after, strict=False) if there]
        documents = sum(of is ColumnType.JSON for of in given.types) if is_partial else -1
        key = (np.array(first, np.int32).tobytes(), np.array(second, np.int32).tobytes(), b"%d" % documents)
        shape = self._shapes.get(key)
        if shape is None:
            shape = self._shapes[key] = len(self._documents)
            self._bounds += [self._bounds[-1] + len(first), self._bounds[-1] + len(first) + len(second)]
            self._widths += first + second
            self._documents.append(documents)
            self._arrays = None
        return shape, self._image(RowsEventForm(events.ROWS[kind], before, after, is_partial))

    def _image(self, image: RowsEventForm) -> int:
        found = self._image_of.get(image)
        if found is None:
            found = self._image_of[image] = len(self._images)
            self._images.append(image)
        return found

    def _payload(self, data: bytes, header: _Header) -> None:
        """Read the events of a compressed transaction. All get the position of the payload, as they have none in the
        file."""
        at, size = 0, len(data)
        while at < size:
            if size - at < HEADER_BYTES:
                raise DecodeError("A compressed transaction of the log ends within an event.")
            seconds, kind, server_id, length, _, _ = HEADER.unpack_from(data, at)
            end = at + length
            if length < HEADER_BYTES or end > size:
                raise DecodeError("A compressed transaction of the log ends within an event.")
            begin = at + HEADER_BYTES
            if kind == EventType.XID:
                self._end(seconds)
            elif kind in events.ROWS:
                self._rows(data, begin, end, kind)
            elif kind == EventType.TABLE_MAP:
                self._maps[int.from_bytes(data[begin : begin + 6], "little")] = data[begin + 6 : end]
            else:
                self._other(kind, data[begin:end], replace(header, seconds=seconds, server_id=server_id))
            at = end

    # --- places --------------------------------------------------------------------------------------------------

    def _rotate(self, body: bytes, header: _Header) -> None:
        file, position = events.rotation(body)
        is_new = file != self._file or not self._at
        if not is_new and (header.flags & events.ARTIFICIAL or not header.seconds):
            return
        if self._open is not None and self._open.has_rows:
            raise self._unfinished()
        self._file, self._file_number, self._at = file, self._name(file), position
        self._shown = position
        self._maps.clear()
        if position == events.MAGIC_BYTES and not self._prepared:
            # an idle position must not remain in a file that the server will delete
            self._idle(file, position)

    def _idle(self, file: str, position: int) -> None:
        one = _Transaction(self._name(file), position - 1, 0, -1, 0, self._last_us, 0)
        key = (self._epoch, number_of(file), position - 1)
        if self._awaited or not self._has_new or (not self._by_id and key <= self._position.key[:3]):
            return
        one.end = position
        one.held = self._held_before
        self._done.append(one)

    def _heartbeat(self, file: str, position: int) -> None:
        if self._open is None and file == self._file and position > self._at and position - self._at < 1 << 31:
            self._at = self._shown = position

    # --- runs ----------------------------------------------------------------------------------------------------

    def step(self) -> IndexedStep | None:
        """Return the run of what was read since the last run; None unless a transaction has ended or is large."""
        if self._replay is not None:
            self._deliver_part()
            if self._replay is None:
                self.add(*self._behind)
        one = self._open
        is_large = one is not None and one.size > HELD_BYTES
        if one is not None and is_large and one.is_xa and self._replay is None:
            # no row may be delivered before the commit; but after a savepoint rows must stay in `events`
            is_large = False
            if one.savepoint < 0:
                self._set_aside(one)
        if not self._done and not is_large:
            return None
        found, self._done, self._done_bytes = self._done, [], 0
        if is_large:
            assert one is not None
            found.append(replace(one))
            # later events go to the next run
            one.events, one.size, one.is_cut = [], 0, True
        return self._indexed(found, is_large)

    def _indexed(self, found: list[_Transaction], is_cut: bool) -> IndexedStep:
        before = self.reached
        parts = [(place, event) for place, one in enumerate(found) for event in one.events]
        data, starts, ends = _assembled([event for _, event in parts])
        transaction_of = np.array([place for place, _ in parts], np.int32)
        shape = frames.frozen(np.array([event.shape for _, event in parts], np.int32), np.int32)
        offsets, counts = self._cut(data, starts, ends, shape, [event for _, event in parts])
        rows, event_of = _messages(counts)
        number = np.arange(len(rows), dtype=np.int64) - np.repeat(np.cumsum(counts) - counts, counts)
        version = np.array([event.version for _, event in parts], np.int32)[event_of]
        op = np.array([event.op for _, event in parts], np.uint8)[event_of]
        transaction = transaction_of[event_of] if parts else np.empty(0, np.int32)
        is_change = version != BOUNDARY
        ordinal, counted = self._ordinals(found, transaction, is_change, op)
        images, image = _used(self._images, [event.image for _, event in parts])
        statements, statement = self._used_statements([event.statement for _, event in parts])
        by_row = RowPlaces(
            transaction=transaction, ordinal=ordinal,
            pos=np.array([event.pos for _, event in parts], np.int64)[event_of], row=number.astype(np.int32),
            image=image[event_of], statement=statement[event_of], images=images, statements=statements,
        )  # fmt: skip
        by_row, op, version = self._without_history(data, offsets, rows, by_row, op, version)
        is_idle, idle = self._unchanged(data, offsets, rows, by_row, op, version)
        version = np.where(is_idle, UNCAPTURED, version).astype(np.int32)
        left_out = np.array([one.is_left_out for one in found] or [False], np.bool_)
        keep = (version != UNCAPTURED) & self._beyond(found, transaction, ordinal, version, op)
        if left_out.any():
            keep &= ~left_out[transaction] if len(transaction) else keep
        numbered = self._numbered(found, is_cut, (data, offsets, rows, op, version, by_row))
        kept = np.flatnonzero(keep)
        by_row = by_row.part(kept)
        if numbered is not None:
            by_row.total_order, by_row.table_order = numbered.total[kept], numbered.table[kept]
        ended = found[:-1] if is_cut else found
        transactions = self._transactions(found)
        run = IndexedRun(
            data=data, offsets=offsets, rows=rows[kept], op=op[kept], version=version[kept], by_row=by_row,
            transactions=transactions, counts={} if numbered is None else numbered.counts,
            marks=np.array([one.mark for one in found], np.int64),
            ends=np.arange(len(ended), dtype=np.int64),
            end_rows=np.searchsorted(by_row.transaction, np.arange(len(ended)), "right").astype(np.int64),
            end_at=np.array([one.end for one in ended], np.int64), end_held=tuple(one.held for one in ended),
            executed=self._base.copy(), held=self._held_before, server=self._server, is_apart=self._is_apart,
        )  # fmt: skip
        for one in ended:
            if one.source >= 0:
                self._base.add(self._names[one.source], one.number)
            self._held_before = one.held
        if is_cut and self._open is not None:
            self._open.counted = counted
        waits = before.position.consumed is not None or (found and found[0].is_cut)
        is_wanted = bool(len(run) or (waits and len(ended)))
        self._is_apart = not is_wanted
        after = IndexerState(
            run.leads_to(before.position), self._base.copy(), {} if numbered is None else numbered.still_open,
            before.unchanged + idle,
        )  # fmt: skip
        self._renew_statements()
        return IndexedStep(run.compacted() if is_wanted else run, is_wanted, after)

    def _cut(
        self, data: Bytes, starts: Int64s, ends: Int64s, shape: Int32s, parts: Sequence[_Event]
    ) -> tuple[Int64s, Int64s]:
        """Return the offsets of messages, and the number of rows of each event."""
        if self._arrays is None:
            self._arrays = (
                frames.frozen(np.array(self._bounds, np.int32), np.int32),
                frames.frozen(np.array(self._widths or [0], np.int32), np.int32),
                frames.frozen(np.array(self._documents or [0], np.int32), np.int32),
            )
        bounds, widths, documents = self._arrays
        counts = np.zeros(len(parts), np.int64)
        # a row has at least a byte of null bits, and before the rows of each event there is another message
        room = np.empty(int((ends - starts).sum()) + 3 * len(parts) + 1, np.int64)
        room[0] = 0
        good = int(row_kernels.cut_rows(data, starts, ends, shape, bounds, widths, documents, room, counts))
        if good < len(parts):
            event = parts[good]
            name = self.versions[event.version].id if event.version >= 0 else "a table that is not captured"
            raise DecodeError(f"Rows of {name} at {self._file}:{event.pos} do not have the form that their map says.")
        messages = int(counts.sum()) + len(parts)
        return room[: messages + 1].copy(), counts

    def _ordinals(
        self, found: Sequence[_Transaction], transaction: Int32s, is_change: np.ndarray, op: Bytes
    ) -> tuple[Int64s, int]:
        """Return the ordinal of each row in its transaction, and the number of changes of the last transaction so far.

        The ordinal of a begin is one less than that of the first change, the ordinal of an end the number of changes.
        """
        changes = np.cumsum(is_change)
        firsts = np.searchsorted(transaction, np.arange(len(found)), "left")
        before = np.where(firsts > 0, changes[np.maximum(firsts - 1, 0)], 0) if len(changes) else firsts * 0
        base = np.array([one.counted for one in found], np.int64) - before
        total = changes + (base[transaction] if len(found) and len(transaction) else 0)
        counted = (
            int(total[-1]) if len(total) and transaction[-1] == len(found) - 1 else (found[-1].counted if found else 0)
        )
        ordinal = total - np.where(is_change | (op == BEGIN), 1, 0)
        return ordinal.astype(np.int64), counted

    def _renew_statements(self) -> None:
        """Discard the statements of the run, except those of the open transaction."""
        texts, self._statements = list(self._statements), {}
        one = self._open
        if one is None:
            return
        for event in one.events:
            if event.statement >= 0:
                event.statement = self._statement_place(texts[event.statement])
        if one.statement >= 0:
            one.statement = self._statement_place(texts[one.statement])

    def _used_statements(self, given: list[int]) -> tuple[tuple[bytes, ...], Int32s]:
        if not self._with_statements:
            return (), np.full(len(given), -1, np.int32)
        return tuple(self._statements), np.array(given, np.int32)

    def _beyond(
        self, found: Sequence[_Transaction], transaction: Int32s, ordinal: Int64s, version: Int32s, op: Bytes
    ) -> np.ndarray:
        """Return a mask of the rows after the position at which the session began."""
        keep = np.ones(len(transaction), np.bool_)
        position = self._position
        if position.consumed is None:
            return keep
        for place, one in enumerate(found):
            if self._by_id:
                source = self._names[one.source] if one.source >= 0 else ""
                is_same = bool(source) and f"{source}{self._separator}{one.number}" == position.gtid
            else:
                is_same = (self._names[one.file], one.start) == (position.file, position.start)
            if is_same:
                keep &= (transaction != place) | (ordinal >= position.consumed)
                if self._by_id and not self._is_mariadb:
                    self._warn_of_order(transaction == place, ordinal, version, op)
        return keep

    def _warn_of_order(self, mine: np.ndarray, ordinal: Int64s, version: Int32s, op: Bytes) -> None:
        """Warn if the position lies among updates or deletes of a table without a key, on another server.

        MySQL's replica applies these rows as its scan of the table finds them, and logs them in that order.
        """
        consumed = self._position.consumed or 0
        first, last = np.flatnonzero(mine & (ordinal == consumed)), np.flatnonzero(mine & (ordinal == consumed - 1))
        if not consumed or not len(first) or version[first[-1]] < 0 or op[first[-1]] == ord("c"):
            return
        table, before = self.versions[version[first[-1]]], version[last[-1]] if len(last) else UNCAPTURED
        # the rows before may be in an earlier run
        is_split = not len(last) or (
            before >= 0 and self.versions[before].id == table.id and op[last[-1]] == op[first[-1]]
        )
        if is_split and not table.key:
            log.warning(
                "%s: another server has taken over within the transaction %s, of which a part was delivered; the table "
                "has no key, so that server may have the rows in another order: some may be missing, and some come "
                "twice; remedy: tailrace verify --repair, or read %s by a snapshot (signal execute-snapshot)",
                table.id, self._position.gtid, table.id,
            )  # fmt: skip

    def _without_history(
        self, data: Bytes, offsets: Int64s, rows: Int64s, by_row: RowPlaces, op: Bytes, version: Int32s
    ) -> tuple[RowPlaces, Bytes, Int32s]:
        """Leave out the historical rows of system-versioned tables. An update that makes a row historical becomes a
        delete."""
        for number in np.unique(version[version >= 0]).tolist():
            table = self.versions[number]
            column = next((place for place, one in enumerate(table.columns) if one.kind in self._ends), -1)
            if column < 0:
                continue
            mine = np.flatnonzero((version == number) & (op != ord("t")))
            messages, bounds = frames.gather(data, offsets, rows[mine])
            was, holds = current(messages, bounds, by_row.part(mine), table, column)
            is_update = op[mine] == ord("u")
            gone = np.where(is_update, ~was & ~holds, ~np.where(op[mine] == ord("d"), was, holds))
            version[mine[gone]] = UNCAPTURED
            ended = mine[is_update & was & ~holds]
            if len(ended):
                images = list(by_row.images)
                for place in np.unique(by_row.image[ended]).tolist():
                    images.append(images[place]._replace(op=ord("d"), ends=True))
                    by_row.image[ended[by_row.image[ended] == place]] = len(images) - 1
                by_row.images = tuple(images)
                op[ended] = ord("d")
        return by_row, op, version

    def _unchanged(
        self, data: Bytes, offsets: Int64s, rows: Int64s, by_row: RowPlaces, op: Bytes, version: Int32s
    ) -> tuple[np.ndarray, int]:
        """Return a mask of the updates that change none of the delivered columns, and their number."""
        idle = np.zeros(len(rows), np.bool_)
        if self._shows is None:
            return idle, 0
        for number in np.unique(version[(op == ord("u")) & (version >= 0)]).tolist():
            places = np.flatnonzero((version == number) & (op == ord("u")))
            table = self.versions[number]
            messages, bounds = frames.gather(data, offsets, rows[places])
            idle[places] = unchanged(messages, bounds, by_row.part(places), table, [*self._shows(table)])
        return idle, int(idle.sum())

    def _numbered(
        self,
        found: Sequence[_Transaction],
        is_cut: bool,
        given: tuple[Bytes, Int64s, Int64s, Bytes, Int32s, RowPlaces],
    ) -> NumberedRows | None:
        """Return the numbers of the events of all rows, if they are wanted."""
        if self._numbering is None:
            return None
        data, offsets, rows, op, version, by_row = given
        # rows before the position count, too, which are read again after a restart
        left_out = np.array([one.is_left_out for one in found] or [False], np.bool_)
        counted = np.flatnonzero((version >= 0) & ~left_out[by_row.transaction])
        changes = [np.empty(0, np.int64)]
        for number in np.unique(version[counted][op[counted] == ord("u")]).tolist():
            table = self.versions[number]
            if table.key:
                places = np.flatnonzero((version[counted] == number) & (op[counted] == ord("u")))
                messages, bounds = frames.gather(data, offsets, rows[counted[places]])
                moved = key_hashes(messages, bounds, by_row.part(counted[places]), table, table.key)[1]
                changes.append(places[moved])
        transaction = by_row.transaction[counted].astype(np.int64)
        carried = dict(self.reached.counts) if found and found[0].is_cut else {}
        ends = [*range(len(found) - 1 if is_cut else len(found))]
        numbered = self._numbering.number(
            op[counted], version[counted], np.concatenate(changes), transaction, len(found), ends, carried
        )
        total, table_numbers = np.zeros((2, len(rows)), np.int64)
        total[counted], table_numbers[counted] = numbered.total, numbered.table
        return replace(numbered, total=total, table=table_numbers)

    def _transactions(self, found: Sequence[_Transaction]) -> BinlogTransactions:
        return BinlogTransactions(
            epoch=np.full(len(found), self._epoch, np.int64),
            file=np.array([one.file for one in found], np.int32),
            start=np.array([one.start for one in found], np.int64),
            begin=np.array([one.start if one.begin < 0 else one.begin for one in found], np.int64),
            commit_us=np.array([one.commit_us for one in found], np.int64),
            source=np.array([one.source for one in found], np.int32),
            number=np.array([one.number for one in found], np.int64),
            thread=np.array([one.thread for one in found], np.int64),
            server_id=np.array([one.server_id for one in found], np.int64),
            names=tuple(self._names),
            separator=self._separator,
        )


@dataclass(frozen=True, slots=True)
class _Header:
    """An event's header, its position in its file, and its checksum."""

    seconds: int
    server_id: int
    behind: int
    flags: int
    start: int
    mark: int


def _xid(rest: bytes) -> bytes:
    """Return the normal form of an XA id from a statement."""
    found = re.match(rb"\s*(X'[0-9a-f]*')\s*,\s*(X'[0-9a-f]*')\s*,\s*(\d+)", rest, re.IGNORECASE)
    return b",".join(found.groups()).lower() if found else rest.strip().lower()


def _messages(counts: Int64s) -> tuple[Int64s, Int64s]:
    """Return the message and the event of each row. Before the rows of each event there is another message."""
    event_of = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    return np.arange(len(event_of), dtype=np.int64) + event_of + 1, event_of


def _used(known: Sequence[RowsEventForm], given: Sequence[int]) -> tuple[tuple[RowsEventForm, ...], Int32s]:
    """Return the images that are used, and for each event the place of its image among them."""
    places: dict[int, int] = {}
    found = np.array([places.setdefault(one, len(places)) for one in given], np.int32)
    # events without rows refer to image 0 even if no image is known
    return tuple(known[one] if one < len(known) else _NO_IMAGE for one in places), found


_NO_IMAGE = RowsEventForm(0, b"", b"")


def _assembled(parts: Sequence[_Event]) -> tuple[Bytes, Int64s, Int64s]:
    """Return the bytes of the parts, one after another, and the beginning and the end of each.

    Successive parts of a buffer are kept together with the bytes between them.
    """
    pieces: list[list[object]] = []
    starts, ends = np.zeros(len(parts), np.int64), np.zeros(len(parts), np.int64)
    base = 0
    last: bytes | bytearray | None = None
    low = high = 0
    for place, event in enumerate(parts):
        if event.data is not last or event.start < high:
            if last is not None:
                pieces.append([last, low, high])
                base += high - low
            last, low, high = event.data, event.start, event.start
        high = event.end
        starts[place], ends[place] = base + event.start - low, base + event.end - low
    if last is not None:
        pieces.append([last, low, high])
    views = [np.frombuffer(data, np.uint8)[first:end] for data, first, end in pieces if data]  # type: ignore[call-overload]
    if len(views) == 1 and 2 * len(views[0]) >= len(pieces[0][0]):  # type: ignore[arg-type]
        found = views[0].view()
    else:
        found = np.concatenate(views) if views else np.empty(0, np.uint8)
    return frames.frozen(readonly(found), np.uint8), frames.frozen(starts, np.int64), frames.frozen(ends, np.int64)
