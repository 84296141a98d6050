"""A simulated PostgreSQL: its log and slots, crashes and promotions, and sessions of psycopg and ADBC.

It answers only the statements that a planner without a snapshot sends. At each call of a session others may go first,
the session may be lost, or the process may be killed.
"""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from types import SimpleNamespace
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import pq

from tailrace.connectors.postgres.schema import catalog
from tailrace.connectors.postgres.server.arrow import ArrowConnection
from tailrace.connectors.postgres.server.connection import Address
from tests.simulation import publication
from tests.simulation.log import BEGIN_LSN, CAPTURED, TABLES, Change, Decoder, Record
from tests.simulation.world import Process

SLOT = "tailrace"
VERSION = 170004
_PIECE = 64


# Class and module must be psycopg's: by them the reader decides whether another session may help.
Failed = psycopg.OperationalError


def refused(state: str, text: str) -> psycopg.Error:
    """Return a statement's error with an SQLSTATE."""
    return psycopg.errors.lookup(state)(text)


@dataclass(eq=False)
class Slot:
    """A replication slot: `confirmed` is the acknowledged LSN, `saved` the one that survives a crash."""

    confirmed: int
    saved: int
    holder: Session | None = None
    temporary: Session | None = None


@dataclass
class Odds:
    """Probabilities: that a call fails; that a query of the catalog for a table fails; that somebody writes between two
    steps; that a commit is flushed at once; that it is in the log before others see it; and that a large backlog is
    written."""

    fails: float
    catalog: float
    act: float
    flush: float
    unseen: float
    jump: float


class Server:
    """The database and its log. `committed` returns the LSN committed by Spark: nobody may acknowledge more."""

    def __init__(self, rng: Random, odds: Odds, committed: Callable[[], int]) -> None:
        self.rng = rng
        self.odds = odds
        self._committed = committed
        self.records: list[Record] = []
        self.end = self.flushed = BEGIN_LSN
        # lag: the most records that a standby lacks when it takes over
        self.timeline, self.lag = 1, 12
        self.branches: list[tuple[int, int]] = []
        self.slots = {SLOT: Slot(BEGIN_LSN, BEGIN_LSN)}
        self.sessions: list[Session] = []
        self.open: dict[int, int] = {}
        """Running transactions: number of changes by id."""
        self.unseen: set[int] = set()
        """Transactions whose commit is in the log, but not yet visible to other sessions."""
        self.next_xid = 1000
        self.next_number = 0
        self.cuts = 0
        """Number of times that the log has lost its end."""
        self.broken: list[str] = []
        """Violations by clients."""
        self.told, self.told_timelines = BEGIN_LSN, set[int]()
        """The furthest LSN that any client knows, and the known timelines."""

    # --- the log ---

    def write(self, kind: str, xid: int = 0, change: Change | None = None, of: int = 0, size: int = 0) -> None:
        # sometimes a page header lies between two records
        lsn = self.end + (24 if self.rng.random() < 0.1 else 0)
        self.end = lsn + (size or 8 * self.rng.randint(4, 30))
        self.records.append(Record(kind, lsn, self.end, xid, change, of, origin=xid % 7 == 0))

    def change(self, kinds: str = "IIIIUUDTL") -> Change:
        self.next_number += 1
        kind = self.rng.choice(kinds)
        tables = [oid for oid in TABLES if self.rng.random() < 0.6] or [16401]
        if kind == "L":
            return Change(kind, (), self.next_number)
        return Change(kind, tuple(tables) if kind == "T" else (self.rng.choice(tables),), self.next_number)

    def act(self) -> None:
        """Do something random in the database."""
        rng = self.rng
        what = rng.random()
        if what < 0.02 or not self.open:
            self.open[self.next_xid] = 0
            self.next_xid += 1
        xid = rng.choice(list(self.open))
        if what < self.odds.jump:
            # other records of many bytes: a client that lags gets a backlog
            self.write("X", size=rng.choice([1 << 20, 20 << 20, 40 << 20]))
        elif what < 0.05:
            self.write("M", change=self.change("L"))
        elif what < 0.10 and len(self.open) < 4:
            self.open[self.next_xid] = 0
            self.next_xid += 1
        elif what < 0.16 and self.open[xid]:
            # a subtransaction, which gets its id when it writes
            of, self.next_xid = self.next_xid, self.next_xid + 1
            for _ in range(rng.randint(1, 3)):
                self.write("c", xid, self.change(), of)
            if rng.random() < 0.6:
                self.write("A", xid, of=of)
        elif what < 0.75 and self.open[xid] < 30:
            for _ in range(rng.choice([1, 1, 1, 2, 5])):
                self.open[xid] += 1
                self.write("c", xid, self.change())
        else:
            del self.open[xid]
            self.write("C" if rng.random() < 0.9 else "R", xid)
            if rng.random() < self.odds.unseen:
                self.unseen.add(xid)
            if rng.random() < self.odds.flush:
                self.flush()

    def flush(self) -> None:
        self.flushed = self.end

    def finish(self) -> None:
        """Commit all running transactions."""
        self.unseen.clear()
        for xid in list(self.open):
            del self.open[xid]
            self.write("C", xid)
        self.flush()

    # --- crashes and promotions ---

    def crash(self) -> None:
        """Stop at once: records that were not flushed are lost, perhaps only some of them."""
        ends = [record.end for record in self.records if record.end >= self.flushed] or [self.end]
        self._cut(self.rng.choice([self.flushed, *ends]))
        self.write("X")
        self.flush()

    def promote(self) -> None:
        """Let a standby take over, which may lack the end of the log."""
        ends = [record.end for record in self.records[-self.lag :] if record.end <= self.flushed]
        self._cut(self.rng.choice([self.flushed, *ends]))
        parent = self.timeline
        while self.branches and self.branches[-1][1] > self.end:
            # the standby has never seen that branch
            parent, _ = self.branches.pop()
        self.branches.append((parent, self.end))
        self.timeline += 1
        self.write("X")
        self.flush()

    def _cut(self, lsn: int) -> None:
        self.cuts += 1
        self.records = [record for record in self.records if record.end <= lsn]
        self.end = self.flushed = max(lsn, BEGIN_LSN)
        self.open.clear()
        self.unseen.clear()
        for session in list(self.sessions):
            session.lose()
        self.notice()
        for slot in self.slots.values():
            slot.confirmed = min(slot.saved, self.end)
            slot.saved = slot.confirmed

    def notice(self) -> None:
        """Remove the sessions of clients that are gone."""
        for session in [one for one in self.sessions if one.is_gone]:
            self.sessions.remove(session)
            for name, slot in list(self.slots.items()):
                if slot.temporary is session:
                    del self.slots[name]
                elif slot.holder is session:
                    slot.holder = None

    def checkpoint(self) -> None:
        for slot in self.slots.values():
            slot.saved = slot.confirmed

    def confirm(self, slot: Slot, lsn: int, what: str) -> None:
        """Acknowledge an LSN for a client; notes a violation if it is beyond the LSN that Spark has committed."""
        if slot.temporary is None and slot.confirmed < lsn > self._committed():
            self.broken.append(f"{what} lets the server forget {lsn:X}, Spark has {self._committed():X}")
        slot.confirmed = max(slot.confirmed, min(lsn, self.flushed))

    def tell(self, lsn: int) -> int:
        """Note that a client gets to know an LSN; return it."""
        self.told = max(self.told, lsn)
        return lsn

    # --- sessions ---

    def connect(self, process: Process) -> Session:
        process.step()
        if self.rng.random() < self.odds.fails:
            raise Failed("no connection")
        return self.session(process)

    def session(self, process: Process) -> Session:
        return Session(self, process)

    @property
    def answers(self) -> tuple[tuple[str, Answer], ...]:
        """The functions that answer statements, by a part of their text; the first match answers."""
        return ANSWERS


@dataclass(eq=False)
class Session:
    """A session behind psycopg's interface, and its libpq connection."""

    server: Server
    process: Process
    closed: bool = False
    is_gone: bool = False
    """True if the client is gone; the server has yet to notice it."""
    is_lost: bool = False
    walsender: Walsender | None = None
    info: Any = field(init=False)
    nonblocking: int = 0

    def __post_init__(self) -> None:
        self.server.sessions.append(self)
        self._number = self.process.world.file(self)
        self.info = SimpleNamespace(server_version=VERSION, parameter_status=lambda name: "UTF8")

    @property
    def pgconn(self) -> Session:
        return self

    @property
    def socket(self) -> int:
        return self._number

    @property
    def transaction_status(self) -> int:
        return int(pq.TransactionStatus.IDLE)

    def fileno(self) -> int:
        return self._number

    def close(self) -> None:
        self.closed = self.is_gone = True

    def lose(self) -> None:
        """Cut the connection."""
        self.is_lost = self.is_gone = True

    def call(self, what: str) -> None:
        """Take a step, at the beginning of every call of the client. Raises Failed if the connection is lost."""
        self.process.step()
        if self.closed or self.is_lost:
            raise Failed(f"the connection is lost: {what}")
        if self.server.rng.random() < self.server.odds.fails:
            self.lose()
            raise Failed(f"the connection was cut: {what}")

    # --- statements ---

    def execute(self, statement: str | bytes, values: Sequence[Any] = (), *, binary: bool = False) -> Rows:
        text = statement.decode() if isinstance(statement, bytes) else statement
        if text in publication.QUIET:
            return Rows(list(_answer(self.server.answers, text)(self, text, values)))
        self.call(text[:_PIECE])
        found = Rows(list(_answer(self.server.answers, text)(self, text, values)))
        # the statement may take effect although its answer is lost
        self.call(text[:_PIECE])
        return found

    # --- libpq's replication protocol ---

    def exec_(self, command: bytes) -> Any:
        self.call("START_REPLICATION")
        found = re.fullmatch(
            r'START_REPLICATION SLOT "(.*?)" LOGICAL ([0-9A-F]+)/([0-9A-F]+) \((.*)\)', command.decode()
        )
        if found is None:
            raise NotImplementedError(command)
        slot = self.server.slots.get(found[1])
        if slot is None:
            return refusal("42704", f'replication slot "{found[1]}" does not exist')
        if slot.holder is not None:
            return refusal("55006", f'replication slot "{found[1]}" is active')
        slot.holder = self
        asked = int(found[2], 16) << 32 | int(found[3], 16)
        block = 4 if "\"streaming\" 'on'" in found[4] else 0
        decoder = Decoder(max(asked, slot.confirmed), block=block, messages="messages" in found[4])
        self.walsender = Walsender(self.server, slot, decoder)
        return SimpleNamespace(status=pq.ExecStatus.COPY_BOTH)

    def has_input(self) -> bool:
        if self.is_lost:
            return True
        return self.walsender is not None and self.walsender.has_input()

    def consume_input(self) -> None:
        if self.is_lost or self.closed:
            raise Failed("the connection is lost")
        if self.walsender is not None:
            self.walsender.receive()

    def get_copy_data(self, asynchronous: int) -> tuple[int, bytes]:
        assert self.walsender is not None
        assert asynchronous
        self.process.step(0.05)
        if self.is_lost:
            raise Failed("the connection is lost")
        if self.walsender.received:
            message = self.walsender.received.pop(0)
            return len(message), message
        return 0, b""

    def put_copy_data(self, message: bytes) -> None:
        self.call("a status message")
        assert self.walsender is not None
        _, _, flushed, applied, _, reply = struct.unpack(">cqqqqb", message)
        assert flushed == applied
        self.server.confirm(self.walsender.slot, flushed, "a status message")
        if reply:
            self.walsender.is_asked = True

    def flush(self) -> int:
        return 0


class Rows:
    """The result of a statement."""

    def __init__(self, rows: list[tuple[Any, ...]]) -> None:
        self._rows = rows

    def fetchone(self) -> tuple[Any, ...] | None:
        return self._rows[0] if self._rows else None

    def fetchall(self) -> list[tuple[Any, ...]]:
        return self._rows


def refusal(state: str, text: str) -> Any:
    fields = {pq.DiagnosticField.SQLSTATE: state.encode(), pq.DiagnosticField.MESSAGE_PRIMARY: text.encode()}
    return SimpleNamespace(status=pq.ExecStatus.FATAL_ERROR, error_message=text.encode(), error_field=fields.get)


class Walsender:
    """Sends flushed records, a few at a time."""

    def __init__(self, server: Server, slot: Slot, decoder: Decoder) -> None:
        self._server = server
        self.slot = slot
        self._decoder = decoder
        self.received: list[bytes] = []
        self._sent = slot.confirmed
        self._told = 0
        self.is_asked = False

    def _next(self) -> Record | None:
        records = self._server.records
        place = self._decoder.place
        if place < len(records) and records[place].end <= self._server.flushed:
            return records[place]
        return None

    def has_input(self) -> bool:
        return bool(self.received) or self.is_asked or self._next() is not None

    def receive(self) -> None:
        """Receive some more messages."""
        for _ in range(self._server.rng.choice([1, 3, 20])):
            record = self._next()
            if record is None:
                break
            for message, lsn in self._decoder.next(record):
                self._server.tell(record.end)
                self.received.append(b"w" + struct.pack(">qqq", lsn, lsn, 0) + message)
            self._sent = max(self._sent, record.end)
        if self.is_asked or (self._sent > self._told and self._server.rng.random() < 0.3):
            self.is_asked = False
            self._told = self._server.tell(self._sent)
            self.received.append(b"k" + struct.pack(">qqb", self._sent, 0, int(self._server.rng.random() < 0.1)))


class Arrow:
    """A session behind the interface of `ArrowConnection`."""

    def __init__(self, server: Server, process: Process) -> None:
        self._session = server.connect(process)
        self._server = server

    def execute(self, sql: str) -> None:
        self._session.call(sql[:_PIECE])
        server = self._server
        if found := re.fullmatch(r"select pg_copy_logical_replication_slot\('(.*?)', '(.*?)', true\)( where .*)?", sql):
            if found[2] in server.slots:
                raise refused("42710", f'replication slot "{found[2]}" already exists')
            if server.rng.random() < 0.05:
                raise refused("53400", "all replication slots are in use")
            confirmed = server.slots[found[1]].confirmed
            server.slots[found[2]] = Slot(confirmed, confirmed, self._session, self._session)
            return
        found = re.search(r"pg_replication_slot_advance\(s.slot_name, '(.*?)/(.*?)'\).*s.slot_name = '(.*?)'", sql)
        if found is None:
            raise NotImplementedError(sql)
        slot = server.slots[found[3]]
        server.confirm(slot, int(found[1], 16) << 32 | int(found[2], 16), "a copy")

    def query(self, sql: str) -> Iterator[pa.RecordBatch]:
        self._session.call(sql[:_PIECE])
        server = self._server
        if "pg_walfile_name" in sql:
            return iter([pa.record_batch({"left": [f"{server.timeline:08X}"]})])
        if found := re.search(r"confirmed_flush_lsn .* where slot_name = '(.*?)'", sql):
            slot = server.slots.get(found[1])
            return iter([pa.record_batch({"lsn": [slot and server.tell(slot.confirmed)], "before": [0]})])
        found = re.search(r"get_binary_changes\('(.*?)', '(.*?)/(.*?)', null, (.*)\)", sql)
        if found is None:
            raise NotImplementedError(sql)
        upto = int(found[2], 16) << 32 | int(found[3], 16)
        return self._changes(server.slots[found[1]], upto, "'messages'" in found[4])

    def _changes(self, slot: Slot, upto: int, messages: bool) -> Iterator[pa.RecordBatch]:
        server = self._server
        decoder = Decoder(slot.confirmed, messages=messages)
        read = slot.confirmed
        found: list[tuple[bytes, int]] = []
        for record in list(server.records):
            if record.end > server.flushed or read >= upto:
                break
            found.extend(decoder.next(record))
            read = max(read, record.end)
        for low in range(0, len(found), 7):
            self._session.call("a query's rows")
            part = found[low : low + 7]
            server.tell(read)
            yield pa.record_batch(
                {
                    "lsn": pa.array([struct.pack(">q", lsn) for _, lsn in part], pa.binary()),
                    "data": pa.array([message for message, _ in part], pa.binary()),
                }
            )
        self._session.call("a query's end")
        slot.confirmed = read

    def close(self) -> None:
        self._session.close()


def sessions(server: Server, process: Process) -> tuple[Callable[..., Any], Callable[[Address], ArrowConnection]]:
    """Return `connect` and `arrow` for `tailrace.connectors.postgres.log.reading.Outside`."""

    def connect(
        config: Mapping[str, Any], /, *, replication: bool = False, any_bytes: bool = False, limited: bool = True
    ) -> Any:
        return server.connect(process)

    return connect, lambda address: Arrow(server, process)  # type: ignore[return-value]


# --- the statements -------------------------------------------------------------------------------------------------

Answer = Callable[[Session, str, Sequence[Any]], list[tuple[Any, ...]]]


def _slot_row(row: Callable[[Slot], tuple[Any, ...]]) -> Answer:
    def answer(session: Session, text: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        slot = session.server.slots.get(values[0])
        return [] if slot is None else [row(slot)]

    return answer


_LISTED = (("id", 25, -1, False, "", None, None, 1), ("v", 25, -1, True, "", None, None, 2))


def _columns(session: Session, text: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
    may_lose(session)
    columns = [
        (1, "id", True, False, None, None, 25, -1, 700, None, True, None),
        (2, "v", False, False, None, None, 25, -1, 700, None, False, None),
    ]
    server, indexes = session.server, [(90, True, True, "pkey", 700, [1])]
    told = (server.next_xid, list(server.unseen), server.end, columns, indexes, None, 0, 700)
    return [(oid, *told) for oid in values[1] if oid in TABLES]


def types(session: Session, text: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
    may_lose(session)
    names = {20: ("int8", "N"), 23: ("int4", "N"), 25: ("text", "S"), 1043: ("varchar", "S")}
    return [
        (oid, names[oid][0], "b", names[oid][1], 0, 0, -1, False, f"pg_catalog.{names[oid][0]}out", 1, None)
        for oid in values[0]
        if oid in names
    ]


def may_lose(session: Session) -> None:
    """Lose the session with the probability of failures of catalog queries."""
    if session.server.rng.random() < session.server.odds.catalog:
        session.lose()


def _advance(session: Session, text: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
    name, high, low = re.findall(r"'(.*?)', '(.*?)/(.*?)'", text)[0]
    slot = session.server.slots[name]
    if slot.holder is not None:
        raise refused("55006", "the slot is active")
    session.server.confirm(slot, int(high, 16) << 32 | int(low, 16), "an advance of the slot")
    return [()]


def _identify(session: Session, text: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
    session.server.told_timelines.add(session.server.timeline)
    return [("7000", session.server.timeline, "0/0", "d")]


def _timelines(session: Session, text: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
    lines = [f"{timeline}\t{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}\tpromoted" for timeline, lsn in session.server.branches]
    return [("history", "\n".join(lines))]


@functools.lru_cache(maxsize=4096)
def _answer(answers: tuple[tuple[str, Answer], ...], text: str) -> Answer:
    """Return the function that answers a statement."""
    for part, answer in answers:
        if part in text:
            return answer
    raise NotImplementedError(text)


ANSWERS: tuple[tuple[str, Answer], ...] = (
    # each answer is of one moment anyway
    ("begin isolation level repeatable read", lambda session, text, values: []),
    ("rollback", lambda session, text, values: []),
    ("current_setting('tailrace.search_path'", lambda session, text, values: [("public",)]),
    ("pg_is_in_recovery", lambda session, text, values: [(False,)]),
    ("IDENTIFY_SYSTEM", _identify),
    ("TIMELINE_HISTORY", _timelines),
    *publication.ANSWERS,
    ("select puballtables", lambda session, text, values: [(True, True, True, True, True, False)]),
    (
        catalog._TABLES,
        lambda session, text, values: [(oid, "public", name, "d", "r") for oid, name in CAPTURED.items()],
    ),
    (
        catalog._TABLE,
        lambda session, text, values: [(oid, "public", TABLES[oid], "d") for oid in values[0] if oid in TABLES],
    ),
    (catalog._COLUMNS, lambda session, text, values: [(oid, *one) for oid in values[1] for one in _LISTED]),
    (catalog._KEYS, lambda session, text, values: [(oid, True, ["id"]) for oid in values[0]]),
    (catalog._PRESENT, _columns),
    (catalog._TYPES, types),
    (catalog._ALTERS, lambda session, text, values: [()] if int(values[0]) % 2 else []),
    (
        "select plugin, slot_type",
        _slot_row(lambda slot: ("pgoutput", "logical", "d", slot.confirmed, False)),
    ),
    (
        "::int8, active_pid, case",
        _slot_row(lambda slot: (slot.confirmed, None if slot.holder is None else 4711, "", False)),
    ),
    ("'failover'", _slot_row(lambda slot: (False,))),
    ("select pg_replication_slot_advance(", _advance),
    (
        "pg_current_wal_insert_lsn() - '0/0'",
        lambda session, text, values: [(session.server.end, session.server.flushed < session.server.end)],
    ),
    ("pg_current_wal_flush_lsn() - '0/0'", lambda session, text, values: [(session.server.flushed,)]),
    ("txid_current()", lambda session, text, values: flushing(session)),
)


def flushing(session: Session) -> list[tuple[Any, ...]]:
    """Run a transaction without changes: the WAL writer soon flushes up to its commit."""
    session.server.next_xid += 1
    session.server.write("X")
    return [(session.server.next_xid - 1,)]
