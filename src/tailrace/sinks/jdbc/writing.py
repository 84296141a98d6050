"""Execution of the statements for changes. Equal statements are executed together. Driver."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tailrace.sinks.jdbc import tables
from tailrace.sinks.jdbc.changes import Cell
from tailrace.sinks.jdbc.done import BatchPlace, BatchProgress
from tailrace.sinks.jdbc.tables import Name, Statement, TableCache
from tailrace.sinks.writer import Record

if TYPE_CHECKING:
    import psycopg

log = logging.getLogger("tailrace")


@dataclass(frozen=True, slots=True)
class RowStatement:
    """The statement for a record.

    The table must have the columns of `key` and `row`; if `row` is None, the statement needs no columns and is skipped
    for a missing table. A delete has the row's key in `taken`; if the row gets another key, `moved` is that key, and
    `first`, executed before the statement, gives it to the row. `otherwise` is executed if the statement finds no
    row; `unknown` names the columns whose values `otherwise` lacks. `left_out` are the record's columns that options
    leave out.
    """

    table: Name
    statement: Statement
    key: Sequence[Cell] = ()
    row: Sequence[Cell] | None = None
    otherwise: Statement | None = None
    unknown: tuple[str, ...] = ()
    first: Statement | None = None
    left_out: tuple[str, ...] = ()
    taken: Sequence[Cell] = ()
    moved: Sequence[Cell] = ()


Planned = tuple[Record, RowStatement, BatchPlace]
"""A record, its statement, and the place after it in its batch."""


class StatementWriter:
    """Executes planned statements, and records the progress in the same transaction."""

    def __init__(self, known: TableCache, done: BatchProgress) -> None:
        self._tables, self._done = known, done
        self._told: set[Name] = set()

    def flush(self, connection: psycopg.Connection[Any], planned: Sequence[Planned]) -> None:
        """Write changes in one transaction. Consecutive changes with the same SQL are executed together."""
        if not planned:
            return
        handed = self._done.handed
        try:
            self._write(connection, planned)
            connection.commit()
            handed.committed()
        except BaseException:
            handed.rolled_back()
            raise

    def _write(self, connection: psycopg.Connection[Any], planned: Sequence[Planned]) -> None:
        with connection.cursor() as cursor:
            run: list[RowStatement] = []
            for record, change, _ in planned:
                if change.row is None:
                    if not self._tables.has(connection, change.table):
                        continue
                else:
                    self._tables.fit(connection, change.table, change.key, change.row, change.left_out)
                if run and (change.first is not None or change.statement[0] != run[0].statement[0]):
                    self._execute(cursor, run)
                    run = []
                if not change.taken or not self._passes(cursor, record, change):
                    run.append(change)
            if run:
                self._execute(cursor, run)
            self._done.keep(cursor, planned[-1][2])
            newest = {change.table: _transaction(record) for record, change, _ in planned if record["op"] != "r"}
            self._done.keep_handed(cursor, newest)

    def _passes(self, cursor: psycopg.Cursor[Any], record: Record, change: RowStatement) -> bool:
        """Give a row that changes its key the new one. Return True if there is nothing to delete: another row has
        taken the place of the deleted one in this transaction.

        If the new key has a row, whose own delete is still to come, the moved row will take its place.
        """
        handed, batch, transaction = self._done.handed, self._done.batch, _transaction(record)
        change_of = record["position"], record["ordinal"]
        if handed.has_passed(*change_of, batch):
            return True
        who, to = _texts(change.taken), _texts(change.moved)
        is_passed = handed.passes(transaction, change.table, who, change_of, batch)
        if change.first is None:
            return is_passed
        if is_passed:
            is_taken = tables.exists(cursor, change.table, change.moved)
        else:
            cursor.execute(change.first[0].encode(), change.first[1])
            is_taken = (
                not cursor.rowcount
                and tables.exists(cursor, change.table, change.taken)
                and tables.exists(cursor, change.table, change.moved)
            )
        if is_taken and who != to:
            handed.expect(transaction, change.table, to)
        return is_passed

    def _execute(self, cursor: psycopg.Cursor[Any], run: Sequence[RowStatement]) -> None:
        """Execute changes with the same SQL, and `otherwise` for each change that finds no row."""
        statement = run[0].statement[0].encode()
        # each statement's own count: the sum would hide a missing row beside two rows of one key
        counted = run[0].otherwise is not None
        cursor.executemany(statement, [change.statement[1] for change in run], returning=counted)
        is_found = not counted or cursor.rowcount > 0
        while counted and cursor.nextset():
            is_found = is_found and cursor.rowcount > 0
        if is_found:
            return
        for change in run:
            cursor.execute(statement, change.statement[1])
            if not cursor.rowcount and change.otherwise is not None:
                cursor.execute(change.otherwise[0].encode(), change.otherwise[1])
                self._tell_unknown(change)

    def _tell_unknown(self, change: RowStatement) -> None:
        """Log a warning, once per table, for a row with values that neither the log nor the table has."""
        if change.table not in self._told:
            self._told.add(change.table)
            log.warning(
                "jdbc: %s had no row for a change that leaves out %s, which is null there now. Read such rows by an "
                "incremental snapshot, and let the log carry whole rows: REPLICA IDENTITY FULL, binlog_row_image=FULL.",
                tables.shown(change.table),
                ", ".join(change.unknown),
            )


def _transaction(record: Record) -> str:
    return str(record["transaction"] or record["position"])


def _texts(key: Sequence[Cell]) -> tuple[str | None, ...]:
    return tuple(cell.text for cell in key)
