"""Random batches of changes: columns of every type with texts in the server's form."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from tailrace.columns import ChangeBatch, Column, Image, TableId, TableSchema, Transactions
from tailrace.events.event_settings import EventSettings
from tests.event_settings import event_settings
from tests.property.drawn import TEXT, images, modes

_YEARS = st.integers(1, 294_276)


# Type name, modifier, further attributes of the column, texts.
Kind = tuple[str, int, dict[str, Any], st.SearchStrategy[str]]


def _integers(bits: int) -> st.SearchStrategy[str]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1).map(str)


@st.composite
def _decimals(draw: Callable[..., Any], scale: int | None = None, digits: int = 40) -> str:
    whole = draw(st.integers(0, 10 ** draw(st.integers(0, digits))))
    places = draw(st.integers(0, 24)) if scale is None else scale
    fraction = draw(st.integers(0, 10**places - 1))
    text = f"{whole}.{fraction:0{places}d}" if places else str(whole)
    return ("-" if draw(st.booleans()) and (whole or fraction) else "") + text


@st.composite
def _dates(draw: Callable[..., Any]) -> str:
    return str(draw(st.dates(date(1, 1, 1), date(9999, 12, 31))).isoformat())


@st.composite
def _clocks(draw: Callable[..., Any], digits: int = 6) -> str:
    hours, minutes, seconds = draw(st.integers(0, 23)), draw(st.integers(0, 59)), draw(st.integers(0, 59))
    fraction = f".{draw(st.integers(0, 10**digits - 1)):0{digits}d}".rstrip("0").rstrip(".") if digits else ""
    return f"{hours:02d}:{minutes:02d}:{seconds:02d}{fraction}"


_OFFSETS = st.sampled_from(["+00", "+02", "-05:30", "+14", "-12", "+01:02:03"])


@st.composite
def _timestamps(draw: Callable[..., Any], digits: int = 6, zoned: bool = False) -> str:
    if draw(st.integers(0, 20)) == 0:
        return "infinity" if draw(st.booleans()) else "-infinity"
    day = draw(_dates())
    era = ""
    if draw(st.integers(0, 9)) == 0:
        day, era = f"{draw(_YEARS):04d}-{draw(st.integers(1, 12)):02d}-15", draw(st.sampled_from(["", " BC"]))
        if era:
            day = day[-10:]
            day = "0001" + day[4:] if day.startswith("0000") else day
    offset = draw(_OFFSETS) if zoned else ""
    return f"{day} {draw(_clocks(digits))}{offset}{era}"


@st.composite
def _intervals(draw: Callable[..., Any]) -> str:
    """Draw intervals in the server's form: zero units are omitted, and after a negative unit all signs are shown."""
    parts = []
    for unit, most in (("year", 400_000), ("mon", 11), ("day", 200_000_000)):
        amount = draw(st.sampled_from([0, 0, 1, -1]) | st.integers(-most, most))
        if amount:
            parts.append(f"{amount} {unit}{'' if amount == 1 else 's'}")
    sign = draw(st.sampled_from(["", "-", "+"] if parts else ["", "-"]))
    return " ".join([*parts, sign + draw(_clocks())])


def _floats(width: int) -> st.SearchStrategy[str]:
    def shortest(value: float) -> str:
        text = repr(float(str(np.float32(value)))) if width == 32 else repr(value)
        return {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}.get(text, text.removesuffix(".0"))

    return st.floats(width=32 if width == 32 else 64).map(shortest)


@st.composite
def arrays(draw: Callable[..., Any], elements: st.SearchStrategy[str], delimiter: str = ",") -> str:
    """Draw arrays in the server's form: elements are quoted if they must be; some have bounds or dimensions."""

    def written(item: str | None) -> str:
        if item is None:
            return "NULL"
        if item and item.upper() != "NULL" and not any(c in '{}"\\ \t\n\r\v\f' + delimiter for c in item):
            return item
        return '"' + item.replace("\\", "\\\\").replace('"', '\\"') + '"'

    text = "{" + delimiter.join(map(written, draw(st.lists(elements | st.none(), max_size=4)))) + "}"
    kind = draw(st.integers(0, 11))
    if text != "{}" and kind < 2:
        return f"{{{text}{delimiter}{text}}}" if kind else f"{{{{{text}}}}}"
    return f"[{draw(st.integers(-3, 3))}:3]={text}" if text != "{}" and kind == 2 else text


def array(element: str, texts: st.SearchStrategy[str], modifier: int = -1, **more: Any) -> Kind:
    """Return a column of arrays of `element`."""
    of = Column("e", element, 0, **more)
    return f"_{element}", modifier, {"kind": "array", "element": of}, arrays(texts, ";" if element == "box" else ",")


# Texts that arrays quote, and texts that look as if they needed no quotes.
_WORDS = TEXT | st.sampled_from(
    [
        "",
        "NULL",
        "null",
        "Null",
        " ",
        "{",
        "}",
        "{}",
        ",",
        '"',
        '""',
        "\\",
        '\\"',
        "a,b",
        "a b",
        "é",
        "😀",
        "\t",
        "[1:2]={3}",
    ]
)


def numeric(precision: int, scale: int) -> int:
    return ((precision << 16) | (scale & 0x7FF)) + 4


_MOOD = ("sad", "ok", "happy, really")
COLUMNS: list[Kind] = [
    ("int2", -1, {}, _integers(16)),
    ("int8", -1, {"default": "7"}, _integers(64)),
    ("bool", -1, {}, st.sampled_from("tf")),
    ("text", -1, {"default": "'it''s'::text"}, TEXT),
    ("varchar", 24, {}, st.text('ab"\\\n😀', max_size=8)),
    ("jsonb", -1, {}, st.sampled_from(['{"a": 1}', "null", '"é"'])),
    ("float4", -1, {}, _floats(32)),
    ("float8", -1, {}, _floats(64)),
    ("numeric", numeric(12, 2), {}, _decimals(2, 10)),
    ("numeric", numeric(60, 20), {}, _decimals(20)),
    ("numeric", numeric(5, -2), {}, st.integers(-999, 999).map(lambda n: f"{n}00" if n else "0")),
    ("numeric", -1, {}, st.one_of(_decimals(), st.sampled_from(["NaN", "Infinity", "-Infinity"]))),
    ("money", -1, {}, st.sampled_from(["$1,234.56", "-$0.01", "$92,233,720,368,547,758.07"])),
    ("bytea", -1, {}, st.binary(max_size=9).map(lambda data: "\\x" + data.hex())),
    ("date", -1, {}, st.one_of(_dates(), st.sampled_from(["infinity", "-infinity", "0044-03-15 BC", "5874897-12-31"]))),
    ("time", -1, {}, st.one_of(_clocks(), st.just("24:00:00"))),
    ("time", 3, {}, _clocks(3)),
    ("timetz", -1, {}, st.builds(lambda clock, offset: clock + offset, _clocks(), _OFFSETS)),
    ("timestamp", -1, {}, _timestamps()),
    ("timestamp", 3, {}, _timestamps(3)),
    ("timestamptz", -1, {}, _timestamps(6, True)),
    ("timestamptz", 0, {}, _timestamps(0, True)),
    ("interval", -1, {}, _intervals()),
    ("uuid", -1, {"default": "gen_random_uuid()"}, st.uuids().map(str)),
    ("bit", 3, {}, st.text("01", min_size=3, max_size=3)),
    ("bit", 1, {}, st.sampled_from("01")),
    ("mood", -1, {"kind": "enum", "enum_labels": _MOOD}, st.sampled_from(_MOOD)),
    ("bit", 12, {}, st.text("01", min_size=12, max_size=12)),
    ("varbit", -1, {}, st.text("01", max_size=70)),
    array("int4", _integers(32)),
    array("int8", _integers(64)),
    array("bool", st.sampled_from("tf")),
    array("text", _WORDS),
    array("varchar", _WORDS, 24),
    array("mood", _WORDS, kind="enum", enum_labels=_MOOD),
    array("jsonb", st.sampled_from(['{"a": [1, null]}', "null", '"é\\\\"'])),
    array("uuid", st.uuids().map(str)),
    array("float4", _floats(32)),
    array("float8", _floats(64)),
    array("numeric", _decimals(2, 10), numeric(12, 2)),
    array("numeric", st.one_of(_decimals(), st.sampled_from(["NaN", "Infinity", "-Infinity"]))),
    array("bytea", st.binary(max_size=9).map(lambda data: "\\x" + data.hex())),
    array("date", st.one_of(_dates(), st.sampled_from(["infinity", "-infinity", "0044-03-15 BC"]))),
    array("time", _clocks(3), 3),
    array("timetz", st.builds(lambda clock, offset: clock + offset, _clocks(), _OFFSETS)),
    array("timestamp", _timestamps()),
    array("timestamptz", _timestamps(6, True)),
    array("pg_lsn", st.sampled_from(["0/1", "1/2"])),
    array("box", st.just("(2,2),(0,0)")),
    ("sparsevec", -1, {}, st.sampled_from(["{}/3", "{1:1,3:-0.5}/3", "{}/40000"])),
    ("vector", -1, {}, st.lists(_floats(32), min_size=1, max_size=4).map(lambda found: f"[{','.join(found)}]")),
    ("halfvec", -1, {}, st.sampled_from(["[1,-2.5e-07]", "[0]", "[65504,-0.00006]"])),
    ("hstore", -1, {}, st.sampled_from(["", '"k"=>"v", "two words"=>NULL'])),
    ("point", -1, {}, st.tuples(_floats(64), _floats(64)).map(lambda found: f"({found[0]},{found[1]})")),
    ("box", -1, {}, st.just("(2,2),(0,0)")),
]


@st.composite
def settings(draw: Callable[..., Any]) -> EventSettings:
    """Draw settings of every mode."""
    return event_settings(
        "server",
        "golden",
        event_format=draw(st.sampled_from(["3", "1.7"])),
        interval_handling_mode=draw(st.sampled_from(["numeric", "string"])),
        hstore_handling_mode=draw(st.sampled_from(["json", "map"])),
        include_unknown_datatypes=draw(st.booleans()),
        skipped_operations=draw(st.sampled_from([frozenset(), frozenset("t"), frozenset("ud")])),
        **draw(modes()),
    )


@st.composite
def batches(draw: Callable[..., Any]) -> ChangeBatch:
    """Draw a batch of up to a dozen changes of a table with random columns and a key of no, one or two columns."""
    chosen = draw(st.lists(st.sampled_from(range(len(COLUMNS))), min_size=1, max_size=6))
    columns = [Column("id", "int4", 23, nullable=False), Column("Key 2", "text", 25, nullable=False)]
    texts: list[st.SearchStrategy[str]] = [st.sampled_from("12"), st.sampled_from(["a", "b\n"])]
    for number, index in enumerate(chosen):
        name, modifier, more, strategy = COLUMNS[index]
        columns.append(Column(f"c{number}", name, 0, modifier, nullable=draw(st.booleans()), **more))
        texts.append(strategy)
    key = draw(st.sampled_from([("id",), ("Key 2", "id"), ()]))
    table = TableSchema(TableId("golden", "pub lic", "t"), tuple(columns), key)
    count = draw(st.integers(1, 12))
    snapshot = draw(st.integers(0, 4)) == 0
    ops = ["r"] * count if snapshot else draw(st.lists(st.sampled_from("cudt"), min_size=count, max_size=count))
    with_before = [op == "d" or (op == "u" and draw(st.booleans())) for op in ops]
    transactions = draw(st.integers(1, 3))
    many = st.lists(st.integers(0, 2**40), min_size=transactions, max_size=transactions)
    ends = st.lists(st.integers(-1, 2**40), min_size=transactions, max_size=transactions)
    return ChangeBatch(
        table,
        np.array([ord(op) for op in ops], np.uint8),
        np.arange(count, dtype=np.int64) * 100 + 5_000_000,
        np.sort(np.array(draw(st.lists(st.integers(0, transactions - 1), min_size=count, max_size=count)), np.int32)),
        np.arange(count, dtype=np.int64),
        Transactions(*(np.array(draw(values), np.int64) for values in (many, many, many, ends))),
        draw(images(texts, with_before)) if any(with_before) else None,
        draw(images(texts, [op in "cur" for op in ops])),
        np.array(draw(st.lists(st.integers(1, 6), min_size=count, max_size=count)), np.uint8) if snapshot else None,
    )


def inserts(count: int) -> ChangeBatch:
    """Return `count` inserts of one transaction into a table whose only column is an id."""
    table = TableSchema(TableId("golden", "public", "many"), (Column("id", "int4", 23, nullable=False),), ("id",))
    ids = pa.array([str(number).encode() for number in range(count)], pa.binary())
    one = np.array([1], np.int64)
    return ChangeBatch(
        table,
        np.full(count, ord("c"), np.uint8),
        np.arange(count, dtype=np.int64),
        np.zeros(count, np.int32),
        np.arange(count, dtype=np.int64),
        Transactions(one, one, one, one),
        None,
        Image(None, [ids], [None]),
    )
