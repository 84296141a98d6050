"""SQL that a signal brings, and what comes of it when it fails. Planner and worker.

The planner runs it once over the rows that are going to be read, under the same snapshot: a table whose condition
fails there is left out, and the offset says so. What fails in a task nonetheless (a time-out, a function that answers
otherwise) is logged, and the task gives no more rows: a task that fails would fail again at each start.
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

# Classes of SQLSTATEs that are not the statement's: the connection, a conflict, too few resources, an operator's
# intervention, the system. The same statement may be answered later.
_PASSING = ("08", "40", "53", "57", "58")
# A lock that was not granted in time.
LOCK_NOT_AVAILABLE = "55P03"
# What statement_timeout ends a statement with.
_CANCELED = "57014"


def is_passing(sqlstate: str | None) -> bool:
    """Whether a statement that failed so may be answered later; without SQLSTATE the connection is lost."""
    return sqlstate is None or sqlstate == LOCK_NOT_AVAILABLE or sqlstate.startswith(_PASSING)


def is_own_fault(sqlstate: str | None) -> bool:
    """Whether a signal's SQL has failed by itself: also by taking longer than the server allows."""
    return sqlstate == _CANCELED or not is_passing(sqlstate)


def counted(query: str) -> str:
    """A query for the number of rows that `query` gives, which computes every column of every row."""
    return f'select pg_catalog.count("tailrace rows") from ({query}\n) as "tailrace rows"'


def rows(connection: ArrowConnection, query: str, table: TableId) -> Iterator[pa.RecordBatch]:
    """The rows of a query that holds a signal's SQL, in a transaction; those before its failure where it fails.

    Raises ConnectionFailed for failures that are not the query's own. Worker.
    """
    import adbc_driver_manager

    connection.execute("savepoint tailrace_rows")
    try:
        yield from connection.query(query)
    except (adbc_driver_manager.Error, ConnectionFailed) as error:
        state = getattr(error, "sqlstate", None)
        if not state:
            # the driver has none for a query that ends half-way
            try:
                state = _again(connection, query)
            except adbc_driver_manager.Error:
                raise error from None
        # the server's words may hold what the condition computed
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
    """The SQLSTATE with which `query` fails, empty where it does not this time. Raises when the session has ended."""
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
