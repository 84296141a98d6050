"""The planner's view of the log does not depend on where its runs end, and batches neither lose nor repeat a row."""

from __future__ import annotations

import functools
import itertools
import struct
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.columns.table import Column, TableId, TableSchema
from tailrace.connectors.postgres import segments
from tailrace.connectors.postgres.decoder import decode
from tailrace.connectors.postgres.evolution import Moment
from tailrace.connectors.postgres.indexing import Chunk, Indexer
from tailrace.connectors.postgres.numbering import Numbering
from tailrace.connectors.postgres.pgoutput import Relation
from tailrace.connectors.postgres.position import LogPosition
from tailrace.connectors.postgres.relations import UNCAPTURED
from tailrace.connectors.postgres.spool import Spool

TABLES = (10, 20, 30)
CAPTURED = (10, 20)
SCHEMAS = [
    TableSchema(TableId("d", "s", f"t{oid}"), (Column("id", "text", 25), Column("v", "text", 25)), ("id",), "d", oid)
    for oid in CAPTURED
]
Change = tuple[str, int, int]
"""Kind, table and key."""


def text(value: str) -> bytes:
    return b"t" + struct.pack(">i", len(value)) + value.encode()


def logical(flags: int, lsn: int, key: int) -> bytes:
    return b"M" + struct.pack(">BQ", flags, lsn) + (b"kept\0" if key % 2 else b"left\0") + struct.pack(">I", 1) + b"x"


def message(change: Change, lsn: int = 0) -> bytes:
    kind, table, key = change
    if kind == "L":
        return logical(1, lsn, key)
    if kind == "T":
        return b"T" + struct.pack(">iBII", 2, 0, table, 30)
    new = struct.pack(">h", 2) + text(f"k{key}") + text("v")
    if kind == "I":
        return b"I" + struct.pack(">I", table) + b"N" + new
    if kind == "U":
        return b"U" + struct.pack(">I", table) + b"N" + new
    if kind == "M":
        old = struct.pack(">h", 2) + text(f"k{key + 100}") + b"n"
        return b"U" + struct.pack(">I", table) + b"K" + old + b"N" + new
    return b"D" + struct.pack(">I", table) + b"K" + struct.pack(">h", 2) + text(f"k{key}") + b"n"


def relation(table: int) -> bytes:
    columns = b"".join(struct.pack(">B", flag) + name + b"\0" + struct.pack(">Ii", 25, -1) for flag, name in
                       ((1, b"id"), (0, b"v")))  # fmt: skip
    return b"R" + struct.pack(">I", table) + b"s\0" + f"t{table}".encode() + b"\0d" + struct.pack(">h", 2) + columns


changes = st.tuples(st.sampled_from("IUDMTL"), st.sampled_from(TABLES), st.integers(0, 5))
alone = st.tuples(st.just("A"), st.just(0), st.integers(0, 5)).map(lambda change: [change])
logs = st.lists(st.one_of(st.lists(changes, max_size=8), alone), max_size=8)


def log(transactions: list[list[Change]]) -> tuple[list[bytes], list[int]]:
    """The log's messages and their LSNs; every relation is announced before its first change.

    A message outside of transactions (A) is sent with the LSN at which the commit that follows may begin.
    """
    messages, lsns, lsn = [], [], 1000
    announced: set[int] = set()
    for number, transaction in enumerate(transactions):
        if transaction and transaction[0][0] == "A":
            lsn += 8
            messages.append(logical(0, lsn, transaction[0][2]))
            lsns.append(lsn)
            continue
        if not transaction:
            # an empty transaction begins and ends at once: its commit record is where the last record ended
            messages.append(b"B" + struct.pack(">qqI", lsn, number, 700 + number))
            messages.append(b"C" + struct.pack(">Bqqq", 0, lsn, lsn + 5, number))
            lsns += [lsn, lsn]
            lsn += 5
            continue
        follows_alone = number > 0 and bool(transactions[number - 1]) and transactions[number - 1][0][0] == "A"
        commit = lsn if follows_alone else lsn + 10 * len(transaction) + 10
        messages.append(b"B" + struct.pack(">qqI", commit, number, 700 + number))
        lsns.append(lsn)
        for change in transaction:
            for table in {"T": {change[1], 30}, "L": set()}.get(change[0], {change[1]}):
                if table not in announced:
                    announced.add(table)
                    messages.append(relation(table))
                    lsns.append(0)
            lsn += 10
            messages.append(message(change, lsn))
            lsns.append(lsn)
        messages.append(b"C" + struct.pack(">Bqqq", 0, commit, commit + 5, number))
        lsns.append(commit)
        lsn = commit + 5
    return messages, lsns


class Known:
    """Table versions that never change."""

    has_held = False

    def expect(self, announced: Sequence[Relation]) -> None:
        pass

    def announce(self, relation: Relation, at: Moment, resent: bool) -> int:
        return CAPTURED.index(relation.relation_id) if relation.relation_id in CAPTURED else UNCAPTURED

    def is_due(self, oid: int, xid: int) -> bool:
        raise AssertionError

    def review(self, oid: int, at: Moment) -> int:
        raise AssertionError


def index(transactions: list[list[Change]], cuts: list[int], start: LogPosition, numbered: bool) -> list[Chunk]:
    messages, lsns = log(transactions)

    numbering = Numbering(SCHEMAS, frozenset()) if numbered else None
    indexer = Indexer(start, Known(), None, numbering, lambda prefix: prefix == "kept")
    chunks = []
    bounds = sorted({0, len(messages), *(cut % (len(messages) + 1) for cut in cuts)})
    for low, high in itertools.pairwise(bounds):
        offsets = np.zeros(high - low + 1, np.int64)
        np.cumsum([len(part) for part in messages[low:high]], out=offsets[1:])
        data = np.frombuffer(b"".join(messages[low:high]), np.uint8)
        chunk = indexer.index(data, offsets, np.array(lsns[low:high], np.int64))
        indexer.advance(chunk)
        chunks.append(chunk.compacted())
    return chunks


def rows(chunks: list[Chunk]) -> list[tuple[object, ...]]:
    found = []
    for chunk in chunks:
        for row in range(len(chunk)):
            place = int(chunk.transaction[row])
            at = int(chunk.rows[row])
            found.append((
                bytes(chunk.data[chunk.offsets[at] : chunk.offsets[at + 1]]),
                int(chunk.version[row]),
                chunk.truncated.get(at),
                int(chunk.lsn[row]),
                int(chunk.ordinal[row]),
                int(chunk.transactions.commit_lsn[place]),
                int(chunk.transactions.previous_end[place]),
                int(chunk.transactions.commit_us[place]),
                chunk.numbers and (int(chunk.numbers.total[row]), int(chunk.numbers.table[row])),
                chunk.counts.get(place) if chunk.kinds[row] == ord("C") else None,
            ))  # fmt: skip
    return found


@settings(deadline=None, max_examples=60)
@given(logs, st.lists(st.integers(0, 200), max_size=12), st.booleans())
def test_it_does_not_matter_where_runs_end(transactions: list[list[Change]], cuts: list[int], numbered: bool) -> None:
    whole = rows(index(transactions, [], LogPosition(), numbered))
    parts = index(transactions, cuts, LogPosition(), numbered)
    assert rows(parts) == whole
    assert rows([functools.reduce(Chunk.joined, parts)] if parts else []) == whole


@settings(deadline=None, max_examples=60)
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
            # a restart: the log is read again and what was delivered is dropped
            spool = Spool(1 << 20, 0)
            for chunk in index(transactions, cuts, position, False):
                spool.put(chunk)
        end = spool.plan(position, limit, 1 << 20)
        if end == position:
            break
        assert position.is_before(end)
        for part in spool.take(position, end):
            for row in range(part.first, part.last):
                at = int(part.chunk.rows[row])
                place = int(part.chunk.transaction[row])
                taken.append((
                    bytes(part.chunk.data[part.chunk.offsets[at] : part.chunk.offsets[at + 1]]),
                    int(part.chunk.version[row]),
                    part.chunk.truncated.get(at),
                    int(part.chunk.lsn[row]),
                    int(part.chunk.ordinal[row]),
                    int(part.chunk.transactions.commit_lsn[place]),
                ))  # fmt: skip
        position = end
        spool.release(position)
    # what a truncate names is kept by message number, which differs from run to run
    assert [row[:2] + row[3:] for row in taken] == [row[:2] + row[3:] for row in whole]


@settings(deadline=None, max_examples=40)
@given(st.lists(st.lists(changes, min_size=1, max_size=60), min_size=1, max_size=6), st.integers(1, 4))
def test_segments_by_key_keep_the_order_of_each_key_and_by_topic_that_of_the_table(
    transactions: list[list[Change]], parallelism: int
) -> None:
    spool = Spool(1 << 20, 0)
    for chunk in index(transactions, [], LogPosition(), False):
        spool.put(chunk)
    end = spool.plan(LogPosition(), 1 << 30, 1 << 30)
    taken = spool.take(LogPosition(), end)
    expected: dict[str, list[tuple[int, int]]] = defaultdict(list)
    small, segments.SMALL_BATCH_ROWS = segments.SMALL_BATCH_ROWS, 1
    try:
        by_topic = segments.tasks(taken, SCHEMAS, lambda table: str(table.id), False, parallelism)
        by_key = segments.tasks(taken, SCHEMAS, lambda table: str(table.id), True, parallelism)
    finally:
        segments.SMALL_BATCH_ROWS = small
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
