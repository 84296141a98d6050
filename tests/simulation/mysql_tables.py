"""Tables with rows in a simulated MySQL or MariaDB, and sessions that read them in consistent snapshots.

The server keeps every version of each row. A transaction is in the log at once, and visible a moment later, in the
order of the log. Sessions answer the statements of snapshots and windows, in MySQL's text protocol; a lock keeps others
from writing, a table that a transaction reads cannot be altered, and one that was rebuilt cannot be read in a snapshot
from before.
"""

from __future__ import annotations

import itertools
import re
import socket
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pymysql

from tailrace.connectors.binlog.log.gtids import MysqlGtids
from tailrace.connectors.binlog.snapshot import chunks, division, relay, tasks
from tailrace.connectors.binlog.snapshot.relay import Relay, Route, TaskQuery
from tailrace.errors import ConnectionFailed
from tests.simulation.mutants import replaced
from tests.simulation.mysqld import BEGIN, SOURCES, TABLES, Change, Odds, Server, Session
from tests.simulation.world import Process

SIGNALS = "signals"
"""The signal table."""
SIGNAL_COLUMNS = ("id", "type", "data")
_SIGNALS = (
    "CREATE TABLE `signals` (\n  `id` varchar(42) NOT NULL,\n  `type` varchar(32) NOT NULL,\n  `data` text,\n"
    "  PRIMARY KEY (`id`)\n) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4"
)
ROW_BYTES = 4 << 20
"""Bytes of a row by the server's statistics: few rows are a chunk."""
_SELECT = re.compile(
    r"select (?P<items>.+?) from `d`\.`(?P<table>\w+)`(?: force index \(`PRIMARY`\))?(?: where (?P<conditions>.+?))?"
    r"(?: order by `id`(?P<down> desc)?)?(?: limit (?P<limit>\d+)(?: offset (?P<offset>\d+))?)?"
)
_OF_CATALOG = re.compile(r"table_name = _utf8mb4 x'([0-9a-f]+)'")
_TEXT = r"(_utf8mb4 x'[0-9a-f]+'|''|null)"
_INSERT = re.compile(rf"insert into `d`\.`signals` \(`id`, `type`, `data`\) values \({_TEXT}, {_TEXT}, {_TEXT}\)")
_DELETE = re.compile(rf"delete from `d`\.`signals` where `id` = {_TEXT}")
_REBUILT = "Table definition has changed, please retry transaction"

Answer = tuple[Sequence[str], list[tuple[Any, ...]]]
"""The columns of a result, none of a statement without one, and its rows."""


@dataclass
class TableOdds(Odds):
    """More probabilities: that a transaction is visible later than it is in the log, that an answer is lost although
    its statement was carried out, and that a query of a task is stopped."""

    lags: float = 0.0
    unanswered: float = 0.0
    stops: float = 0.0


class TablesServer(Server):
    """A server that has rows. `rights` is 2 if the user may take a global lock, 1 if one on tables, 0 if none."""

    odds: TableOdds

    def __init__(self, *given: Any, rights: int = 2, **more: Any) -> None:
        super().__init__(*given, **more)
        self.rights = rights
        self.names = (*TABLES, SIGNALS)
        self.signals: list[tuple[str, str, str | None]] = []
        """The rows that the signal table has had. A change of it has a place of these in the place of an id."""
        self.versions: dict[tuple[str, int], list[tuple[int, int | None]]] = {}
        """The versions of each row: the transaction's place in the history, and the row's number, None if deleted."""
        self.rebuilt: dict[str, int] = {}
        """The number of transactions with which a table was last rebuilt."""
        self.lock: TablesSession | None = None
        """The session whose lock keeps others from writing."""
        self.reading: list[TablesSession] = []
        """The sessions whose transactions read tables."""
        self.settles = 0.1
        """The probability that what is in the log becomes visible at a step of the writers."""
        self.settles_in_part = False
        """True if only some of it does."""
        self.lag = 0.05
        """Seconds after which a transaction becomes visible. A snapshot without a lock waits for 0.1 s."""
        self.calls = 0
        self.fails_over_at = 0
        """The number of the call before which another server takes over; 0: none."""
        self._seen, self._due = 0, [0.0][:0]

    # --- writers ---

    def act(self) -> None:
        if self.lock is None:
            super().act()
        if self.odds.lags > 0 and self.rng.random() < self.settles:
            self._seen = self.rng.randint(self.seen, len(self.history)) if self.settles_in_part else len(self.history)

    def free(self) -> list[str]:
        held = {name for session in self.reading for name in session.held}
        return [name for name in super().free() if name not in held]

    def alter(self) -> None:
        before = {name: [*columns] for name, columns in self.columns.items()}
        super().alter()
        # a table shows as altered once everything before it in the log is visible
        self.settle()
        for name, columns in self.columns.items():
            # half of the alterations are made at once, without another copy of the table
            if columns != before[name] and self.counter % 2:
                self.rebuilt[name] = len(self.history)

    def write(self, changes: tuple[Change, ...], *given: Any, **more: Any) -> None:
        place = len(self.history)
        super().write(changes, *given, **more)
        for name, op, id_, number, _ in changes:
            self.versions.setdefault((name, id_), []).append((place, None if op == "d" else number))
        lags = self.odds.lags > 0 and self.rng.random() < self.odds.lags
        self._due.append(self.now() + (self.lag if lags else 0.0))

    def put(self, id_: str, kind: str, data: str | None) -> None:
        """Insert a row into the signal table."""
        self.signals.append((id_, kind, data))
        self._change("c", len(self.signals) - 1)

    def remove(self, id_: str) -> None:
        """Delete a row of the signal table."""
        for number, row in enumerate(self.signals):
            if row[0] == id_:
                self._change("d", number)

    def _change(self, op: str, number: int) -> None:
        self.counter += 1
        changes: tuple[Change, ...] = ((SIGNALS, op, number, self.counter, SIGNAL_COLUMNS),)
        self.write(changes, self._bodies(changes, self._begin(), [(16, bytes(8))]))

    def fail_over(self) -> None:
        super().fail_over()
        self.lock = None
        self.reading.clear()
        self.settle()

    # --- the log ---

    def table_map(self, table: int, name: str, columns: Sequence[str]) -> bytes:
        if name != SIGNALS:
            return super().table_map(table, name, columns)
        names = b"".join(bytes([len(one)]) + one.encode() for one in columns)
        named = b"\x04" + bytes([len(names)]) + names + b"\x08\x01\x00" if self.has_names else b""
        return (
            table.to_bytes(6, "little") + b"\x01\x00\x01d\x00" + bytes([len(name)]) + name.encode() + b"\x00"
            b"\x03\x0f\x0f\xfc\x05" + struct.pack("<HHB", 4 * 42, 4 * 32, 2) + b"\x04" + b"\x02\x03\xfc\xff\x00" + named
        )  # fmt: skip

    def image(self, change: Change) -> bytes:
        if change[0] != SIGNALS:
            return super().image(change)
        id_, kind, data = self.signals[change[2]]
        found = b"\x00" if data is not None else b"\x04"
        found += bytes([len(id_)]) + id_.encode() + bytes([len(kind)]) + kind.encode()
        return found if data is None else found + struct.pack("<H", len(data)) + data.encode()

    def created(self, name: str) -> str:
        return _SIGNALS if name == SIGNALS else super().created(name)

    # --- what is visible ---

    @property
    def seen(self) -> int:
        """The number of transactions that a session sees which looks now."""
        while self._seen < len(self._due) and self._due[self._seen] <= self.now():
            self._seen += 1
        return self._seen

    def settle(self) -> None:
        """Let everything be visible that is in the log."""
        self._seen = len(self.history)

    def number(self, name: str, id_: int, upto: int) -> int | None:
        """Return the number of a row after so many transactions; None if there is no row."""
        found = (number for place, number in reversed(self.versions.get((name, id_), [])) if place < upto)
        return next(found, None)

    def numbers_since(self, name: str, id_: int, since: int) -> set[int | None]:
        """Return the numbers of a row after `since` transactions and later ones; None stands for no row."""
        later = {number for place, number in self.versions.get((name, id_), []) if place >= since}
        return later | {self.number(name, id_, since)}

    def rows_at(self, name: str, upto: int) -> dict[int, int]:
        """Return the rows of a table after so many transactions: numbers by ids, in the order of the ids."""
        ids = sorted(id_ for table, id_ in self.versions if table == name)
        found = {id_: self.number(name, id_, upto) for id_ in ids}
        return {id_: number for id_, number in found.items() if number is not None}

    def place(self, upto: int) -> tuple[str, int]:
        """Return the place of the log behind so many transactions."""
        if not upto:
            return self.files.name(0), BEGIN
        number, _, end = self.files.places[upto - 1]
        return self.files.name(number), end

    def has_executed(self, gtids: str) -> bool:
        """Return True if everybody sees the transactions of a set."""
        if self.is_mariadb or not self.has_gtids:
            return False
        most: dict[int, int] = {}
        for one in self.history[: self.seen]:
            most[one.source] = max(most.get(one.source, 0), one.number)
        seen = MysqlGtids(",".join(f"{SOURCES[source]}:1-{number}" for source, number in sorted(most.items())))
        return seen.contains(MysqlGtids(gtids))


class TablesSession(Session):
    """A session that reads rows as well. `view` is the number of transactions that its own one shows."""

    _server: TablesServer

    def __init__(self, server: TablesServer, process: Process) -> None:
        self.view: int | None = None
        self.held: set[str] = set()
        self.process = process
        self.is_stoppable = False
        self.number = next(_NUMBERS)
        self.description: list[tuple[str]] = []
        self._parts: list[_Packet] = []
        self._stream = b""
        self._next_seq_id = 0
        super().__init__(server, process)

    def call(self) -> None:
        server = self._server
        server.calls += 1
        if server.calls == server.fails_over_at and not server.generation:
            server.fail_over()
        try:
            super().call()
        except pymysql.err.OperationalError:
            self.leave()
            raise

    @property
    def open(self) -> bool:
        return self._generation == self._server.generation

    def thread_id(self) -> int:
        return self.number

    def close(self) -> None:
        self._generation = -1
        self.leave()
        super().close()

    _force_close = close

    def leave(self) -> None:
        """Let go of locks and tables."""
        self._end()
        if self._server.lock is self:
            self._server.lock = None

    def _end(self) -> None:
        """End the transaction."""
        self.view = None
        self.held.clear()
        if self in self._server.reading:
            self._server.reading.remove(self)

    def lose(self) -> None:
        """End the session."""
        self._generation = -1
        self.leave()

    # --- the protocol ---

    def execute(self, statement: str, values: Sequence[Any] | None = None) -> None:
        self.call()
        columns, self._found = self._answered(statement, values or ())
        self.description = [(name,) for name in columns]

    def _execute_command(self, command: int, statement: str) -> None:
        self.call()
        columns, rows = self._answered(statement, ())
        if self._server.rng.random() < self._server.odds.unanswered:
            self.lose()
            self.call()
        width = len(columns)
        self._parts = [_Packet(width)] * (width + 2 if width else 1)
        self._next_seq_id = width + 3
        self._stream = b""
        if width:
            number = itertools.count(self._next_seq_id)
            cut = self.is_stoppable and self._server.rng.random() < self._server.odds.stops
            if cut:
                rows = rows[: self._server.rng.randint(0, len(rows))]
            for row in rows:
                self._stream += _packet(b"".join(map(_cell, row)), next(number))
            ending = b"\xff" + struct.pack("<H", 1317) + b"#70100stopped" if cut else b"\xfe\x00\x00\x02\x00"
            self._stream += _packet(ending, next(number))

    def _read_packet(self) -> _Packet:
        return self._parts.pop(0)

    @property
    def _rfile(self) -> TablesSession:
        return self

    def read1(self, size: int) -> bytes:
        try:
            self.call()
        except pymysql.err.OperationalError:
            if self._server.rng.random() < 0.5:
                raise ConnectionResetError(104, "Connection reset by peer") from None
            return b""
        count = min(size, self._server.rng.choice([1, 20, 5000]))
        found, self._stream = self._stream[:count], self._stream[count:]
        assert found, "more is read than there is"
        return found

    # --- statements ---

    def _answered(self, statement: str, values: Sequence[Any]) -> Answer:
        server, text = self._server, statement.strip()
        lower = text.lower()
        if lower.startswith("select"):
            found = self._selected(text)
            if found is not None:
                return found
        if lower.startswith(("savepoint", "set session")):
            return (), []
        if lower.startswith("rollback"):
            self.held.clear()
            if lower == "rollback":
                self._end()
            return (), []
        if lower.startswith("start transaction"):
            self._end()
            # without a snapshot, rows are seen as they are at the first read
            self.view = server.seen
            server.reading.append(self)
            return (), []
        if lower.startswith(("flush tables", "lock tables")):
            return self._locked(lower)
        if found_row := _INSERT.fullmatch(text):
            id_, kind, data = map(_literal, found_row.groups())
            assert id_ is not None
            assert kind is not None
            server.put(id_, kind, data)
            server.settle()
            return (), []
        if found_row := _DELETE.fullmatch(text):
            server.remove(str(_literal(found_row[1])))
            server.settle()
            return (), []
        if lower.startswith("show status like 'binlog"):
            return ("Variable_name", "Value"), self._own_place()
        if lower.startswith("explain select 1 "):
            return ("id", "rows"), [(1, len(self._matching(text[len("explain ") :])[1]))]
        columns = ["File", "Position", "", "", "Executed_Gtid_Set"]
        if not lower.startswith(("show master", "show binary log status")):
            columns = ["a", "b", "c", "d", "e", "f"]
        rows = self._answer(statement, values)
        return columns[: len(rows[0]) if rows else 4], rows

    def _locked(self, lower: str) -> Answer:
        server = self._server
        if server.rights < (1 if lower.startswith("lock") else 2):
            raise pymysql.err.OperationalError(1227, "Access denied; you need (at least one of) the privileges")
        assert server.lock is None, "two sessions hold locks"
        # waits for those who are about to commit
        server.settle()
        server.lock = self
        return (), []

    def _own_place(self) -> list[tuple[Any, ...]]:
        server = self._server
        if not server.is_mariadb or self.view is None:
            return []
        file, end = server.place(self.view)
        return [("Binlog_snapshot_file", file), ("Binlog_snapshot_position", end)]

    def _selected(self, text: str) -> Answer | None:
        """Return the answer of a query; None if it is one of those that sessions of the log ask."""
        server, lower = self._server, text.lower()
        if found := re.fullmatch(rf"select binlog_gtid_pos\({_TEXT}, (\d+)\)", text):
            file = str(_literal(found[1]))
            return ("gtids",), [(server.executed_at(int(file.rpartition(".")[2]) - 1, int(found[2])),)]
        if found := re.fullmatch(rf"select wait_for_executed_gtid_set\({_TEXT}, (\d+)\)", text):
            gtids = str(_literal(found[1]))
            is_there = server.has_executed(gtids) or self.process.wait(
                float(found[2]), lambda: server.has_executed(gtids)
            )
            return ("code",), [(0 if is_there else 1,)]
        named = _OF_CATALOG.search(text)
        if named is not None:
            return self._of_catalog(lower, bytes.fromhex(named[1]).decode())
        if " from `d`." in text:
            return self._of_table(text)
        return None

    def _of_catalog(self, lower: str, name: str) -> Answer:
        server = self._server
        columns = SIGNAL_COLUMNS if name == SIGNALS else server.columns[name]
        if "information_schema.statistics" in lower:
            return ("name", "column", "part"), [("PRIMARY", "id", 0)]
        if "information_schema.tables" in lower:
            count = len(server.rows_at(name, server.seen))
            # statistics are never exact
            count = server.rng.choice([count, count, 2 * count, 0])
            return ("rows", "bytes"), [(count, count * ROW_BYTES)]
        if "ordinal_position, column_name" in lower:
            return ("o", "c", "t", "s", "e"), [(place, one, "int", "", "") for place, one in enumerate(columns, 1)]
        assert name == SIGNALS, lower
        return ("c", "t", "l", "n"), [(one, "varchar" if one != "data" else "text", 42, 0) for one in columns]

    def _matching(self, text: str) -> tuple[re.Match[str], list[tuple[int, int]]]:
        """Return the parts of a query, and the rows that meet its conditions."""
        server, found = self._server, _SELECT.fullmatch(text)
        assert found is not None, f"an unknown query: {text}"
        name = found["table"]
        if self.view is not None:
            self.held.add(name)
            if server.rebuilt.get(name, 0) > self.view:
                raise pymysql.err.OperationalError(1412, _REBUILT)
        rows = [*server.rows_at(name, server.seen if self.view is None else self.view).items()]
        for condition in filter(None, (found["conditions"] or "").split(" and ")):
            if condition == "`id` is not null":
                continue
            compared = re.fullmatch(r"`id` (>|<=) (-?\d+)", condition)
            assert compared is not None, f"an unknown condition: {condition}"
            bound = int(compared[2])
            rows = [one for one in rows if (one[0] > bound) == (compared[1] == ">")]
        return found, rows[::-1] if found["down"] else rows

    def _of_table(self, text: str) -> Answer:
        found, rows = self._matching(text)
        columns, items = self._server.columns[found["table"]], found["items"].split(", ")
        if items == ["count(*)"]:
            return ("count",), [(len(rows),)]
        if items == ["min(`id`)", "max(`id`)"]:
            ids: list[int | None] = [id_ for id_, _ in rows] or [None]
            return ("low", "high"), [(ids[0], ids[-1])]
        offset = int(found["offset"] or 0)
        rows = rows[offset : offset + int(found["limit"] or len(rows))]
        names = [item.strip("`") for item in items]
        if any(name not in (*columns, "1") for name in names):
            raise pymysql.err.OperationalError(1054, "Unknown column in 'field list'")
        return names, [tuple(_value(name, *row) for name in names) for row in rows]


_NUMBERS = itertools.count(1)


@dataclass(frozen=True)
class _Packet:
    """A packet before the rows of a result, of which only the first is looked into: the number of columns."""

    width: int

    def read_length_encoded_integer(self) -> int:
        return self.width


def _packet(payload: bytes, number: int) -> bytes:
    return struct.pack("<I", len(payload))[:3] + bytes([number & 255]) + payload


def _cell(value: Any) -> bytes:
    if value is None:
        return b"\xfb"
    text = value if isinstance(value, bytes) else str(value).encode()
    assert len(text) < 251, "a long text"
    return bytes([len(text)]) + text


def _literal(text: str) -> str | None:
    if text == "null":
        return None
    return "" if text == "''" else bytes.fromhex(text.partition("x'")[2].rstrip("'")).decode()


def _value(column: str, id_: int, number: int) -> int:
    """Return the value of a row's column; see `mysqld.Change`."""
    return {"id": id_, "n": number, "1": 1}[column] if column in ("id", "n", "1") else int(column[1:])


# --- the relay --------------------------------------------------------------------------------------------------------


class SimulatedRelay(Relay):
    """A relay that serves tasks of its own process, one query at a time, without threads and sockets."""

    def __init__(self, sessions: Sequence[Any], *given: Any, **more: Any) -> None:
        super().__init__(sessions, *given, **more)
        _RELAYS[self.route.port] = self

    def close(self) -> None:
        super().close()
        _RELAYS.pop(self.route.port, None)

    def answer(self, client: Any, query: TaskQuery) -> None:
        self._answer(client, query)

    def _run(self, client: Any, reader: Any, query: TaskQuery) -> bool:
        reader.session.is_stoppable = True
        try:
            return super()._run(client, reader, query)
        finally:
            reader.session.is_stoppable = False


_RELAYS: dict[int, SimulatedRelay] = {}
"""The relays by their ports."""


class _Client:
    """A task's connection with a relay: the answer to its request is there at once."""

    def __init__(self, relay: SimulatedRelay) -> None:
        self._relay = relay
        self._found = b""

    def __enter__(self) -> _Client:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def settimeout(self, seconds: float | None) -> None:
        return

    def sendall(self, request: bytes) -> None:
        key = self._relay.route.key
        assert request.startswith(key)
        answer = _Answer()
        # as in the relay's own thread
        with suppress(OSError):
            self._relay.answer(answer, TaskQuery.from_json(request[len(key) :].decode()))
        self._found = answer.data

    def recv(self, size: int) -> bytes:
        found, self._found = self._found[:size], self._found[size:]
        return found

    def recv_into(self, view: memoryview) -> int:
        found = self.recv(len(view))
        view[: len(found)] = found
        return len(found)


class _Answer:
    """The relay's side of a connection."""

    def __init__(self) -> None:
        self.data = b""

    def sendall(self, data: Any) -> None:
        self.data += bytes(data)


class _Listener:
    def __init__(self) -> None:
        self._port = next(_NUMBERS)

    def getsockname(self) -> tuple[str, int]:
        return "127.0.0.1", self._port

    def shutdown(self, how: int) -> None:
        return

    def close(self) -> None:
        return


class _NoThread:
    def __init__(self, **_: Any) -> None:
        return

    def start(self) -> None:
        return


class _Lock:
    """A lock of a machine with one thread."""

    def __enter__(self) -> None:
        return

    def __exit__(self, *_: object) -> None:
        return


class _Event:
    def __init__(self) -> None:
        self._is_set = False

    def set(self) -> None:
        self._is_set = True

    def is_set(self) -> bool:
        return self._is_set


@contextmanager
def relayed(connect: Callable[..., Any], is_remote: Callable[[], bool]) -> Iterator[None]:
    """Patch tasks to reach relays of the simulated machine, and none if `is_remote()`, and chunks to be small."""

    def reached(route: Route) -> Any:
        found = _RELAYS.get(route.port)
        if found is None or is_remote():
            raise ConnectionFailed("The process that holds the snapshot has ended.")
        return _Client(found)

    with ExitStack() as stack:
        sockets = SimpleNamespace(create_server=lambda address: _Listener(), SHUT_RDWR=socket.SHUT_RDWR)
        threads = SimpleNamespace(Lock=_Lock, Event=_Event, Thread=_NoThread)
        for owner, name, value in (
            (relay, "socket", sockets),
            (relay, "threading", threads),
            (relay, "connect", connect),
            (chunks, "Relay", SimulatedRelay),
            (tasks, "reached", reached),
            (division, "_LEAST_ROWS", 1),
        ):
            stack.enter_context(replaced(owner, name, value))
        try:
            yield
        finally:
            _RELAYS.clear()
