"""The TDS test server as a source of the machine. It keeps its data in memory, so it cannot lose any.

A crash is an unreachable server: it ends all connections, rolls back their open transactions, and accepts no
connections for a while. Committed changes are there afterwards, as SQL Server promises; no test of this server can show
that none are lost.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytds

from tdsserver.process import TestDatabase, TestServer
from tests.chaos import changetables
from tests.chaos.changes import Change, Row, from_captured, key_of, row_of
from tests.chaos.changetables import SCHEMA, SIGNALS, TABLES, ChangeWriters, Oracle, clean_up
from tests.chaos.progress import CleanUp
from tests.chaos.source import Offset

DATABASE = "chaos"
DELETE, INSERT, AFTER = 1, 2, 4
"""Values of __$operation; 3 is an update's row before the change."""
DEADLOCK = 1205


def changes_of(table: str, found: Sequence[tuple[Any, ...]]) -> Iterator[tuple[bytes, Change]]:
    """Yield the changes in rows of a change table, each with its commit's position.

    A row is its commit, command, change and operation, then the values. A change of the key is a delete and an insert
    of one change.
    """
    made = TABLES[table]
    for commit, _, change, operation, *values in found:
        image = dict(zip(made.columns, values, strict=True))
        key = key_of({name: image[name] for name in made.key})
        at = (int.from_bytes(change, "big"), int.from_bytes(commit, "big"))
        if operation == DELETE:
            yield bytes(commit), Change(table, "d", key, None, *at)
        elif operation in (INSERT, AFTER):
            op = "c" if operation == INSERT else "u"
            yield bytes(commit), Change(table, op, key, row_of(image), *at)


class TdsSession:
    """A connection of python-tds."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            cursor.execute(statement)
            found = [tuple(row) for row in cursor.fetchall()] if cursor.description else []
            # Errors after a result appear once they are read.
            while cursor.nextset():
                continue
            return found

    def begin(self) -> None:
        self.rows("BEGIN TRANSACTION")

    def commit(self) -> None:
        self.rows("COMMIT TRANSACTION")

    def rollback(self) -> None:
        # The victim of a deadlock no longer has a transaction.
        self.rows("IF @@TRANCOUNT > 0 ROLLBACK TRANSACTION")

    def close(self) -> None:
        with suppress(Exception):
            self._connection.close()


class SqlServer:
    """A database with change data capture."""

    connector = "sqlserver"

    def __init__(self) -> None:
        self._oracle = Oracle(self)

    def open(self, stack: ExitStack) -> None:
        self._server = stack.enter_context(TestServer())
        self._database = TestDatabase(self._server, DATABASE)
        self._database.execute(f"CREATE SCHEMA {SCHEMA}")
        session = self.connect()
        try:
            changetables.make_tables(session, self._capture)
        finally:
            session.close()
        self.settle()

    def _capture(self, tables: Sequence[str]) -> None:
        self._database.enable(*(f"{SCHEMA}.{name}" for name in tables))

    # --- as the machine's source ---------------------------------------------------------------------------------

    @property
    def port(self) -> int:
        return self._server.port

    def options(self, port: int) -> dict[str, str]:
        return {
            "connector.class": "io.debezium.connector.sqlserver.SqlServerConnector",
            **self._database.options(), "database.port": str(port), "driver.encrypt": "false",
            "table.include.list": f"{SCHEMA}[.].*", "signal.data.collection": f"{DATABASE}.{SCHEMA}.{SIGNALS}",
        }  # fmt: skip

    def writers(self, seed: int, signals: bool, reads_first: Callable[[], bool]) -> ChangeWriters:
        return ChangeWriters(self, seed, signals, reads_first)

    def watch(self, checkpoint: Path) -> CleanUp:
        return clean_up(self, self._oracle, checkpoint)

    def record(self, topic: str, key: Any, value: Any) -> Change | None:
        return from_captured(topic, key, value, 3) if topic.rpartition(".")[2] in TABLES else None

    def committed(self, first: Offset) -> Iterator[tuple[Change, bool]]:
        return self._oracle.committed(changetables.begin_of(first))

    def rows(self) -> Mapping[str, Mapping[str, Row]]:
        session = self.connect()
        try:
            return changetables.tables_now(session)
        finally:
            session.close()

    def crash(self) -> None:
        self._server.down()

    def again(self) -> None:
        self._server.up()

    def end_sessions(self, choice: random.Random, all_of_them: bool) -> str | None:
        """End all sessions or none, because no session reads the log for a client here."""
        if not all_of_them:
            return None
        self._server.disconnect()
        return "all sessions"

    def described(self) -> list[str]:
        newest = self.newest().hex()
        return [f"captured to {newest}", *map(str, self._database.query("SELECT pending FROM sys.dm_test_log"))]

    def keep(self, folder: Path) -> None:
        """Do nothing: the server writes no log of its own."""

    # --- as a server with change tables --------------------------------------------------------------------------

    def connect(self) -> TdsSession:
        return TdsSession(self._database.connect())

    def meaning(self, error: Exception) -> str:
        number = getattr(error, "msg_no", 0)
        if number == DEADLOCK:
            return "conflict"
        return "away" if isinstance(error, (pytds.Error, OSError)) and not number else ""

    def collection(self, table: str) -> str:
        return f"{DATABASE}.{SCHEMA}.{table}"

    def settle(self) -> None:
        self._database.capture()

    def newest(self) -> bytes:
        ((newest,),) = self._database.query("SELECT sys.fn_cdc_get_max_lsn()")
        return bytes(newest)

    def changes(self, table: str, after: bytes, upto: bytes) -> Iterator[tuple[bytes, Change]]:
        """Return changes in the order of "cdc.<capture_instance>_CT": commit, command, change, operation."""
        own = "[__$start_lsn], [__$command_id], [__$seqval], [__$operation]"
        found = self._database.query(
            f"SELECT {own}, {', '.join(TABLES[table].columns)} FROM cdc.{SCHEMA}_{table}_CT "
            f"WHERE [__$start_lsn] > 0x{after.hex()} AND [__$start_lsn] <= 0x{upto.hex()} ORDER BY {own}"
        )
        yield from changes_of(table, found)

    def forget(self, through: bytes) -> None:
        for table in (*TABLES, SIGNALS):
            self._database.clean_up(f"{SCHEMA}_{table}", through)
