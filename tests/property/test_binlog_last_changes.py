"""A reader of the last rows misses nothing of the binary log's changes that are left out."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.columns.table import Column, TableId
from tailrace.connectors.binlog.log.forms import BinlogTable, ColumnForm, ValueKind
from tailrace.connectors.binlog.log.last_changes import standing
from tailrace.connectors.binlog.log.plain_rows import LACKING, parse_row
from tailrace.connectors.binlog.log.position import RowsEventForm
from tailrace.log.rows.segment import RowRun
from tests.extent import examples
from tests.property.binlog_rows import Rows

FORM = (
    ColumnForm(ValueKind.BYTES, -1),
    ColumnForm(ValueKind.INTEGER, 1),
    ColumnForm(ValueKind.TEXT, -1, charset="utf8mb4"),
)
TABLE = BinlogTable(
    TableId("d", "d", "t"), tuple(Column(f"c{place}", "", 0) for place in range(3)), ("c0", "c1"), form=FORM
)
ALL, KEY, REST = b"\1\1\1", b"\1\1\0", b"\0\0\1"
IMAGES = (
    RowsEventForm(ord("c"), b"", ALL),
    RowsEventForm(ord("u"), ALL, ALL),
    RowsEventForm(ord("d"), KEY, b""),
    RowsEventForm(ord("u"), KEY, REST),
    RowsEventForm(ord("u"), KEY, KEY),
)
KEYS = st.tuples(st.sampled_from([b"", b"a", b"aa"]), st.sampled_from([None, 0, 1, 1, 1]))


def image(present: bytes, values: tuple[bytes, int | None, bytes]) -> bytes:
    bits, out, number = 0, b"", 0
    for value, there in zip(values, present, strict=True):
        if there and value is None:
            bits |= 1 << number
        elif there:
            out += bytes([len(value)]) + value if isinstance(value, bytes) else bytes([value])
        number += there
    return bytes([bits]) + out


@st.composite
def changes(draw: st.DrawFn) -> Rows:
    rows = []
    for _ in range(draw(st.integers(0, 30))):
        place = draw(st.integers(0, len(IMAGES) - 1))
        key, of = draw(KEYS), IMAGES[place]
        message = b"".join(
            image(side, (*key, draw(st.binary(max_size=3).map(lambda raw: raw.hex().encode()))))
            for side in (of.before, of.after)
            if side
        )
        rows.append((message, place))
    return Rows(TABLE, IMAGES, tuple(rows))


def runs(rows: Rows, cut: int) -> list[tuple[RowRun, np.ndarray]]:
    found = []
    for part in (rows.rows[:cut], rows.rows[cut:]):
        segment = Rows(TABLE, IMAGES, part).segment()
        count = np.arange(len(part), dtype=np.int64)
        run = RowRun(
            segment.data, segment.offsets, count, np.zeros(len(part), np.uint8), np.zeros(len(part), np.int32),
            segment.by_row, segment.transactions, {}, np.empty(0, np.int64),
        )  # fmt: skip
        found.append((run, count))
    return found


def merged(rows: Rows, kept: list[bool]) -> dict[object, object]:
    """Return what a copy has that takes the changes in order: the row of each key, None for a deleted one."""
    found: dict[object, object] = {}
    for place, ((message, of), stays) in enumerate(zip(rows.rows, kept, strict=True)):
        if not stays:
            continue
        row = parse_row(message, FORM, IMAGES[of])
        old, new = row.before, row.after
        first = old if old is not None else new
        assert first is not None
        key = tuple(first[:2])
        if new is None:
            found[key] = None
        elif None in key:
            found[(key, place)] = tuple(new)
        else:
            before = found.get(key) or (LACKING,) * 3
            whole = [one if one is not LACKING else (old[at] if old is not None else LACKING)
                     for at, one in enumerate(new)]  # fmt: skip
            assert isinstance(before, tuple)
            found[key] = tuple(before[at] if one is LACKING else one for at, one in enumerate(whole))
    return found


@settings(deadline=None, max_examples=examples(300))
@given(changes(), st.integers(0, 30), st.sampled_from([0, 0, 8]))
def test_the_changes_that_stay_lead_to_the_same_rows(rows: Rows, cut: int, most: int) -> None:
    masks = standing(runs(rows, cut), TABLE, most)
    assert masks is not None
    kept = np.concatenate(masks).tolist()
    assert merged(rows, kept) == merged(rows, [True] * len(rows.rows))
    if most:
        assert all(stays for (message, _), stays in zip(rows.rows, kept, strict=True) if len(message) > most)


def test_only_the_last_change_of_a_key_stays() -> None:
    rows = Rows(TABLE, IMAGES, tuple((image(ALL, (b"k", number % 3, b"x")), 0) for number in range(300)))
    masks = standing(runs(rows, 150), TABLE)
    assert masks is not None
    assert np.flatnonzero(np.concatenate(masks)).tolist() == [297, 298, 299]


def test_a_key_that_moves_keeps_every_change() -> None:
    moved = image(ALL, (b"k", 1, b"x")) + image(ALL, (b"k", 2, b"x"))
    assert standing(runs(Rows(TABLE, IMAGES, ((moved, 1),)), 0), TABLE) is None
