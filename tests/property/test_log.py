"""The planner's view of the log does not depend on where its runs end, and batches neither lose nor repeat a row."""

from __future__ import annotations

import functools
from collections import defaultdict

from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.connectors.postgres.log.indexed_run import IndexedRun
from tailrace.connectors.postgres.log.row_log import PostgresRowLog
from tailrace.connectors.postgres.protocol.decoder import decode
from tailrace.connectors.postgres.protocol.position import LogPosition
from tailrace.log.rows import partitioning
from tailrace.log.spool import Spool
from tests.extent import examples
from tests.property.logs import SCHEMAS, Change, changes, index, logs, rows, rows_of


@settings(deadline=None, max_examples=examples(60))
@given(logs, st.lists(st.integers(0, 200), max_size=12), st.booleans())
def test_it_does_not_matter_where_runs_end(transactions: list[list[Change]], cuts: list[int], numbered: bool) -> None:
    whole = rows(index(transactions, [], LogPosition(), numbered))
    parts = index(transactions, cuts, LogPosition(), numbered)
    assert rows(parts) == whole
    assert rows([functools.reduce(IndexedRun.joined, parts)] if parts else []) == whole


@settings(deadline=None, max_examples=examples(60))
@given(logs, st.lists(st.integers(0, 200), max_size=8), st.integers(1, 6), st.data())
def test_batches_hold_every_row_once_and_a_restart_goes_on_where_one_ended(
    transactions: list[list[Change]], cuts: list[int], limit: int, data: st.DataObject
) -> None:
    whole = [row[:6] for row in rows(index(transactions, [], LogPosition(), False))]
    taken: list[tuple[object, ...]] = []
    position = LogPosition()
    spool = None
    for _ in range(200):
        if spool is None or data.draw(st.booleans()):
            # After a restart the log is read again, and delivered messages are dropped.
            spool = Spool(position, 1 << 20, 0)
            for run in index(transactions, cuts, position, False):
                spool.put(run)
        end = spool.plan(position, limit, 1 << 20)
        if end == position:
            break
        assert position.is_before(end)
        taken += [row[:6] for row in rows_of(spool.take(position, end))]
        position = end
        spool.release(position)
    # A truncate's tables are kept by message number, which differs from run to run.
    assert [row[:2] + row[3:] for row in taken] == [row[:2] + row[3:] for row in whole]


@settings(deadline=None, max_examples=examples(40))
@given(st.lists(st.lists(changes, min_size=1, max_size=60), min_size=1, max_size=6), st.integers(1, 4))
def test_segments_by_key_keep_the_order_of_each_key_and_by_topic_that_of_the_table(
    transactions: list[list[Change]], parallelism: int
) -> None:
    spool = Spool(LogPosition(), 1 << 20, 0)
    for run in index(transactions, [], LogPosition(), False):
        spool.put(run)
    end = spool.plan(LogPosition(), 1 << 30, 1 << 30)
    taken = spool.take(LogPosition(), end)
    expected: dict[str, list[tuple[int, int]]] = defaultdict(list)
    small, partitioning.SMALL_BATCH_ROWS = partitioning.SMALL_BATCH_ROWS, 1
    try:
        by_topic = partitioning.tasks(PostgresRowLog(), taken, SCHEMAS, lambda table: str(table.id), False, parallelism)
        by_key = partitioning.tasks(PostgresRowLog(), taken, SCHEMAS, lambda table: str(table.id), True, parallelism)
    finally:
        partitioning.SMALL_BATCH_ROWS = small
    for group in by_topic:
        for segment in group:
            batch = decode(segment)
            commits = batch.transactions.commit_lsn[batch.transaction]
            expected[str(segment.table.id)] += list(zip(commits.tolist(), batch.ordinal.tolist(), strict=True))
    for positions in expected.values():
        assert positions == sorted(positions)
    found: dict[str, list[tuple[int, int]]] = defaultdict(list)
    where: dict[tuple[str, bytes], int] = {}
    for number, group in enumerate(by_key):
        assert len(by_key) <= parallelism
        for segment in group:
            batch = decode(segment)
            commits = batch.transactions.commit_lsn[batch.transaction].tolist()
            order = list(zip(commits, batch.ordinal.tolist(), strict=True))
            assert order == sorted(order)
            found[str(segment.table.id)] += order
            for row in range(len(batch)):
                image = batch.before if batch.op[row] == ord("d") else batch.after
                key = image.columns[0][row].as_py() if image is not None and batch.op[row] != ord("t") else None
                if key is not None:
                    assert where.setdefault((str(segment.table.id), key), number) == number
    assert {table: sorted(positions) for table, positions in found.items()} == dict(expected)
