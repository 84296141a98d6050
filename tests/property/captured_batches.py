"""Random batches of changes from the change tables of SQL Server and Db2, with texts in the forms of their dialects."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from tailrace.columns import CapturedTransactions, ChangeBatch, Column, TableId, TableSchema
from tailrace.connectors.db2.values.conversions import FORM as DB2
from tailrace.connectors.sqlserver.values.conversions import FORM as SQL_SERVER
from tailrace.events.captured_form import CapturedForm
from tailrace.events.event_settings import EventSettings
from tests.event_settings import event_settings
from tests.property.drawn import TEXT, images, modes

# Type name, modifier, default, texts.
Kind = tuple[str, int, str | None, st.SearchStrategy[str]]


def _integers(bits: int, signed: bool = True) -> st.SearchStrategy[str]:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return st.integers(low, high).map(str)


@st.composite
def decimals(draw: Callable[..., Any], precision: int, scale: int) -> str:
    unscaled = draw(st.integers(-(10**precision) + 1, 10**precision - 1))
    digits = f"{abs(unscaled):0{scale + 1}d}"
    shown = f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits
    return ("-" if unscaled < 0 else "") + shown


def floats(width: int) -> st.SearchStrategy[str]:
    finite = st.floats(width=32 if width == 32 else 64, allow_nan=False, allow_infinity=False)
    return finite.map(lambda value: str(np.float32(value)) if width == 32 else repr(value))


_DATES = st.dates(date(1, 1, 1), date(9999, 12, 31)).map(lambda day: day.isoformat())


@st.composite
def clocks(draw: Callable[..., Any], digits: int) -> str:
    whole = f"{draw(st.integers(0, 23)):02d}:{draw(st.integers(0, 59)):02d}:{draw(st.integers(0, 59)):02d}"
    return f"{whole}.{draw(st.integers(0, 10**digits - 1)):0{digits}d}" if digits else whole


def timestamps(digits: int) -> st.SearchStrategy[str]:
    return st.builds("{} {}".format, _DATES, clocks(digits))


_OFFSETS = st.sampled_from(["+00:00", "-00:00", "+02:00", "-05:30", "+14:00", "-14:00", "+00:15"])
_BYTES = st.binary(max_size=9).map(lambda data: "\\x" + data.hex())

SQL_SERVER_COLUMNS: list[Kind] = [
    ("bit", -1, "((1))", st.sampled_from("tf")),
    ("tinyint", -1, None, _integers(8, signed=False)),
    ("smallint", -1, None, _integers(16)),
    ("bigint", -1, "((7))", _integers(64)),
    ("decimal", 38 << 16 | 10, "((1.5))", decimals(38, 10)),
    ("numeric", 5 << 16, None, decimals(5, 0)),
    ("money", -1, None, decimals(19, 4)),
    ("float", 53, None, floats(64)),
    ("real", -1, None, floats(32)),
    ("nvarchar", 20, "(N'it''s')", TEXT),
    ("varchar", -1, "(user_name())", TEXT),
    ("xml", -1, None, st.sampled_from(["<a/>", "<a b='c'>é\n</a>"])),
    ("uniqueidentifier", -1, "(newid())", st.uuids().map(lambda value: str(value).upper())),
    ("varbinary", -1, "(0x00FF)", _BYTES),
    ("hierarchyid", -1, None, _BYTES),
    ("sql_variant", -1, None, TEXT),
    ("date", -1, "('2019-02-03')", _DATES),
    ("time", 0, None, clocks(0)),
    ("time", 7, None, clocks(7)),
    ("datetime", -1, "(getdate())", timestamps(3)),
    ("smalldatetime", -1, None, timestamps(0)),
    ("datetime2", 2, None, timestamps(2)),
    ("datetime2", 5, None, timestamps(5)),
    ("datetime2", 7, None, timestamps(7)),
    ("datetimeoffset", 7, None, st.builds("{} {}".format, timestamps(7), _OFFSETS)),
]
DB2_COLUMNS: list[Kind] = [
    ("BOOLEAN", -1, "TRUE", st.sampled_from("tf")),
    ("SMALLINT", -1, None, _integers(16)),
    ("BIGINT", -1, "-7", _integers(64)),
    ("DECIMAL", 31 << 16 | 12, "1.5", decimals(31, 12)),
    ("DECFLOAT", 34, None, st.sampled_from(["3.10", "1E+5", "-0.00", "5E-20", "NaN", "Infinity", "-Infinity"])),
    ("DOUBLE", -1, None, floats(64)),
    ("CHAR", 5, "'a'", TEXT),
    ("VARGRAPHIC", 5, None, TEXT),
    ("XML", -1, None, st.just("<a/>")),
    ("VARCHAR () FOR BIT DATA", 9, "X'00ff'", _BYTES),
    ("DATE", -1, None, _DATES),
    ("TIME", -1, "'13.58.28'", clocks(0)),
    ("TIMESTAMP", 0, None, timestamps(0)),
    ("TIMESTAMP", 6, "CURRENT TIMESTAMP", timestamps(6)),
    ("TIMESTAMP", 12, None, timestamps(12)),
]
KINDS = {"sqlserver": (SQL_SERVER, SQL_SERVER_COLUMNS, "int"), "db2": (DB2, DB2_COLUMNS, "INTEGER")}
FORMATS = {"sqlserver": ("1.0", "3"), "db2": ("2.3", "3")}


@st.composite
def settings(draw: Callable[..., Any], connector: str) -> EventSettings:
    """Draw settings of every mode."""
    return event_settings(
        "server",
        "golden",
        connector=connector,
        event_format=draw(st.sampled_from(FORMATS[connector])),
        skipped_operations=draw(st.sampled_from([frozenset("t"), frozenset("ud")])),
        **draw(modes()),
    )


@st.composite
def batches(draw: Callable[..., Any], connector: str) -> ChangeBatch:
    """Draw a batch of up to a dozen changes of a table with random columns and a key of no, one or two columns."""
    _, kinds, number_type = KINDS[connector]
    chosen = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=6))
    columns = [Column("ID", number_type, 4, nullable=False), Column("Key 2", number_type, 4, nullable=False)]
    texts: list[st.SearchStrategy[str]] = [st.sampled_from("12"), st.sampled_from(["7", "-8"])]
    for number, (name, modifier, default, strategy) in enumerate(chosen):
        columns.append(Column(f"c{number}", name, 0, modifier, nullable=draw(st.booleans()), default=default))
        texts.append(strategy)
    key = draw(st.sampled_from([("ID",), ("Key 2", "ID"), ()]))
    table = TableSchema(TableId("testDB", "db o", "t"), tuple(columns), key)
    count = draw(st.integers(1, 12))
    snapshot = draw(st.integers(0, 4)) == 0
    ops = ["r"] * count if snapshot else draw(st.lists(st.sampled_from("cud"), min_size=count, max_size=count))
    before = [op in "du" for op in ops]
    transactions = draw(st.integers(1, 3))
    width = 10 if connector == "sqlserver" else draw(st.sampled_from([10, 16]))
    lsns = st.binary(min_size=width, max_size=width)
    us = draw(st.lists(st.integers(0, 2**50), min_size=transactions, max_size=transactions))
    changes = [None if snapshot else draw(lsns) for _ in ops]
    serial = None
    if connector == "sqlserver" and not snapshot:
        serial = pa.array([7, *(draw(st.none() | st.integers(1, 9)) for _ in ops)], pa.int64()).slice(1)
    commits = pa.array([draw(lsns | st.just(bytes(width))) for _ in us], pa.binary())
    metadata = draw(st.booleans())
    order = np.arange(1, count + 1, dtype=np.int64)
    return ChangeBatch(
        table,
        np.array([ord(op) for op in ops], np.uint8),
        pa.array([b"another one", *changes], pa.binary()).slice(1),
        np.sort(np.array(draw(st.lists(st.integers(0, transactions - 1), min_size=count, max_size=count)), np.int32)),
        np.arange(count, dtype=np.int64),
        CapturedTransactions(commits, np.array(us, np.int64)),
        draw(images(texts, before)) if any(before) else None,
        draw(images(texts, [op in "cur" for op in ops])),
        np.array(draw(st.lists(st.integers(1, 6), min_size=count, max_size=count)), np.uint8) if snapshot else None,
        total_order=order if metadata else None,
        table_order=order if metadata else None,
        serial=serial,
    )


def form_of(connector: str) -> CapturedForm:
    return KINDS[connector][0]
