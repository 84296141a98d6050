"""Apache Derby as a source of the machine, behind IBM's driver, with a simulated capture program.

Derby is killed and restarted with its data on disk. The capture program is a thread of the machine: after the server
has gone, it reconnects and continues with the transactions that are not captured yet.
"""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from tests.chaos import changetables
from tests.chaos.changes import Change, Row, from_captured, key_of, row_of
from tests.chaos.changetables import SCHEMA, SIGNALS, TABLES, ChangeWriters, Oracle, clean_up
from tests.chaos.progress import CleanUp
from tests.chaos.source import Offset
from tests.fix_db2 import dsn
from tests.servers import derby
from tests.servers.asn import Capture, Session, moment, quoted
from tests.servers.derby import DRIVER, Derby

DATABASE = "CHAOS"
UNITS = "PLAYED.UNITS"
CAPTURED_WITHIN = 120.0
CONFLICTS = re.compile(r"SQLSTATE=(40001|40XL1|40XL2|57033)")
GONE = re.compile(r"SQLSTATE=(08\w\w\w|58009|58031|55032)|SQL30081N|SQL30020N|SQL1224N|CLI0106E|CLI0108E|SQLSTATE=XJ")


def changes_of(table: str, found: Sequence[tuple[Any, ...]]) -> Iterator[tuple[bytes, Change]]:
    """Yield the changes in rows of a change table, each with its commit's position.

    An update is two rows of one commit: D, directly followed by I, whose position the update has. A delete followed by
    an insert gives the same two rows, which no reader can tell from an update.
    """
    made = TABLES[table]
    place = 0
    while place < len(found):
        commit, change, operation, *values = found[place]
        place += 1
        image = dict(zip(made.columns, values, strict=True))
        key = key_of({name: image[name] for name in made.key})
        behind = found[place] if place < len(found) else None
        before: str | None = None
        if operation == "D" and behind is not None and (behind[0], behind[2]) == (commit, "I"):
            place += 1
            image = dict(zip(made.columns, behind[3:], strict=True))
            change, operation = behind[1], "U"
            before, key = key, key_of({name: image[name] for name in made.key})
        at = (int.from_bytes(change, "big"), int.from_bytes(commit, "big"))
        if operation == "U" and before == key:
            yield bytes(commit), Change(table, "u", key, row_of(image), *at)
            continue
        if operation != "I":
            yield bytes(commit), Change(table, "d", before or key, None, *at)
        if operation != "D":
            yield bytes(commit), Change(table, "c", key, row_of(image), *at)


def units_of(noted: Sequence[tuple[int, int, str]], numbers: Iterable[int], now: str) -> list[tuple[int, str]]:
    """Return the transactions in order, each by the number of its last change and its time.

    `noted` holds the writers' transactions: the numbers between which their changes are, and their times. Each of the
    other `numbers` is a transaction of its own.
    """
    units = {upto: at for behind, upto, at in noted if upto > behind}
    for number in numbers:
        if not any(behind < number <= upto for behind, upto, _ in noted):
            units[number] = now
    return sorted(units.items())


class WritingSession(Session):
    """A writer's connection. Transactions wait for each other, and note which changes are theirs.

    Triggers number the changes but cannot tell whose they are, so only one transaction may run at a time.
    """

    _since = 0

    def begin(self) -> None:
        super().begin()
        self.rows("LOCK TABLE PLAYED.CLOCK IN EXCLUSIVE MODE")
        ((self._since,),) = self.rows("SELECT COALESCE(MAX(NOW), 0) FROM PLAYED.CLOCK")

    def commit(self) -> None:
        self.rows(
            f"INSERT INTO {UNITS} (BEHIND, UPTO, ENDED) SELECT {self._since}, COALESCE(MAX(NOW), 0), CURRENT TIMESTAMP "
            "FROM PLAYED.CLOCK"
        )
        super().commit()

    def rollback(self) -> None:
        with suppress(Exception):
            super().rollback()

    def close(self) -> None:
        # The driver commits open transactions.
        self.rollback()
        with suppress(Exception):
            super().close()


class Program(Capture):
    """A capture program that knows the writers' transactions. Each of the pipeline's changes, which have no notes, is a
    transaction of its own."""

    def _units(self) -> tuple[list[tuple[int, str]], int]:
        session = self.session
        session.rows("LOCK TABLE PLAYED.CLOCK IN EXCLUSIVE MODE")
        last, now = self._note()
        noted = session.rows(f"SELECT BEHIND, UPTO, ENDED FROM {UNITS} ORDER BY UPTO")
        numbers = [
            int(number)
            for made in self.registered.values()
            for (number,) in session.rows(f"SELECT DISTINCT SEQ FROM PLAYED.{made.stage}")
        ]
        session.rows(f"DELETE FROM {UNITS}")
        return units_of([(int(behind), int(upto), moment(at)) for behind, upto, at in noted], numbers, now), last

    def lose(self) -> None:
        """Forget the lost connection."""
        session, self._session = self._session, None
        if session is not None:
            with suppress(Exception):
                session.close()


class Db2:
    """A database with tables in capture mode."""

    connector = "db2"

    def __init__(self) -> None:
        self._server = Derby(derby.fetch(), durable=True)
        self._oracle = Oracle(self)
        self._over = threading.Event()
        self._failures: list[str] = []
        self._lock = threading.Lock()

    def open(self, stack: ExitStack) -> None:
        stack.enter_context(self._server)
        self._server.make(DATABASE)
        self._program = Program(dsn(self._server, DATABASE))
        self._program.install()
        self._program.session.rows(f"CREATE TABLE {UNITS} (BEHIND BIGINT, UPTO BIGINT, ENDED TIMESTAMP)")
        self._program.session.rows(f"CREATE SCHEMA {SCHEMA}")
        session = self.connect()
        try:
            changetables.make_tables(session, self._capture)
        finally:
            session.close()
        self.settle()
        thread = threading.Thread(target=self._work, name="capture", daemon=True)
        stack.callback(thread.join, 30)
        stack.callback(self._over.set)
        thread.start()

    def _capture(self, tables: Sequence[str]) -> None:
        for name in tables:
            self._program.register(SCHEMA, name)

    def _work(self) -> None:
        """Run the capture program as long as the machine runs."""
        beat = time.monotonic()
        while not self._over.wait(0.3):
            beats = time.monotonic() - beat > 20
            try:
                with self._lock:
                    self._program.capture()
                    if beats:
                        self._program.heartbeat()
            except Exception as error:
                self._lost(error)
            if beats:
                beat = time.monotonic()

    def _lost(self, error: Exception) -> None:
        with self._lock:
            self._program.lose()
        if not self.meaning(error):
            self._failures.append(f"the capture program: {type(error).__name__}: {error}")

    # --- as the machine's source ---------------------------------------------------------------------------------

    @property
    def port(self) -> int:
        return self._server.port

    def options(self, port: int) -> dict[str, str]:
        return {
            "connector.class": "io.debezium.connector.db2.Db2Connector",
            "database.hostname": "127.0.0.1", "database.port": str(port), "database.user": self._server.user,
            "database.password": self._server.password, "database.dbname": DATABASE,
            "table.include.list": f"{SCHEMA}[.].*", "signal.data.collection": f"{SCHEMA}.{SIGNALS}",
            **{f"driver.{name}": value for name, value in DRIVER.items()},
        }  # fmt: skip

    def writers(self, seed: int, signals: bool, reads_first: Callable[[], bool]) -> ChangeWriters:
        return ChangeWriters(self, seed, signals, reads_first, failures=self._failures)

    def watch(self, checkpoint: Path) -> CleanUp:
        return clean_up(self, self._oracle, checkpoint)

    def record(self, topic: str, key: Any, value: Any) -> Change | None:
        return from_captured(topic, key, value, 2) if topic.rpartition(".")[2] in TABLES else None

    def committed(self, first: Offset) -> Iterator[tuple[Change, bool]]:
        return self._oracle.committed(changetables.begin_of(first))

    def rows(self) -> Mapping[str, Mapping[str, Row]]:
        session = self._reader()
        try:
            return changetables.tables_now(session)
        finally:
            session.close()

    def crash(self) -> None:
        self._server.halt()

    def again(self) -> None:
        self._server.start()

    def end_sessions(self, choice: random.Random, all_of_them: bool) -> str | None:
        """Return None: Derby has no command that ends a session, so the proxy cuts connections instead."""

    def described(self) -> list[str]:
        session = self._reader()
        try:
            return [*map(str, session.rows("SELECT * FROM SYSCS_DIAG.LOCK_TABLE FETCH FIRST 40 ROWS ONLY"))]
        finally:
            session.close()

    def keep(self, folder: Path) -> None:
        self._server.keep(folder)

    # --- as a server with change tables --------------------------------------------------------------------------

    def connect(self) -> WritingSession:
        return WritingSession(dsn(self._server, DATABASE))

    def _reader(self) -> Session:
        return Session(dsn(self._server, DATABASE))

    def meaning(self, error: Exception) -> str:
        if isinstance(error, SystemError):
            # The driver's message for a call on a lost connection.
            return "away"
        text = str(error)
        if CONFLICTS.search(text):
            return "conflict"
        return "away" if GONE.search(text) else ""

    def collection(self, table: str) -> str:
        return f"{SCHEMA}.{table}"

    def settle(self) -> None:
        deadline = time.monotonic() + CAPTURED_WITHIN
        while True:
            try:
                with self._lock:
                    self._program.capture()
                return
            except Exception as error:
                self._lost(error)
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def newest(self) -> bytes:
        ((newest,),) = self._rows("SELECT MAX(SYNCHPOINT) FROM ASNCDC.IBMSNAP_REGISTER")
        return bytes(newest)

    def _rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        session = self._reader()
        try:
            return session.rows(statement, *values)
        finally:
            session.close()

    def changes(self, table: str, after: bytes, upto: bytes) -> Iterator[tuple[bytes, Change]]:
        """Return changes by commits, and by changes within them."""
        found = self._rows(
            f"SELECT IBMSNAP_COMMITSEQ, IBMSNAP_INTENTSEQ, IBMSNAP_OPERATION, {', '.join(TABLES[table].columns)} FROM "
            f"{quoted('ASNCDC', f'CDC_{SCHEMA}_{table}')} WHERE IBMSNAP_COMMITSEQ > ? AND IBMSNAP_COMMITSEQ <= ? "
            "ORDER BY IBMSNAP_COMMITSEQ, IBMSNAP_INTENTSEQ",
            after, upto,
        )  # fmt: skip
        yield from changes_of(table, found)

    def forget(self, through: bytes) -> None:
        try:
            with self._lock:
                self._program.prune(through)
        except Exception as error:
            self._lost(error)
            raise
