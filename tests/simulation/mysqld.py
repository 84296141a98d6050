"""A simulated MySQL or MariaDB behind PyMySQL's interface: a binary log, its dump over a socket, and a catalog.

It answers only what a planner asks. At each statement others may go first, the process may be killed, and the session
may be lost. A transaction has one place in the history of the servers, and another place in the files of each.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any
from uuid import UUID

import pymysql

from tailrace.connectors.binlog.log.gtids import MariadbGtids
from tests.simulation.world import Process

TABLES = ("a", "b", "left")
"""Tables of the database d; the last one is not captured."""
SOURCES = ("00000000-0000-0000-0000-0000000000aa", "00000000-0000-0000-0000-0000000000bb")
"""UUIDs of the servers, one after another."""
_CREATE = "CREATE TABLE `{}` (\n{}  PRIMARY KEY (`id`)\n) ENGINE=InnoDB"
MOST_COLUMNS = 6
_GONE = "Lost connection to MySQL server during query"
_NOT_FOUND = b"#HY000Could not find first log file name in binary log index file"

Change = tuple[str, str, int, int, tuple[str, ...]]
"""Table, operation, id and number of a row's change, and the names of its columns in their order.

Each change has a number of its own. A column other than `id` and `n` is named `x` and a number, which is its value.
"""


@dataclass
class Odds:
    """Probabilities: that a statement fails, that a session of the log is lost at a read, that something is written at
    a step, that the log goes on in another file, that a transaction is prepared first (XA), that a table is altered
    instead, and that the last alteration is taken back by another."""

    fails: float = 0.0
    drops: float = 0.0
    act: float = 0.5
    rotates: float = 0.0
    prepares: float = 0.0
    alters: float = 0.0
    undoes: float = 0.0


@dataclass(frozen=True)
class Written:
    """A transaction of the history: its id's source and number, and the events of its body, with `changes` if it is
    committed with them. `is_alone`: it is a single statement without a commit."""

    source: int
    number: int
    changes: tuple[Change, ...]
    bodies: tuple[tuple[int, bytes], ...]
    is_prepared: bool = False
    is_alone: bool = False


@dataclass
class Files:
    """The files of a server, and where each transaction of the history lies in them: file, start and end."""

    base: str
    contents: list[bytearray] = field(default_factory=list)
    first: int = 0
    """The oldest file that the server has yet."""
    places: dict[int, tuple[int, int, int]] = field(default_factory=dict)

    def name(self, number: int) -> str:
        return f"{self.base}.{number + 1:06d}"

    @property
    def end(self) -> tuple[int, int]:
        return len(self.contents) - 1, len(self.contents[-1])


class Server:
    """The server that clients reach. `now` returns its time in seconds."""

    sends_heartbeats = False
    """True if a dump tells the place behind transactions that it has skipped."""

    def __init__(
        self,
        rng: Random,
        odds: Odds,
        now: Callable[[], float],
        *,
        is_mariadb: bool,
        has_gtids: bool,
        has_names: bool = True,
    ) -> None:
        """`has_names`: the log names columns (binlog_row_metadata=FULL)."""
        self.rng, self.odds, self.now = rng, odds, now
        self.is_mariadb, self.has_gtids, self.has_names = is_mariadb, has_gtids, has_names
        self.names: tuple[str, ...] = TABLES
        """The tables of the database d that have ids in the log, in their order."""
        self.columns = {name: ["id", "n"] for name in TABLES}
        self.altered = ("", "", "")
        """The last alteration: table, column, and the column's name before, "" of one that was added."""
        self.history: list[Written] = []
        self.rows: dict[tuple[str, int], int] = {}
        self.prepared: dict[int, tuple[Change, ...]] = {}
        self.places_prepared: dict[int, int] = {}
        """The place in the history at which each XA transaction was prepared."""
        self.counter = 0
        self.generation = 0
        self.sockets: list[Socket] = []
        self.numbers: dict[int, int] = {}
        self.files = Files("binlog")
        self.files_of = [self.files]
        """The files of each server, as they were when the next one took over."""
        self._new_file()

    # --- writers ---

    def act(self) -> None:
        """Write a transaction, or let the log go on in another file."""
        rng = self.rng
        if rng.random() < self.odds.rotates:
            self.rotate()
            return
        if self.prepared and rng.random() < 0.4:
            self.decide(rng.choice([*self.prepared]), is_commit=rng.random() < 0.8)
            return
        if self.odds.alters and rng.random() < self.odds.alters:
            self.alter()
            return
        changes = self._changes(rng.choice([1, 1, 2, 5, 12]))
        if not self.is_mariadb and rng.random() < self.odds.prepares:
            self._prepare(changes)
            return
        self.write(changes, self._bodies(changes, self._begin(), [(16, bytes(8))]))

    def _changes(self, count: int) -> tuple[Change, ...]:
        rng, found = self.rng, []
        held = {(name, id_) for one in self.prepared.values() for name, _, id_, *_ in one}
        for _ in range(count):
            name, id_ = rng.choice(TABLES), rng.randint(1, 6)
            if (name, id_) in held:
                continue
            self.counter += 1
            known = self.rows.get((name, id_))
            op = "c" if known is None else rng.choice("uud")
            found.append((name, op, id_, self.counter if op != "d" else known or 0, tuple(self.columns[name])))
            if op == "d":
                del self.rows[name, id_]
            else:
                self.rows[name, id_] = self.counter
        return tuple(found)

    def free(self) -> list[str]:
        """Return the tables that may be altered: no prepared transaction has changed them."""
        held = {one[0] for changes in self.prepared.values() for one in changes}
        return [name for name in TABLES if name not in held]

    def alter(self) -> None:
        """Alter a table that is free."""
        rng = self.rng
        free = self.free()
        if not free:
            return
        name = rng.choice(free)
        columns = self.columns[name]
        own = [one for one in columns if one.startswith("x")]
        last, self.altered = self.altered, ("", "", "")
        if last[1] and last[0] in free and rng.random() < self.odds.undoes:
            self._take_back(*last)
            return
        kind = rng.choice(["add", "add", "drop", "rename", "move"]) if own else "add"
        self.counter += 1
        fresh = f"x{self.counter}"
        old = rng.choice(own) if own else ""
        if kind == "add" and len(columns) < MOST_COLUMNS:
            place = rng.randint(0, len(columns))
            where = "" if place == len(columns) else " FIRST" if not place else f" AFTER `{columns[place - 1]}`"
            columns.insert(place, fresh)
            self.altered = (name, fresh, "")
            text = f"ADD COLUMN `{fresh}` int NOT NULL DEFAULT '{self.counter}'{where}"
        elif kind == "rename":
            columns[columns.index(old)] = fresh
            self.altered = (name, fresh, old)
            text = f"CHANGE COLUMN `{old}` `{fresh}` int NOT NULL"
        elif kind == "move":
            columns.remove(old)
            columns.insert(0, old)
            text = f"MODIFY COLUMN `{old}` int NOT NULL FIRST"
        elif kind == "drop":
            columns.remove(old)
            text = f"DROP COLUMN `{old}`"
        else:
            return
        self.write((), ((2, _query(f"ALTER TABLE `{name}` {text}".encode())),), is_alone=True)

    def _take_back(self, name: str, column: str, before: str) -> None:
        """Drop a column that was added, or give one its name `before` again."""
        columns = self.columns[name]
        if before:
            columns[columns.index(column)] = before
            text = f"CHANGE COLUMN `{column}` `{before}` int NOT NULL"
        else:
            columns.remove(column)
            text = f"DROP COLUMN `{column}`"
        self.write((), ((2, _query(f"ALTER TABLE `{name}` {text}".encode())),), is_alone=True)

    def created(self, name: str) -> str:
        """Return the text of SHOW CREATE TABLE."""
        return _CREATE.format(name, "".join(f"  `{one}` int NOT NULL,\n" for one in self.columns[name]))

    def _begin(self) -> list[tuple[int, bytes]]:
        return [] if self.is_mariadb else [(2, _query(b"BEGIN"))]

    def _bodies(
        self, changes: Sequence[Change], head: Sequence[tuple[int, bytes]], tail: Sequence[tuple[int, bytes]]
    ) -> tuple[tuple[int, bytes], ...]:
        """Return the events of a transaction: neighbouring changes of a table and kind may share an event."""
        found = [*head]
        groups: list[list[Change]] = []
        for change in changes:
            if groups and groups[-1][-1][:2] == change[:2] and self.rng.random() < 0.6:
                groups[-1].append(change)
            else:
                groups.append([change])
        first = {"c": 23, "u": 24, "d": 25} if self.is_mariadb else {"c": 30, "u": 31, "d": 32}
        for group in groups:
            name, op = group[0][:2]
            table = self.names.index(name) + 70
            columns = group[0][4]
            found.append((19, self.table_map(table, name, columns)))
            count = len(columns)
            present = bytes([count]) + bytes([(1 << count) - 1]) * (2 if op == "u" else 1)
            rows = b"".join(self.image(one) * (2 if op == "u" else 1) for one in group)
            extra = b"" if self.is_mariadb else b"\x02\x00"
            found.append((first[op], table.to_bytes(6, "little") + b"\x01\x00" + extra + present + rows))
        return (*found, *tail)

    def table_map(self, table: int, name: str, columns: Sequence[str]) -> bytes:
        """Return the body of a TABLE_MAP event."""
        return _table_map(table, name, columns, self.has_names)

    def image(self, change: Change) -> bytes:
        """Return the image of a changed row."""
        return _image(*change[2:])

    def _prepare(self, changes: tuple[Change, ...]) -> None:
        self.counter += 1
        xid = self.counter
        named = b"X'%x',X'',1" % xid
        head, end = [(2, _query(b"XA START " + named))], (2, _query(b"XA END " + named))
        event = struct.pack("<?III", False, 1, (xid.bit_length() + 7) // 8, 0)
        body = (38, event + xid.to_bytes((xid.bit_length() + 7) // 8, "big"))
        self.prepared[xid] = changes
        self.places_prepared[xid] = len(self.history)
        self.write((), self._bodies(changes, head, [end, body]), is_prepared=True)

    def decide(self, xid: int, is_commit: bool) -> None:
        changes = self.prepared.pop(xid)
        digits = f"{xid:x}"
        named = b"X'%s',X'',1" % (digits if len(digits) % 2 == 0 else "0" + digits).encode()
        word = b"XA COMMIT " if is_commit else b"XA ROLLBACK "
        if not is_commit:
            for name, op, id_, number, _ in changes:
                # what others see again
                if op == "c":
                    self.rows.pop((name, id_), None)
                else:
                    self.rows[name, id_] = number
        self.write(changes if is_commit else (), ((2, _query(word + named)),))

    def write(
        self,
        changes: tuple[Change, ...],
        bodies: Sequence[tuple[int, bytes]],
        is_prepared: bool = False,
        is_alone: bool = False,
    ) -> None:
        number = self.numbers[self.generation] = self.numbers.get(self.generation, 0) + 1
        if self.is_mariadb:
            # a domain counts over all servers
            number = len(self.history) + 1
        self.history.append(Written(self.generation, number, changes, tuple(bodies), is_prepared, is_alone))
        self._log(len(self.history) - 1, self.files)

    def _log(self, place: int, files: Files) -> None:
        one = self.history[place]
        start = len(files.contents[-1])
        self._append(files, *self._id(one), server=one.source)
        for kind, body in one.bodies:
            self._append(files, kind, body, server=one.source)
        number, end = files.end
        files.places[place] = number, start, end

    def _id(self, one: Written) -> tuple[int, bytes]:
        if self.is_mariadb:
            return 162, struct.pack("<QIB", one.number, 0, one.is_alone) + bytes(6)
        if self.has_gtids:
            return 33, b"\x00" + UUID(SOURCES[one.source]).bytes + struct.pack("<q", one.number) + b"\x02" + bytes(16)
        return 34, b"\x00" + bytes(16) + struct.pack("<q", 0) + b"\x02" + bytes(16)

    def _append(self, files: Files, kind: int, body: bytes, server: int = 0) -> None:
        content = files.contents[-1]
        length = 19 + len(body) + 4
        seconds = 1_700_000_000 + int(self.now())
        content += _summed(struct.pack("<IBIIIH", seconds, kind, server + 1, length, len(content) + length, 0) + body)

    def _new_file(self, files: Files | None = None) -> None:
        files = files or self.files
        files.contents.append(bytearray(b"\xfebin"))
        self._append(files, 15, _FORMAT)

    def rotate(self) -> None:
        files = self.files
        self._append(files, 4, struct.pack("<Q", 4) + files.name(len(files.contents)).encode())
        self._new_file()

    # --- faults ---

    def fail_over(self) -> None:
        """Let a replica that has everything take over; its files are others."""
        self.generation += 1
        files = Files("other" if self.rng.random() < 0.5 else "binlog")
        self._new_file(files)
        for place in range(len(self.history)):
            if self.rng.random() < 0.1:
                self._append(files, 4, struct.pack("<Q", 4) + files.name(len(files.contents)).encode())
                self._new_file(files)
            self._log(place, files)
        self.files = files
        self.files_of.append(files)
        for one in self.sockets:
            one.lose()

    def purge(self, upto: int) -> None:
        """Forget the files before `upto`; never the last one."""
        self.files.first = max(self.files.first, min(upto, len(self.files.contents) - 1))

    # --- what clients ask ---

    @property
    def executed(self) -> str:
        if self.is_mariadb:
            return f"0-{self.history[-1].source + 1}-{len(self.history)}" if self.history else ""
        if not self.has_gtids:
            return ""
        return ",".join(f"{SOURCES[source]}:1-{number}" for source, number in sorted(self.numbers.items()))

    def executed_at(self, number: int, end: int) -> str:
        """Return the set at a place of the log, of MariaDB."""
        before = [place for place, (file, _, behind) in self.files.places.items() if (file, behind) <= (number, end)]
        return f"0-{self.history[max(before)].source + 1}-{max(before) + 1}" if before else ""

    @property
    def purged(self) -> str:
        gone = [self.history[place] for place, (file, _, _) in self.files.places.items() if file < self.files.first]
        most: dict[int, int] = {}
        for one in gone:
            most[one.source] = max(most.get(one.source, 0), one.number)
        return ",".join(f"{SOURCES[source]}:1-{number}" for source, number in sorted(most.items()))

    def variables(self) -> dict[str, str]:
        found = {
            "version": "11.4.5-MariaDB" if self.is_mariadb else "8.0.36", "log_bin": "ON", "binlog_format": "ROW",
            "binlog_row_image": "FULL", "server_id": str(self.generation + 1), "lower_case_table_names": "0",
            "hostname": f"h{self.generation}", "port": "3306",
        }  # fmt: skip
        if self.is_mariadb:
            return found | {"gtid_binlog_pos": self.executed}
        ids = {"gtid_mode": "ON" if self.has_gtids else "OFF", "gtid_executed": self.executed}
        return (
            found
            | ids
            | {"server_uuid": SOURCES[self.generation], "gtid_purged": self.purged if self.has_gtids else ""}
        )


_FORMAT = struct.pack("<H50sIB", 4, b"8.0.36", 0, 19) + bytes(34) + bytes([0, 0, 0, 0, 8, 0, 8, 1])
BEGIN = 4 + 19 + len(_FORMAT) + 4
"""The place of a file's first transaction."""


def _summed(event: bytes) -> bytes:
    return event + zlib.crc32(event).to_bytes(4, "little")


def _query(sql: bytes) -> bytes:
    return struct.pack("<IIBHH", 5, 0, 1, 0, 0) + b"d\x00" + sql


def _table_map(table: int, name: str, columns: Sequence[str], has_names: bool) -> bytes:
    count = len(columns)
    names = b"".join(bytes([len(one)]) + one.encode() for one in columns)
    named = b"\x04" + bytes([len(names)]) + names + b"\x08\x01" + bytes([columns.index("id")]) if has_names else b""
    return (
        table.to_bytes(6, "little") + b"\x01\x00\x01d\x00" + bytes([len(name)]) + name.encode() + b"\x00"
        + bytes([count]) + b"\x03" * count + b"\x00\x00" + b"\x01\x01\x00" + named
    )  # fmt: skip


def _image(id_: int, number: int, columns: Sequence[str]) -> bytes:
    values = {"id": id_, "n": number}
    return b"\x00" + b"".join(
        struct.pack("<I", values[one] if one in values else int(one[1:])) for one in columns
    )  # fmt: skip


class Session:
    """A connection of PyMySQL, and its cursor."""

    def __init__(self, server: Server, process: Process) -> None:
        self._server, self._process = server, process
        self._generation = server.generation
        self._found: list[tuple[Any, ...]] = []
        self._variables: dict[str, Any] = {}
        self._sock = Socket(server, process, self._variables)
        self.use_unicode = True
        self.call()

    def call(self) -> None:
        """Take a step. Raises PyMySQL's error if the session is lost."""
        self._process.step()
        if self._generation != self._server.generation or self._server.rng.random() < self._server.odds.fails:
            self._generation = -1
            raise pymysql.err.OperationalError(2013, _GONE)

    def cursor(self) -> Session:
        return self

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def ping(self, reconnect: bool) -> None:
        self.call()

    def close(self) -> None:
        self._sock.close()

    _force_close = close

    def execute(self, statement: str, values: Sequence[Any] | None = None) -> None:
        self.call()
        self._found = self._answer(statement, values or ())

    def fetchall(self) -> list[tuple[Any, ...]]:
        return self._found

    def fetchone(self) -> tuple[Any, ...] | None:
        return self._found[0] if self._found else None

    def _answer(self, statement: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        server, text = self._server, statement.strip()
        files, upper = server.files, statement.strip().upper()
        number, end = files.end
        if upper.startswith("SHOW GLOBAL VARIABLES"):
            return [(name, value) for name, value in server.variables().items() if f"'{name}'" in text]
        if upper.startswith("SHOW MASTER STATUS") or upper.startswith("SHOW BINARY LOG STATUS"):
            return [(files.name(number), end, "", "", server.executed)]
        if upper.startswith("SELECT BINLOG_GTID_POS"):
            return [(server.executed_at(int(str(values[0]).rpartition(".")[2]) - 1, values[1]),)]
        if upper.startswith("SHOW BINARY LOGS"):
            return [(files.name(one), len(files.contents[one])) for one in range(files.first, number + 1)]
        if upper.startswith("XA RECOVER"):
            return [(1, 1, 0, b"x") for _ in server.prepared]
        if "information_schema.TABLES" in text:
            return [("d", name, "InnoDB", "BASE TABLE", 0) for name in server.names]
        if "information_schema.REFERENTIAL_CONSTRAINTS" in text:
            return []
        if "information_schema.SCHEMATA" in text:
            return [("d", "utf8mb4", "utf8mb4_0900_ai_ci")]
        if found := re.match(r"SHOW CREATE TABLE `d`.`(\w+)`", text):
            return [(found[1].encode(), server.created(found[1]).encode())]
        if found := re.match(r"SET @(\w+) = (.*)", text):
            self._variables[found[1]] = values[0] if values else found[2]
            return []
        if upper.startswith("SET "):
            return []
        raise AssertionError(f"an unknown statement: {statement}")


class Socket:
    """The socket of a session that reads the log."""

    def __init__(self, server: Server, process: Process, variables: dict[str, Any]) -> None:
        self._server, self._variables, self._process = server, variables, process
        self._generation = server.generation
        self._number = process.world.file(self)
        self._pending = bytearray()
        self._is_reading = self._is_lost = self._has_failed = False
        self._file = self._at = 0
        self._sequence = 0
        self._skips: Callable[[Written], bool] | None = None
        # the place in the file up to which the client knows the log
        self._told = 0

    # --- the interface of a socket ---

    def fileno(self) -> int:
        return self._number

    def setblocking(self, flag: bool) -> None:
        return

    def sendall(self, packet: bytes) -> None:
        command, body = packet[4], packet[5:]
        if self._generation != self._server.generation:
            # another server has taken over since the session began
            self._is_lost = True
            return
        self._is_reading = True
        self._server.sockets.append(self)
        if command == 0x12:
            at, _, _ = struct.unpack_from("<IHI", body)
            self._begin(body[10:].decode(), at)
        else:
            (size,) = struct.unpack_from("<I", body, 18)
            self._begin_behind(_decoded(body[22 : 22 + size]))

    def has_input(self) -> bool:
        self._fill()
        return bool(self._pending) or self._is_lost

    def recv_into(self, view: memoryview) -> int:
        self._process.step()
        if self._is_reading and self._server.rng.random() < self._server.odds.drops:
            self._is_lost = True
            if self._server.rng.random() < 0.5:
                raise ConnectionResetError(104, "Connection reset by peer")
        self._fill()
        if not self._pending:
            if self._is_lost:
                return 0
            raise BlockingIOError
        count = min(len(view), self._server.rng.choice([1, 20, 200, 5000]), len(self._pending))
        view[:count] = self._pending[:count]
        del self._pending[:count]
        return count

    def lose(self) -> None:
        self._is_lost = True

    def close(self) -> None:
        self._is_reading = False
        if self in self._server.sockets:
            self._server.sockets.remove(self)

    # --- the dump ---

    def _begin(self, name: str, at: int) -> None:
        files = self._server.files
        if not name:
            executed = MariadbGtids(str(self._variables.get("slave_connect_state", "")))
            self._begin_behind(lambda one: executed.has(f"0-{one.source + 1}", one.number))
            return
        known = {files.name(number): number for number in range(files.first, len(files.contents))}
        if name not in known or not _begins(files.contents[known[name]], at):
            self._fail()
            return
        self._file, self._at = known[name], at
        self._open(at)

    def _begin_behind(self, has: Callable[[Written], bool]) -> None:
        server, files = self._server, self._server.files
        wanted = [place for place, one in enumerate(server.history) if not has(one)]
        self._file = files.places[wanted[0]][0] if wanted else len(files.contents) - 1
        if self._file < files.first:
            self._fail()
            return
        self._at, self._skips = 4, has
        self._open(4)

    def _fail(self) -> None:
        self._has_failed = True
        self._packet(b"\xff" + struct.pack("<H", 1236) + _NOT_FOUND)

    def _open(self, at: int) -> None:
        name = self._server.files.name(self._file).encode()
        self._packet(b"\x00" + _made_up(4, struct.pack("<Q", at) + name))
        if at > 4:
            self._packet(b"\x00" + _made_up(15, _FORMAT))

    def _packet(self, data: bytes) -> None:
        self._sequence = (self._sequence + 1) & 255
        self._pending += struct.pack("<I", len(data))[:3] + bytes([self._sequence]) + data

    def _fill(self) -> None:
        """Send what the log has, up to some bytes."""
        if not self._is_reading or self._has_failed or self._is_lost:
            return
        files, history = self._server.files, self._server.history
        skipped = {} if self._skips is None else {
            (file, start): end for place, (file, start, end) in files.places.items() if self._skips(history[place])
        }  # fmt: skip
        while len(self._pending) < 3000:
            content = files.contents[self._file]
            if self._at == len(content):
                if self._file + 1 == len(files.contents):
                    if self._server.sends_heartbeats and self._at != self._told:
                        # what was skipped before it is passed as well
                        name = files.name(self._file).encode()
                        self._packet(b"\x00" + _made_up(27, name, self._at))
                        self._told = self._at
                    return
                self._file, self._at = self._file + 1, 4
                self._open(4)
                continue
            if (self._file, self._at) in skipped:
                self._at = skipped[self._file, self._at]
                continue
            (length,) = struct.unpack_from("<I", content, self._at + 9)
            self._packet(b"\x00" + bytes(content[self._at : self._at + length]))
            self._at += length
            self._told = self._at


def _begins(content: bytes | bytearray, at: int) -> bool:
    """Return True if an event of the file begins at a place, or the file ends there."""
    place = 4
    while place < at:
        (length,) = struct.unpack_from("<I", content, place + 9) if place < len(content) else (at,)
        place += length
    return place == at


def _made_up(kind: int, body: bytes, behind: int = 0) -> bytes:
    """Return an event that is in no file; `behind` is the place that it names."""
    return _summed(struct.pack("<IBIIIH", 0, kind, 1, 19 + len(body) + 4, behind, 0x20) + body)


def _decoded(encoded: bytes) -> Callable[[Written], bool]:
    """Return a function that says if a set has a transaction, from its form in COM_BINLOG_DUMP_GTID."""
    (count,), at = struct.unpack_from("<Q", encoded), 8
    known: set[tuple[str, int]] = set()
    for _ in range(count):
        source = str(UUID(bytes=encoded[at : at + 16]))
        (intervals,) = struct.unpack_from("<Q", encoded, at + 16)
        at += 24
        for _ in range(intervals):
            low, high = struct.unpack_from("<qq", encoded, at)
            at += 16
            known |= {(source, number) for number in range(low, high)}
    return lambda one: (SOURCES[one.source], one.number) in known
