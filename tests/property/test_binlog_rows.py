"""The compiled decoder of the binary log's rows equals the plain one, on a server's rows and on any other bytes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.columns.batch import Image as Side
from tailrace.connectors.binlog.log.decoder import decode
from tailrace.connectors.binlog.log.forms import ColumnForm, ValueKind
from tailrace.connectors.binlog.log.plain_rows import LACKING, parse_row
from tailrace.connectors.binlog.log.position import RowsEventForm
from tailrace.connectors.binlog.log.row_log import key_hashes, unchanged
from tailrace.errors import DecodeError
from tests.extent import examples
from tests.property.binlog_rows import Rows, drawn

checked = settings(deadline=None, max_examples=examples(150))
_NUMBERS = (ValueKind.FLOAT, ValueKind.FLOAT_AS_DOUBLE, ValueKind.DOUBLE)


def plain(rows: Rows) -> list[tuple[object, object]]:
    """Return the texts of both images of each row, as the plain decoder reads them."""
    found: list[tuple[object, object]] = []
    for message, place in rows.rows:
        image = rows.images[place]
        found.append(
            (None, None) if image.op == ord("t") else parse_row(message, rows.table.form, image).texts(rows.table.form)
        )
    return found


def compiled(rows: Rows) -> list[tuple[object, object]]:
    batch = decode(rows.segment())
    return [(texts(batch.before, row), texts(batch.after, row)) for row in range(len(batch))]


def texts(side: Side | None, row: int) -> list[object] | None:
    if side is None or (side.present is not None and not side.present[row]):
        return None
    return [
        LACKING if flags is not None and flags[row] else column[row].as_py()
        for column, flags in zip(side.columns, side.unavailable, strict=True)
    ]


def as_numbers(rows: Rows, found: list[tuple[object, object]]) -> list[tuple[object, object]]:
    """Return the rows with numbers in the place of the texts of floating-point numbers, which may be written in two
    ways."""

    def of(side: object) -> object:
        if not isinstance(side, list):
            return side
        return [
            float(text) if form.kind in _NUMBERS and isinstance(text, bytes) else text
            for form, text in zip(rows.table.form, side, strict=True)
        ]

    return [(of(before), of(after)) for before, after in found]


def outcome(read: object, rows: Rows) -> object:
    try:
        return as_numbers(rows, read(rows))  # type: ignore[operator]
    except DecodeError:
        return DecodeError


@checked
@given(drawn())
def test_rows_of_a_server_become_the_same_texts(rows: Rows) -> None:
    assert as_numbers(rows, compiled(rows)) == as_numbers(rows, plain(rows))


@checked
@given(drawn(), st.data())
def test_other_bytes_are_read_alike_or_refused_alike(rows: Rows, data: st.DataObject) -> None:
    changed = []
    for message, place in rows.rows:
        raw = bytearray(message)
        for _ in range(data.draw(st.integers(0, 2))):
            if raw:
                raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
        cut = data.draw(st.sampled_from([0, 0, 0, 1]))
        changed.append((bytes(raw[: len(raw) - cut]), place))
    mutated = replace(rows, rows=tuple(changed))
    assert outcome(compiled, mutated) == outcome(plain, mutated)


@checked
@given(drawn())
def test_a_key_moves_where_its_values_differ(rows: Rows) -> None:
    changes = replace(rows, rows=tuple(one for one in rows.rows if rows.images[one[1]].op != ord("t")))
    segment = changes.segment()
    hashes, moved = key_hashes(segment.data, segment.offsets, segment.by_row, rows.table, ["c0"])
    same: dict[object, np.uint64] = {}
    for (message, place), found, moves in zip(changes.rows, hashes, moved, strict=True):
        row = parse_row(message, rows.table.form, rows.images[place])
        old = LACKING if row.before is None else row.before[0]
        new = old if row.after is None or row.after[0] is LACKING else row.after[0]
        assert moves == (new is LACKING or ((row.before is not None and row.after is not None and row.after[0] != old)
                         and not (row.after[0] is LACKING and old is not LACKING)))  # fmt: skip
        assert same.setdefault(new, found) == found


@checked
@given(drawn())
def test_an_update_is_unchanged_if_all_its_values_are(rows: Rows) -> None:
    updates = replace(rows, rows=tuple(one for one in rows.rows if rows.images[one[1]].op == ord("u")))
    segment = updates.segment()
    names = [column.name for column in rows.table.columns]
    found = unchanged(segment.data, segment.offsets, segment.by_row, rows.table, names)
    for (message, place), same in zip(updates.rows, found, strict=True):
        row = parse_row(message, rows.table.form, rows.images[place])
        assert row.before is not None
        assert row.after is not None
        pairs = zip(row.before, row.after, strict=True)
        assert same == all(new is LACKING or (old is not LACKING and old == new) for old, new in pairs)


def test_a_row_that_is_too_short_is_refused_with_its_reason() -> None:
    with pytest.raises(DecodeError, match="ends within its null bits"):
        parse_row(b"", (ColumnForm(ValueKind.INTEGER, 4),), RowsEventForm(ord("c"), b"", b"\x01"))
