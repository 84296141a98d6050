"""A client's connection: prelogin, login, then requests until it ends ([MS-TDS] 3.3.5)."""

from __future__ import annotations

import secrets
import ssl
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TextIO

from tdsserver.arguments import Arguments
from tdsserver.bound import convert_value
from tdsserver.decoding import Parameter, Reader
from tdsserver.encoding import COLLATION, bs, column, encoder, type_info, us
from tdsserver.errors import SqlError
from tdsserver.executor import Executor, parameters
from tdsserver.model import Instance
from tdsserver.parser import Parser
from tdsserver.session import (
    Count,
    DatabaseChanged,
    Info,
    Result,
    Rows,
    Session,
    TransactionChanged,
)
from tdsserver.sqltype import INT, SqlType
from tdsserver.wire import ATTENTION, BATCH, LOGIN, PRELOGIN, RESPONSE, RPC, TRANSACTION, Closed, Response, Transport

OFF, ON, NOT_SUPPORTED, REQUIRED = 0, 1, 2, 3
"""PRELOGIN's ENCRYPTION."""
DONE, DONE_PROC, DONE_IN_PROC = 0xFD, 0xFE, 0xFF
MORE, ERROR, COUNT, ATTENDED = 0x01, 0x02, 0x10, 0x20
BUILD = b"\x0f\x00\x11\x4e\x00\x00"
"""15.0.4430."""
PROCEDURES = {10: "sp_executesql", 11: "sp_prepare", 12: "sp_execute", 13: "sp_prepexec", 15: "sp_unprepare"}
PROCEDURES |= {1: "sp_cursor", 2: "sp_cursoropen", 3: "sp_cursorprepare", 5: "sp_cursorprepexec", 7: "sp_cursorfetch"}
ISOLATION = {1: "read uncommitted", 2: "read committed", 3: "repeatable read", 4: "serializable", 5: "snapshot"}


@dataclass(slots=True)
class Settings:
    """Settings of all connections. `encryption` is off (TLS unknown), optional or required."""

    encryption: str
    context: ssl.SSLContext | None
    trace: TextIO | None = None

    def note(self, what: str, text: str) -> None:
        """Write a line into the trace, where there is one."""
        if self.trace is not None:
            self.trace.write(f"{what} {' '.join(text.split())}\n")
            self.trace.flush()


class Attended(Exception):
    """The client has sent an attention."""


class Connection:
    """Serves one socket in its own thread."""

    def __init__(self, transport: Transport, instance: Instance, settings: Settings) -> None:
        self.transport = transport
        self.instance = instance
        self.settings = settings
        self.session: Session | None = None
        self.prepared: dict[int, tuple[str, str]] = {}

    def serve(self) -> None:
        """Serve until the client goes."""
        try:
            self._serve()
        except Closed:
            pass
        finally:
            if self.session is not None:
                self.session.close()
            self.transport.close()

    def _serve(self) -> None:
        only_login = False
        kind, data = self.transport.message()
        if kind != PRELOGIN:
            raise Closed
        only_login = self._prelogin(data)
        kind, data = self.transport.message()
        if kind != LOGIN:
            raise Closed
        if only_login:
            self.transport.plain()
        self._login(data)
        while True:
            kind, data = self.transport.message()
            response = Response(self.transport)
            try:
                if kind == BATCH:
                    self._batch(Reader(data), response)
                elif kind == RPC:
                    self._rpc(Reader(data), response)
                elif kind == TRANSACTION:
                    self._transaction(Reader(data), response)
                elif kind == ATTENTION:
                    response.add(done(DONE, ATTENDED))
                else:
                    raise Closed
            except Attended:
                kind, _ = self.transport.message()
                if kind != ATTENTION:
                    raise Closed from None
                response.add(done(DONE, ATTENDED))
            response.end()

    # Before the session.

    def _prelogin(self, data: bytes) -> bool:
        """Agree on encryption; return True if only the login is encrypted."""
        wanted = _encryption(data)
        mode = self.settings.encryption
        if mode == "off" or self.settings.context is None:
            answer = NOT_SUPPORTED
        elif mode == "required":
            answer = ON if wanted in (ON, REQUIRED) else REQUIRED
        else:
            answer = {OFF: OFF, NOT_SUPPORTED: NOT_SUPPORTED}.get(wanted, ON)
        options = [(0, BUILD), (1, bytes([answer])), (2, b"\0"), (3, b""), (4, b"\0")]
        head, body = b"", b""
        start = 5 * len(options) + 1
        for token, value in options:
            head += struct.pack(">BHH", token, start + len(body), len(value))
            body += value
        self.transport.send(head + b"\xff" + body, RESPONSE)
        if answer == NOT_SUPPORTED:
            return False
        if wanted == NOT_SUPPORTED:
            # The server requires encryption and the client has none: it will close the connection.
            raise Closed
        assert self.settings.context is not None
        self.transport.secure(self.settings.context)
        return answer == OFF

    def _login(self, data: bytes) -> None:
        fields = Login(data)
        try:
            self.session = self._session(fields)
        except SqlError as error:
            self.transport.send(self._error(error) + done(DONE, ERROR))
            raise Closed from None
        session = self.session
        session.stopped = self.transport.interrupted
        size = fields.packet_size if 512 <= fields.packet_size <= 32767 else 4096
        acknowledged = b"\x01" + struct.pack(">I", min(fields.version, 0x74000004)) + bs("Microsoft SQL Server")
        acknowledged += BUILD[:4]
        out = environment(1, bs(session.database.name), bs("master"))
        out += self._message(0xAB, 5701, 2, 0, f"Changed database context to '{session.database.name}'.")
        out += environment(7, bytes([len(COLLATION)]) + COLLATION)
        out += environment(2, bs("us_english"), bs(""))
        out += b"\xad" + struct.pack("<H", len(acknowledged)) + acknowledged
        out += environment(4, bs(str(size)), bs("4096")) + done(DONE)
        self.transport.send(out)
        self.transport.packet_size = size

    def _session(self, fields: Login) -> Session:
        instance = self.instance
        failed = SqlError(18456, f"Login failed for user '{fields.user}'.", 14)
        known = next((name for name in instance.logins if name.casefold() == fields.user.casefold()), None)
        if known is None or not secrets.compare_digest(
            instance.logins[known].encode("utf-8"), fields.password.encode("utf-8")
        ):
            raise failed
        wanted = fields.database or "master"
        database = instance.database(wanted)
        session = Session(instance, database or instance.databases["master"], known, fields.host, fields.application)
        if database is None or database.offline or not session.may_use(database):
            session.close()
            raise SqlError(4060, f'Cannot open database "{wanted}" requested by the login. The login failed.', 11)
        return session

    # Requests.

    def _run(self, sql: str, variables: dict[str, tuple[SqlType, object]] | None) -> Iterator[Result]:
        assert self.session is not None
        return Executor(self.session).run(sql, variables)

    def _batch(self, reader: Reader, response: Response) -> None:
        try:
            reader.headers()
            sql = reader.take(reader.left).decode("utf-16-le")
            self.settings.note("batch", sql)
            self._results(self._run(sql, None), response, DONE)
        except SqlError as error:
            response.add(self._error(error) + done(DONE, ERROR))

    def _results(self, results: Iterator[Result], response: Response, token: int) -> None:
        """Add the tokens of all results. A DONE is held back until the server knows if another result follows."""
        last = b""
        for result in results:
            if isinstance(result, Info):
                response.add(self._message(0xAB, result.number, 0, 1, result.text))
            elif isinstance(result, DatabaseChanged):
                response.add(environment(1, bs(result.new), bs(result.old)))
                response.add(self._message(0xAB, 5701, 2, 0, f"Changed database context to '{result.new}'."))
            elif isinstance(result, TransactionChanged):
                response.add(transaction_change(result))
            else:
                if last:
                    response.add(last[:1] + struct.pack("<H", last[1] | MORE) + last[3:])
                if isinstance(result, Rows):
                    count = self._rows(result, response)
                    last = done(token, COUNT, count, 0xC1)
                else:
                    assert isinstance(result, Count)
                    last = done(token, 0 if result.rows is None else COUNT, result.rows or 0, 0xC3)
        if token == DONE:
            response.add(last or done(DONE))
        elif last:
            response.add(last[:1] + struct.pack("<H", last[1] | MORE) + last[3:])

    def _rows(self, result: Rows, response: Response) -> int:
        header = b"".join(column(name, kind) for name, kind in result.columns)
        response.add(b"\x81" + struct.pack("<H", len(result.columns)) + header)
        encoders = [encoder(kind) for _, kind in result.columns]
        count = 0
        for row in result.rows:
            response.add(b"\xd1" + b"".join([encode(value) for encode, value in zip(encoders, row, strict=True)]))
            count += 1
            if count % 256 == 0 and self.transport.interrupted():
                raise Attended
        return count

    def _rpc(self, reader: Reader, response: Response) -> None:
        try:
            reader.headers()
            length = reader.u2()
            name = PROCEDURES.get(reader.u2(), "") if length == 0xFFFF else reader.take(2 * length).decode("utf-16-le")
            reader.u2()
            given = []
            while reader.left:
                given.append(reader.parameter())
            returned = self._call(name, given, response)
            response.add(b"\x79" + struct.pack("<i", 0) + returned + done(DONE_PROC))
        except SqlError as error:
            response.add(self._error(error) + done(DONE_PROC, ERROR))

    def _call(self, name: str, given: list[Parameter], response: Response) -> bytes:
        """Run a procedure and return the tokens of its return values."""
        parts = Parser(name).name()
        self.settings.note("call", f"{name} {[(p.name, p.value) for p in given]}")
        known = parts[-1].casefold()
        if known == "sp_executesql":
            declared = str(given[1].value or "") if len(given) > 1 else ""
            self._prepared(str(given[0].value), declared, given[2:], response)
            return b""
        if known in ("sp_prepexec", "sp_prepare"):
            handle = len(self.prepared) + 1
            self.prepared[handle] = (str(given[2].value), str(given[1].value or ""))
            if known == "sp_prepexec":
                self._prepared(*self.prepared[handle], given[3:], response)
            return returned(handle)
        if known == "sp_execute":
            handle = int(str(given[0].value))
            if handle not in self.prepared:
                raise SqlError(8179, f"Could not find prepared statement with handle {handle}.", 16, 2)
            self._prepared(*self.prepared[handle], given[1:], response)
            return b""
        if known == "sp_unprepare":
            self.prepared.pop(int(str(given[0].value)), None)
            return b""
        assert self.session is not None
        args = Arguments({}, [])
        for parameter in given:
            if parameter.name:
                args.named[parameter.name.lstrip("@")] = parameter.value
            else:
                args.placed.append(parameter.value)
        self._results(Executor(self.session).call(parts, args), response, DONE_IN_PROC)
        return b""

    def _prepared(self, sql: str, declared: str, given: list[Parameter], response: Response) -> None:
        names = parameters(declared)
        variables: dict[str, tuple[SqlType, object]] = {}
        for place, parameter in enumerate(given):
            if parameter.name and parameter.name in dict(names):
                name, kind = parameter.name, dict(names)[parameter.name]
            elif place < len(names):
                name, kind = names[place]
            else:
                raise SqlError(8144, "Procedure or function has too many arguments specified.", 16, 2)
            variables[name] = (kind, convert_value(parameter.value, parameter.type, kind, explicit=False))
        for name, _ in names:
            if name not in variables:
                raise SqlError(
                    8178,
                    f"The parameterized query '({declared}){sql[:80]}' expects the parameter '{name}', which"
                    " was not supplied.",
                )
        self._results(self._run(sql, variables), response, DONE_IN_PROC)

    def _transaction(self, reader: Reader, response: Response) -> None:
        assert self.session is not None
        session = self.session
        try:
            reader.headers()
            request = reader.u2()
            if request == 5:
                self._level(reader.u1())
                session.begin()
            elif request in (7, 8):
                name = reader.take(reader.u1())
                again = reader.u1() & 1 if reader.left else 0
                if request == 7:
                    session.commit()
                elif name and session.depth == 0:
                    raise SqlError(3903, "The ROLLBACK TRANSACTION request has no corresponding BEGIN TRANSACTION.")
                else:
                    session.rollback()
                if again:
                    self._level(reader.u1())
                    session.begin()
            else:
                raise SqlError(50001, f"The test server does not support the transaction manager's request {request}.")
            events, session.events = session.events, []
            response.add(
                b"".join(transaction_change(e) for e in events if isinstance(e, TransactionChanged)) + done(DONE)
            )
        except SqlError as error:
            events, session.events = session.events, []
            response.add(self._error(error) + done(DONE, ERROR))

    def _level(self, level: int) -> None:
        assert self.session is not None
        if level in ISOLATION:
            self.session.isolation = ISOLATION[level]

    # Tokens.

    def _error(self, error: SqlError) -> bytes:
        self.settings.note("error", str(error))
        return self._message(0xAA, error.number, error.state, error.severity, error.text)

    def _message(self, token: int, number: int, state: int, severity: int, text: str) -> bytes:
        body = struct.pack("<IBB", number, state, severity) + us(text[:2000]) + bs(self.instance.name) + bs("")
        body += struct.pack("<I", 1)
        return bytes([token]) + struct.pack("<H", len(body)) + body


def _encryption(data: bytes) -> int:
    at = 0
    while at < len(data) and data[at] != 0xFF:
        token, offset, length = struct.unpack(">BHH", data[at : at + 5])
        if token == 1 and length:
            return int(data[offset])
        at += 5
    return NOT_SUPPORTED


class Login:
    """LOGIN7 ([MS-TDS] 2.2.6.4)."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.version = struct.unpack("<I", data[4:8])[0]
        self.packet_size = struct.unpack("<I", data[8:12])[0]
        self.host = self._text(36)
        self.user = self._text(40)
        self.password = self._decode(self._bytes(44))
        self.application = self._text(48)
        self.database = self._text(68)

    def _bytes(self, at: int) -> bytes:
        start, length = struct.unpack("<HH", self._data[at : at + 4])
        return self._data[start : start + 2 * length]

    def _text(self, at: int) -> str:
        return self._bytes(at).decode("utf-16-le")

    def _decode(self, data: bytes) -> str:
        return bytes(((b ^ 0xA5) << 4 | (b ^ 0xA5) >> 4) & 0xFF for b in data).decode("utf-16-le", "replace")


def done(token: int, status: int = 0, count: int = 0, command: int = 0) -> bytes:
    """Return a DONE, DONEPROC or DONEINPROC token."""
    return struct.pack("<BHHQ", token, status, command, count)


def environment(kind: int, new: bytes, old: bytes = b"\0") -> bytes:
    """Return an ENVCHANGE token."""
    body = bytes([kind]) + new + old
    return b"\xe3" + struct.pack("<H", len(body)) + body


def transaction_change(event: TransactionChanged) -> bytes:
    """Return the ENVCHANGE token of a transaction. The descriptor is the new value at its begin, else the old value."""
    descriptor = b"\x08" + struct.pack("<Q", event.descriptor)
    return environment(event.kind, descriptor) if event.kind == 8 else environment(event.kind, b"\0", descriptor)


def returned(handle: int) -> bytes:
    """Return the RETURNVALUE token of a prepared statement's handle."""
    return (
        b"\xac"
        + struct.pack("<H", 0)
        + bs("")
        + b"\x01"
        + struct.pack("<IH", 0, 0)
        + type_info(INT)
        + encoder(INT)(handle)
    )


def start(transport: Transport, instance: Instance, settings: Settings) -> threading.Thread:
    """Serve a connection in a thread of its own."""
    thread = threading.Thread(target=Connection(transport, instance, settings).serve, daemon=True)
    thread.start()
    return thread
