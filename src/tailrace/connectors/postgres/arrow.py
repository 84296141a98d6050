"""Queries whose rows come as Arrow record batches, over ADBC. Planner and worker.

ADBC's low-level objects are used rather than its DB-API module: that one imports pyarrow's datasets, and pandas
where there is one, which would be half of what a planner needs to start.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from tailrace.errors import ConnectionFailed


class ArrowConnection:
    """One connection in autocommit mode, to the libpq address `uri`.

    Raises adbc_driver_manager.Error, which has the server's `sqlstate`. The rows of a query must have been read, or
    given up with `close`, before the next one.
    """

    def __init__(self, uri: str) -> None:
        import adbc_driver_manager
        import adbc_driver_postgresql

        self._driver = adbc_driver_manager
        self._database = adbc_driver_postgresql.connect(uri)
        try:
            self._connection = adbc_driver_manager.AdbcConnection(self._database)
        except BaseException:
            self._database.close()
            raise
        self._statement: Any = None

    def query(self, sql: str) -> Iterator[pa.RecordBatch]:
        """Run `sql` and give its rows as they arrive, in batches of some 16 MB.

        Raises ConnectionFailed when the server ends the query half-way: what it says then has no SQLSTATE here.
        """
        self._finish()
        self._statement = self._driver.AdbcStatement(self._connection)
        self._statement.set_sql_query(sql)
        stream, _ = self._statement.execute_query()
        return self._batches(pa.RecordBatchReader._import_from_c(stream.address))

    @staticmethod
    def _batches(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        try:
            yield from reader
        except (pa.ArrowException, OSError) as error:
            text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise ConnectionFailed(f"PostgreSQL ended a query: {text}") from None

    def execute(self, sql: str) -> None:
        """Run `sql` for its effect."""
        self._finish()
        self._statement = self._driver.AdbcStatement(self._connection)
        self._statement.set_sql_query(sql)
        self._statement.execute_update()

    def close(self) -> None:
        self._finish()
        self._connection.close()
        self._database.close()

    def _finish(self) -> None:
        if self._statement is not None:
            self._statement.close()
            self._statement = None
