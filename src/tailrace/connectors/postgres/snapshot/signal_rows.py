"""Rows of the signal table in the log: signals and watermarks. Planner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tailrace.columns.batch import ChangeBatch
from tailrace.columns.table import TableSchema
from tailrace.connectors.postgres.log.indexed_run import Rows
from tailrace.connectors.postgres.log.row_log import PostgresRowLog
from tailrace.connectors.postgres.protocol.position import transactions_of
from tailrace.connectors.postgres.snapshot.key_chunks import WindowOrigin
from tailrace.log.rows.partitioning import changes_of
from tailrace.snapshot.signals import Signal


class SignalRow(NamedTuple):
    """A row of the signal table that was inserted or deleted at `lsn`, and the commit of that change."""

    signal: Signal
    op: str
    lsn: int
    commit: WindowOrigin


def logged(rows: Sequence[Rows], versions: Sequence[TableSchema], name: tuple[str, str] | None) -> list[SignalRow]:
    """Return the inserts and deletes of the signal table `name`, `(schema, table)`, among `rows`, in log order."""
    if name is None or not rows:
        return []
    found: list[SignalRow] = []
    for oid in {table.oid for table in versions if (table.id.schema, table.id.table) == name}:
        for batch in changes_of(PostgresRowLog(), rows, versions, oid):
            found += _of(batch)
    return sorted(found, key=lambda one: (one.commit.position, one.lsn))


def _of(batch: ChangeBatch) -> list[SignalRow]:
    """Return the inserts and deletes of a batch. Id, type and data are the table's first three columns."""
    found, transactions = [], transactions_of(batch)
    for row in np.flatnonzero((batch.op == ord("c")) | (batch.op == ord("d"))).tolist():
        image = batch.after if batch.op[row] == ord("c") else batch.before
        if image is None or len(image.columns) < 3:
            continue
        texts = [column[row].as_py() for column in image.columns[:3]]
        id_, kind, data = (None if text is None else text.decode("utf-8", "replace") for text in texts)
        of, lsn = int(batch.transaction[row]), int(batch.lsn[row])
        commit = WindowOrigin(
            int(transactions.xid[of]),
            lsn,
            int(transactions.previous_end[of]),
            int(transactions.commit_lsn[of]),
            int(transactions.commit_us[of]),
        )
        found.append(SignalRow(Signal(id_ or "", kind or "", data), chr(batch.op[row]), lsn, commit))
    return found
