"""Failures of a signal's SQL. Planner and worker.

The planner first runs the SQL over the rows to read, under the same snapshot. A table whose condition fails there is
left out, and the offset records that. If the condition fails later in a task (a time-out, a function with another
result), the failure is logged, and the task yields no more rows: a task that raises would raise again at each start.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tailrace.errors import ConnectionFailed

if TYPE_CHECKING:
    import pyarrow as pa

    from tailrace.columns.table import TableId
    from tailrace.connectors.postgres.server.arrow import ArrowConnection

log = logging.getLogger("tailrace")

REMEDY = "Correct the condition, or the rights of the connector's role, and send the signal again."

# Classes of SQLSTATEs that are not the statement's fault: connection, conflict, resources, operator, system. The same
# statement may succeed later.
_PASSING = ("08", "40", "53", "57", "58")
# A lock that was not granted in time.
LOCK_NOT_AVAILABLE = "55P03"
# A statement that statement_timeout ended.
_CANCELED = "57014"


def is_passing(sqlstate: str | None) -> bool:
    """Return True if a statement that failed with `sqlstate` may succeed later; None: the connection is lost."""
    return sqlstate is None or sqlstate == LOCK_NOT_AVAILABLE or sqlstate.startswith(_PASSING)


def is_own_fault(sqlstate: str | None) -> bool:
    """Return True if a signal's SQL is itself the cause, also by taking longer than the server allows."""
    return sqlstate == _CANCELED or not is_passing(sqlstate)


def counted(query: str) -> str:
    """Return a query that counts the rows of `query` and computes every column of every row."""
    return f'select pg_catalog.count("tailrace rows") from ({query}\n) as "tailrace rows"'


def rows(connection: ArrowConnection, query: str, table: TableId) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a query with a signal's SQL, in a transaction; if it fails, only the rows before the failure.

    Raises ConnectionFailed for failures that are not the query's own. Worker.
    """
    import adbc_driver_manager

    connection.execute("savepoint tailrace_rows")
    try:
        yield from connection.query(query)
    except (adbc_driver_manager.Error, ConnectionFailed) as error:
        state = getattr(error, "sqlstate", None)
        if not state:
            # the driver gives no SQLSTATE for a query that fails half-way
            try:
                state = _again(connection, query)
            except adbc_driver_manager.Error:
                raise error from None
        # the server's text may hold values that the condition computed
        if state and not is_own_fault(state):
            raise ConnectionFailed(
                f"Reading {table} for the snapshot failed with SQLSTATE {state}.",
                "Start again with the same checkpoint: the chunks that are done are not read again.",
            ) from None
        log.warning(
            "the condition of a signal for %s fails with SQLSTATE %s: the rest of its rows is left out of the "
            "snapshot. %s",
            table,
            state or "unknown",
            REMEDY,
        )


def _again(connection: ArrowConnection, query: str) -> str:
    """Run `query` again and return the SQLSTATE of its failure, "" if it succeeds. Raises if the session has ended."""
    import adbc_driver_manager

    connection.execute("rollback to savepoint tailrace_rows")
    try:
        connection.execute(counted(query))
    except adbc_driver_manager.Error as error:
        state = getattr(error, "sqlstate", None)
        if not state:
            raise
        return str(state)
    return ""
