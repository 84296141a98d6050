"""Rows of the binary log as a server writes them, of drawn tables: what the decoders are compared on."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from tailrace.columns.table import Column, TableId
from tailrace.connectors.binlog.log.forms import BinlogTable, ColumnForm, ValueKind, decimal_width
from tailrace.connectors.binlog.log.position import BinlogTransactions, RowPlaces, RowsEventForm, Segment

ID = TableId("d", "d", "t")


def packed_decimal(digits: str, precision: int, scale: int, negative: bool) -> bytes:
    """Return the digits of a decimal, all `precision` of them, in the server's packed form."""
    whole, part = precision - scale, scale
    sizes = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
    out, at = b"", 0
    for size in (whole % 9, *[9] * (whole // 9), *[9] * (part // 9), part % 9):
        if size:
            out += int(digits[at : at + size]).to_bytes(sizes[size], "big")
            at += size
    raw = bytearray(out)
    if negative:
        raw = bytearray(byte ^ 0xFF for byte in raw)
    raw[0] ^= 0x80
    return bytes(raw)


def forms() -> st.SearchStrategy[ColumnForm]:
    fractional = st.integers(0, 6)
    labels = st.lists(st.text(max_size=6), min_size=1, max_size=12).map(tuple)
    return st.one_of(
        st.builds(lambda width, sign: ColumnForm(ValueKind.INTEGER, width, sign), st.sampled_from([1, 2, 3, 4, 8]),
                  st.sampled_from([0, 1])),
        st.just(ColumnForm(ValueKind.FLOAT, 4)), st.just(ColumnForm(ValueKind.FLOAT_AS_DOUBLE, 4)),
        st.just(ColumnForm(ValueKind.DOUBLE, 8)),
        st.builds(lambda p, s: ColumnForm(ValueKind.DECIMAL, decimal_width(p, min(p, s)), p << 8 | min(p, s)),
                  st.integers(1, 65), st.integers(0, 30)),
        st.just(ColumnForm(ValueKind.YEAR, 1)), st.just(ColumnForm(ValueKind.DATE, 3)),
        fractional.map(lambda f: ColumnForm(ValueKind.TIME, 3 + (f + 1) // 2, f)),
        fractional.map(lambda f: ColumnForm(ValueKind.DATETIME, 5 + (f + 1) // 2, f)),
        fractional.map(lambda f: ColumnForm(ValueKind.TIMESTAMP, 4 + (f + 1) // 2, f)),
        st.just(ColumnForm(ValueKind.OLD_TIME, 3)), st.just(ColumnForm(ValueKind.OLD_DATETIME, 8)),
        st.just(ColumnForm(ValueKind.OLD_TIMESTAMP, 4)),
        st.integers(1, 8).map(lambda width: ColumnForm(ValueKind.BITS, width)),
        st.builds(lambda width, charset: ColumnForm(ValueKind.TEXT, width, charset=charset),
                  st.sampled_from([-1, -2, -3]),
                  st.sampled_from(["utf8mb4", "latin1", "cp1251", "utf16", "gbk", "ascii"])),
        st.builds(lambda width, least: ColumnForm(ValueKind.BYTES, width, least), st.sampled_from([-1, -2, -3, -4]),
                  st.integers(0, 20)),
        labels.map(lambda known: ColumnForm(ValueKind.LABEL, 1, labels=known)),
        labels.map(lambda known: ColumnForm(ValueKind.LABELS, 2, labels=known)),
        st.just(ColumnForm(ValueKind.UUID, -1, 16)), st.just(ColumnForm(ValueKind.INET4, -1, 4)),
        st.just(ColumnForm(ValueKind.INET6, -1, 16)), st.just(ColumnForm(ValueKind.VECTOR, -4)),
        st.just(ColumnForm(ValueKind.JSON, -4)),
    )  # fmt: skip


def fraction(digits: int) -> st.SearchStrategy[bytes]:
    """Return fractions of a second as the server writes them: two digits a byte, no more than there are."""
    size = (digits + 1) // 2
    return st.integers(0, 10**digits - 1).map(
        lambda value: (value * (10 if digits % 2 else 1)).to_bytes(size, "big") if size else b""
    )


def values(form: ColumnForm) -> st.SearchStrategy[bytes]:
    """Return values that the server may write for a form, without the length before them."""
    if form.kind is ValueKind.DECIMAL:
        precision, scale = form.meta >> 8, form.meta & 255
        digits = st.text("0123456789", min_size=precision, max_size=precision)
        return st.builds(lambda text, sign: packed_decimal(text, precision, scale, sign), digits, st.booleans())
    if form.kind in (ValueKind.FLOAT, ValueKind.FLOAT_AS_DOUBLE):
        return st.floats(width=32, allow_nan=False, allow_infinity=False).map(lambda one: struct.pack("<f", one))
    if form.kind is ValueKind.DOUBLE:
        return st.floats(allow_nan=False, allow_infinity=False).map(lambda one: struct.pack("<d", one))
    if form.kind is ValueKind.DATE:
        return st.builds(lambda year, rest: (year << 9 | rest).to_bytes(3, "little"), st.integers(0, 9999),
                         st.integers(0, 511))  # fmt: skip
    if form.kind is ValueKind.TIME:
        return st.builds(_time, st.integers(-838 * 3600, 838 * 3600), fraction(form.meta), st.just(form.meta))
    if form.kind is ValueKind.DATETIME:
        return st.builds(_datetime, st.integers(0, 9999), st.integers(0, 12), st.integers(0, 31),
                         st.integers(0, 86399), fraction(form.meta))  # fmt: skip
    if form.kind is ValueKind.TIMESTAMP:
        return st.builds(lambda at, part: at.to_bytes(4, "big") + part, st.integers(0, 2**31 - 1), fraction(form.meta))
    if form.kind is ValueKind.OLD_TIME:
        return st.integers(-8385959, 8385959).map(lambda one: one.to_bytes(3, "little", signed=True))
    if form.kind is ValueKind.OLD_DATETIME:
        return st.integers(0, 99991231235959).map(lambda one: one.to_bytes(8, "little"))
    if form.kind is ValueKind.TEXT:
        return _texts(form.charset)
    if form.kind is ValueKind.LABEL:
        return st.integers(0, len(form.labels)).map(lambda one: bytes([one]))
    if form.kind is ValueKind.LABELS:
        return st.integers(0, (1 << len(form.labels)) - 1).map(lambda one: one.to_bytes(2, "little"))
    if form.kind in (ValueKind.UUID, ValueKind.INET6):
        return st.binary(max_size=16)
    if form.kind is ValueKind.INET4:
        return st.binary(max_size=4)
    if form.kind is ValueKind.VECTOR:
        return st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), max_size=4).map(
            lambda numbers: struct.pack(f"<{len(numbers)}f", *numbers)
        )
    if form.kind is ValueKind.JSON:
        from tests.property.binlog_json import documents

        return documents()
    if form.width > 0:
        return st.binary(min_size=form.width, max_size=form.width)
    return st.binary(max_size=300 if form.width < -1 else 200)


_CODECS = {
    "utf8mb4": "utf-8",
    "latin1": "cp1252",
    "cp1251": "cp1251",
    "utf16": "utf-16-be",
    "gbk": "gbk",
    "ascii": "ascii",
}


def _texts(charset: str) -> st.SearchStrategy[bytes]:
    codec = _CODECS[charset]

    def encoded(text: str) -> bytes:
        return text.encode(codec, "ignore")[:200] if codec != "utf-8" else text.encode()

    return st.text(max_size=40).map(encoded)


def _time(seconds: int, part: bytes, digits: int) -> bytes:
    size = len(part)
    value = abs(seconds)
    packed = (value // 3600 << 12 | value // 60 % 60 << 6 | value % 60) << 8 * size | int.from_bytes(part, "big")
    return ((-packed if seconds < 0 else packed) + (1 << 8 * (3 + size) - 1)).to_bytes(3 + size, "big")


def _datetime(year: int, month: int, day: int, seconds: int, part: bytes) -> bytes:
    clock = seconds // 3600 << 12 | seconds // 60 % 60 << 6 | seconds % 60
    return ((year * 13 + month << 5 | day) << 17 | clock | 1 << 39).to_bytes(5, "big") + part


@dataclass(frozen=True)
class Rows:
    """A table, the images of its rows, and its rows: the message of each, and the place of its image."""

    table: BinlogTable
    images: tuple[RowsEventForm, ...]
    rows: tuple[tuple[bytes, int], ...]

    def segment(self) -> Segment:
        data = b"".join(message for message, _ in self.rows)
        count = len(self.rows)
        zeros = np.zeros(count, np.int64)
        by_row = RowPlaces(
            transaction=zeros.astype(np.int32), ordinal=np.arange(count, dtype=np.int64), pos=zeros,
            row=np.arange(count, dtype=np.int32), image=np.array([image for _, image in self.rows], np.int32),
            statement=np.full(count, -1, np.int32), images=self.images,
        )  # fmt: skip
        offsets = np.cumsum([0, *(len(message) for message, _ in self.rows)]).astype(np.int64)
        one = np.zeros(1, np.int64)
        transactions = BinlogTransactions(
            one, one.astype(np.int32), one, one, one, one.astype(np.int32) - 1, one, one - 1, one, ("binlog.000001",)
        )
        return Segment(self.table, np.frombuffer(data or b"\0", np.uint8)[: len(data)], offsets, by_row, transactions)


@st.composite
def drawn(draw: st.DrawFn) -> Rows:
    form = tuple(draw(st.lists(forms(), min_size=1, max_size=9)))
    columns = tuple(Column(f"c{place}", "", 0) for place in range(len(form)))
    table = BinlogTable(ID, columns, ("c0",), form=form)
    everything = bytes([1]) * len(form)
    some = st.lists(st.sampled_from([0, 1]), min_size=len(form), max_size=len(form)).map(bytes)
    images = (
        RowsEventForm(ord("c"), b"", everything), RowsEventForm(ord("u"), everything, everything),
        RowsEventForm(ord("d"), everything, b""),
        RowsEventForm(ord("u"), draw(some.filter(any)), draw(some.filter(any))),
        RowsEventForm(ord("c"), b"", draw(some.filter(any))),
        RowsEventForm(ord("t"), b"", b""),
    )  # fmt: skip
    rows = []
    for _ in range(draw(st.integers(0, 12))):
        place = draw(st.integers(0, len(images) - 1))
        image = images[place]
        message = b"truncate table t" if image.op == ord("t") else b""
        for side in (image.before, image.after):
            if side:
                message += draw(written(form, side))
        rows.append((message, place))
    return Rows(table, images, tuple(rows))


@st.composite
def written(draw: st.DrawFn, form: tuple[ColumnForm, ...], present: bytes) -> bytes:
    """Return an image: its null bits and its values."""
    there = [one for one, flag in zip(form, present, strict=True) if flag]
    bits, out = 0, b""
    for number, one in enumerate(there):
        if draw(st.integers(0, 3)) == 0:
            bits |= 1 << number
            continue
        value = draw(values(one))
        out += (len(value).to_bytes(-one.width, "little") if one.width < 0 else b"") + value
    return bits.to_bytes((len(there) + 7) // 8, "little") + out
