"""A session: its settings, its rights, its transaction and the results of its statements."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import duckdb

from tdsserver.errors import SqlError, unsupported
from tdsserver.log import CaptureInstance, Change, Transaction
from tdsserver.model import ColumnInfo, Database, Instance, Table
from tdsserver.sqltype import SqlType
from tdsserver.udf import recovered

_SPIDS = itertools.count(51)


@dataclass(slots=True)
class Rows:
    """A result set: columns, and rows in storage form as they are read."""

    columns: list[tuple[str, SqlType]]
    rows: Iterator[tuple[object, ...]]


@dataclass(frozen=True, slots=True)
class Count:
    """The end of a statement, with the number of changed rows; None for a statement without a count."""

    rows: int | None


@dataclass(frozen=True, slots=True)
class Info:
    """A message without error, such as PRINT's."""

    number: int
    text: str


@dataclass(frozen=True, slots=True)
class DatabaseChanged:
    """USE."""

    old: str
    new: str


@dataclass(frozen=True, slots=True)
class TransactionChanged:
    """A transaction began, ended with commit, or with rollback: 8, 9 or 10 of [MS-TDS] 2.2.7.9."""

    kind: int
    descriptor: int


Result = Rows | Count | Info | DatabaseChanged | TransactionChanged


@dataclass(slots=True)
class TableVariable:
    """DECLARE @x TABLE: its columns, and its rows in storage form."""

    columns: list[ColumnInfo]
    rows: list[tuple[object, ...]] = field(default_factory=list)


@dataclass(slots=True)
class Session:
    """A login's session. One thread uses it; the instance's lock guards what is shared."""

    instance: Instance
    database: Database
    login: str
    host: str = ""
    application: str = ""
    spid: int = field(default_factory=lambda: next(_SPIDS))
    depth: int = 0
    implicit: bool = False
    isolation: str = "read committed"
    xact_abort: bool = False
    row_count: int = 0
    last_error: int = 0
    lock_timeout: int = -1
    identity: int | None = None
    identity_insert: int = 0
    descriptor: int = 0
    variables: dict[str, tuple[SqlType, object]] = field(default_factory=dict)
    temporary: dict[str, tuple[Database, Table]] = field(default_factory=dict)
    table_variables: dict[str, TableVariable] = field(default_factory=dict)
    undo: list[Callable[[], None]] = field(default_factory=list)
    changes: dict[int, list[Change]] = field(default_factory=dict)
    begun: dict[int, tuple[bytes, int, int]] = field(default_factory=dict)
    events: list[Result] = field(default_factory=list)
    savepoints: dict[str, int] = field(default_factory=dict)
    writes: int = 0
    command: int = 0
    duck: duckdb.DuckDBPyConnection = field(init=False)
    inside: bool = False
    stopped: Callable[[], bool] = lambda: False

    def __post_init__(self) -> None:
        with self.instance.lock:
            self.duck = self.instance.duck.cursor()

    # Rights.

    @property
    def is_admin(self) -> bool:
        """A member of sysadmin: sa alone."""
        return self.login.casefold() == "sa"

    @property
    def user(self) -> str:
        """The database's user of this login."""
        return "dbo" if self.is_admin else self.database.users.get(self.login, "guest")

    def may_use(self, database: Database) -> bool:
        """Return True if the login has a user in the database."""
        system = database.name in ("master", "tempdb", "msdb")
        return self.is_admin or system or self.login in database.users

    def is_member(self, database: Database, role: str) -> int | None:
        """Return IS_ROLEMEMBER's answer: 1, 0, or None if there is no such role."""
        if self.is_admin:
            return 1 if any(database.same(known, role) for known in database.roles) or role == "sysadmin" else None
        for known, members in database.roles.items():
            if database.same(known, role):
                return int(database.users.get(self.login, "") in members or known == "public")
        return None

    def is_owner(self, database: Database) -> bool:
        """Return True if the login is a member of db_owner in the database."""
        return self.is_admin or self.is_member(database, "db_owner") == 1

    def demand(self, permission: str, database: Database, schema: str, name: str) -> None:
        """Raise SqlError 229 unless the login has the permission on the object."""
        if self.is_owner(database):
            return
        user = database.users.get(self.login)
        mine = {user or "guest", "public"} | {role for role, members in database.roles.items() if user in members}

        def among(found: set[tuple[str, str, str]]) -> bool:
            return any(
                who in mine and what in (permission, "CONTROL") and where.casefold() in (schema.casefold(), full)
                for what, where, who in found
            )

        full = f"{schema}.{name}".casefold()
        reader = {"SELECT": "db_datareader"}.get(permission, "db_datawriter")
        allowed = (self.is_member(database, reader) == 1 and schema.casefold() != "cdc") or among(database.granted)
        if not allowed or among(database.denied):
            raise SqlError(
                229,
                f"The {permission} permission was denied on the object '{name}', database '{database.name}', schema"
                f" '{schema}'.",
                14,
                5,
            )

    def reads_changes(self, database: Database, instance: CaptureInstance) -> bool:
        """Return True if the instance's gating role, @role_name, lets the login read its changes."""
        if self.is_owner(database):
            return True
        if instance.role is not None and self.is_member(database, instance.role) != 1:
            return False
        source = database.tables.get(instance.source_id)
        try:
            if source is not None:
                self.demand("SELECT", database, source.schema, source.name)
        except SqlError:
            return False
        return True

    # DuckDB.

    def run(self, sql: str) -> duckdb.DuckDBPyConnection:
        """Run DuckDB SQL in this session's transaction; DuckDB's errors become SQL Server's."""
        try:
            return self.duck.execute(sql)
        except duckdb.Error as error:
            raise translated(error, sql) from None

    def evaluate(self, sql: str) -> object:
        """Return the value of a DuckDB expression."""
        row = self.run(f"SELECT {sql}").fetchone()
        assert row is not None
        return row[0]

    def instance_max_lsn(self, database: Database) -> bytes | None:
        """Return the newest start_lsn of cdc.lsn_time_mapping (sys.fn_cdc_get_max_lsn); None if it is empty."""
        cdc = database.log.cdc
        if cdc is None:
            raise SqlError(
                22901,
                f"The database '{database.name}' is not enabled for Change Data Capture. Ensure that the"
                " correct database"
                " context is set and retry the operation. To report on the databases enabled for Change Data Capture,"
                " query the is_cdc_enabled column in the sys.databases catalog view.",
            )
        table = database.tables[cdc.mapping_id]
        found = self.evaluate(f"(SELECT max({table.columns[0].storage}) FROM {database.storage}.{table.storage})")
        return found if isinstance(found, bytes) else None

    # Transactions.

    def begin(self) -> None:
        """BEGIN TRANSACTION: only the outermost transaction counts."""
        if self.depth == 0:
            self.descriptor += 0x100000001
            self.events.append(TransactionChanged(8, self.descriptor))
            self.command = 0
        self.depth += 1

    def reading(self) -> None:
        """Prepare for a statement that reads: take a snapshot if the isolation level keeps one for the transaction."""
        if (
            self.isolation == "snapshot"
            and not self.database.snapshot_isolation
            and self.database.name
            not in (
                "master",
                "tempdb",
                "msdb",
            )
        ):
            raise SqlError(
                3952,
                f"Snapshot isolation transaction failed accessing database '{self.database.name}' because snapshot"
                " isolation is not allowed in this database. Use ALTER DATABASE to allow snapshot isolation.",
            )
        if self.implicit and self.depth == 0:
            self.begin()
        if self.depth and not self.inside and self.isolation not in ("read committed", "read uncommitted"):
            self.run("BEGIN TRANSACTION")
            self.inside = True

    def save(self, name: str) -> None:
        """SAVE TRANSACTION; raises SqlError 628 without one."""
        if self.depth == 0:
            raise SqlError(628, "Cannot issue SAVE TRANSACTION when there is no active transaction.")
        self.savepoints[name.casefold()] = self.writes

    def rollback_to(self, name: str) -> None:
        """ROLLBACK TRANSACTION to a savepoint. DuckDB has no savepoints, so nothing may have been written since."""
        if self.savepoints[name.casefold()] != self.writes:
            raise unsupported("ROLLBACK to a savepoint behind which something was written")

    def writing(self, database: Database) -> None:
        """Prepare for a statement that writes: begin a transaction in DuckDB and in the log."""
        self.reading()
        self.writes += 1
        if not self.inside:
            self.run("BEGIN TRANSACTION")
            self.inside = True
        if database.id not in self.begun:
            self.begun[database.id] = (database.log.lsn(), self.instance.now(), database.log.transaction_id())

    def commit(self, all_levels: bool = False) -> None:
        """COMMIT TRANSACTION; raises SqlError 3902 without one."""
        if self.depth == 0 and not all_levels:
            raise SqlError(3902, "The COMMIT TRANSACTION request has no corresponding BEGIN TRANSACTION.")
        self.depth = max(0, self.depth - 1)
        if self.depth:
            return
        with self.instance.lock:
            if self.inside:
                self.inside = False
                try:
                    self.run("COMMIT")
                except SqlError:
                    self._forget(undo=True)
                    raise
            for database in self.instance.databases.values():
                if database.id in self.begun and self.changes.get(database.id):
                    begin, time, number = self.begun[database.id]
                    lsn = database.log.lsn()
                    changes = self.changes[database.id]
                    database.log.pending.append(Transaction(begin, lsn, time, self.instance.now(), number, changes))
                    database.log.flush()
        self._forget()
        self.events.append(TransactionChanged(9, self.descriptor))

    def rollback(self) -> None:
        """ROLLBACK TRANSACTION of all levels; raises SqlError 3903 without one."""
        if self.depth == 0:
            raise SqlError(3903, "The ROLLBACK TRANSACTION request has no corresponding BEGIN TRANSACTION.")
        self.depth = 0
        if self.inside:
            self.inside = False
            self.run("ROLLBACK")
        self._forget(undo=True)
        self.events.append(TransactionChanged(10, self.descriptor))

    def _forget(self, undo: bool = False) -> None:
        if undo:
            with self.instance.lock:
                for action in reversed(self.undo):
                    action()
        self.undo, self.changes, self.begun, self.savepoints = [], {}, {}, {}

    def atomically(self, database: Database, work: Callable[[], int]) -> int:
        """Run a writing statement, in a transaction of its own if there is none; return the number of changed rows."""
        own = self.depth == 0 and not self.implicit
        if own:
            self.begin()
        self.writing(database)
        marks = {number: len(changes) for number, changes in self.changes.items()}
        try:
            count = work()
        except SqlError as error:
            if own or self.xact_abort or error.number == 1205 or self.broken():
                self.rollback()
            else:
                for number, changes in self.changes.items():
                    del changes[marks.get(number, 0) :]
            if own:
                self.events = [e for e in self.events if not isinstance(e, TransactionChanged)]
            raise
        if own:
            self.commit()
            self.events = [e for e in self.events if not isinstance(e, TransactionChanged)]
        self.row_count = count
        return count

    def broken(self) -> bool:
        """Return True if a failed statement has made DuckDB give the transaction up."""
        if not self.inside:
            return False
        try:
            self.duck.execute("SELECT 1")
        except duckdb.Error:
            return True
        return False

    def changed(self, database: Database, change: Change) -> None:
        """Add a change to the transaction."""
        self.changes.setdefault(database.id, []).append(change)

    def close(self) -> None:
        """Roll back and close, as the server does when the connection ends."""
        if self.depth:
            self.rollback()
        self.duck.close()


def translated(error: duckdb.Error, sql: str) -> SqlError:
    """Return SQL Server's error for an error of DuckDB; 50001 if SQL Server has none."""
    text = str(error)
    found = recovered(text)
    if found is not None:
        return found
    line = text.splitlines()[0]
    if isinstance(error, duckdb.TransactionException) or "onflict" in line:
        return SqlError(
            1205,
            "Transaction was deadlocked on lock resources with another process and has been chosen as the"
            " deadlock victim."
            " Rerun the transaction.",
            13,
            51,
        )
    if isinstance(error, duckdb.OutOfRangeException):
        return SqlError(8115, "Arithmetic overflow error converting expression to data type.", 16, 2)
    if isinstance(error, duckdb.ConversionException):
        return SqlError(8114, f"Error converting data type: {line}")
    return unsupported(f"this statement ({line}; {sql[:300]})")
