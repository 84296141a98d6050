"""Names that the recorder misread: Debezium 1.7 reads each byte of a name in the stream as a signed character.

It reads `naïve` as `na\\uffc3\\uffafve`, and does not recognise a table with such a name as the snapshot's: its records
in the stream lose their key and go to another topic. Ours reads UTF-8 everywhere. So recorded names of columns are
corrected before the comparison, and for a table with a misread name only the snapshot is compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from tests.golden.normalise import payload
from tests.golden.record import Record
from tests.golden.wire import Text

_SIGNED = re.compile("[\uffc2-\ufff4][\uff80-\uffbf]{1,3}")
_NAMING = frozenset({"field", "name"})


def put_right(text: str) -> str:
    """Return a JSON text or key with its misread characters read as UTF-8; characters beyond 16 bits become escapes."""

    def one(match: re.Match[str]) -> str:
        try:
            character = bytes(ord(sign) & 0xFF for sign in match.group()).decode("utf-8")
        except UnicodeDecodeError:
            return match.group()
        if max(character) <= "\uffff":
            return character
        units = character.encode("utf-16-be")
        return "".join(f"\\u{units[at]:02X}{units[at + 1]:02X}" for at in range(0, len(units), 2))

    return _SIGNED.sub(one, text)


def comparable(expected: list[Record], got: list[Record]) -> tuple[list[Record], list[Record]]:
    """Return both sides without parts that the recording cannot show, with corrected names; unchanged if none is
    misread."""
    tables = {_table(record) for record in expected if _table(record) != put_right(_table(record))}
    named = any(_SIGNED.search(text) for text in _all_names(expected))
    if not tables and not named:
        return expected, got
    real = {put_right(table) for table in tables} | tables
    sides = []
    for side in (expected, got):
        topics = {record.topic for record in side if _table(record) in real}
        sides.append([record for record in side if record.topic not in topics or _op(record) == "r"])
    repaired = [replace(record, key=_repair(record.key), value=_repair(record.value)) for record in sides[0]]
    return repaired, sides[1]


def _repair(part: object) -> object:
    if isinstance(part, dict):
        return {
            put_right(key): Text(put_right(item)) if key in _NAMING and isinstance(item, Text) else _repair(item)
            for key, item in part.items()
        }
    if isinstance(part, list):
        return [_repair(item) for item in part]
    return part


def _all_names(records: list[Record]) -> Iterator[str]:
    # Records of one table share their schema, which is by far the largest part of them.
    seen: set[int] = set()
    for record in records:
        value = record.value
        schema = value.get("schema") if isinstance(value, dict) else None
        if id(schema) not in seen:
            seen.add(id(schema))
            yield from _names(schema)
        yield from _names(payload(value))


def _names(part: object) -> list[str]:
    """Return all names in a value: keys of objects, and names in schemas."""
    if isinstance(part, dict):
        inner = [name for item in part.values() for name in _names(item)]
        return [*part, *(item for key, item in part.items() if key in _NAMING and isinstance(item, Text)), *inner]
    if isinstance(part, list):
        return [name for item in part for name in _names(item)]
    return []


def _table(record: Record) -> str:
    value = payload(record.value)
    source = value.get("source") if isinstance(value, dict) else None
    return str(source.get("table", "")) if isinstance(source, dict) else ""


def _op(record: Record) -> str | None:
    value = payload(record.value)
    leaf = value.get("op") if isinstance(value, dict) else None
    return leaf.string if isinstance(leaf, Text) else None
