"""A snapshot has the right chunks, and markers at the right places."""

from __future__ import annotations

import json
from dataclasses import replace

from tailrace.columns.batch import Marker
from tailrace.connectors.postgres.log.visibility import VisibleTransactions
from tailrace.connectors.postgres.offset import PostgresOffset
from tailrace.connectors.postgres.protocol.position import LogPosition, lsn_text, lsn_value
from tailrace.connectors.postgres.snapshot.session import SnapshotOrigin, SnapshotProgress
from tailrace.snapshot.plan import PlannedTable, SnapshotPlan, markers

PLAN = SnapshotPlan((PlannedTable("s", "a", 1), PlannedTable("s", "b", 25), PlannedTable("s", "c", 10)), 10)


def test_chunks_cover_every_page_once_and_the_last_is_open() -> None:
    chunks = PLAN.chunks(0, len(PLAN))
    assert [(chunk.table.table, chunk.first_page, chunk.last_page) for chunk in chunks] == [
        ("a", 0, None),
        ("b", 0, 10),
        ("b", 10, 20),
        ("b", 20, None),
        ("c", 0, None),
    ]
    assert [chunk for first in range(5) for chunk in PLAN.chunks(first, first + 1)] == chunks


def test_a_batch_has_so_many_chunks_or_more_small_ones_that_have_no_more_pages() -> None:
    small = tuple(PlannedTable("s", f"t{number}", 1) for number in range(1000))
    plan = SnapshotPlan((PlannedTable("s", "large", 500), *small, PlannedTable("s", "last", 500)), 100)
    # Four whole chunks; a fifth would be too much.
    assert plan.reached(0, 4) == 4
    # The fifth, and as many small ones as three more have pages.
    assert plan.reached(4, 4) == 4 + 1 + 300
    places = [0]
    while places[-1] < len(plan):
        places.append(plan.reached(places[-1], 4))
        pages = [chunk.pages for chunk in plan.chunks(*places[-2:])]
        assert len(pages) in range(1, 5) or sum(pages) <= 4 * 100
    assert places[-1] == len(plan) == 1010
    assert len(places) == 1 + 5


def test_markers_say_which_rows_are_first_and_last() -> None:
    a, b1, b2, b3, c = PLAN.chunks(0, 5)
    assert markers(a, 3, True, True) == [(0, Marker.FIRST), (2, Marker.LAST_IN_DATA_COLLECTION)]
    assert markers(a, 1, True, True) == [(0, Marker.FIRST)]
    assert markers(b1, 2, True, True) == [(0, Marker.FIRST_IN_DATA_COLLECTION)]
    assert markers(b2, 2, True, True) == []
    assert markers(b3, 2, True, False) == []
    assert markers(b3, 2, False, True) == [(1, Marker.LAST_IN_DATA_COLLECTION)]
    assert markers(c, 1, True, True) == [(0, Marker.LAST)]


def test_no_row_is_first_when_the_first_table_is_empty() -> None:
    chunk = SnapshotPlan((PlannedTable("s", "b", 1),), 10, first=False).chunks(0, 1)[0]
    assert markers(chunk, 2, True, True) == [(0, Marker.FIRST_IN_DATA_COLLECTION), (1, Marker.LAST)]


def test_offsets_come_back_from_their_json_and_keep_their_text() -> None:
    offset = PostgresOffset(
        LogPosition(0x16B374D848, 0x16B374D880, 7, 0x16B374E000),
        VisibleTransactions(10, 20, frozenset({12, 15}), 99),
        snapshot=SnapshotProgress(PLAN, SnapshotOrigin(1, 2, 3), 4),
    )
    aged = replace(offset, snapshot=SnapshotProgress(PLAN, SnapshotOrigin(1, 2, 3, 4, 5 << 32), 4))
    for one in (offset, aged, PostgresOffset()):
        text = json.dumps(one.to_json())
        assert PostgresOffset.from_json(json.loads(text)) == one
        assert json.dumps(PostgresOffset.from_json(json.loads(text)).to_json()) == text
        assert text == json.dumps(json.loads(text), sort_keys=True)


def test_lsns_are_written_as_postgresql_writes_them() -> None:
    assert lsn_text(0x16B374D848) == "16/B374D848"
    assert lsn_value("16/B374D848") == 0x16B374D848


def test_a_snapshot_shows_transactions_by_id_across_the_wrap_of_32_bits() -> None:
    epoch = 5 << 32
    shown = VisibleTransactions(epoch + 5, epoch + 10, frozenset({epoch + 7}), 1000)
    assert shown(4, 500)
    assert shown(9, 500)
    assert not shown(7, 500)
    assert not shown(10, 500)
    assert not shown(4, 1000)
    # Assigned before the wrap.
    assert shown(0xFFFFFFF0, 500)
