"""A simulated log: transactions of changes, truncates and logical messages, as a session sends them."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from hypothesis import strategies as st

from tailrace.columns.table import Column, TableId, TableSchema
from tailrace.connectors.postgres.log.indexed_run import IndexedRun, Rows
from tailrace.connectors.postgres.log.indexing import MESSAGE_NAME, Indexer
from tailrace.connectors.postgres.protocol.pgoutput import Relation
from tailrace.connectors.postgres.protocol.position import LogPosition
from tailrace.connectors.postgres.schema.evolution import Moment
from tailrace.connectors.postgres.schema.relations import UNCAPTURED
from tailrace.log.rows.numbering import Numbering

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


def log(transactions: list[list[Change]], from_lsn: int = 0) -> tuple[list[bytes], list[int]]:
    """Return the log's messages and their LSNs, as sent by a session that begins at `from_lsn`.

    Every relation is announced before its first change in the session. A message outside of transactions (A) is sent
    with the LSN at which the next commit may begin.
    """
    messages: list[bytes] = []
    lsns: list[int] = []
    announced: set[int] = set()
    for number, begin, commit, end in places(transactions):
        transaction = transactions[number]
        if transaction and transaction[0][0] == "A":
            if end > from_lsn:
                messages.append(logical(0, end, transaction[0][2]))
                lsns.append(end)
            continue
        if commit < from_lsn:
            continue
        messages.append(b"B" + struct.pack(">qqI", commit, number, 700 + number))
        lsns.append(begin)
        for place, change in enumerate(transaction):
            for table in {"T": {change[1], 30}, "L": set()}.get(change[0], {change[1]}):
                if table not in announced:
                    announced.add(table)
                    messages.append(relation(table))
                    lsns.append(0)
            messages.append(message(change, begin + 10 * place + 10))
            lsns.append(begin + 10 * place + 10)
        messages.append(b"C" + struct.pack(">Bqqq", 0, commit, end, number))
        lsns.append(commit)
    return messages, lsns


def places(transactions: list[list[Change]]) -> Iterator[tuple[int, int, int, int]]:
    """Return each transaction's number, and the LSNs at which it begins, commits and ends."""
    lsn = 1000
    for number, transaction in enumerate(transactions):
        if transaction and transaction[0][0] == "A":
            yield number, lsn, lsn + 7, lsn + 8
            lsn += 8
            continue
        follows_alone = number > 0 and bool(transactions[number - 1]) and transactions[number - 1][0][0] == "A"
        # An empty transaction begins and ends at the same place: its commit record begins where the last record ended.
        commit = lsn if follows_alone or not transaction else lsn + 10 * len(transaction) + 10
        yield number, lsn, commit, commit + 5
        lsn = commit + 5


class Known:
    """Table versions that never change."""

    has_held = False

    def begin(self) -> None:
        pass

    def keep(self) -> None:
        pass

    def expect(self, announced: Sequence[Relation]) -> None:
        pass

    def announce(self, relation: Relation, at: Moment, resent: bool) -> int:
        return CAPTURED.index(relation.relation_id) if relation.relation_id in CAPTURED else UNCAPTURED

    def is_due(self, oid: int, xid: int) -> bool:
        raise AssertionError

    def review(self, oid: int, at: Moment) -> int:
        raise AssertionError

    def changed(self, version: int) -> None:
        assert version in range(len(CAPTURED))


def index(
    transactions: list[list[Change]],
    cuts: list[int],
    start: LogPosition,
    numbered: bool,
    skip: Callable[[int, int], bool] | None = None,
) -> list[IndexedRun]:
    """Return the index of the log from its beginning, in runs that end at `cuts`."""
    messages, lsns = log(transactions)
    numbering = Numbering(SCHEMAS, frozenset(), MESSAGE_NAME) if numbered else None
    indexer = Indexer(start, Known(), skip, numbering, lambda prefix: prefix == "kept")
    runs = []
    bounds = sorted({0, len(messages), *(cut % (len(messages) + 1) for cut in cuts)})
    for low, high in itertools.pairwise(bounds):
        offsets = np.zeros(high - low + 1, np.int64)
        np.cumsum([len(part) for part in messages[low:high]], out=offsets[1:])
        data = np.frombuffer(b"".join(messages[low:high]), np.uint8)
        step = indexer.index(data, offsets, np.array(lsns[low:high], np.int64))
        indexer.keep(step)
        runs.append(step.run.compacted())
    return runs


def rows(runs: list[IndexedRun]) -> list[tuple[object, ...]]:
    """Return everything known of each row of the runs."""
    return rows_of([Rows(run, 0, len(run)) for run in runs])


def rows_of(parts: Sequence[Rows]) -> list[tuple[object, ...]]:
    """Return everything known of each of the rows."""
    found = []
    for part in parts:
        run, by_row = part.run, part.run.by_row
        for row in range(part.first, part.last):
            place = int(by_row.transaction[row])
            at = int(run.rows[row])
            found.append((
                bytes(run.data[run.offsets[at] : run.offsets[at + 1]]),
                int(run.version[row]),
                int(by_row.lsn[row]),
                int(by_row.ordinal[row]),
                int(run.transactions.commit_lsn[place]),
                int(run.transactions.previous_end[place]),
                int(run.transactions.commit_us[place]),
                [None if order is None else int(order[row]) for order in (by_row.total_order, by_row.table_order)],
                run.counts.get(place) if run.op[row] == ord("C") else None,
            ))  # fmt: skip
    return found
