"""Queries whose rows come as Arrow record batches, over ADBC. Planner and worker.

The module uses ADBC's low-level objects instead of its DB-API module. That imports pyarrow.dataset, and pandas if it is
installed, which would take half of a planner's start.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from tailrace.connectors.postgres.server.connection import Address, explain_tls, initial_statement_failed
from tailrace.errors import ConnectionFailed


class ArrowConnection:
    """A connection to `address`, in autocommit mode.

    Raises adbc_driver_manager.Error, which has the server's `sqlstate`; ConnectionFailed if TLS fails;
    PrerequisiteError if an initial statement fails. Read the rows of a query to their end before the next query.
    """

    def __init__(self, address: Address) -> None:
        import adbc_driver_manager
        import adbc_driver_postgresql

        self._driver = adbc_driver_manager
        try:
            self._database = adbc_driver_postgresql.connect(address.login())
            try:
                self._connection = adbc_driver_manager.AdbcConnection(self._database)
            except BaseException:
                self._database.close()
                raise
        except adbc_driver_manager.Error as error:
            found = None if getattr(error, "sqlstate", None) else explain_tls(str(error), address.uri)
            if found is None:
                raise
            raise found from None
        self._statement: Any = None
        # True while rows of a query are still to come
        self._is_reading = False
        try:
            for statement in address.opening():
                self.execute(statement)
        except BaseException as error:
            ArrowConnection.close(self)
            if isinstance(error, adbc_driver_manager.Error):
                # the server's text may hold values that the statement computed
                raise initial_statement_failed(f"SQLSTATE {getattr(error, 'sqlstate', None)}") from None
            raise

    def query(self, sql: str) -> Iterator[pa.RecordBatch]:
        """Run `sql` and return its rows as they arrive, in batches of some 16 MB.

        Raises ConnectionFailed if the server ends the query half-way, for which the driver gives no SQLSTATE.
        """
        self._finish()
        self._statement = self._driver.AdbcStatement(self._connection)
        self._statement.set_sql_query(sql)
        stream, _ = self._statement.execute_query()
        self._is_reading = True
        return self._batches(pa.RecordBatchReader._import_from_c(stream.address))

    def _batches(self, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        try:
            yield from reader
            self._is_reading = False
        except (pa.ArrowException, OSError) as error:
            text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise ConnectionFailed(f"PostgreSQL ended a query: {text}") from None

    def execute(self, sql: str) -> None:
        """Run `sql` for its effect."""
        self._finish()
        self._statement = self._driver.AdbcStatement(self._connection)
        self._statement.set_sql_query(sql)
        self._statement.execute_update()

    def begin(self, sql: str) -> None:
        """Run `sql`, which begins a transaction, as a task's first statement on the connection."""
        self.execute(sql)

    def close(self) -> None:
        self._finish()
        self._connection.close()
        self._database.close()

    def _finish(self) -> None:
        if self._statement is not None:
            self._statement.close()
            self._statement = None


# Seconds for which an unused connection is kept: longer than Spark needs from one batch to the next.
KEPT_SECONDS = 10.0


class KeptConnection(ArrowConnection):
    """A connection that outlives its task: `close` ends the transaction and keeps the connection. Worker.

    The driver reads the server's types whenever it connects, which takes ten times as long as connecting. A process
    keeps one connection, and closes it after KEPT_SECONDS without use.
    """

    _kept: KeptConnection | None = None
    # runs while a connection has been kept for less than KEPT_SECONDS
    _timer: threading.Timer | None = None
    _lock = threading.Lock()

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self._address = address
        self._was_kept = False
        self._answered = time.monotonic()

    @classmethod
    def take(cls, address: Address) -> KeptConnection:
        """Return the connection kept for `address`, or a new one. Call `begin` first: a kept one may have ended."""
        with cls._lock:
            kept, cls._kept = cls._kept, None
        if kept is not None:
            if kept._address == address:
                return kept
            kept._end()
        return cls(address)

    def begin(self, sql: str) -> None:
        try:
            self.execute(sql)
        except self._driver.Error:
            if not self._was_kept or self._answers():
                raise
            self._end()
            super().__init__(self._address)
            self._was_kept = False
            self.execute(sql)

    def close(self) -> None:
        """Keep the connection for the next task; end it if rows are left to read, or if another connection is kept."""
        if not self._is_reading and self._answers():
            with self._lock:
                if type(self)._kept is None:
                    type(self)._kept, self._was_kept = self, True
                    if type(self)._timer is None:
                        self._watch(KEPT_SECONDS)
                    return
        self._end()

    def _answers(self) -> bool:
        """Roll back the transaction, if there is one; return True if the server has answered."""
        try:
            self.execute("rollback")
        except self._driver.Error:
            return False
        self._answered = time.monotonic()
        return True

    @classmethod
    def _watch(cls, seconds: float) -> None:
        """Check after `seconds` whether the kept connection has expired. Called with the lock."""
        cls._timer = threading.Timer(seconds, cls._expire)
        cls._timer.daemon = True
        cls._timer.start()

    @classmethod
    def _expire(cls) -> None:
        with cls._lock:
            cls._timer, kept = None, cls._kept
            if kept is None:
                return
            left = kept._answered + KEPT_SECONDS - time.monotonic()
            if left > 0:
                cls._watch(left)
                return
            cls._kept = None
        kept._end()

    def _end(self) -> None:
        super().close()
