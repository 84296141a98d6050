"""Rows of the text protocol beside a reading of one packet after another."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.columns.table import Column
from tailrace.connectors.binlog.snapshot.result import ServerError, TextRows, form, server_error
from tailrace.connectors.binlog.snapshot.text_kernels import DIGITS, PLAIN, TRIMMED
from tailrace.errors import ConnectionFailed, DecodeError

_NUMBERS, _LARGEST, _HEADER = 256, (1 << 24) - 1, 4
_END = b"\xfe\x00\x00\x02\x00"
Row = Sequence[bytes | None]


def plain_rows(data: bytes, number: int, width: int) -> list[tuple[bytes | None, ...]]:
    """Return the rows of a whole result, packet by packet."""
    rows: list[tuple[bytes | None, ...]] = []
    at = 0
    while True:
        payload = b""
        while True:
            length, counted = int.from_bytes(data[at : at + 3], "little"), data[at + 3]
            if counted != number % _NUMBERS or at + _HEADER + length > len(data):
                raise ValueError("packet")
            payload += data[at + _HEADER : at + _HEADER + length]
            at, number = at + _HEADER + length, number + 1
            if length < _LARGEST:
                break
        if payload[0] == 255:
            raise server_error(payload)
        if payload[0] == 254 and len(payload) < 9:
            return rows
        found: list[bytes | None] = []
        place = 0
        for _ in range(width):
            first = payload[place]
            place += 1
            if first == 251:
                found.append(None)
                continue
            size = {252: 2, 253: 3, 254: 8}.get(first, 0)
            count = int.from_bytes(payload[place : place + size], "little") if size else first
            place += size + count
            if place > len(payload):
                raise ValueError("cell")
            found.append(payload[place - count : place])
        if place != len(payload):
            raise ValueError("row")
        rows.append(tuple(found))


def cell(text: bytes | None) -> bytes:
    if text is None:
        return b"\xfb"
    if len(text) < 251:
        return bytes([len(text)]) + text
    if len(text) < 1 << 16:
        return b"\xfc" + len(text).to_bytes(2, "little") + text
    if len(text) < 1 << 24:
        return b"\xfd" + len(text).to_bytes(3, "little") + text
    return b"\xfe" + len(text).to_bytes(8, "little") + text


def packets(payloads: Sequence[bytes], number: int) -> bytes:
    found = []
    for payload in payloads:
        at = 0
        while True:
            part = payload[at : at + _LARGEST]
            found.append(len(part).to_bytes(3, "little") + bytes([number % _NUMBERS]) + part)
            number, at = number + 1, at + _LARGEST
            if len(part) < _LARGEST:
                break
    return b"".join(found)


def sent(rows: Sequence[Row], number: int = 5) -> bytes:
    return packets([*(b"".join(map(cell, row)) for row in rows), _END], number)


class Stream:
    """Gives the bytes in pieces of the given sizes."""

    def __init__(self, data: bytes, sizes: Sequence[int]) -> None:
        self._data, self._at = data, 0
        self._sizes = list(sizes) or [1 << 20]
        self._asked = 0

    def __call__(self, into: memoryview) -> int:
        size = self._sizes[self._asked % len(self._sizes)]
        self._asked += 1
        part = self._data[self._at : self._at + min(size, len(into))]
        into[: len(part)] = part
        self._at += len(part)
        return len(part)


def read(data: bytes, width: int, sizes: Sequence[int] = (), number: int = 5, most: int = 1 << 16) -> list[Row]:
    batches = list(TextRows(Stream(data, sizes), [PLAIN] * width, number, most).batches())
    return [row for batch in batches for row in zip(*(column.to_pylist() for column in batch), strict=True)]


texts = st.one_of(st.none(), st.binary(max_size=20), st.integers(250, 260).map(bytes), st.just(b"x" * 66_000))


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(1, 4).flatmap(lambda width: st.lists(st.tuples(*[texts] * width), min_size=1, max_size=40)),
    sizes=st.lists(st.integers(1, 5000), max_size=5),
    number=st.integers(0, 255),
    most=st.sampled_from([1, 3, 1 << 16]),
)
def test_rows_in_any_pieces_are_those_of_the_plain_reading(
    rows: list[Row], sizes: list[int], number: int, most: int
) -> None:
    data, width = sent(rows, number), len(rows[0])

    assert plain_rows(data, number, width) == [tuple(row) for row in rows]
    assert read(data, width, sizes, number, most) == [tuple(row) for row in rows]


@settings(max_examples=150, deadline=None)
@given(data=st.binary(max_size=80), width=st.integers(1, 3))
def test_no_bytes_are_read_as_other_rows_than_by_the_plain_reading(data: bytes, width: int) -> None:
    try:
        expected = plain_rows(data, 0, width)
    except (ValueError, IndexError, ServerError):
        with pytest.raises((DecodeError, ConnectionFailed, ServerError)):
            read(data, width, number=0)
    else:
        assert read(data, width, number=0) == expected


@pytest.mark.parametrize("size", [_LARGEST - 10, _LARGEST - _HEADER, _LARGEST, 2 * _LARGEST + 7])
def test_a_row_that_spans_packets_is_one_row_among_its_neighbours(size: int) -> None:
    rows = [(b"a", b"1"), (b"z" * size, None), (b"b", b"2")]

    assert read(sent(rows), 2, [3_000_000]) == rows


def test_bytes_become_digits_and_times_lose_the_zeros_of_their_fraction() -> None:
    rows = [
        (b"\x00\xff", b"2024-01-02 03:04:05.120"),
        (b"", b"2024-01-02 03:04:05.000"),
        (None, b"2024-01-02 03:04:00"),
    ]

    (batch,) = TextRows(Stream(sent(rows), ()), [DIGITS, TRIMMED], 5).batches()

    assert batch[0] == pa.array([b"\\x00ff", b"\\x", None], pa.binary())
    assert batch[1].to_pylist() == [b"2024-01-02 03:04:05.12", b"2024-01-02 03:04:05", b"2024-01-02 03:04:00"]


def test_a_result_without_its_end_is_an_error() -> None:
    data = sent([(b"a",), (b"b",)])

    with pytest.raises(ConnectionFailed, match="not all there"):
        read(data[:-9], 1)


def test_an_error_in_the_midst_of_rows_is_the_servers() -> None:
    error = b"\xff" + (1317).to_bytes(2, "little") + b"#70100Query execution was interrupted"
    data = packets([cell(b"a"), error], 5)

    with pytest.raises(ServerError) as raised:
        read(data, 1)

    assert raised.value == server_error(error)
    assert (raised.value.code, raised.value.state) == (1317, "70100")


def test_a_packet_out_of_order_is_an_error() -> None:
    data = packets([cell(b"a")], 5) + packets([_END], 9)

    with pytest.raises(ConnectionFailed, match="not in order"):
        read(data, 1)


@pytest.mark.parametrize(
    ("of", "exact", "expected"),
    [
        ("varbinary(20)", False, DIGITS),
        ("bit(3)", True, DIGITS),
        ("point", False, DIGITS),
        ("timestamp(3)", False, TRIMMED),
        ("timestamp", True, PLAIN),
        ("datetime(3)", False, PLAIN),
        ("varchar(20) character set latin1", False, PLAIN),
        ("longblob compressed", False, DIGITS),
    ],
)
def test_the_form_of_a_column_follows_its_type(of: str, exact: bool, expected: int) -> None:
    assert form(Column("v", of, 0), exact=exact) == expected
