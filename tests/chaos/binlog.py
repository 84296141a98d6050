"""MySQL 8.0 and MariaDB 11.4 as sources of the machine, and the committed changes as the files of their log hold them.

The files are read by a decoder that knows the few types of the machine's tables and shares no code with the product.
Files are purged as soon as Spark has committed what they hold, so that a pipeline that goes back behind its commit log
ends with a lost position. The servers log with their own default for names of columns, none.
"""

from __future__ import annotations

import random
import shutil
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pymysql

from tests.chaos import changetables, progress
from tests.chaos.changes import Change, Row, from_binlog, key_of, log_place, row_of
from tests.chaos.changetables import SCHEMA, SIGNALS, ChangeWriters, Session, Table
from tests.chaos.source import Offset
from tests.servers.mysql import MARIADB_11, MYSQL_8, PASSWORD, USER, MySqlServer, Version

TABLES = {
    **changetables.TABLES,
    "T_CUT": Table({"ID": "INTEGER", "TAG": "VARCHAR(40)"}),
    "T_NEW": Table({"ID": "INTEGER", "TAG": "VARCHAR(40)"}),
}
"""The captured tables; T_CUT is truncated at times, and T_NEW gets further columns."""
MOST_COLUMNS = 30
"""Most further columns of T_NEW."""
CONFLICTS = (1205, 1213)
AWAY = (1053, 1105, 1152, 1158, 1159, 1160, 1161, 1317, 1927, 2003, 2006, 2013, 2055, 3169)
"""Numbers of errors of a session that was ended, or whose server is down."""
_FILES = "binlog." + 6 * "[0-9]"
_QUERY, _XID, _MAP, _GTID, _MARIADB_GTID = 2, 16, 19, 33, 162
_ROWS = {23: "c", 24: "u", 25: "d", 30: "c", 31: "u", 32: "d"}
_INTEGER, _VARCHAR = 3, 15


class Connected:
    """A session of a writer."""

    def __init__(self, server: MySqlServer) -> None:
        self._connection = server.connect(read_timeout=60, write_timeout=60, connect_timeout=10)

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

    def begin(self) -> None:
        self._connection.begin()

    def commit(self) -> None:
        self._connection.commit()

    def rollback(self) -> None:
        self._connection.rollback()

    def close(self) -> None:
        with suppress(Exception):
            self._connection.close()


class Binlog:
    """A server of MySQL or MariaDB."""

    def __init__(self, version: Version) -> None:
        self.connector: str = version.dialect
        self._server = MySqlServer(version, max_binlog_size="4M", binlog_row_metadata="MINIMAL")

    def open(self, stack: ExitStack) -> None:
        stack.enter_context(self._server)
        self._log = LogFiles(self._server.data, SCHEMA)
        session = self.connect()
        session.rows(f"CREATE DATABASE {SCHEMA}")
        for name in ("T_CUT", "T_NEW"):
            session.rows(TABLES[name].statement(name))
        try:
            changetables.make_tables(session, lambda names: None)
        finally:
            session.close()

    # --- as the machine's source ---------------------------------------------------------------------------------

    @property
    def port(self) -> int:
        return self._server.port

    def options(self, port: int) -> dict[str, str]:
        kind = "mysql.MySqlConnector" if self.connector == "mysql" else "mariadb.MariaDbConnector"
        return {
            "connector.class": f"io.debezium.connector.{kind}", "database.hostname": "127.0.0.1",
            "database.port": str(port), "database.user": USER, "database.password": PASSWORD,
            "database.include.list": SCHEMA, "table.exclude.list": f"{SCHEMA}[.]T_(SEED|NOISE)",
            "signal.data.collection": f"{SCHEMA}.{SIGNALS}",
        }  # fmt: skip

    def writers(self, seed: int, signals: bool, reads_first: Callable[[], bool]) -> BinlogWriters:
        return BinlogWriters(self, seed, signals, reads_first)

    def watch(self, checkpoint: Path) -> progress.CleanUp:
        before = ""

        def remove(stored: Offset) -> bool:
            """Remove the files whose changes Spark has committed."""
            nonlocal before
            first = stored["log"].get("held", stored["log"])["file"]
            if first != before:
                self._log.read()
                self.purge(first)
                before = first
            return True

        return progress.CleanUp(checkpoint, remove, lambda error: bool(self.meaning(error)))

    def record(self, topic: str, key: Any, value: Any) -> Change | None:
        return from_binlog(topic, key, value) if topic.rpartition(".")[2] in TABLES else None

    def committed(self, first: Offset) -> Iterator[tuple[Change, bool]]:
        at = first["log"]
        begin = _number(at["file"]), int(at["end"])
        self._log.read()
        for place, change in self._log.taken():
            yield change, place >= begin

    def rows(self) -> Mapping[str, Mapping[str, Row]]:
        found: dict[str, dict[str, Row]] = {}
        with self._server.connect(cursorclass=pymysql.cursors.DictCursor) as session, session.cursor() as cursor:
            for name, table in TABLES.items():
                cursor.execute(f"SELECT * FROM {SCHEMA}.{name}")
                rows = list(cursor.fetchall())
                found[name] = {key_of({one: row[one] for one in table.key}): row_of(row) for row in rows}
        return found

    def crash(self) -> None:
        self._server.kill()

    def again(self) -> None:
        self._server.start()

    def end_sessions(self, choice: random.Random, all_of_them: bool) -> str | None:
        with self._server.connect() as session, session.cursor() as cursor:
            cursor.execute("SELECT ID, COMMAND FROM information_schema.PROCESSLIST WHERE ID <> CONNECTION_ID() "
                           "AND USER = %s", (USER,))  # fmt: skip
            chosen = [int(id_) for id_, command in cursor.fetchall() if all_of_them or "Dump" in str(command)]
            for id_ in chosen:
                with suppress(pymysql.err.OperationalError, pymysql.err.InternalError):
                    # It may have ended by itself.
                    cursor.execute(f"KILL {id_}")
        return f"{len(chosen)} sessions" if chosen else None

    def described(self) -> list[str]:
        return [
            *map(str, self._server.execute("SHOW BINARY LOGS")),
            *map(str, self._server.execute("SHOW PROCESSLIST")),
        ]

    def keep(self, folder: Path) -> None:
        (folder / "server.log").write_text(self._server.errors)
        for path in self._server.data.glob(_FILES):
            with suppress(OSError):
                shutil.copy(path, folder)

    # --- as the server of writers --------------------------------------------------------------------------------

    def connect(self) -> Connected:
        return Connected(self._server)

    def meaning(self, error: Exception) -> str:
        number = error.args[0] if isinstance(error, pymysql.err.MySQLError) and error.args else None
        if number in CONFLICTS:
            return "conflict"
        is_away = number in AWAY or isinstance(error, (OSError, pymysql.err.InterfaceError))
        return "away" if is_away else ""

    def collection(self, table: str) -> str:
        return f"{SCHEMA}.{table}"

    def settle(self) -> None:
        """Do nothing: a transaction is in the log before its commit is acknowledged."""

    def purge(self, before: str) -> None:
        """Let the server remove the files of its log before `before`."""
        self._server.execute(f"PURGE BINARY LOGS TO '{before}'")


def mysql() -> Binlog:
    return Binlog(MYSQL_8)


def mariadb() -> Binlog:
    return Binlog(MARIADB_11)


class BinlogWriters(ChangeWriters):
    """Writers that also truncate a table, add columns to another, and let the log go on in another file."""

    def _statements(self, choice: random.Random, number: int, txn: int, tag: str) -> list[str]:
        if choice.random() < 0.15:
            name = choice.choice(("T_CUT", "T_NEW"))
            fresh = txn * 100 + int(tag.rpartition("-")[2]) * 10 + number
            return [f"INSERT INTO {SCHEMA}.{name} (ID, TAG) VALUES ({fresh}, '{tag}')"]
        return super()._statements(choice, number, txn, tag)

    def _rare(self, session: Session, choice: random.Random, number: int) -> None:
        kind = choice.choices(("truncate", "alter", "rotate", "other"), (1, 1, 1, 3))[0]
        # A table that is altered while the first snapshot reads it ends the run, which then goes on at the next start.
        if kind == "other" or (kind != "rotate" and self.reads_first()):
            super()._rare(session, choice, number)
            return
        self._stop.wait(choice.uniform(0.5, 3))
        if kind == "truncate":
            session.rows(f"TRUNCATE TABLE {SCHEMA}.T_CUT")
        elif kind == "rotate":
            session.rows("FLUSH BINARY LOGS")
        else:
            columns = session.rows("SELECT COUNT(*) FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = "
                                   f"'{SCHEMA}' AND TABLE_NAME = 'T_NEW'")  # fmt: skip
            place = int(columns[0][0]) - len(TABLES["T_NEW"].columns)
            if place < MOST_COLUMNS:
                session.rows(f"ALTER TABLE {SCHEMA}.T_NEW ADD COLUMN C{place} INTEGER")
            session.rows(f"UPDATE {SCHEMA}.T_NEW SET C{choice.randrange(max(place, 1))} = {self._next(number)} "
                         f"ORDER BY ID DESC LIMIT 5")  # fmt: skip


@dataclass
class LogFiles:
    """A reader of the log's files, which keeps new committed changes until it is asked for them."""

    folder: Path
    schema: str
    _file: str = ""
    _at: int = 4
    _kept: list[tuple[tuple[int, int], Change]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def read(self) -> None:
        """Read all transactions that are whole."""
        with self._lock:
            names = sorted(path.name for path in self.folder.glob(_FILES))
            for name in names:
                if name > self._file:
                    # What an earlier file has of a transaction at its end was never committed.
                    self._file, self._at = name, 4
                if name == self._file:
                    self._kept += self._transactions((self.folder / name).read_bytes())

    def taken(self) -> list[tuple[tuple[int, int], Change]]:
        """Return the changes since the last call, each with the place of its transaction."""
        with self._lock:
            kept, self._kept = self._kept, []
        return kept

    def _transactions(self, data: bytes) -> Iterator[tuple[tuple[int, int], Change]]:
        """Yield the changes of transactions from the reached place on, and move it behind the last whole one."""
        number = _number(self._file)
        at, start, last, id_ = self._at, self._at, 0, 0
        maps: dict[int, _Map] = {}
        found: list[Change] = []
        is_open = False
        while at + 19 <= len(data):
            _, kind, _, length, end, _ = struct.unpack_from("<IBIIIH", data, at)
            if length < 19 or at + length > len(data):
                return
            body = data[at + 19 : at + length - 4]
            # MariaDB writes no end of an event inside a transaction.
            last = end - length if end else last
            at += length
            is_over = False
            if kind in (_GTID, _MARIADB_GTID):
                start, found, is_open = at - length, [], True
                id_ = struct.unpack_from("<Q", body, 17 if kind == _GTID else 0)[0]
            elif kind == _MAP:
                table, one = _Map.read(body)
                maps[table] = one
            elif kind in _ROWS:
                found += self._rows(kind, body, maps, log_place(number, last), id_)
            elif kind == _XID:
                is_over = True
            elif kind == _QUERY:
                text = _statement(body)
                is_over = text != b"BEGIN"
                if text.startswith(b"TRUNCATE TABLE"):
                    name = text.rpartition(b".")[2].decode()
                    found.append(Change(name, "t", "", None, log_place(number, last), id_))
            if is_over or not is_open:
                yield from (((number, start), one) for one in found)
                found, is_open = [], False
                self._at = at

    def _rows(self, kind: int, body: bytes, maps: Mapping[int, _Map], place: int, id_: int) -> Iterator[Change]:
        table = maps[int.from_bytes(body[:6], "little")]
        made = TABLES.get(table.name)
        if made is None or table.schema != self.schema:
            return
        at = 8 if kind < 30 else 8 + int.from_bytes(body[8:10], "little")
        count = body[at]
        names = [*made.columns, *(f"C{place}" for place in range(count - len(made.columns)))]
        at += 1 + (count + 7) // 8 * (2 if _ROWS[kind] == "u" else 1)
        row = 0
        while at < len(body):
            old, at = table.image(body, at, names)
            key = key_of({name: old[name] for name in made.key})
            where = place + row
            row += 1
            if _ROWS[kind] == "d":
                yield Change(table.name, "d", key, None, where, id_)
            elif _ROWS[kind] == "c":
                yield Change(table.name, "c", key, row_of(old), where, id_)
            else:
                new, at = table.image(body, at, names)
                other = key_of({name: new[name] for name in made.key})
                if other != key:
                    yield Change(table.name, "d", key, None, where, id_)
                yield Change(table.name, "u" if other == key else "c", other, row_of(new), where, id_)


@dataclass
class _Map:
    """A table map: the types of the columns, and the number of bytes of a text's length."""

    schema: str
    name: str
    types: bytes
    widths: list[int]

    @classmethod
    def read(cls, body: bytes) -> tuple[int, _Map]:
        at = 8
        texts = []
        for _ in range(2):
            texts.append(body[at + 1 : at + 1 + body[at]].decode())
            at += 2 + body[at]
        types = body[at + 1 : at + 1 + body[at]]
        at += 1 + body[at] + 1
        widths = []
        for kind in types:
            assert kind in (_INTEGER, _VARCHAR) or texts[1] not in TABLES, (texts, kind)
            most = int.from_bytes(body[at : at + 2], "little") if kind == _VARCHAR else 0
            widths.append(2 if most > 255 else 1)
            at += 2 if kind == _VARCHAR else 0
        return int.from_bytes(body[:6], "little"), cls(texts[0], texts[1], types, widths)

    def image(self, body: bytes, at: int, names: list[str]) -> tuple[dict[str, Any], int]:
        nulls = body[at : at + (len(names) + 7) // 8]
        at += len(nulls)
        found: dict[str, Any] = {}
        for place, name in enumerate(names):
            if nulls[place // 8] >> place % 8 & 1:
                found[name] = None
            elif self.types[place] == _INTEGER:
                found[name] = int.from_bytes(body[at : at + 4], "little", signed=True)
                at += 4
            else:
                width = self.widths[place]
                size = int.from_bytes(body[at : at + width], "little")
                found[name] = body[at + width : at + width + size].decode()
                at += width + size
        return found, at


def _statement(body: bytes) -> bytes:
    """Return the statement of a query event."""
    schema, variables = body[8], int.from_bytes(body[11:13], "little")
    return body[13 + variables + schema + 1 :]


def _number(file: str) -> int:
    return int(file.rpartition(".")[2])
