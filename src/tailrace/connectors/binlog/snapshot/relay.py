"""The relay: runs queries of tasks in sessions of the planner, which alone see a snapshot's state. Planner and worker.

Servers cannot share a snapshot between sessions. Therefore the planner's sessions run the queries of tasks, each one at
a time. The relay passes the server's answer to the task unchanged, and the task decodes it. The relay listens on this
host. A request is a secret that only tasks have, followed by a line of JSON. The answer is the number of columns (two
bytes), the number of the first packet (a byte), and then the server's packets; the last one ends the result or is an
error.

A query holds a table's metadata lock while it runs. A statement that alters the table has to wait, and so do all later
statements on the table. The relay stops the query as soon as it sees such a statement.
"""

from __future__ import annotations

import hmac
import json
import logging
import queue
import secrets
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tailrace.connectors.binlog.server.connection import connect, is_gone
from tailrace.connectors.binlog.server.errors import number_of, text_of
from tailrace.connectors.binlog.snapshot import text_kernels
from tailrace.connectors.binlog.snapshot.result import ROOM, ServerError, TextRows, receiver, rows, run, select, send
from tailrace.errors import ConnectionFailed, DecodeError

if TYPE_CHECKING:
    from pymysql.connections import Connection

    from tailrace.config import Config

log = logging.getLogger("tailrace")

_KEY = 32
_WATCH_S = 0.5
_PATIENCE_S = 30.0
ALTERED, LOST = 1412, 2013
"""Error codes: the table was altered since the snapshot; the session has ended."""
_WAITING = (
    "select 1 from information_schema.processlist where id <> connection_id() and state like "
    "'%waiting for table metadata lock%' and info is not null limit 1"
)
_GONE = "The process that holds the snapshot has ended."
_AGAIN = "Start again with the same checkpoint: the chunks that are done are not read again."


@dataclass(frozen=True, slots=True)
class Route:
    """The address of a relay: its port on this host, and the secret."""

    port: int
    key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class TaskQuery:
    """A query of a task.

    `hold` is run first and takes the metadata lock. Then `before`, a query for the table's definition, must return the
    text `expected`. With `is_exact` the query must see the state of the snapshot, not a later one.
    """

    statement: str
    hold: str = ""
    before: str = ""
    expected: str = ""
    is_exact: bool = False

    def to_json(self) -> str:
        return json.dumps([self.statement, self.hold, self.before, self.expected, self.is_exact])

    @classmethod
    def from_json(cls, text: str) -> TaskQuery:
        return cls(*json.loads(text))


@dataclass(slots=True)
class _Reader:
    """A session that reads. With `is_later` it shows a later state than the point. `holds` is True if it keeps metadata
    locks until its transaction ends."""

    session: Connection[Any]
    is_later: bool = False
    holds: bool = False


class Relay:
    """Serves queries in `sessions`, each with its transaction.

    `control` opens a session for other statements. `later` opens a session in a transaction that begins now, which
    replaces a lost one. With `releases` a session can release metadata locks without ending its transaction.
    """

    def __init__(
        self,
        sessions: Sequence[Connection[Any]],
        control: Callable[[], Connection[Any]],
        later: Callable[[], Connection[Any]],
        *,
        releases: bool = True,
    ) -> None:
        self._free: queue.Queue[_Reader] = queue.Queue()
        for session in sessions:
            self._free.put(_Reader(session))
        self._lock = threading.Lock()
        self._control, self._later, self._releases = control, later, releases
        # the ids of the sessions that run a query for a task
        self._running: set[int] = set()
        self._stopped: set[int] = set()
        self._key = secrets.token_bytes(_KEY)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._is_over = threading.Event()
        self.route = Route(self._listener.getsockname()[1], self._key)
        for work, name in ((self._accept, "tailrace-relay"), (self._watch, "tailrace-relay-watch")):
            threading.Thread(target=work, name=name, daemon=True).start()

    def close(self) -> None:
        """Refuse further requests, and close the idle sessions."""
        self._is_over.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with suppress(queue.Empty):
            while True:
                _close(self._free.get_nowait())

    @property
    def is_reading(self) -> bool:
        """True while a query of a task runs."""
        with self._lock:
            return bool(self._running)

    @contextmanager
    def borrowed(self) -> Iterator[Connection[Any]]:
        """Yield a session for queries of the planner."""
        reader = self._free.get()
        is_kept = False
        try:
            run(reader.session, "savepoint tailrace")
            yield reader.session
            run(reader.session, "rollback to savepoint tailrace")
            is_kept = True
        finally:
            self._give_back(reader, is_kept)

    def _accept(self) -> None:
        while not self._is_over.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), name="tailrace-relay-read", daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            client.settimeout(_PATIENCE_S)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with client.makefile("rb") as stream:
                if not hmac.compare_digest(stream.read(_KEY), self._key):
                    return
                query = TaskQuery.from_json(stream.readline().decode())
            # a task may take its time over the rows
            client.settimeout(None)
            self._answer(client, query)

    def _answer(self, client: socket.socket, query: TaskQuery) -> None:
        import pymysql

        reader = self._free.get()
        is_kept = False
        try:
            if query.is_exact and reader.is_later:
                is_kept = True
                client.sendall(_failure(ALTERED, "the state of the snapshot is lost"))
                return
            is_kept = self._run(client, reader, query)
        except pymysql.err.MySQLError as error:
            is_kept = not is_gone(error)
            client.sendall(_failure(number_of(error) if is_kept else LOST, text_of(error)))
        except ConnectionFailed as error:
            # the session has ended within an answer
            client.sendall(_failure(LOST, error.message))
        finally:
            self._give_back(reader, is_kept)

    def _give_back(self, reader: _Reader, is_kept: bool) -> None:
        if not is_kept:
            _close(reader)
            reader = self._renewed(reader)
        if self._is_over.is_set():
            _close(reader)
        self._free.put(reader)

    def _renewed(self, reader: _Reader) -> _Reader:
        """Return a session in a later state; if the server cannot be reached, the lost session, which fails again."""
        try:
            found = _Reader(self._later(), is_later=True)
        except Exception as error:
            log.warning("a session of the snapshot is lost, and no other begins (%s)", type(error).__name__)
            return replace(reader, is_later=True)
        log.warning("a session of the snapshot is lost: the rest of its rows is read as they are now")
        return found

    def _run(self, client: socket.socket, reader: _Reader, query: TaskQuery) -> bool:
        """Run a query and pass its rows on. Return False if the session cannot be used again."""
        session = reader.session
        number = session.thread_id()
        run(session, "savepoint tailrace")
        with self._lock:
            self._running.add(number)
        reader.holds = not self._releases
        try:
            if query.hold:
                # from here on the table cannot be altered
                run(session, query.hold)
            if query.before and text_of_rows(session, query.before) != query.expected:
                client.sendall(_failure(ALTERED, "the table was altered"))
                return True
            width, first = send(session, query.statement)
            client.sendall(bytes([width & 255, width >> 8, first]))
            return self._hand_on(client, session, number)
        finally:
            with self._lock:
                self._running.discard(number)
                self._stopped.discard(number)
            with suppress(Exception):
                # releases the table
                run(session, "rollback to savepoint tailrace")

    def _hand_on(self, client: socket.socket, session: Connection[Any], number: int) -> bool:
        receive, state = receiver(session), np.zeros(4, np.int64)
        data = np.empty(ROOM, np.uint8)
        view, filled, is_wanted = data.data, 0, True
        while state[2] == text_kernels.MORE:
            count = receive(view[filled:])
            if not count:
                # an error packet within a row would be read as a part of the row, so the stream just ends
                if is_wanted and not (state[0] or state[1]):
                    client.sendall(_error_packet(LOST, "the session has ended", int(state[3])))
                return False
            filled += count
            upto = text_kernels.passed_on(data, filled, state)
            if is_wanted and upto:
                try:
                    client.sendall(view[:upto])
                except OSError:
                    # the rest is read and dropped, so that the session can be used again
                    is_wanted = False
                    self._stop(number)
            view[: filled - upto] = bytes(view[upto:filled])
            filled -= upto
        return True

    # --- sessions that wait for a table ------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Stop the queries of tasks while another session waits for a metadata lock."""
        session: Connection[Any] | None = None
        while not self._is_over.wait(_WATCH_S):
            with self._lock:
                running = self._running - self._stopped
            if not running and self._releases:
                continue
            try:
                session = session or self._control()
                if rows(session, _WAITING):
                    self._let_go(running, session)
            except Exception as error:
                log.info("waiting sessions cannot be seen (%s)", type(error).__name__)
                session = None
        if session is not None:
            session.close()

    def _let_go(self, running: set[int], session: Connection[Any]) -> None:
        if running:
            log.warning("a statement waits for a table that is being read: the read is stopped")
        for number in running:
            self._stop(number, session)
        for _ in range(0 if self._releases else self._free.qsize()):
            with suppress(queue.Empty):
                reader = self._free.get_nowait()
                self._give_back(reader, is_kept=not reader.holds)

    def _stop(self, number: int, session: Connection[Any] | None = None) -> None:
        with self._lock:
            if number not in self._running:
                return
            self._stopped.add(number)
        with suppress(Exception):
            own = session or self._control()
            try:
                run(own, f"kill query {number}")
            finally:
                if session is None:
                    own.close()


def text_of_rows(session: Connection[Any], statement: str) -> str:
    """Return the rows of a statement as a single text."""
    return "\n".join("\t".join(text or "" for text in row) for row in rows(session, statement))


def _close(reader: _Reader) -> None:
    with suppress(Exception):
        reader.session.close()


def _error_packet(code: int, text: str, number: int = 0) -> bytes:
    payload = b"\xff" + code.to_bytes(2, "little") + b"#HY000" + text.encode()
    return len(payload).to_bytes(3, "little") + bytes([number]) + payload


def _failure(code: int, text: str) -> bytes:
    """Return the answer to a query without result."""
    return bytes(3) + _error_packet(code, text)


def reached(route: Route) -> socket.socket:
    """Return a connection to a relay on this host. Raises ConnectionFailed. Worker."""
    try:
        return socket.create_connection(("127.0.0.1", route.port), timeout=_PATIENCE_S)
    except OSError:
        raise ConnectionFailed(
            "The process that holds the snapshot has ended, or runs on another host.",
            f"{_AGAIN} On a cluster, spark.read and tables without a key need a local master.",
        ) from None


def rows_of(
    client: socket.socket, route: Route, query: TaskQuery, forms: Sequence[int], most_rows: int | None = None
) -> Iterator[list[pa.Array]]:
    """Yield the rows of a query that runs in a session of the snapshot, as `TextRows.batches` does. Worker.

    Raises ServerError, ConnectionFailed and DecodeError.
    """

    def receive(into: memoryview) -> int:
        try:
            return client.recv_into(into)
        except OSError:
            return 0

    try:
        client.settimeout(None)
        client.sendall(route.key + query.to_json().encode() + b"\n")
        head = b""
        while len(head) < 3:
            part = client.recv(3 - len(head))
            if not part:
                raise ConnectionFailed(_GONE, _AGAIN)
            head += part
    except OSError:
        raise ConnectionFailed(_GONE, _AGAIN) from None
    width = head[0] | head[1] << 8
    if width and width != len(forms):
        raise DecodeError(f"A result has {width} columns where {len(forms)} were asked for.")
    yield from TextRows(receive, forms, head[2], most_rows or (1 << 16)).batches()


@contextmanager
def alone(config: Config, query: TaskQuery, forms: Sequence[int]) -> Iterator[Iterator[list[pa.Array]]]:
    """Run a query in a new session, on the current state of tables, and yield an iterator over its rows. Worker.

    Raises ConnectionFailed, PrerequisiteError, and ServerError, also for a table that was altered.
    """
    import pymysql

    session = connect(config, limited=False)
    try:
        try:
            run(session, "start transaction read only")
            if query.hold:
                run(session, query.hold)
            if query.before and text_of_rows(session, query.before) != query.expected:
                raise ServerError(ALTERED, "HY000", "the table was altered")
            yield select(session, query.statement, forms)
        except pymysql.err.MySQLError as error:
            raise ServerError(number_of(error) or LOST, "HY000", text_of(error)) from None
    finally:
        session.close()
