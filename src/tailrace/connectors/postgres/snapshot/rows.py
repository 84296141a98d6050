"""Rows of a chunk, read under an exported snapshot. Worker."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.columns.batch import ChangeBatch, Image, Marker, Transactions
from tailrace.columns.table import TableSchema
from tailrace.connectors.postgres.server.arrow import ArrowConnection
from tailrace.connectors.postgres.server.connection import OWN
from tailrace.connectors.postgres.snapshot import conditions
from tailrace.connectors.postgres.snapshot.rights import is_forbidden
from tailrace.connectors.postgres.snapshot.session import PRESENT_FORM, SnapshotOrigin, locking, qualified
from tailrace.connectors.postgres.values.texts import texts
from tailrace.errors import ConnectionFailed
from tailrace.snapshot.plan import Chunk, markers


def read_chunk(
    connection: ArrowConnection,
    snapshot: str,
    table: TableSchema,
    chunk: Chunk,
    statement: str,
    origin: SnapshotOrigin,
    form: str,
    overridden: bool = False,
    asked: bool = False,
) -> Iterator[ChangeBatch]:
    """Yield the rows of `chunk` under the exported `snapshot`, as batches of `r` changes. Worker.

    `form` is the table's form when the chunk was planned (see `SnapshotSession.forms`). Raises ConnectionFailed if the
    table was altered since, because a new session can read it. With `overridden` the statement contains SQL of the
    user, with `asked` SQL of a signal, whose failure ends the rows. `connection` is closed at the end.
    """
    try:
        # The lock keeps the table from being altered from here on.
        _hold(connection, qualified(table.id), snapshot)
        query = PRESENT_FORM.replace("%s", f"'{{{table.oid}}}'")
        found = [text for batch in connection.query(query) for text in batch.column(1).to_pylist()]
        if found != [form]:
            raise ConnectionFailed(
                f"The table {table.id} was altered while its snapshot was being read.",
                "Start again with the same checkpoint: the remaining rows are read under a new snapshot.",
            )
        if overridden:
            connection.execute(OWN)
        opened, ordinal = True, 0
        rows = conditions.rows(connection, statement, table.id) if asked else connection.query(statement)
        batches = (batch for batch in rows if batch.num_rows)
        pending = next(batches, None)
        while pending is not None:
            following = next(batches, None)
            yield _as_changes(table, pending, chunk, origin, ordinal, opened, following is None)
            opened, ordinal, pending = False, ordinal + pending.num_rows, following
    finally:
        connection.close()


def _hold(connection: ArrowConnection, source: str, snapshot: str) -> None:
    """Begin a transaction that reads under the exported `snapshot` and locks the table."""
    import adbc_driver_manager

    begun, take_over = "begin isolation level repeatable read read only", f"set transaction snapshot '{snapshot}'"
    try:
        # lock first, since that may wait; then take over the snapshot
        connection.begin(f"{begun}; lock table {source} in access share mode; {take_over}")
    except adbc_driver_manager.Error as error:
        if not is_forbidden(error):
            raise
        connection.execute("rollback")
        connection.begin(f"{begun}; {take_over}")
        connection.execute(locking(source))


def _as_changes(
    table: TableSchema,
    rows: pa.RecordBatch,
    chunk: Chunk,
    origin: SnapshotOrigin,
    ordinal: int,
    opened: bool,
    closes: bool,
) -> ChangeBatch:
    marker = np.full(rows.num_rows, Marker.TRUE, np.uint8)
    for row, kind in markers(chunk, rows.num_rows, opened, closes):
        marker[row] = kind
    columns = [texts(rows.column(place), column) for place, column in enumerate(table.columns)]
    # an ordinal of chunk number and row is unique within the snapshot
    return as_reads(table, columns, (chunk.number << 40) + ordinal, marker, origin, origin.lsn)


def as_reads(
    table: TableSchema,
    columns: list[pa.Array],
    ordinal: int,
    marker: npt.NDArray[np.uint8],
    origin: SnapshotOrigin,
    commit_lsn: int,
) -> ChangeBatch:
    """Return rows, one for each marker, as `r` changes of one transaction, with ordinals from `ordinal` on."""
    count = len(marker)
    one = np.ones(1, np.int64)
    return ChangeBatch(
        table=table,
        op=np.full(count, ord("r"), np.uint8),
        lsn=np.full(count, origin.lsn, np.int64),
        transaction=np.zeros(count, np.int32),
        ordinal=np.arange(ordinal, ordinal + count, dtype=np.int64),
        transactions=Transactions(
            xid=one * origin.xid,
            commit_lsn=one * commit_lsn,
            commit_us=one * origin.at_us,
            previous_end=one * origin.previous_end,
        ),
        before=None,
        after=Image(None, columns, [None] * len(columns)),
        marker=marker,
    )
