"""Results in the text protocol, read from a socket directly into columns of Arrow. Any process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tailrace.columns.table import Column
from tailrace.connectors.binlog.snapshot import text_kernels
from tailrace.connectors.binlog.snapshot.text_kernels import DIGITS, PLAIN, TRIMMED
from tailrace.errors import ConnectionFailed, DecodeError

if TYPE_CHECKING:
    from pymysql.connections import Connection

ROOM = 1 << 20
"""Bytes that are read at once."""
_BATCH_BYTES, _BATCH_ROWS = 4 << 20, 1 << 16
_HEADER, _LARGEST, _NUMBERS = 4, (1 << 24) - 1, 256
_MOST_TEXTS = (1 << 31) - 1
_BYTES = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "bit")
_SHAPES = (
    "geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon", "geometrycollection",
    "geomcollection",
)  # fmt: skip


@dataclass
class ServerError(Exception):
    """An error that the server has sent instead of a row."""

    code: int
    state: str
    text: str

    def __str__(self) -> str:
        return f"({self.code}, {self.text!r})"


def form(column: Column, *, exact: bool) -> int:
    """Return the form of a column's texts. With `exact`, for copies, fractions of timestamps keep their zeros."""
    name = column.type_name.partition("(")[0].split(" ")[0]
    if name in _BYTES or name in _SHAPES:
        return DIGITS
    return TRIMMED if name == "timestamp" and not exact else PLAIN


class TextRows:
    """The rows of a result, with columns in the given `forms`.

    `receive` fills a buffer and returns the number of bytes, 0 at the end of the stream. `number` is the number of the
    first row's packet. A batch has about 4 MiB, and at most `most_rows` rows.
    """

    def __init__(
        self, receive: Callable[[memoryview], int], forms: Sequence[int], number: int, most_rows: int = _BATCH_ROWS
    ) -> None:
        self._receive = receive
        self._forms = tuple(forms)
        self._most = max(1, min(most_rows, _BATCH_ROWS))
        self._data = np.empty(ROOM, np.uint8)
        self._filled = 0
        width = max(1, len(self._forms))
        self._starts = np.empty(width * min(self._most, 1024), np.int64)
        self._lengths = np.empty_like(self._starts)
        # the place of the next packet, its number, and the number of located rows
        self._state = np.array([0, number % _NUMBERS, 0], np.int64)
        self._is_over = False

    def batches(self) -> Iterator[list[pa.Array]]:
        """Yield the rows in batches, with a `binary` array for each column.

        Raises ServerError, DecodeError, and ConnectionFailed if the connection ends before the result.
        """
        while not self._is_over:
            self._gather()
            if self._state[2]:
                yield self._taken()

    def _gather(self) -> None:
        """Locate the rows of the next batch."""
        width = len(self._forms)
        while True:
            reason = text_kernels.scan(
                self._data, self._filled, self._state, self._starts, self._lengths, width, self._room
            )
            if reason == text_kernels.MORE:
                if self._state[2] and self._state[0] >= _BATCH_BYTES:
                    return
                self._fill()
            elif reason == text_kernels.FULL:
                if self._state[2] >= self._most:
                    return
                self._grow()
            elif reason == text_kernels.LARGE:
                if self._state[2]:
                    return
                self._join()
                return
            elif reason == text_kernels.END:
                self._is_over = True
                return
            else:
                self._fail(reason)

    @property
    def _room(self) -> int:
        return min(self._most, len(self._starts) // max(1, len(self._forms)))

    def _grow(self) -> None:
        wanted = min(2 * self._room, self._most) * max(1, len(self._forms))
        self._starts = np.resize(self._starts, wanted)
        self._lengths = np.resize(self._lengths, wanted)

    def _fill(self) -> None:
        """Receive at least one byte."""
        if len(self._data) - self._filled < ROOM // 2:
            larger = np.empty(2 * len(self._data), np.uint8)
            larger[: self._filled] = self._data[: self._filled]
            self._data = larger
        count = self._receive(self._data.data[self._filled :])
        if not count:
            raise ConnectionFailed(
                "The connection ended in the middle of a result, so its rows are not all there.",
                "Start again with the same checkpoint when the server is back.",
            )
        self._filled += count

    def _need(self, upto: int) -> None:
        while self._filled < upto:
            self._fill()

    def _join(self) -> None:
        """Locate a row that spans packets, after joining their payloads."""
        at = begin = int(self._state[0])
        number = int(self._state[1])
        end = begin + _HEADER
        while True:
            self._need(at + _HEADER)
            length = int.from_bytes(self._data[at : at + 3].tobytes(), "little")
            if self._data[at + 3] != number:
                self._fail(text_kernels.OUT_OF_ORDER)
            self._need(at + _HEADER + length)
            if end != at + _HEADER:
                self._data[end : end + length] = self._data[at + _HEADER : at + _HEADER + length].copy()
            end += length
            at += _HEADER + length
            number = (number + 1) % _NUMBERS
            if length < _LARGEST:
                break
        width = len(self._forms)
        if not text_kernels.cells(self._data, begin + _HEADER, end, self._starts, self._lengths, 0, width):
            self._fail(text_kernels.MALFORMED)
        self._state[:] = at, number, 1

    def _taken(self) -> list[pa.Array]:
        """Return the located rows, and move the bytes after them to the front."""
        rows, width = int(self._state[2]), len(self._forms)
        columns = [self._column(place, width, rows, of) for place, of in enumerate(self._forms)]
        at = int(self._state[0])
        rest = self._filled - at
        if len(self._data) > 2 * _BATCH_BYTES and rest < ROOM // 2:
            smaller = np.empty(ROOM, np.uint8)
            smaller[:rest] = self._data[at : self._filled]
            self._data = smaller
        else:
            self._data[:rest] = self._data[at : self._filled].copy()
        self._filled = rest
        self._state[0] = self._state[2] = 0
        return columns

    def _column(self, place: int, width: int, rows: int, of: int) -> pa.Array:
        valid = np.zeros((rows + 7) >> 3, np.uint8)
        size = text_kernels.sizes(self._starts, self._lengths, place, width, rows, of, valid)
        if size > _MOST_TEXTS:
            raise DecodeError("A row has a text of more than 2 GiB.")
        offsets, out = np.empty(rows + 1, np.int32), np.empty(max(size, 1), np.uint8)
        text_kernels.put(self._data, self._starts, self._lengths, place, width, rows, of, offsets, out)
        buffers = [pa.py_buffer(one) for one in (valid, offsets, out[: offsets[-1]])]
        return pa.BinaryArray.from_buffers(pa.binary(), rows, buffers)

    def _fail(self, reason: int) -> None:
        if reason == text_kernels.FAILED:
            at = int(self._state[0])
            length = int.from_bytes(self._data[at : at + 3].tobytes(), "little")
            raise server_error(self._data[at + _HEADER : at + _HEADER + length].tobytes())
        if reason == text_kernels.OUT_OF_ORDER:
            raise ConnectionFailed("The packets of a result are not in order.", "Start again with the same checkpoint.")
        raise DecodeError("A row of a result does not follow the protocol.")


def server_error(payload: bytes) -> ServerError:
    """Return the error from the payload of an error packet, which begins with 255."""
    code = int.from_bytes(payload[1:3], "little")
    state, text = "", payload[3:]
    if text[:1] == b"#":
        state, text = text[1:6].decode("ascii", "replace"), text[6:]
    return ServerError(code, state, text.decode("utf-8", "replace"))


def send(connection: Connection[Any], statement: str) -> tuple[int, int]:
    """Send a statement, and read its result up to the first row. Return the number of columns, and the next packet's
    number.

    The caller has to read the result to its end, or close the session. Raises PyMySQL's errors.
    """
    from pymysql.constants import COMMAND

    private: Any = connection
    private._execute_command(COMMAND.COM_QUERY, statement)
    width = private._read_packet().read_length_encoded_integer()
    # the answer to a statement without a result is a single packet
    for _ in range(width + 1 if width else 0):
        private._read_packet()
    return width, private._next_seq_id


def receiver(connection: Connection[Any]) -> Callable[[memoryview], int]:
    """Return the `receive` of TextRows for a session. It returns 0 for a lost session."""
    private: Any = connection
    stream = private._rfile

    def receive(into: memoryview) -> int:
        # readinto1 would wait for more bytes than the stream has buffered
        try:
            found: bytes = stream.read1(len(into))
        except OSError:
            return 0
        into[: len(found)] = found
        return len(found)

    return receive


def select(
    connection: Connection[Any], statement: str, forms: Sequence[int], most_rows: int = _BATCH_ROWS
) -> Iterator[list[pa.Array]]:
    """Yield the rows of a query in batches, with a `binary` array for each column.

    A session whose result was not read to its end is closed. Raises PyMySQL's errors, and the errors of TextRows.
    """
    width, number = send(connection, statement)
    is_read = False
    try:
        if width != len(forms):
            raise DecodeError(f"A result has {width} columns where {len(forms)} were asked for.")
        yield from TextRows(receiver(connection), forms, number, most_rows).batches()
        is_read = True
    except ServerError:
        is_read = True
        raise
    finally:
        if not is_read:
            private: Any = connection
            private._force_close()


def rows(connection: Connection[Any], statement: str) -> list[tuple[str | None, ...]]:
    """Run a statement, and return its rows as texts; none if it has no result. For few rows. Raises PyMySQL's
    errors."""
    from pymysql.err import raise_mysql_exception

    width, number = send(connection, statement)
    if not width:
        return []
    found: list[tuple[str | None, ...]] = []
    try:
        for columns in TextRows(receiver(connection), [PLAIN] * width, number).batches():
            texts = ([None if one is None else one.decode() for one in column.to_pylist()] for column in columns)
            found += zip(*texts, strict=True)
    except ServerError as error:
        state = f"#{error.state}" if error.state else ""
        raise_mysql_exception(b"\xff" + error.code.to_bytes(2, "little") + (state + error.text).encode())
    return found


def run(connection: Connection[Any], statement: str) -> None:
    """Run a statement, and ignore its result."""
    rows(connection, statement)


def named_rows(connection: Connection[Any], statement: str) -> list[dict[str, str | None]]:
    """Return the rows of a statement as dicts by column name, for statements whose columns differ by version."""
    with connection.cursor() as cursor:
        cursor.execute(statement)
        names = [str(column[0]) for column in cursor.description or ()]
        return [
            {name: None if value is None else str(value) for name, value in zip(names, row, strict=True)}
            for row in cursor.fetchall()
        ]
