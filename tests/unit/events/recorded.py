"""Recordings of Debezium, taken apart into the changes that its events show, and the events as lines.

From the changes, the product must make the same lines again, byte for byte except for the time at which an event was
made: `source` is the recording's, with its positions and times.
"""

from __future__ import annotations

import base64
import datetime
import gzip
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tailrace.columns import CapturedTransactions, ChangeBatch, Column, Marker, TableId, TableSchema, Transactions
from tailrace.connectors.db2.values.conversions import FORM as DB2
from tailrace.connectors.postgres.log.form import FORM as POSTGRES
from tailrace.connectors.registry import parse
from tailrace.connectors.sqlserver.values.conversions import FORM as SQL_SERVER
from tailrace.events.admission import Admission
from tailrace.events.event_settings import EventSettings
from tailrace.events.mapping import SourceForm
from tailrace.events.record_assembly import to_rows
from tests.golden.case import Case, load, version
from tests.unit.events.changes import image

CASES = Path(__file__).parents[2] / "golden" / "cases"
FORMS: Mapping[str, tuple[str, SourceForm]] = {
    "postgresql": ("postgres", POSTGRES),
    "sqlserver": ("sqlserver", SQL_SERVER),
    "db2": ("db2", DB2),
}
"""tailrace's name for the connector of a case, and its part of events."""

# The envelope's time, the query, and the part of a time that no server shows: less than a microsecond.
_STEADY = [
    (re.compile(r'("op":"\w"),"ts_ms":\d+(,"ts_us":\d+,"ts_ns":\d+)?'), r'\1,"ts_ms":0'),
    (re.compile(r'("ts_ns":\d+)\d{3}'), r"\g<1>000"),
    (re.compile(r'"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"(\}{1,2}\]\})$'), r'"RUN"\1'),
]
_MARKERS = {"true": Marker.TRUE, "false": Marker.FALSE} | {marker.name.lower(): marker for marker in Marker}
_NEW_KEY, _OLD_KEY = "__debezium.newkey", "__debezium.oldkey"
RUN = "01a1fb98-4581-7d68-951a-a5b3034f69bf"
_EPOCH = datetime.date(1970, 1, 1)
# The server's name and number for the source type of a conversion.
_TYPES = {
    "postgresql": {
        "int16": ("int2", 21),
        "int32": ("int4", 23),
        "int64": ("int8", 20),
        "double": ("float8", 701),
        "boolean": ("bool", 16),
        "string": ("text", 25),
        "io.debezium.time.Date": ("date", 1082),
        "io.debezium.data.Uuid": ("uuid", 2950),
        "org.apache.kafka.connect.data.Decimal": ("numeric", 1700),
    },
    "sqlserver": {"int32": ("int", 56), "string": ("nvarchar", 231)},
    "db2": {"int32": ("INTEGER", 4), "string": ("VARCHAR", 12)},
}

Payload = Mapping[str, Any]


@dataclass(slots=True)
class Told:
    """A change as its events show it. `op` is u for a change of the key, which has two events."""

    op: str
    before: Payload | None
    after: Payload | None
    source: Payload
    place: Payload | None
    is_half: bool = False


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive changes of one version of a table."""

    table: TableSchema
    changes: list[Told] = field(default_factory=list)

    def add(self, told: Told, headers: Mapping[str, Payload]) -> None:
        """Add an event, or the second event of a key change."""
        new, old = headers.get(_NEW_KEY), headers.get(_OLD_KEY)
        if old is not None and self.changes and self.changes[-1].is_half:
            self.changes[-1].after, self.changes[-1].is_half = told.after, False
            return
        if new is not None:
            # The row after it is not shown if creates are skipped.
            told.op, told.after, told.is_half = "u", self._row(new), True
        elif old is not None:
            told.op, told.before = "u", self._row(old)
        self.changes.append(told)

    def _row(self, key: Payload) -> Payload:
        return {column.name: key["payload"].get(column.name) for column in self.table.columns}


@dataclass(frozen=True, slots=True)
class Recorded:
    """A recording: `lines` are its events, `batches` its changes."""

    settings: EventSettings
    form: SourceForm
    lines: list[str]
    batches: list[ChangeBatch]

    def made(self) -> list[str]:
        """Return the events made from the changes."""
        return [line for part in self.batches for line in written(part, self.settings, self.form)]


class _Variables(dict[str, str]):
    """Values for the variables of a configuration, without any connection."""

    def __missing__(self, name: str) -> str:
        return "golden" if name.endswith("DATABASE") else "1"


@cache
def _case(name: str) -> Case:
    return load(CASES / name)


def settings_of(name: str, **options: str) -> EventSettings:
    """Return the settings of a case's configuration, with further options."""
    case = _case(name)
    filled = case.options(_Variables())
    lines = lines_of(name)
    recorder = next(filter(None, map(version, lines)))
    given = filled | {"event.version.string": recorder} | options
    return EventSettings.from_options(parse(FORMS[case.database][0], given), RUN)


def recorded(name: str, columns: Mapping[str, str] | None = None) -> Recorded:
    """Return the recording of a case whose tables have columns of a few simple types, and keys that values show.

    `columns` maps fields with other names to their columns.
    """
    case = _case(name)
    settings = settings_of(name)
    form = FORMS[case.database][1]
    lines: list[str] = []
    runs: list[Run] = []
    admission = Admission(settings, form)
    for line, event in _events(lines_of(name)):
        lines.append(steady(line))
        if event["value"] is None:
            continue
        record = _renamed(event, columns or {})
        table = admission.admit(_table(record, case.database, settings, runs))
        if not runs or runs[-1].table != table or _ordered(runs[-1].changes[0]) != _ordered(_told(record)):
            runs.append(Run(table))
        runs[-1].add(_told(record), _headers(record))
    make = _numbered if case.database == "postgresql" else _captured
    return Recorded(settings, form, lines, [make(run, number) for number, run in enumerate(runs)])


def steady(line: str) -> str:
    """Return the line with one time and one query for all events."""
    for pattern, name in _STEADY:
        line = pattern.sub(name, line)
    return line


def written(part: ChangeBatch, settings: EventSettings, form: SourceForm) -> Iterator[str]:
    """Return the events of a batch as lines of a recording."""
    for rows in to_rows(part, settings, form):
        yield from map(line_of, rows.to_pylist())


def line_of(row: Mapping[str, Any]) -> str:
    """Return a row as a line of a recording."""
    key, value = (text.decode() if text is not None else "null" for text in (row["key"], row["value"]))
    pairs = (f'{{"key":"{pair["key"]}","value":{pair["value"].decode()}}}' for pair in row["headers"] or [])
    return steady(f'{{"topic":"{row["topic"]}","key":{key},"value":{value},"headers":[{",".join(pairs)}]}}')


@cache
def lines_of(name: str) -> list[str]:
    """Return all lines of a recording."""
    with gzip.open(CASES / name / "expected.jsonl.gz", "rt", encoding="utf-8", newline="\n") as lines:
        return [line.rstrip("\n") for line in lines]


def _events(lines: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return the lines for changes of tables, and the tombstones after them."""
    for line in lines:
        record = json.loads(line, parse_float=Decimal)
        value = record["value"]
        if value is None or {"before", "source"} <= set(value["payload"]):
            yield line, record


def _renamed(part: Any, columns: Mapping[str, str]) -> Any:
    """Return a record with the fields renamed to their columns."""
    if not columns or not isinstance(part, dict | list):
        return part
    if isinstance(part, list):
        return [_renamed(one, columns) for one in part]
    named = {columns.get(name, name): _renamed(one, columns) for name, one in part.items()}
    if "field" in named:
        named["field"] = columns.get(named["field"], named["field"])
    return named


def _headers(record: Payload) -> dict[str, Any]:
    return {header["key"]: header["value"] for header in record["headers"]}


def _ordered(change: Told) -> bool:
    return change.place is not None


def _told(record: Payload) -> Told:
    told = record["value"]["payload"]
    return Told(told["op"], told["before"], told["after"], told["source"], told.get("transaction"))


def _table(record: Payload, database: str, settings: EventSettings, runs: Sequence[Run]) -> TableSchema:
    value, key, source = record["value"], record["key"], record["value"]["payload"]["source"]
    found = TableId(source["db"], source["schema"], source["table"])
    columns = tuple(_column(part, database) for part in value["schema"]["fields"][0]["fields"])
    if value["payload"]["op"] == "t":
        # A truncate has no key; its table has the key of the events before it.
        return next((run.table for run in reversed(runs) if run.table.id == found), TableSchema(found, columns, ()))
    names = [] if key is None else [part["field"] for part in key["schema"]["fields"]]
    return TableSchema(found, columns, tuple(name for name in names if name != settings.naming.key_field))


def _column(schema: Payload, database: str) -> Column:
    kind, number = _TYPES[database][schema.get("name") or schema["type"]]
    modifier = -1
    if kind == "numeric":
        told = schema["parameters"]
        modifier = (int(told["connect.decimal.precision"]) << 16) + int(told["scale"]) + 4
    elif kind in ("nvarchar", "VARCHAR"):
        modifier = 255
    column = Column(schema["field"], kind, number, modifier, schema["optional"])
    text = _text(schema.get("default"), column)
    return column if text is None else replace(column, default=f"'{text}'::{kind}")


def _text(value: Any, column: Column) -> str | None:
    """Return the server's text for a value of an event."""
    if value is None:
        return None
    if column.type_name == "bool":
        return "t" if value else "f"
    if column.type_name == "date":
        return str(_EPOCH + datetime.timedelta(days=value))
    if column.type_name == "numeric":
        scale = (column.modifier - 4) & 0xFFFF
        number = int.from_bytes(base64.b64decode(value), "big", signed=True)
        return str(Decimal(number).scaleb(-scale))
    return str(value)


def _rows(run: Run, images: Sequence[Payload | None]) -> list[list[str | None] | None]:
    columns = run.table.columns
    return [None if row is None else [_text(row[one.name], one) for one in columns] for row in images]


def _common(run: Run, lsn: Any, transactions: Any, **more: Any) -> ChangeBatch:
    changes = run.changes
    markers = [_MARKERS[change.source["snapshot"] or "false"] for change in changes]
    places = [change.place for change in changes]
    orders: dict[str, Any] = {}
    if places[0] is not None:
        orders["total_order"] = np.array([place["total_order"] for place in places if place], np.int64)
        orders["table_order"] = np.array([place["data_collection_order"] for place in places if place], np.int64)
    return ChangeBatch(
        run.table,
        np.array([ord(change.op) for change in changes], np.uint8),
        lsn,
        np.arange(len(changes), dtype=np.int32),
        np.arange(len(changes), dtype=np.int64),
        transactions,
        image(run.table, _rows(run, [change.before for change in changes])),
        image(run.table, _rows(run, [change.after for change in changes])),
        np.array(markers, np.uint8) if any(markers) else None,
        **orders,
        **more,
    )


def _microseconds(source: Payload) -> int:
    return int(source["ts_us"] if "ts_us" in source else source["ts_ms"] * 1000)


def _numbered(run: Run, number: int) -> ChangeBatch:
    sources = [change.source for change in run.changes]
    sequences = [json.loads(source["sequence"]) for source in sources]
    previous = [-1 if ends[0] is None else int(ends[0]) for ends in sequences]
    many = np.arange(len(sources), dtype=np.int64) + (number << 32)
    return _common(
        run,
        np.array([int(ends[1]) for ends in sequences], np.int64),
        Transactions(
            np.array([source["txId"] or 0 for source in sources], np.int64),
            many,
            np.array([_microseconds(source) for source in sources], np.int64),
            np.array(previous, np.int64),
        ),
        xmin=sources[0]["xmin"],
    )


def _captured(run: Run, number: int) -> ChangeBatch:
    sources = [change.source for change in run.changes]

    def lsns(name: str) -> list[bytes | None]:
        return [None if source[name] is None else bytes.fromhex(source[name].replace(":", "")) for source in sources]

    width = next((len(lsn) for lsn in (*lsns("commit_lsn"), *lsns("change_lsn")) if lsn), 10)
    return _common(
        run,
        pa.array(lsns("change_lsn"), pa.binary()),
        CapturedTransactions(
            pa.array([lsn or bytes(width) for lsn in lsns("commit_lsn")], pa.binary()),
            np.array([_microseconds(source) for source in sources], np.int64),
        ),
        serial=pa.array([source.get("event_serial_no") for source in sources], pa.int64()),
    )
