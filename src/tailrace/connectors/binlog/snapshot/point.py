"""The consistent point of a snapshot: sessions that all see one state, and its place in the log. Planner.

The point is taken with as little locking as the server and the user's rights allow:

- MariaDB and Percona Server show the log position of a consistent snapshot, so nothing is locked. Sessions begin again
  until all have the same position.
- Otherwise a global read lock is held for the milliseconds in which the sessions begin.
- If the user may not take this lock, the captured tables are locked instead, for the same time.
- Without any of these rights the position is read before the sessions begin. Transactions committed in between are both
  in the rows and in the log; rows with a key still converge.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tailrace.connectors.binlog.dialect import MARIADB, Dialect
from tailrace.connectors.binlog.log.gtids import MariadbGtids, MysqlGtids
from tailrace.connectors.binlog.log.position import BinlogPosition
from tailrace.connectors.binlog.log.position import number_of as number_of_file
from tailrace.connectors.binlog.server.errors import number_of
from tailrace.connectors.binlog.snapshot.keys import literal, quoted
from tailrace.connectors.binlog.snapshot.result import named_rows, rows, run
from tailrace.errors import ConnectionFailed, PrerequisiteError
from tailrace.process.runtime import Runtime

if TYPE_CHECKING:
    from pymysql.connections import Connection

log = logging.getLogger("tailrace")

Table = tuple[str, str]
"""A database and a table."""

# The most attempts to begin all sessions at one position; and, without locks, at a moment without commits.
_TRIES, _QUIET_TRIES, _PAUSE = 20, 5, 0.1
# Seconds for which a snapshot waits for prepared XA transactions to end.
XA_SECONDS, _XA_PAUSE = 60.0, 0.5
_GLOBAL = "flush tables with read lock"
_BEGIN = "start transaction with consistent snapshot, read only"
_REFUSED = {1044, 1045, 1142, 1227}
_NO_TABLE = {1051, 1146, 1347}
_LOCK_TIMEOUT = {1205, 3024}
_NO_XA_RIGHT = {1227, 1401, 1399}
_NO_LOG = "The server writes no binary log, or does not tell its position."


@dataclass(frozen=True, slots=True)
class Point:
    """A place in the log at which a snapshot shows the tables.

    `pos` is the position in `file` after the last visible transaction, and `gtids` are the transactions executed up to
    it ("" without ids). `at_us` is the time at which the point was taken, in µs since 1970. `is_exact` is False if rows
    may show later transactions.
    """

    file: str
    pos: int
    gtids: str
    at_us: int
    is_exact: bool = True


@dataclass(frozen=True, slots=True)
class RowOrigin:
    """Origin of rows for their source blocks: file and `pos`; for a window also the transaction of its event.

    `start` is the transaction's position in the file, by which rows sort among the changes of the log. `source` and
    `number` are its id (`source` "": none), `thread` is its session.
    """

    file: str
    pos: int
    at_us: int
    epoch: int = 0
    start: int = -1
    source: str = ""
    number: int = 0
    separator: str = ":"
    thread: int = -1
    server_id: int = 0


class HeldPoint:
    """Sessions in one state. `close` ends them, and the lock of snapshot.locking.mode=extended.

    `is_global` is True while a lock is held that blocks all writes to all tables.
    """

    def __init__(
        self,
        point: Point,
        sessions: list[Connection[Any]],
        lock: Connection[Any] | None = None,
        *,
        is_global: bool = False,
    ) -> None:
        self.point, self.sessions = point, sessions
        self.is_global = is_global
        self._lock = lock

    def close(self) -> None:
        for session in (*self.sessions, *([] if self._lock is None else [self._lock])):
            with suppress(Exception):
                session.close()
        self.sessions.clear()


@dataclass(slots=True)
class PointTaking:
    """Takes consistent points. `connect` opens a session; `mode` and `lock_ms` are options of snapshots."""

    connect: Callable[[], Connection[Any]]
    dialect: Dialect
    mode: str
    lock_ms: int
    runtime: Runtime
    releases: bool = True
    """False if a session keeps metadata locks until its transaction ends: on MariaDB, unless the user may set
    sql_log_bin."""
    _sessions: list[Connection[Any]] = field(default_factory=list)

    def take(self, count: int, tables: Sequence[Table]) -> HeldPoint:
        """Return `count` sessions in one state. `tables` are the tables that will be read.

        Raises PrerequisiteError, ConnectionFailed, and PyMySQL's errors.
        """
        deadline = self.runtime.monotonic() + XA_SECONDS
        while True:
            held = self._taken(count, tables)
            try:
                prepared = self._prepared(held.sessions[0])
            except BaseException:
                # the lock must not outlive the attempt
                held.close()
                raise
            if not prepared:
                return held
            held.close()
            if self.runtime.monotonic() >= deadline:
                raise PrerequisiteError(
                    f"{prepared} XA transactions are prepared and neither committed nor rolled back: their rows are "
                    "neither in the tables nor in the log from here on.",
                    "End them (XA RECOVER lists them; XA COMMIT or XA ROLLBACK), and start again.",
                )
            log.info("the snapshot waits for %d prepared XA transactions", prepared)
            self.runtime.sleep(_XA_PAUSE)

    def _prepared(self, session: Connection[Any]) -> int:
        """Return the number of prepared XA transactions; 0 if the user may not list them."""
        import pymysql

        try:
            return len(rows(session, "xa recover"))
        except pymysql.err.MySQLError as error:
            if number_of(error) not in _NO_XA_RIGHT:
                raise
            log.info("the user may not list prepared XA transactions (XA_RECOVER_ADMIN): none are waited for")
            return 0

    def _taken(self, count: int, tables: Sequence[Table]) -> HeldPoint:
        self._sessions = []
        try:
            self._sessions += [self._reader() for _ in range(count)]
            return self._by_own_place() or self._under_lock(tables) or self._without_lock()
        except BaseException:
            HeldPoint(Point("", 0, "", 0), self._sessions).close()
            raise

    def _reader(self) -> Connection[Any]:
        """Return a session that reads rows."""
        import pymysql

        session = self.connect()
        if self.dialect is MARIADB:
            try:
                run(session, "set session sql_log_bin = 0")
            except pymysql.err.MySQLError as error:
                if number_of(error) not in _REFUSED:
                    session.close()
                    raise
                self.releases = False
        return session

    def later(self) -> Connection[Any]:
        """Return a session in a later state than the sessions of `take`, for rows that changes from the log will
        correct."""
        session = self._reader()
        try:
            run(session, _BEGIN)
        except BaseException:
            session.close()
            raise
        return session

    # --- ways --------------------------------------------------------------------------------------------------------

    def _by_own_place(self) -> HeldPoint | None:
        """Begin all sessions until they have the same position; return None if the server does not show positions."""
        if self.mode == "extended":
            return None
        for _ in range(_TRIES):
            self._begin()
            places = [own_place(session) for session in self._sessions]
            if any(place is None for place in places):
                return None
            if len(set(places)) == 1 and places[0] is not None:
                return HeldPoint(self._point(self._sessions[0], *places[0]), self._sessions)
        log.info("the sessions of the snapshot stand at different places after %d tries", _TRIES)
        return None

    def _under_lock(self, tables: Sequence[Table]) -> HeldPoint | None:
        """Begin all sessions under a lock; return None if the user may take none, or snapshot.locking.mode is none."""
        if self.mode == "none":
            return None
        statements = [_GLOBAL]
        if self.mode != "minimal_percona_no_table_locks" and tables:
            names = [f"{quoted(database)}.{quoted(table)}" for database, table in tables]
            statements.append(f"flush tables {', '.join(names)} with read lock")
            if self.dialect is not MARIADB:
                # needs no RELOAD; in MariaDB it does not wait for transactions that have written to the tables
                statements.append(f"lock tables {', '.join(f'{name} read' for name in names)}")
        for statement in statements:
            lock = self._locked(statement)
            if lock is None:
                continue
            try:
                self._begin()
                held = HeldPoint(self._present(lock), self._sessions, lock, is_global=statement == _GLOBAL)
                if self.mode != "extended":
                    lock.close()
                    held = HeldPoint(held.point, self._sessions)
                return held
            except BaseException:
                lock.close()
                raise
        return None

    def _locked(self, statement: str) -> Connection[Any] | None:
        """Return a session that holds the lock; None if the user may not take it.

        A session that waits for the lock blocks writes, so it waits for at most snapshot.lock.timeout.ms.
        """
        import pymysql

        lock = self.connect()
        try:
            seconds = max(1, math.ceil(self.lock_ms / 1000))
            run(lock, f"set session lock_wait_timeout = {seconds}, session innodb_lock_wait_timeout = {seconds}")
            run(lock, statement)
            return lock
        except pymysql.err.MySQLError as error:
            lock.close()
            number = number_of(error)
            if number in _REFUSED or number in _NO_TABLE:
                return None
            if number in _LOCK_TIMEOUT:
                raise ConnectionFailed(
                    f"The lock under which the snapshot begins was not free within {seconds} s.",
                    "See which statements run for long (SHOW PROCESSLIST), or raise snapshot.lock.timeout.ms.",
                ) from None
            raise
        except BaseException:
            lock.close()
            raise

    def _without_lock(self) -> HeldPoint:
        """Read the position before the sessions begin, preferably in a moment without commits."""
        control = self._sessions[0]
        for number in range(_QUIET_TRIES):
            self._end()
            before = self._present(control)
            # transactions in the log become visible a moment later
            self.runtime.sleep(_PAUSE)
            self._begin()
            after = self._present(control)
            if (before.file, before.pos, before.gtids) == (after.file, after.pos, after.gtids):
                return HeldPoint(before, self._sessions)
            if number == _QUIET_TRIES - 1:
                log.warning(
                    "the snapshot begins without a lock while others write: its rows may show changes that the log "
                    "brings again. Rows with a key come out right; rows of tables without a key may come twice. The "
                    "remedy: %s",
                    "leave snapshot.locking.mode=none out"
                    if self.mode == "none"
                    else "grant RELOAD, or LOCK TABLES on the captured tables, to the user",
                )
                return HeldPoint(
                    Point(before.file, before.pos, before.gtids, before.at_us, is_exact=False), self._sessions
                )
        raise AssertionError

    # --- places ------------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        for session in self._sessions:
            run(session, "rollback")
            run(session, _BEGIN)

    def _end(self) -> None:
        for session in self._sessions:
            run(session, "rollback")

    def _present(self, session: Connection[Any]) -> Point:
        """Return the end of the log."""
        file, pos, gtids = end_of_log(session)
        return self._point(session, file, pos, gtids)

    def _point(self, session: Connection[Any], file: str, pos: int, gtids: str) -> Point:
        if self.dialect is MARIADB:
            ((found,),) = rows(session, f"select binlog_gtid_pos({literal(file)}, {pos})")
            gtids = found or ""
        seconds = self.runtime.time_ns() // 1_000_000_000
        return Point(file, pos, "".join(gtids.split()), seconds * 1_000_000)


def end_of_log(session: Connection[Any]) -> tuple[str, int, str]:
    """Return the file, the position and the executed transactions at the end of the log.

    Raises PrerequisiteError, and PyMySQL's errors.
    """
    import pymysql

    try:
        found = named_rows(session, "show master status")
    except pymysql.err.ProgrammingError as error:
        if number_of(error) != 1064:
            raise
        found = named_rows(session, "show binary log status")
    if not found or not found[0].get("File"):
        raise PrerequisiteError(_NO_LOG, "Set log_bin and server_id in the server's configuration, and restart it.")
    return str(found[0]["File"]), int(found[0]["Position"] or 0), str(found[0].get("Executed_Gtid_Set") or "")


def is_behind(file: str, pos: int, at: BinlogPosition) -> bool:
    """Return True if a snapshot at a place between transactions shows what was delivered up to `at`, on the same
    server."""
    place = number_of_file(file), pos
    if at.consumed is not None:
        # the partly delivered transaction begins at `at.start`
        return place > (number_of_file(at.file), at.start)
    return place >= (number_of_file(at.file), at.end)


def has_ids(gtids: str, at: BinlogPosition, dialect: Dialect) -> bool:
    """Return True if `gtids` contains all transactions that were delivered up to `at`, also on another server."""
    shown = MariadbGtids(gtids) if dialect is MARIADB else MysqlGtids(gtids)
    return all(shown.contains(type(shown)(text)) for text in (at.gtids, at.gtid) if text)  # type: ignore[arg-type]


def own_place(session: Connection[Any]) -> tuple[str, int, str] | None:
    """Return the file, position and executed ids of the session's snapshot; None if the server does not show them."""
    variables = rows(session, "show status like 'binlog\\_snapshot\\_%'")
    found = {str(name).lower(): text for name, text in variables}
    file, pos = found.get("binlog_snapshot_file"), found.get("binlog_snapshot_position")
    if not file or not pos:
        return None
    return file, int(pos), found.get("binlog_snapshot_gtid_executed") or ""
