"""Fuzz targets: texts of columns, of every type and mode, by their kernels and by their plain conversions.

An input is pieces: the two bytes of the first piece choose a type and a mode, the others are the texts of a column.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa

from tailrace.columns import Column, TableId, TableSchema
from tailrace.connectors.db2.values.conversions import TYPES as DB2
from tailrace.connectors.postgres.values.conversions import TYPES as POSTGRES
from tailrace.connectors.sqlserver.values.conversions import TYPES as SQL_SERVER
from tailrace.events.column_plans import Types, shown_columns
from tailrace.events.event_settings import EventSettings
from tailrace.values import geometry, lists
from tailrace.values import texts as values_texts
from tailrace.values.conversion import ColumnPlan
from tailrace.values.fragments import column_fragment, plain_json
from tests.event_settings import event_settings
from tests.fuzz.guarded import Guarded
from tests.fuzz.machine import Difference, Target
from tests.fuzz.mutation import framed, frames
from tests.property import captured_batches, json_batches

NULL = b"\xff"
_GUARDED = Guarded()
_TIMES = ("adaptive", "adaptive_time_microseconds", "connect", "isostring", "microseconds", "nanoseconds", "structured")
_DECIMALS = ("precise", "double", "string")
_BINARIES = ("bytes", "base64", "base64-url-safe", "hex")

_CLOCKS = ("00:00:00", "23:59:59.999999", "24:00:00", "12:34:56.7")
_DAYS = ("2024-02-29", "0044-03-15 BC", "infinity", "-infinity", "5874897-12-31", "0001-01-01")
_NUMBERS = ("0", "-1", "12345678.90", "0.000001", "NaN", "Infinity", "-Infinity", "99999999999999999999.5")
_DOUBLES = ("0", "-0", "1.5", "1e+300", "5e-324", "NaN", "Infinity", "-Infinity", "123456789012345680", "-2.5e-07")
_STAMPS = ("2024-02-29 23:59:59.999999", "0044-03-15 00:00:00 BC", "infinity", "-infinity", "294276-12-31 23:59:59.5",
          "2024-02-29 24:00:00")  # fmt: skip
_FINE = ("2024-02-29 23:59:59.9999999", "0001-01-01 00:00:00", "9999-12-31 24:00:00.000000000")
EXAMPLES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("int2", "tinyint", "smallint", "SMALLINT"), ("0", "-32768", "32767")),
    **dict.fromkeys(("int4", "int8", "bigint", "BIGINT"), ("0", "-9223372036854775808", "9223372036854775807", "-5")),
    **dict.fromkeys(("bool", "bit", "BOOLEAN"), ("t", "f", "1", "0", "101")),
    "varbit": ("", "1", "000000001", "10101010101"),
    **dict.fromkeys(("float4", "float8", "float", "real", "DOUBLE"), _DOUBLES),
    **dict.fromkeys(("numeric", "decimal", "DECIMAL"), _NUMBERS),
    "DECFLOAT": ("3.10", "1E+5", "-0.00", "5E-20", "NaN", "Infinity", "-Infinity"),
    "money": ("$1,234.56", "-$0.01", "$92,233,720,368,547,758.07", "12.3400"),
    **dict.fromkeys(
        ("bytea", "varbinary", "hierarchyid", "VARCHAR () FOR BIT DATA"), ("\\x", "\\x00ff", "\\xdeadbeef")
    ),
    **dict.fromkeys(("date", "DATE"), _DAYS),
    "time": (*_CLOCKS, "12:34:56.1234567"),
    "TIME": _CLOCKS,
    "timetz": ("12:34:56.7+02", "00:00:00-05:30", "24:00:00+01:02:03"),
    "timestamp": _STAMPS,
    **dict.fromkeys(("datetime", "smalldatetime", "datetime2", "TIMESTAMP"), _FINE),
    "timestamptz": (*(f"{text}+00" for text in _STAMPS[:1]), "2024-01-01 00:00:00.5-05:30", "infinity", "-infinity"),
    "datetimeoffset": ("2024-02-29 23:59:59.9999999 +02:00", "0001-01-01 00:00:00 -14:00"),
    "interval": ("1 year 2 mons -3 days +04:05:06.789", "00:00:00", "-178000000 years", "1 day"),
    "uuid": ("f47ac10b-58cc-4372-a567-0e02b2c3d479",),
    "jsonb": ('{"a": [1, null]}', "null", '"é"'),
    "hstore": ("", '"k"=>"v", "two words"=>NULL', '"a\\"b"=>"\\\\"'),
    "point": ("(1.5,-2)", "(0,0)", "(1e+300,NaN)", "(Infinity,-Infinity)"),
    **dict.fromkeys(("box", "_box"), ("(2,2),(0,0)", "{(2,2),(0,0);(1,1),(0,0)}")),
    "sparsevec": ("{}/3", "{1:1,3:-0.5}/3", "{}/40000"),
    **dict.fromkeys(("vector", "halfvec"), ("[1,-2.5e-07]", "[0]", "[65504,NaN]")),
    "_numeric": ("{1.5,NULL,NaN}", "{}", "{{1}}", "[0:1]={1,2}"),
    **dict.fromkeys(("_int4", "_int8"), ("{1,NULL,-3}", "{}", "{{1,2},{3,4}}", "[-1:1]={1,2,3}")),
    **dict.fromkeys(("_float4", "_float8"), ("{1.5,NULL,NaN,-Infinity}", "{}", "{1e-300}")),
    "_bool": ("{t,f,NULL}", "{}"),
    "_bytea": ('{"\\\\x00ff",NULL}', "{}"),
    "_date": ("{2024-02-29,NULL,infinity}", '{"0044-03-15 BC"}'),
    "_time": ("{12:34:56.789,NULL}",),
    "_timetz": ("{12:34:56+02,NULL}",),
    "_timestamp": ('{"2024-02-29 23:59:59.5",NULL,infinity}',),
    "_timestamptz": ('{"2024-02-29 23:59:59.5+00",NULL,-infinity}',),
}
_WORDY = ("", "plain", 'quote " back \\ slash', "line\n\ttab", "é😀\x01", '{a,"b c",NULL,"d\\"e"}', "{}", "ok")
_WORDS = (
    "infinity", "-infinity", "NaN", "Infinity", " BC", "+00", "-05:30", "NULL", "null", "24:00:00", "60", "99", "e+400",
    "E-400", "0x", "_", "٣", "\u00b2", "1e5", "{", "}", '""', "\\", ",", ";", "=>", "[1:2]=", "mons", "years", " days",
    "000", "-", "+", " ", ".", "y", "Z", "T", "9" * 20, "9" * 400, "-0", "\x00", "inf", "nan", "true", "false",
)  # fmt: skip


def mode(number: int, connector: str) -> EventSettings:
    formats = {"postgres": ("3", "1.7"), **captured_batches.FORMATS}[connector]
    return event_settings(
        "server",
        "golden",
        connector=connector,
        event_format=formats[number // 7 % 2],
        time_precision_mode=_TIMES[number % 7],
        decimal_handling_mode=_DECIMALS[number % 3],
        binary_handling_mode=_BINARIES[number % 4],
        interval_handling_mode="numeric" if number % 2 else "string",
        hstore_handling_mode="map" if number % 2 else "json",
        include_unknown_datatypes=number % 5 == 0,
    )


def _kinds(connector: str) -> list[Column]:
    if connector == "postgres":
        return [Column("v", name, 0, modifier, **more) for name, modifier, more, _ in json_batches.COLUMNS]
    _, kinds, _ = captured_batches.KINDS[connector]
    return [Column("v", name, 0, modifier, default=default) for name, modifier, default, _ in kinds]


@lru_cache(maxsize=20_000)
def _plan(connector: str, kind: int, number: int) -> ColumnPlan | None:
    table = TableSchema(TableId("d", "s", "t"), (_kinds(connector)[kind],), ())
    found, _ = shown_columns(table, mode(number, connector), _TYPES[connector])
    return found[0] if found else None


_TYPES: dict[str, Types] = {"postgres": POSTGRES, "sqlserver": SQL_SERVER, "db2": DB2}


def _guarded_output(room: int, rows: int, shown: object) -> tuple[object, object]:
    return _GUARDED.writable(room), np.zeros(rows + 1, np.int32)


def column(values: Sequence[bytes | None]) -> pa.Array:
    """Return an array whose texts, bounds and flags each end before an inaccessible page."""
    bounds = _GUARDED.numbers(np.cumsum([0, *(len(value or b"") for value in values)]), np.int32)
    content = _GUARDED.copy(b"".join(value or b"" for value in values))
    flags = [value is not None for value in values]
    bitmap = None if all(flags) else pa.py_buffer(_GUARDED.copy(np.packbits(flags, bitorder="little").tobytes()))
    return pa.Array.from_buffers(pa.binary(), len(values), [bitmap, pa.py_buffer(bounds), pa.py_buffer(content)])


def compared(plan: ColumnPlan, values: Sequence[bytes | None]) -> None:
    """Raise Difference unless both ways give the same for each text, and JSON for accepted texts."""
    given = column(values)
    fragment, lost = column_fragment(plan, given, None)
    bounds, data = fragment.offsets, fragment.data.tobytes()
    got = [data[begin:end] for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)]
    wanted = []
    for value, text in zip(values, got, strict=True):
        plain = plan.null if value is None else plain_json(plan, value)
        wanted.append(plain)
        shown = b'"' + text + b'"' if fragment.quoted else text
        # A quoted fragment has no null.
        if shown != (plan.null if plain is None else plain):
            logical = plan.schema.name or plan.schema.connect
            raise Difference(f"{plan.conversion.family} {logical}\n{value!r}: {text!r}, plainly {plain!r}")
        try:
            json.loads(shown)
        except ValueError as error:
            raise Difference(f"no JSON of {plan.conversion.family}\n{value!r}: {shown!r}: {error}") from None
    if lost != wanted.count(None):
        raise Difference(f"lost {plan.conversion.family}\n{values!r}: {lost}")


def usable(values: Sequence[bytes]) -> list[bytes | None]:
    """Return the texts that a server can send, which need not be UTF-8 in any encoding."""
    return [None if value == NULL else value for value in values]


def runner(connectors: Sequence[str]) -> Callable[[bytes], object]:
    """Return the target's function over the types of these connectors."""
    kinds = [(connector, number) for connector in connectors for number in range(len(_kinds(connector)))]

    def run(data: bytes) -> object:
        # Imported here, only in the process of the fuzzer.
        for module in (values_texts, lists, geometry):
            module.output = _guarded_output
        head, *values = frames(data) or [b""]
        if len(head) < 2:
            return None
        connector, kind = kinds[head[0] % len(kinds)]
        plan = _plan(connector, kind, head[1])
        if plan is None:
            return None
        compared(plan, usable(values))
        # Kernels have separate branches for lengths of texts.
        return connector, kind, type(plan.conversion.family).__name__, tuple(sorted(map(len, values)))[-1:]

    return run


def seeds(connectors: Sequence[str]) -> Callable[[], list[bytes]]:
    """Return texts in the servers' form, for each type in several modes."""

    def made() -> list[bytes]:
        found = []
        number = 0
        for connector in connectors:
            for kind in _kinds(connector):
                texts = [text.encode() for text in EXAMPLES.get(kind.type_name, _WORDY)]
                found += [framed([bytes([number, mode]), *texts, NULL, *texts[:1]]) for mode in (0, 3, 8, 13, 27, 41)]
                found += [framed([bytes([number, 10 + place]), text]) for place, text in enumerate(texts)]
                number += 1
        return found

    return made


WORDS = tuple(word.encode() for word in _WORDS)
TEXTS = Target("texts", runner(("postgres",)), seeds(("postgres",)), WORDS)
