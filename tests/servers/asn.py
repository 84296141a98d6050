"""The capture program of Db2's SQL replication (ASN), played for the tests. Knows nothing of the product.

On a real Db2 the program `asncap` reads the log and writes, for each registered table, a change-data table (CD
table). Here triggers note every changed row, in the transaction that changes it, and `capture` does with the notes
what `asncap` does with the log. Every rule that is played is named at the line that plays it; they are from IBM's
"SQL Replication Guide and Reference", chapter on the control tables at the Capture control server:

* IBMSNAP_REGISTER: a row for each source table, and one global row, whose SYNCHPOINT tells how far the log is read.
  CD_NEW_SYNCHPOINT moves on when rows are put into the table's CD table; null before the first.
* CD tables: IBMSNAP_COMMITSEQ, the log sequence number of the commit; IBMSNAP_INTENTSEQ, that of the change;
  IBMSNAP_OPERATION, I, U or D; then the registered columns, and their before images if asked for.
* An update is one row U; or, with CHG_UPD_TO_DEL_INS = Y, a row D with the values before and a row I with those after.
* A row whose transaction is rolled back is not in a CD table, and one only of committed transactions, in the order of
  their commits.
* IBMSNAP_UOW has a row for each such transaction, with the time of its commit.
* Pruning removes old rows of UOW and CD tables, and CD_OLD_SYNCHPOINT tells how far a table's were removed.

Not played: memory spills, recapture of changes by Apply, CCD sources, subsetting by CHGONLY.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from types import ModuleType
from typing import Any


class Session:
    """A connection of the tests' own, through IBM's driver; statements commit by themselves outside of `together`."""

    def __init__(self, dsn: str) -> None:
        # Where the driver is not installed, tests of it are skipped: importing this must not fail.
        import ibm_db

        self.driver: ModuleType = ibm_db
        self.connection = ibm_db.connect(dsn, "", "")

    def rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """The rows of a statement, none for one that returns none."""
        with self._prepared(statement) as prepared:
            self.driver.execute(prepared, values) if values else self.driver.execute(prepared)
            found = []
            if self.driver.num_fields(prepared):
                while row := self.driver.fetch_tuple(prepared):
                    found.append(row)
            return found

    def many(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Run a statement once for each of `rows`."""
        with self._prepared(statement) as prepared:
            for row in rows:
                self.driver.execute(prepared, row)

    @contextmanager
    def _prepared(self, statement: str) -> Iterator[Any]:
        """A statement that is freed before its connection can be, whatever happens: the driver hangs
        when it frees one whose connection is gone."""
        prepared = self.driver.prepare(self.connection, statement)
        try:
            yield prepared
        finally:
            with suppress(Exception):
                self.driver.free_stmt(prepared)

    def begin(self) -> None:
        self.driver.autocommit(self.connection, 0)

    def commit(self) -> None:
        self.driver.commit(self.connection)
        self.driver.autocommit(self.connection, 1)

    def rollback(self) -> None:
        self.driver.rollback(self.connection)
        self.driver.autocommit(self.connection, 1)

    def close(self) -> None:
        self.driver.close(self.connection)


def quoted(*parts: str) -> str:
    return ".".join('"' + part.replace('"', '""') + '"' for part in parts)


@dataclass(slots=True)
class Registration:
    """A row of IBMSNAP_REGISTER and how its CD table is made. `columns` are those that are captured."""

    schema: str
    table: str
    columns: list[str]
    types: dict[str, str]
    cd_schema: str
    cd_table: str
    pairs: bool
    before: str
    stage: str
    active: bool = True


def moment(at: datetime) -> str:
    """The text of a time as the driver takes it: always with its fraction, which `str` leaves out when it is 0."""
    return at.isoformat(" ", "microseconds")


@dataclass(slots=True)
class Capture:
    """The capture program of one database. `control` is the schema of the control tables, `width` that of an LSN."""

    dsn: str
    control: str = "ASNCDC"
    width: int = 16
    registered: dict[tuple[str, str], Registration] = field(default_factory=dict)
    _session: Session | None = None
    _pending: list[tuple[int, str]] = field(default_factory=list)
    _log: int = 0x2A000
    _stages: int = 0
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def session(self) -> Session:
        if self._session is None:
            self._session = Session(self.dsn)
        return self._session

    def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def lsn(self, number: int) -> bytes:
        """A log sequence number as the program writes it: `width` bytes, the highest first."""
        return number.to_bytes(self.width, "big")

    def install(self) -> None:
        """Make the control tables, with the columns that IBM's `asnctlw.sql` gives them, and the global row."""
        lsn = f"VARCHAR({self.width}) FOR BIT DATA"
        self.session.rows(f"CREATE SCHEMA {quoted(self.control)}")
        for name, columns in _control_tables(lsn).items():
            self.session.rows(f"CREATE TABLE {quoted(self.control, name)} ({columns})")
        self.session.rows("CREATE SCHEMA PLAYED")
        self.session.rows("CREATE TABLE PLAYED.CLOCK (NOW BIGINT NOT NULL GENERATED ALWAYS AS IDENTITY, ONE SMALLINT)")
        self._row("IBMSNAP_CAPPARMS", RETENTION_LIMIT=10080, COMMIT_INTERVAL=30, PRUNE_INTERVAL=300, AUTOPRUNE="Y",
                  SLEEP_INTERVAL=5, STARTMODE="WARMSI")  # fmt: skip
        self._row("IBMSNAP_REGISTER", SOURCE_OWNER=" ", SOURCE_TABLE=" ", SOURCE_VIEW_QUAL=0, GLOBAL_RECORD="Y",
                  SOURCE_STRUCTURE=1, CD_OLD_SYNCHPOINT=None, CHG_UPD_TO_DEL_INS="N", STATE="A", STOP_ON_ERROR="Y",
                  ARCH_LEVEL="1021", SYNCHPOINT=self.lsn(self._log))  # fmt: skip
        self.heartbeat()

    def _row(self, name: str, **values: Any) -> None:
        names = ", ".join(values)
        marks = ", ".join("?" * len(values))
        self.session.rows(f"INSERT INTO {quoted(self.control, name)} ({names}) VALUES ({marks})", *values.values())

    def register(
        self,
        schema: str,
        table: str,
        columns: Sequence[str] = (),
        *,
        pairs: bool = True,
        before: str = "",
        changes: str = "ASNCDC",
        name: str = "",
    ) -> Registration:
        """Put a table into capture mode, as `ASNCDC.ADDTABLE` or the Replication Center does.

        `columns` are all of them unless named; `pairs` is CHG_UPD_TO_DEL_INS; `before` is the prefix of before images
        (BEFORE_IMG_PREFIX), which the CD table has none of without; `changes` is the schema of the CD table.
        """
        types = self._types(schema, table)
        chosen = list(columns) or list(types)
        self._stages += 1
        made = Registration(
            schema, table, chosen, types, changes, name or f"CDC_{schema}_{table}", pairs, before,
            f"T{self._stages}",
        )  # fmt: skip
        if changes not in ("PLAYED", self.control) and not self._has_schema(changes):
            self.session.rows(f"CREATE SCHEMA {quoted(changes)}")
        lsn = f"VARCHAR({self.width}) FOR BIT DATA NOT NULL"
        images = [f"{quoted(before + column)} {types[column]}" for column in chosen] if before else []
        images += [f"{quoted(column)} {types[column]}" for column in chosen]
        self.session.rows(
            f"CREATE TABLE {quoted(made.cd_schema, made.cd_table)} (IBMSNAP_COMMITSEQ {lsn}, IBMSNAP_INTENTSEQ {lsn}, "
            f"IBMSNAP_OPERATION CHAR(1) NOT NULL, {', '.join(images)})"
        )
        self._watch(made)
        self._row(
            "IBMSNAP_REGISTER", SOURCE_OWNER=schema, SOURCE_TABLE=table, SOURCE_VIEW_QUAL=0, GLOBAL_RECORD="N",
            SOURCE_STRUCTURE=1, CD_OWNER=made.cd_schema, CD_TABLE=made.cd_table, PHYS_CHANGE_OWNER=made.cd_schema,
            PHYS_CHANGE_TABLE=made.cd_table, CD_OLD_SYNCHPOINT=self.lsn(self._log), CHG_UPD_TO_DEL_INS="NY"[pairs],
            BEFORE_IMG_PREFIX=before or None, STATE="A", STOP_ON_ERROR="N", ARCH_LEVEL="1021", CHGONLY="N",
        )  # fmt: skip
        self.registered[schema, table] = made
        return made

    def _types(self, schema: str, table: str) -> dict[str, str]:
        """Each column's type as SQL, in the table's order. A column of a CD table is nullable, whatever its source."""
        found = self.session.rows(f"CALL SYSIBM.SQLCOLUMNS(NULL, '{schema}', '{table}', NULL, 'DATATYPE=''JDBC''')")
        # `_` and `%` in names are patterns there
        return {row[3]: _type(row) for row in found if row[2] == table}

    def _has_schema(self, name: str) -> bool:
        return bool(self.session.rows("SELECT 1 FROM SYS.SYSSCHEMAS WHERE SCHEMANAME = ?", name))

    def _watch(self, made: Registration) -> None:
        """Triggers that note the changed rows: the number of the change, I, U or D, the values before and after."""
        columns, types = made.columns, made.types
        kinds = ", ".join([f"B{n} {types[c]}" for n, c in enumerate(columns)]
                          + [f"A{n} {types[c]}" for n, c in enumerate(columns)])  # fmt: skip
        self.session.rows(
            f"CREATE TABLE PLAYED.{made.stage} (SEQ BIGINT, "
            f"N BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, OP CHAR(1), {kinds})"
        )
        before = ", ".join(f"B{n}" for n in range(len(columns)))
        after = ", ".join(f"A{n}" for n in range(len(columns)))
        old = ", ".join(f"o.{quoted(column)}" for column in columns)
        new = ", ".join(f"n.{quoted(column)}" for column in columns)
        on = f"ON {quoted(made.schema, made.table)}"
        for op, event, names, into, values in (
            ("I", "INSERT", "NEW AS n", after, new),
            ("U", "UPDATE", "OLD AS o NEW AS n", f"{before}, {after}", f"{old}, {new}"),
            ("D", "DELETE", "OLD AS o", before, old),
        ):
            # Triggers may not use a sequence: an identity numbers the statements, and one in each table their rows.
            self.session.rows(
                f"CREATE TRIGGER PLAYED.{made.stage}{op}0 AFTER {event} {on} FOR EACH STATEMENT "
                "INSERT INTO PLAYED.CLOCK (ONE) VALUES (1)"
            )
            self.session.rows(
                f"CREATE TRIGGER PLAYED.{made.stage}{op}1 AFTER {event} {on} REFERENCING {names} FOR EACH ROW "
                f"INSERT INTO PLAYED.{made.stage} (SEQ, OP, {into}) SELECT MAX(c.NOW), '{op}', {values} "
                "FROM PLAYED.CLOCK c"
            )

    def unregister(self, schema: str, table: str) -> None:
        """Take a table out of capture mode: its row of the register and its CD table go."""
        made = self.registered.pop((schema, table))
        self.session.rows(
            f"DELETE FROM {quoted(self.control, 'IBMSNAP_REGISTER')} WHERE SOURCE_OWNER = ? AND SOURCE_TABLE = ?",
            schema, table,
        )  # fmt: skip
        self.session.rows(f"DROP TABLE {quoted(made.cd_schema, made.cd_table)}")
        self._unwatch(made)

    def _unwatch(self, made: Registration) -> None:
        for op in "IUD":
            for part in "01":
                self.session.rows(f"DROP TRIGGER PLAYED.{made.stage}{op}{part}")
        self.session.rows(f"DROP TABLE PLAYED.{made.stage}")

    def execute(self, *statements: str) -> None:
        """Run the statements as one transaction of an application. The program has not read its log yet."""
        with self._lock:
            self.session.begin()
            try:
                for statement in statements:
                    self.session.rows(statement)
            except Exception:
                self.session.rollback()
                raise
            note = self._note()
            self.session.commit()
            self._pending.append(note)

    def _note(self) -> tuple[int, str]:
        """The number of the last change and the time: a transaction that ends now."""
        ((until, now),) = self.session.rows("SELECT COALESCE(MAX(NOW), 0), CURRENT TIMESTAMP FROM PLAYED.CLOCK")
        return until, moment(now)

    @contextmanager
    def working(self, pause_s: float = 0.05) -> Iterator[None]:
        """The program works by itself meanwhile, also on what others than `execute` have changed."""
        stop = threading.Event()

        def work() -> None:
            while not stop.wait(pause_s):
                try:
                    self.capture()
                except Exception as error:
                    # an application has locked what is to be read: the program waits for it
                    if "SQLSTATE=40" not in str(error):
                        raise

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def run(self, *statements: str) -> bytes:
        """Run a transaction, and the program's work on it. Return the LSN of the commit."""
        self.execute(*statements)
        return self.capture()

    def newest(self) -> bytes | None:
        """Return the position up to which the program has read the log; None before it has begun."""
        with self._lock:
            ((position,),) = self.session.rows(
                f"SELECT MAX(SYNCHPOINT) FROM {quoted(self.control, 'IBMSNAP_REGISTER')}"
            )
        return None if position is None else bytes(position)

    def capture(self) -> bytes:
        """Read the log to its end: every transaction into the CD tables, in the order of commits; the newest LSN.

        As with COMMIT_INTERVAL, CD tables, UOW and register are committed together.
        """
        with self._lock:
            self.session.begin()
            try:
                return self._capture()
            except Exception:
                self.session.rollback()
                raise

    def _capture(self) -> bytes:
        session = self.session
        units, last = self._units()
        for until, now in units:
            self._unit(until, now)
        self._log += 1
        session.rows(
            f"UPDATE {quoted(self.control, 'IBMSNAP_REGISTER')} SET SYNCHPOINT = ?, SYNCHTIME = CURRENT TIMESTAMP "
            "WHERE GLOBAL_RECORD = 'Y'",
            self.lsn(self._log),
        )
        # the last number stays: triggers take the greatest one
        session.rows("DELETE FROM PLAYED.CLOCK WHERE NOW < ?", last)
        session.commit()
        self._pending.clear()
        return self.lsn(self._log)

    def _units(self) -> tuple[list[tuple[int, str]], int]:
        """The transactions that are not captured yet, each by its last change's number and its time, and the newest
        number. Of others than `execute` each statement is one, as their sessions commit them."""
        done = max((until for until, _ in self._pending), default=0)
        last, now = self._note()
        numbers = self.session.rows("SELECT NOW FROM PLAYED.CLOCK WHERE NOW > ? ORDER BY NOW", done)
        return [*self._pending, *((number, now) for (number,) in numbers)], last

    def _unit(self, until: int, now: str) -> None:
        """A unit of work: its changes in the CD tables, its row of UOW, and the synch points of its tables."""
        session = self.session
        noted: list[tuple[int, int, str, Registration]] = []
        for made in self.registered.values():
            found = session.rows(f"SELECT SEQ, N, OP FROM PLAYED.{made.stage} WHERE SEQ <= ?", until)
            noted += [(seq, row, op, made) for seq, row, op in found]
        noted.sort(key=lambda note: note[:2])
        changes: list[tuple[Registration, int, int, str]] = []
        for _, number, op, made in noted:
            # CHG_UPD_TO_DEL_INS = Y: two rows with the same commit, the delete directly before the insert
            changes += [(made, number, self._next(), row) for row in ("DI" if op == "U" and made.pairs else op)]
        if not changes:
            return
        commit = self.lsn(self._next())
        written: dict[tuple[str, str, str], tuple[Registration, list[tuple[bytes, bytes, int]]]] = {}
        for made, noted_as, number, op in changes:
            rows = written.setdefault((made.schema, made.table, op), (made, []))[1]
            rows.append((commit, self.lsn(number), noted_as))
        for (_, _, op), (made, rows) in written.items():
            width = len(made.columns)
            before, after = [f"B{n}" for n in range(width)], [f"A{n}" for n in range(width)]
            values = before if op == "D" else after
            if made.before:
                # a before image says what was; in the row of an insert nothing was
                values = [*before, *values]
            position = f"CAST(? AS VARCHAR({self.width}) FOR BIT DATA)"
            session.many(
                f"INSERT INTO {quoted(made.cd_schema, made.cd_table)} SELECT {position}, {position}, '{op}', "
                f"{', '.join(values)} FROM PLAYED.{made.stage} WHERE N = ?",
                rows,
            )
        for made in {(made.schema, made.table): made for made, _ in written.values()}.values():
            session.rows(f"DELETE FROM PLAYED.{made.stage} WHERE SEQ <= ?", until)
            session.rows(
                f"UPDATE {quoted(self.control, 'IBMSNAP_REGISTER')} SET CD_NEW_SYNCHPOINT = ? "
                "WHERE SOURCE_OWNER = ? AND SOURCE_TABLE = ?",
                commit, made.schema, made.table,
            )  # fmt: skip
        self._row("IBMSNAP_UOW", IBMSNAP_UOWID=commit[-10:], IBMSNAP_COMMITSEQ=commit, IBMSNAP_LOGMARKER=now,
                  IBMSNAP_AUTHTKN="app.exe", IBMSNAP_AUTHID="APP", IBMSNAP_REJ_CODE="0")  # fmt: skip

    def _next(self) -> int:
        self._log += 0x13
        return self._log

    def heartbeat(self, age_s: float = 0) -> None:
        """Write what a running program writes each MONITOR_INTERVAL into IBMSNAP_CAPMON, as if `age_s` ago."""
        at = time.strftime("%Y-%m-%d %H:%M:%S.000000", time.gmtime(time.time() - age_s))
        self._row("IBMSNAP_CAPMON", MONITOR_TIME=at, RESTART_TIME=at, SYNCHTIME=at, CURRENT_LOG_TIME=at,
                  CAPTURE_IDLE=0, CD_ROWS_INSERTED=0, TRANS_PROCESSED=0)  # fmt: skip
        self.session.rows(
            f"UPDATE {quoted(self.control, 'IBMSNAP_REGISTER')} SET SYNCHTIME = ? WHERE GLOBAL_RECORD = 'Y'", at
        )

    def prune(self, through: bytes) -> None:
        """Remove what is at or before `through` from UOW and CD tables, as retention limit pruning does."""
        session = self.session
        session.begin()
        session.rows(f"DELETE FROM {quoted(self.control, 'IBMSNAP_UOW')} WHERE IBMSNAP_COMMITSEQ <= ?", through)
        for made in self.registered.values():
            session.rows(f"DELETE FROM {quoted(made.cd_schema, made.cd_table)} WHERE IBMSNAP_COMMITSEQ <= ?", through)
            session.rows(
                f"UPDATE {quoted(self.control, 'IBMSNAP_REGISTER')} SET CD_OLD_SYNCHPOINT = ? "
                "WHERE SOURCE_OWNER = ? AND SOURCE_TABLE = ?",
                through, made.schema, made.table,
            )  # fmt: skip
        session.commit()


def _control_tables(lsn: str) -> dict[str, str]:
    owner = "VARCHAR(128)"
    return {
        "IBMSNAP_REGISTER": (
            f"SOURCE_OWNER {owner} NOT NULL, SOURCE_TABLE {owner} NOT NULL, SOURCE_VIEW_QUAL SMALLINT NOT NULL, "
            "GLOBAL_RECORD CHAR(1) NOT NULL, SOURCE_STRUCTURE SMALLINT NOT NULL, SOURCE_CONDENSED CHAR(1) NOT NULL "
            "DEFAULT 'Y', SOURCE_COMPLETE CHAR(1) NOT NULL DEFAULT 'Y', "
            f"CD_OWNER {owner}, CD_TABLE {owner}, PHYS_CHANGE_OWNER {owner}, PHYS_CHANGE_TABLE {owner}, "
            f"CD_OLD_SYNCHPOINT {lsn}, CD_NEW_SYNCHPOINT {lsn}, DISABLE_REFRESH SMALLINT NOT NULL DEFAULT 0, "
            f"CCD_OWNER {owner}, CCD_TABLE {owner}, CCD_OLD_SYNCHPOINT {lsn}, SYNCHPOINT {lsn}, SYNCHTIME TIMESTAMP, "
            "CCD_CONDENSED CHAR(1), CCD_COMPLETE CHAR(1), ARCH_LEVEL CHAR(4) NOT NULL, DESCRIPTION CHAR(254), "
            "BEFORE_IMG_PREFIX VARCHAR(4), CONFLICT_LEVEL CHAR(1), CHG_UPD_TO_DEL_INS CHAR(1), CHGONLY CHAR(1), "
            "RECAPTURE CHAR(1), OPTION_FLAGS CHAR(4) NOT NULL DEFAULT 'NNNN', STOP_ON_ERROR CHAR(1) DEFAULT 'Y', "
            "STATE CHAR(1) DEFAULT 'I', STATE_INFO CHAR(8)"
        ),
        "IBMSNAP_UOW": (
            f"IBMSNAP_UOWID CHAR(10) FOR BIT DATA NOT NULL, IBMSNAP_COMMITSEQ {lsn} NOT NULL, IBMSNAP_LOGMARKER "
            f"TIMESTAMP NOT NULL, IBMSNAP_AUTHTKN VARCHAR(30) NOT NULL, IBMSNAP_AUTHID {owner} NOT NULL, "
            "IBMSNAP_REJ_CODE CHAR(1) NOT NULL DEFAULT '0', IBMSNAP_APPLY_QUAL CHAR(18) NOT NULL DEFAULT ' '"
        ),
        "IBMSNAP_PRUNCNTL": (
            f"TARGET_SERVER CHAR(18) NOT NULL, TARGET_OWNER {owner} NOT NULL, TARGET_TABLE {owner} NOT NULL, "
            f"SYNCHTIME TIMESTAMP, SYNCHPOINT {lsn}, SOURCE_OWNER {owner} NOT NULL, SOURCE_TABLE {owner} NOT NULL, "
            "SOURCE_VIEW_QUAL SMALLINT NOT NULL, APPLY_QUAL CHAR(18) NOT NULL, SET_NAME CHAR(18) NOT NULL, "
            "CNTL_SERVER CHAR(18) NOT NULL, TARGET_STRUCTURE SMALLINT NOT NULL, CNTL_ALIAS CHAR(8), "
            f"PHYS_CHANGE_OWNER {owner}, PHYS_CHANGE_TABLE {owner}, MAP_ID VARCHAR(10) NOT NULL"
        ),
        "IBMSNAP_CAPPARMS": (
            "RETENTION_LIMIT INT, LAG_LIMIT INT, COMMIT_INTERVAL INT, PRUNE_INTERVAL INT, TRACE_LIMIT INT, "
            "MONITOR_LIMIT INT, MONITOR_INTERVAL INT, MEMORY_LIMIT SMALLINT, REMOTE_SRC_SERVER CHAR(18), "
            "AUTOPRUNE CHAR(1), TERM CHAR(1), AUTOSTOP CHAR(1), LOGREUSE CHAR(1), LOGSTDOUT CHAR(1), SLEEP_INTERVAL "
            "SMALLINT, CAPTURE_PATH VARCHAR(1040), STARTMODE VARCHAR(10)"
        ),
        "IBMSNAP_IGNTRAN": (
            "AUTHID CHAR(128), AUTHTOKEN CHAR(30), PLANNAME CHAR(8), DESCRIPTION VARCHAR(254)"
        ),
        "IBMSNAP_CAPMON": (
            "MONITOR_TIME TIMESTAMP NOT NULL, RESTART_TIME TIMESTAMP NOT NULL, CURRENT_MEMORY INT NOT NULL DEFAULT 0, "
            "CD_ROWS_INSERTED INT NOT NULL, RECAP_ROWS_SKIPPED INT NOT NULL DEFAULT 0, TRIGR_ROWS_SKIPPED INT NOT NULL "
            "DEFAULT 0, CHG_ROWS_SKIPPED INT NOT NULL DEFAULT 0, TRANS_PROCESSED INT NOT NULL, TRANS_SPILLED INT NOT "
            "NULL DEFAULT 0, MAX_TRANS_SIZE INT NOT NULL DEFAULT 0, LOCKING_RETRIES INT NOT NULL DEFAULT 0, "
            "CAPTURE_IDLE INT NOT NULL, SYNCHTIME TIMESTAMP NOT NULL, CURRENT_LOG_TIME TIMESTAMP"
        ),
    }  # fmt: skip


def _type(row: tuple[Any, ...]) -> str:
    """A column's type from a row of SQLCOLUMNS: TYPE_NAME, COLUMN_SIZE, DECIMAL_DIGITS."""
    name, size, digits = row[5], row[6], row[8]
    if name in ("DECIMAL", "NUMERIC"):
        return f"{name}({size},{digits})"
    if name.endswith(" () FOR BIT DATA"):
        return str(name.replace(" ()", f"({size})"))
    if name in ("CHAR", "VARCHAR", "BLOB", "CLOB"):
        return f"{name}({size})"
    return str(name)
