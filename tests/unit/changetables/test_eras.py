"""Eras in an offset are read back completely, whatever fields tables and columns have."""

from __future__ import annotations

import base64
import dataclasses
import json
import zlib
from typing import Any

from tailrace.columns import Column, TableId, TableSchema
from tailrace.connectors.changetables.capture_history import CaptureHistory, CapturePeriod
from tailrace.connectors.changetables.dialect import CaptureTable

START, STOP = bytes.fromhex("00000a00"), bytes.fromhex("00000b00")
PART = Column("part", "int", 4)
COLUMN = Column(
    "c", "mood", 20000, 7, False, "'x'", "enum", ("sad", "fine"), PART, True, "what it is", True, (PART, PART), 9,
    True, "7",
)  # fmt: skip
TABLE = TableSchema(TableId("db", "dbo", "t"), (COLUMN, PART), ("c",), "f", 5, 2, True, ("part",))
CAPTURE = CaptureTable(TABLE.id, "dbo_t", "cdc", "dbo_t_CT", START, STOP, ("c", "part"), ("c",), 11, 12, 13, True)


def _unlike_defaults(value: Any) -> None:
    """Return an object whose fields all differ from their defaults, so that a field that is not written is noticed."""
    for field in dataclasses.fields(value):
        if field.default is not dataclasses.MISSING:
            assert getattr(value, field.name) != field.default, field.name


def test_every_field_of_an_era_is_read_back() -> None:
    for value in (COLUMN, TABLE, CAPTURE):
        _unlike_defaults(value)
    eras = CaptureHistory(
        (CapturePeriod(CAPTURE, TABLE, START), CapturePeriod(dataclasses.replace(CAPTURE, stop=None), TABLE, STOP))
    )
    found = CaptureHistory.from_text(eras.to_text())
    assert found == eras
    # A list in place of a tuple is never equal, and cannot be a key of a cache.
    assert hash(found) == hash(eras)


def test_the_text_of_an_earlier_release_is_read() -> None:
    eras = CaptureHistory((CapturePeriod(CAPTURE, dataclasses.replace(TABLE, own=None, columns=(PART,)), START),))
    fields = json.loads(zlib.decompress(base64.b64decode(eras.to_text())))
    (_, table, _) = fields[0]
    del table["own"]
    for name in ("fields", "identity", "filled", "missing"):
        del table["columns"][0][name]
    older = base64.b64encode(zlib.compress(json.dumps(fields).encode())).decode()
    assert CaptureHistory.from_text(older) == eras
