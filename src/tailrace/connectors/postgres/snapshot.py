"""Snapshots of PostgreSQL tables: planned under one exported snapshot, read in chunks by parallel tasks.

A chunk is a range of heap pages (`ctid`), which PostgreSQL 14 and later read without touching other pages; older
servers read each table as one chunk. Values come as the text of their output functions, the same text that the log
carries, so both feed the same converters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tailrace.columns.batch import ChangeBatch, Image, Marker, Transactions
from tailrace.columns.table import TableId, TableSchema
from tailrace.connectors.postgres.arrow import ArrowConnection
from tailrace.connectors.postgres.catalog import Catalog
from tailrace.snapshot.plan import Chunk, PlannedTable, SnapshotPlan, markers

if TYPE_CHECKING:
    import psycopg

# 16 MB of heap: a few hundred thousand narrow rows at most, and a crash costs one batch of chunks.
CHUNK_PAGES = 2048
# Types whose stored bytes are their text.
_TEXT_TYPES = ("text", "varchar")


@dataclass(frozen=True, slots=True)
class SnapshotOrigin:
    """What every row of a snapshot says of its source: one LSN, transaction id and time (µs since 1970)."""

    lsn: int
    xid: int
    at_us: int


@dataclass(frozen=True, slots=True)
class Visible:
    """The transactions that a snapshot shows, by `pg_current_snapshot()`; `before_lsn`: the log's end just after.

    The log holds them too when the slot is older than the snapshot: they are left out there, by id, because a
    transaction's commit record can be in the log before new snapshots show it.
    """

    xmin: int
    xmax: int
    in_progress: frozenset[int]
    before_lsn: int

    def __call__(self, xid: int, commit_lsn: int) -> bool:
        """Whether the transaction with the 32-bit id `xid` that committed at `commit_lsn` is shown."""
        if commit_lsn >= self.before_lsn:
            return False
        full = (self.xmax & ~0xFFFFFFFF) | xid
        if full > self.xmax + 0x7FFFFFFF:
            full -= 1 << 32
        return full < self.xmin or (full < self.xmax and full not in self.in_progress)

    def to_json(self) -> str:
        listed = ",".join(str(xid) for xid in sorted(self.in_progress))
        return f"{self.xmin}:{self.xmax}:{listed}@{self.before_lsn}"

    @classmethod
    def from_json(cls, text: str) -> Visible:
        snapshot, _, before = text.partition("@")
        xmin, xmax, listed = snapshot.split(":")
        return cls(int(xmin), int(xmax), frozenset(int(xid) for xid in listed.split(",") if xid), int(before))


class SnapshotSession:
    """A transaction of the planner that keeps a snapshot exported for as long as tasks read under it."""

    def __init__(
        self, connection: psycopg.Connection[Any], slot_snapshot: str | None, other: psycopg.Connection[Any]
    ) -> None:
        """`connection` is in autocommit mode and this session's alone; `slot_snapshot` is what slot creation gave.

        `other` is a second connection in autocommit mode.
        """
        self._connection = connection
        connection.execute("set idle_in_transaction_session_timeout = 0")
        connection.execute("begin isolation level repeatable read read only")
        if slot_snapshot is not None:
            connection.execute(f"set transaction snapshot '{slot_snapshot}'")
        row = connection.execute(
            "select pg_export_snapshot(), pg_current_snapshot()::text, "
            "(pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::int8, "
            "(extract(epoch from clock_timestamp()) * 1000000)::int8"
        ).fetchone()
        assert row is not None
        self.name: str = row[0]
        xmin, xmax, listed = row[1].split(":")
        in_progress = frozenset(int(xid) for xid in listed.split(",") if xid)
        self.visible = Visible(int(xmin), int(xmax), in_progress, row[2])
        # An id that no change of the log has, from a transaction of its own: assigned to this long one, it would hold
        # up the creation of other slots. Its end also puts a record between the snapshot's LSN and the next change's.
        found = other.execute("select case when pg_is_in_recovery() then null else txid_current() end").fetchone()
        assert found is not None
        self.origin = SnapshotOrigin(row[2], (found[0] or int(xmax)) & 0xFFFFFFFF, row[3])

    def plan(self, tables: Sequence[tuple[int, TableId, str]], chunk_pages: int) -> SnapshotPlan:
        """The plan for `tables`, `(oid, name, relkind)` in order; tables without a visible row are left out."""
        planned: list[PlannedTable] = []
        first = True
        by_pages = self._connection.info.server_version >= 140000
        for place, (oid, name, relkind) in enumerate(tables):
            qualified = f"{quoted(name.schema)}.{quoted(name.table)}"
            row = self._connection.execute(f"select exists (select from {only(relkind)}{qualified})").fetchone()
            assert row is not None
            if not row[0]:
                first = first and place > 0
                continue
            pages = self._pages(oid, qualified) if by_pages and relkind == "r" else 1
            planned.append(PlannedTable(name.schema, name.table, pages))
        return SnapshotPlan(tuple(planned), chunk_pages, first)

    def _pages(self, oid: int, qualified: str) -> int:
        """Heap pages up to the last one with a visible row, searched from the end in growing steps."""
        row = self._connection.execute(
            "select pg_relation_size(%s::oid::regclass) / current_setting('block_size')::int8", (oid,)
        ).fetchone()
        assert row is not None
        high, step = int(row[0]), 64
        while high > 1:
            low = max(0, high - step)
            found = self._connection.execute(
                f"select max((ctid::text::point)[0])::int8 from only {qualified} "
                f"where ctid >= '({low},0)' and ctid < '({high},0)'"
            ).fetchone()
            if found is not None and found[0] is not None:
                return int(found[0]) + 1
            high, step = low, step * 4
        return 1

    def schemas(self, catalog: Catalog, tables: Sequence[tuple[int, TableId, str]]) -> dict[str, TableSchema]:
        """`schema.table` -> schema, generated columns included."""
        found = catalog.schemas([oid for oid, _, _ in tables])
        return {str(schema.id): schema for schema in found.values()}

    def close(self) -> None:
        self._connection.close()


def only(relkind: str) -> str:
    """A partitioned parent is read with its leaves, any other table without the tables that inherit from it."""
    return "" if relkind == "p" else "only "


def select_statement(table: TableSchema, outputs: dict[str, str], chunk: Chunk, relkind: str) -> str:
    """The query of one chunk: every column as the text of its output function."""
    columns = ", ".join(
        quoted(column.name)
        if column.type_name in _TEXT_TYPES and column.kind == "base"
        else f"textin({outputs[column.name]}({quoted(column.name)})) as {quoted(column.name)}"
        for column in table.columns
    )
    conditions = []
    if chunk.first_page:
        conditions.append(f"ctid >= '({chunk.first_page},0)'")
    if chunk.last_page is not None:
        conditions.append(f"ctid < '({chunk.last_page},0)'")
    where = f" where {' and '.join(conditions)}" if conditions else ""
    return f"select {columns or '1'} from {only(relkind)}{quoted(table.id.schema)}.{quoted(table.id.table)}{where}"


def read_chunk(
    connection: ArrowConnection, snapshot: str, table: TableSchema, chunk: Chunk, statement: str, origin: SnapshotOrigin
) -> Iterator[ChangeBatch]:
    """The rows of `chunk` under the exported `snapshot`, as batches of `r` changes. Worker.

    `connection` is closed at the end.
    """
    try:
        connection.execute("begin isolation level repeatable read read only")
        connection.execute(f"set transaction snapshot '{snapshot}'")
        opened, ordinal = True, 0
        batches = (batch for batch in connection.query(statement) if batch.num_rows)
        pending = next(batches, None)
        while pending is not None:
            following = next(batches, None)
            yield _as_changes(table, pending, chunk, origin, ordinal, opened, following is None)
            opened, ordinal, pending = False, ordinal + pending.num_rows, following
    finally:
        connection.close()


def _as_changes(
    table: TableSchema,
    rows: pa.RecordBatch,
    chunk: Chunk,
    origin: SnapshotOrigin,
    ordinal: int,
    opened: bool,
    closes: bool,
) -> ChangeBatch:
    count = rows.num_rows
    marker = np.full(count, Marker.TRUE, np.uint8)
    for row, kind in markers(chunk, count, opened, closes):
        marker[row] = kind
    columns = [rows.column(place).cast(pa.binary()) for place in range(len(table.columns))]
    one = np.ones(1, np.int64)
    return ChangeBatch(
        table=table,
        op=np.full(count, ord("r"), np.uint8),
        lsn=np.full(count, origin.lsn, np.int64),
        transaction=np.zeros(count, np.int32),
        # chunk number and row: unique within the snapshot
        ordinal=np.arange(ordinal, ordinal + count, dtype=np.int64) + (chunk.number << 40),
        transactions=Transactions(
            xid=one * origin.xid, commit_lsn=one * origin.lsn, commit_us=one * origin.at_us, previous_end=-one
        ),
        before=None,
        after=Image(None, columns, [None] * len(columns)),
        marker=marker,
    )


def quoted(name: str) -> str:
    """The name as a quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'
