"""Publishing to JetStream: nats-py's client on an event loop of its own thread, and its errors sorted. Driver.

A publisher is one connection. It is not mended: whoever uses it closes it after a fault, and opens it again.
"""

from __future__ import annotations

import asyncio
import base64
import importlib.util
import json
import re
import ssl
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from tailrace.errors import SinkError

T = TypeVar("T")

Kind = Literal["passing", "lasting", "login", "record"]
"""What a fault is: one that another try may not see, one of the server's or the configuration, of the login, of the
message alone."""

_CONNECTING_S = 10.0
_CLOSING_S = 2.0
_FAILED_S = 0.1
# Of four parts with what the client adds: a stream of *.*.*, Debezium's default, would take the answers of three.
_INBOX = "_INBOX.tailrace"
_LOGIN = re.compile(r"(?i)authoriz|authentic")
_RIGHTS = re.compile(r"(?i)permissions violation")
_NOBODY = "503"
_UNAVAILABLE = 503
_TOO_LARGE = 10054
"""JetStream's code for a message that is larger than its stream takes."""


class Fault(Exception):
    """What went wrong, in words without data or secrets."""

    def __init__(self, text: str, kind: Kind = "passing") -> None:
        super().__init__(text.rstrip("."))
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Message:
    """What is published: names and texts of `headers` are of characters that a header may have."""

    subject: str
    payload: bytes
    headers: Mapping[str, str]

    @property
    def size(self) -> int:
        """The bytes that count for the server's limit."""
        # NATS/1.0, a line for each header and an empty one, where there are any
        head = 12 + sum(len(name) + len(text.encode()) + 4 for name, text in self.headers.items())
        return len(self.payload) + (head if self.headers else 0)


@dataclass(frozen=True, slots=True)
class Stored:
    """JetStream has a message. `again`: it had it before, by its id, and has left it where it is."""

    again: bool


@dataclass(frozen=True, slots=True)
class Server:
    """An address; `shown` is what may be seen of it."""

    host: str
    port: int

    @property
    def shown(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Login:
    """Who publishes, and how the connection is encrypted; an empty text is none."""

    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    jwt: str = field(default="", repr=False)
    seed: str = field(default="", repr=False)
    tls: Encryption | None = None


class Encryption(ssl.SSLContext):
    """A client's TLS that knows whether it was used: a server decides whether there is any, and may be another one."""

    used = False

    def wrap_bio(self, *arguments: Any, **named: Any) -> ssl.SSLObject:
        self.used = True
        return super().wrap_bio(*arguments, **named)


def missing() -> bool:
    """Whether the client's packages are not installed."""
    return any(importlib.util.find_spec(name) is None for name in ("nats", "nkeys"))


def signer(seed: str) -> Callable[[str], bytes]:
    """Signs what a server asks, with an NKey; raises SinkError for a text that is no seed."""
    import nkeys

    try:
        pair = nkeys.from_seed(bytearray(seed.encode()))
    except Exception:
        raise SinkError(
            "debezium.sink.nats-jetstream.auth.seed is no seed of an NKey.", "It is the text that begins with SU."
        ) from None
    return lambda nonce: base64.b64encode(pair.sign(nonce.encode()))


class Publisher:
    """A connection with one of several servers. Everything raises Fault."""

    def __init__(self, servers: Sequence[Server], login: Login, timeout: float) -> None:
        """Connects to the first server that takes the login; no answer may take longer than `timeout` seconds."""
        self._login = login
        self._timeout = timeout
        self._said: Exception | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tailrace-jetstream", daemon=True)
        self._thread.start()
        self._client: Any = None
        self._waiting: dict[str, asyncio.Future[Stored | Fault]] = {}
        self._number = 0
        try:
            self._run(self._connect(servers))
        except BaseException:
            self.close()
            raise

    @property
    def most(self) -> int:
        """The size of the largest message that the server takes."""
        return int(self._client.max_payload)

    def close(self) -> None:
        if self._loop.is_closed():
            return
        self._run(self._end_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end_all(self) -> None:
        await self._leave(_CLOSING_S)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others, timeout=_CLOSING_S)

    async def _leave(self, seconds: float) -> None:
        """Close the client, which waits for ever for the end of a connection whose TLS has failed."""
        client, self._client = self._client, None
        if client is not None:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(client.close(), seconds)

    def stream(self, name: str, subjects: Sequence[str], storage: str) -> tuple[str, ...]:
        """Make a stream where there is none of that name; the subjects of the one that is there then."""
        return self._run(self._stream(name, subjects, storage))

    def publish(self, messages: Sequence[Message]) -> list[Stored | Fault]:
        """Send messages at once, in their order; what became of each. Raises nothing."""
        return self._run(self._publish(messages))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _connect(self, servers: Sequence[Server]) -> None:
        fault = Fault("there is no server")
        for server in servers:
            try:
                await self._connect_to(server)
            except Fault as error:
                fault = error
                if error.kind == "login":
                    break
            else:
                return
        raise fault

    async def _connect_to(self, server: Server) -> None:
        import nats
        from nats.aio.client import Client

        login, tls, self._said = self._login, self._login.tls, None
        if tls is not None:
            tls.used = False
        who: dict[str, Any] = {
            name: self._covered(text)
            for name, text in (("user", login.user), ("password", login.password), ("token", login.token))
            if text
        }
        if login.jwt:
            who |= {"user_jwt_cb": self._covered(login.jwt.encode()), "signature_cb": signer(login.seed)}
        self._end = self._loop.create_future()
        host = f"[{server.host}]" if ":" in server.host else server.host
        self._client = Client()
        try:
            await self._client.connect(
                f"nats://{host}:{server.port}",
                name="tailrace", allow_reconnect=False, max_reconnect_attempts=1, reconnect_time_wait=0,
                inbox_prefix=_INBOX, connect_timeout=_CONNECTING_S, error_cb=self._note, closed_cb=self._closed,
                **({"tls": tls, "tls_hostname": server.host} if tls is not None else {}), **who,
            )  # fmt: skip
            self._check_encryption()
            self._inbox = self._client.new_inbox()
            await self._client.subscribe(f"{self._inbox}.*", cb=self._answered)
        except (Fault, OSError, nats.errors.Error, TimeoutError) as error:
            fault = self._fault(error)
            await self._leave(_FAILED_S)
            raise fault from None

    def _covered(self, secret: T) -> Callable[[], T]:
        """Gives a secret to the client, which asks for it when TLS has begun, if it ever does."""

        def give() -> T:
            self._check_encryption()
            return secret

        return give

    def _check_encryption(self) -> None:
        if self._login.tls is not None and not self._login.tls.used:
            raise Fault("it does not speak TLS, which the configuration asks for", "lasting")

    async def _note(self, error: Exception) -> None:
        self._said = error

    async def _closed(self) -> None:
        if not self._end.done():
            self._end.set_result(None)

    async def _stream(self, name: str, subjects: Sequence[str], storage: str) -> tuple[str, ...]:
        import nats

        manager = self._client.jsm(timeout=self._timeout)
        try:
            try:
                found = await manager.stream_info(name)
            except nats.js.errors.NotFoundError:
                found = await manager.add_stream(name=name, subjects=list(subjects), storage=storage)
        except (OSError, nats.errors.Error, TimeoutError) as error:
            raise self._fault(error) from None
        return tuple(found.config.subjects or ())

    async def _publish(self, messages: Sequence[Message]) -> list[Stored | Fault]:
        import nats

        self._said = None
        sent: list[asyncio.Future[Stored | Fault]] = []
        rest = Fault("it was not sent")
        for message in messages:
            self._number += 1
            self._waiting[str(self._number)] = answer = self._loop.create_future()
            reply, headers = f"{self._inbox}.{self._number}", dict(message.headers) or None
            try:
                await self._client.publish(message.subject, message.payload, reply, headers)
            except (OSError, nats.errors.Error, TimeoutError) as error:
                rest = self._fault(error)
                break
            sent.append(answer)
        found: list[Stored | Fault] = []
        waits = True
        for answer in sent:
            if not answer.done() and waits:
                await asyncio.wait((answer, self._end), timeout=self._timeout, return_when=asyncio.FIRST_COMPLETED)
                if not answer.done():
                    waits, rest = False, self._fault(TimeoutError())
            found.append(answer.result() if answer.done() else rest)
        self._waiting.clear()
        return found + [rest] * (len(messages) - len(found))

    async def _answered(self, message: Any) -> None:
        """JetStream's answer to a message, or the server's that nobody listens to its subject."""
        answer = self._waiting.pop(message.subject.rpartition(".")[2], None)
        if answer is None or answer.done():
            return
        if not message.data and (message.headers or {}).get("Status") == _NOBODY:
            answer.set_result(Fault("no stream of JetStream takes its subject", "lasting"))
            return
        try:
            said = json.loads(message.data)
            error = said.get("error")
            stored = Stored(said.get("duplicate") is True)
        except (ValueError, AttributeError):
            answer.set_result(Fault("what answers is not JetStream", "lasting"))
            return
        answer.set_result(stored if error is None else _refusal(error))

    def _fault(self, error: BaseException) -> Fault:
        """An error of the client's in words; the client names the one behind it, if any, aside."""
        import nats

        if isinstance(error, Fault):
            return error
        if isinstance(error, nats.js.errors.APIError):
            return _refusal(vars(error))
        said = self._said if self._said is not None else error
        if isinstance(said, Fault):
            return said
        if isinstance(said, ssl.SSLError):
            return Fault(f"TLS: {said.reason or said}")
        if isinstance(said, OSError) and said.strerror:
            return Fault(said.strerror)
        text = str(said).removeprefix("nats: ").strip("' ")
        if _RIGHTS.search(text):
            return Fault(f"the login may not do that: {text}", "lasting")
        if _LOGIN.search(text):
            return Fault(f"the login is refused: {text}", "login")
        if self._end.done():
            return Fault("the connection was lost")
        if isinstance(said, asyncio.TimeoutError):
            return Fault("it does not answer in time")
        return Fault(text or type(said).__name__)


def _refusal(error: Mapping[str, Any]) -> Fault:
    """JetStream's own error: its numbers and its text."""
    kind: Kind = "lasting"
    if error.get("err_code") == _TOO_LARGE:
        kind = "record"
    elif error.get("code") == _UNAVAILABLE:
        kind = "passing"
    return Fault(f"JetStream answers: {error.get('description')}", kind)
