"""Fuzz target: rows of the change tables of SQL Server and Db2.

An input is pieces. The first piece chooses a database, a type, a mode, and whether updates come in pairs. The second
holds the operations of rows, the third their commit positions, one byte each. The others are the texts of one column
after another.
"""

from __future__ import annotations

import json
from functools import lru_cache
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from tailrace.columns import Column, TableId, TableSchema
from tailrace.columns.batch import ChangeBatch
from tailrace.connectors.changetables.dialect import ChangeRows, CommitTimes
from tailrace.connectors.changetables.log.rows import RowAssembly, TimesByPosition, whole
from tailrace.events.event_settings import EventSettings
from tailrace.events.mapping import SourceForm
from tailrace.events.record_assembly import to_rows
from tailrace.events.table_plan import table_plan
from tests.event_schemas import event_schemas
from tests.fuzz import texts
from tests.fuzz.machine import Difference, Target
from tests.fuzz.mutation import framed, frames
from tests.property import captured_batches
from tests.property.reference import Reference

CONNECTORS = ("sqlserver", "db2")
_NOW = 1_795_222_828_465_236_739
_WIDTH = 10
_values = texts.runner(CONNECTORS)


@lru_cache(maxsize=4096)
def _table(connector: str, kind: int) -> TableSchema:
    _, kinds, number = captured_batches.KINDS[connector]
    name, modifier, default, _ = kinds[kind % len(kinds)]
    columns = (Column("ID", number, 4, nullable=False), Column("v", name, 0, modifier, default=default))
    return TableSchema(TableId("testDB", "dbo", "t"), columns, ("ID",))


def _events(batch: ChangeBatch, chosen: EventSettings, form: SourceForm) -> None:
    """Return the records of a batch by both ways."""
    plan = table_plan(batch.table, chosen, form)
    schemas = event_schemas(batch.table, plan.columns, plan.key, chosen, form)
    reference = Reference(plan.columns, plan.key, schemas.key, schemas.value, chosen, form, _NOW, None)
    wanted = [(event.op, event.key, event.value) for event in reference.events(batch)]
    found = []
    with patch("tailrace.events.record_assembly.time.time_ns", lambda: _NOW):
        for rows in to_rows(batch, chosen, form):
            rows.validate(full=True)
            found += [(row["op"], row["key"], row["value"]) for row in rows.to_pylist()]
    if found != wanted:
        raise Difference(f"events\n{found!r}\nplainly {wanted!r}")
    for _, key, value in found:
        for text in (key, value):
            if text is not None:
                json.loads(text)


def _run(data: bytes) -> object:
    head, operations, commits, *values = (*frames(data), b"", b"", b"")[: max(3, len(frames(data)))]
    if len(head) < 4:
        return None
    if head[3] & 2:
        return _values(framed([head, *values]))
    connector = CONNECTORS[head[0] % 2]
    count = len(operations)
    ids = [bytes([48 + number % 3]) for number in range(count)]
    shown = [None if text == texts.NULL else text for text in texts.usable(values)]
    shown = [*shown, *([None] * count)][:count]
    widths = [commits[number] if number < len(commits) else 1 for number in range(count)]
    # The byte 255 stands for a position that is too short.
    positions = [bytes(9 if byte == 255 else 10)[:-1] + bytes([byte]) for byte in widths]
    rows = ChangeRows(
        pa.array(positions, pa.binary()),
        pa.array([bytes(9) + bytes([number // 2 % 256]) for number in range(count)], pa.binary()),
        np.frombuffer(operations, np.uint8),
        [texts.column(ids), texts.column(shown)],
    )
    form = captured_batches.form_of(connector)
    pairs = bool(head[3] & 1)
    known = CommitTimes(pa.array([bytes(10)], pa.binary()), np.array([1_700_000_000_000_000], np.int64))
    assembly = RowAssembly(_table(connector, head[1]), TimesByPosition.of(known, 0), pairs)
    half = count // 2
    fetches = (_slice(rows, 0, half), _slice(rows, half, count))
    told = []
    for part in whole(iter(fetches), pairs):
        batch = assembly.batch(part)
        if batch is not None:
            _events(batch, texts.mode(head[2], connector), form)
            told.append(batch.op.tobytes())
    return tuple(told)


def _slice(rows: ChangeRows, low: int, high: int) -> ChangeRows:
    return ChangeRows(
        rows.commit.slice(low, high - low),
        rows.change.slice(low, high - low),
        rows.operation[low:high],
        [column.slice(low, high - low) for column in rows.columns],
    )


def _seeds() -> list[bytes]:
    found = []
    for number, connector in enumerate(CONNECTORS):
        _, kinds, _ = captured_batches.KINDS[connector]
        for kind, (name, *_) in enumerate(kinds):
            shown = [text.encode() for text in texts.EXAMPLES.get(name, ("a", "b", ""))]
            for flags in (0, 1):
                found.append(
                    framed(
                        [bytes([number, kind, 3 * kind, flags]), b"\x02\x03\x04\x01\x02\x01", b"\1\1\1\2\2\3", *shown]
                    )
                )
            found.append(framed([bytes([kind, 0, 0, 2]), b"", b"", *shown]))
    return found + [framed([one[2:4] + b"\0\2", b"", b"", *frames(one)[1:]]) for one in texts.seeds(CONNECTORS)()]


ROWS = Target("changetables", _run, _seeds, texts.WORDS)
