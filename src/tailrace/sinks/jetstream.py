"""The sink `nats-jetstream`: a subject for each topic, as from Debezium Server. At least once. Driver."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import importlib.util
import json
import re
import ssl
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NoReturn, TypeVar
from urllib.parse import unquote, urlsplit

from tailrace.connectors import advice
from tailrace.connectors.findings import Finding
from tailrace.errors import ConnectionFailed, SinkError
from tailrace.process import reachability
from tailrace.process.installation import pip_install
from tailrace.sinks.base import Settings, unreadable
from tailrace.sinks.web import is_header_name
from tailrace.sinks.writer import DEAD_LETTERS, OneWriter, Record, identity, log

# --- publishing -------------------------------------------------------------------------------------------------------

T = TypeVar("T")

Kind = Literal["passing", "lasting", "login", "record"]
"""Kind of a fault: transient (`passing`), of the server or the configuration (`lasting`), of the login, or of a single
message (`record`)."""

_CONNECTING_S = 10.0
_CLOSING_S = 2.0
_FAILED_S = 0.1
# With the client's suffixes the subject of an answer has four parts. A stream with Debezium's default subjects *.*.*
# would capture subjects of three parts.
_INBOX = "_INBOX.tailrace"
_LOGIN = re.compile(r"(?i)authoriz|authentic")
_RIGHTS = re.compile(r"(?i)permissions violation")
_NOBODY = "503"
_UNAVAILABLE = 503
_TOO_LARGE = 10054
"""JetStream's code for a message that exceeds the stream's limit."""


class JetStreamFault(Exception):
    """A failure of the connection or of a message; the text holds no data and no secrets."""

    def __init__(self, text: str, kind: Kind = "passing") -> None:
        super().__init__(text.rstrip("."))
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Publication:
    """A message to publish. Names and texts of `headers` hold only characters that NATS allows."""

    subject: str
    payload: bytes
    headers: Mapping[str, str]

    @property
    def size(self) -> int:
        """The bytes that count towards the server's limit."""
        # Headers, if any, are "NATS/1.0", a line for each header and an empty line.
        head = 12 + sum(len(name) + len(text.encode()) + 4 for name, text in self.headers.items())
        return len(self.payload) + (head if self.headers else 0)


@dataclass(frozen=True, slots=True)
class PublishAck:
    """JetStream's confirmation of a message. `again` is True if it already had a message with this id and skipped this
    one."""

    again: bool


@dataclass(frozen=True, slots=True)
class NatsAddress:
    """A server's address; `shown` is its form for messages."""

    host: str
    port: int

    @property
    def shown(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Login:
    """Credentials, "" for none, and the encryption of the connection."""

    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    jwt: str = field(default="", repr=False)
    seed: str = field(default="", repr=False)
    tls: Encryption | None = None


class Encryption(ssl.SSLContext):
    """A TLS context that records its use. The server decides about TLS, so an impostor could leave it out."""

    used = False

    def wrap_bio(self, *arguments: Any, **named: Any) -> ssl.SSLObject:
        self.used = True
        return super().wrap_bio(*arguments, **named)


def missing() -> bool:
    """Return True if the client's packages are not installed."""
    return any(importlib.util.find_spec(name) is None for name in ("nats", "nkeys"))


def signer(seed: str) -> Callable[[str], bytes]:
    """Return a function that signs a server's nonce with an NKey. Raises SinkError if `seed` is not a seed."""
    import nkeys

    try:
        pair = nkeys.from_seed(bytearray(seed.encode()))
    except Exception:
        raise SinkError(
            "debezium.sink.nats-jetstream.auth.seed is not the seed of an NKey.", "Set the text that begins with SU."
        ) from None
    return lambda nonce: base64.b64encode(pair.sign(nonce.encode()))


class Publisher:
    """A connection to one of several servers. All methods except `publish` and `close` raise JetStreamFault."""

    def __init__(self, servers: Sequence[NatsAddress], login: Login, timeout: float) -> None:
        """Connect to the first server that accepts the login. Each answer may take `timeout` seconds."""
        self._login = login
        self._timeout = timeout
        self._said: Exception | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tailrace-jetstream", daemon=True)
        self._thread.start()
        self._client: Any = None
        self._waiting: dict[str, asyncio.Future[PublishAck | JetStreamFault]] = {}
        self._number = 0
        try:
            self._run(self._connect(servers))
        except BaseException:
            self.close()
            raise

    @property
    def most(self) -> int:
        """The size in bytes of the largest message that the server accepts."""
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
        """Close the client within `seconds`; it would wait forever for a connection whose TLS has failed."""
        client, self._client = self._client, None
        if client is not None:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(client.close(), seconds)

    def stream(self, name: str, subjects: Sequence[str], storage: str) -> tuple[str, ...]:
        """Create the stream if it does not exist, and return its subjects."""
        return self._run(self._stream(name, subjects, storage))

    def publish(self, messages: Sequence[Publication]) -> list[PublishAck | JetStreamFault]:
        """Send messages in their order without waiting between them, and return the result of each. Raises nothing."""
        return self._run(self._publish(messages))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _connect(self, servers: Sequence[NatsAddress]) -> None:
        fault = JetStreamFault("there is no server")
        for server in servers:
            try:
                await self._connect_to(server)
            except JetStreamFault as error:
                fault = error
                if error.kind == "login":
                    break
            else:
                return
        raise fault

    async def _connect_to(self, server: NatsAddress) -> None:
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
        except (JetStreamFault, OSError, nats.errors.Error, TimeoutError) as error:
            fault = self._fault(error)
            await self._leave(_FAILED_S)
            raise fault from None

    def _covered(self, secret: T) -> Callable[[], T]:
        """Return a function that returns a secret to the client. It raises JetStreamFault if TLS is required but not in
        use."""

        def give() -> T:
            self._check_encryption()
            return secret

        return give

    def _check_encryption(self) -> None:
        if self._login.tls is not None and not self._login.tls.used:
            raise JetStreamFault("it does not speak TLS, which the configuration requires", "lasting")

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

    async def _publish(self, messages: Sequence[Publication]) -> list[PublishAck | JetStreamFault]:
        import nats

        self._said = None
        sent: list[asyncio.Future[PublishAck | JetStreamFault]] = []
        rest = JetStreamFault("it was not sent")
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
        found: list[PublishAck | JetStreamFault] = []
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
        """Handle JetStream's answer to a message, or the server's answer that its subject has no listener."""
        answer = self._waiting.pop(message.subject.rpartition(".")[2], None)
        if answer is None or answer.done():
            return
        if not message.data and (message.headers or {}).get("Status") == _NOBODY:
            answer.set_result(JetStreamFault("no JetStream stream has its subject", "lasting"))
            return
        try:
            content = json.loads(message.data)
            error = content.get("error")
            stored = PublishAck(content.get("duplicate") is True)
        except (ValueError, AttributeError):
            answer.set_result(JetStreamFault("the answer is not from JetStream", "lasting"))
            return
        answer.set_result(stored if error is None else _refusal(error))

    def _fault(self, error: BaseException) -> JetStreamFault:
        """Return an error of the client as a JetStreamFault, preferring the cause that the client has reported to
        `_note`."""
        import nats

        if isinstance(error, JetStreamFault):
            return error
        if isinstance(error, nats.js.errors.APIError):
            return _refusal(vars(error))
        fault = self._said if self._said is not None else error
        if isinstance(fault, JetStreamFault):
            return fault
        if isinstance(fault, ssl.SSLError):
            return JetStreamFault(f"TLS: {fault.reason or fault}")
        if isinstance(fault, OSError) and fault.strerror:
            return JetStreamFault(fault.strerror)
        text = str(fault).removeprefix("nats: ").strip("' ")
        if _RIGHTS.search(text):
            return JetStreamFault(f"the login lacks a permission: {text}", "lasting")
        if _LOGIN.search(text):
            return JetStreamFault(f"the login is refused: {text}", "login")
        if self._end.done():
            return JetStreamFault("the connection was lost")
        if isinstance(fault, asyncio.TimeoutError):
            return JetStreamFault("it does not answer in time")
        return JetStreamFault(text or type(fault).__name__)


def _refusal(error: Mapping[str, Any]) -> JetStreamFault:
    """Return the JetStreamFault for an error in an answer of JetStream."""
    kind: Kind = "lasting"
    if error.get("err_code") == _TOO_LARGE:
        kind = "record"
    elif error.get("code") == _UNAVAILABLE:
        kind = "passing"
    return JetStreamFault(f"JetStream answers: {error.get('description')}", kind)


# --- the sink ---------------------------------------------------------------------------------------------------------


_KNOWN = (
    "url", "create-stream", "stream-name", "subjects", "storage", "async.enabled", "async.timeout.ms", "sync.retries",
    "sync.retry.interval.ms", "sync.retry.backoff.multiplier", "sync.retry.max.interval.ms", "auth.jwt", "auth.seed",
    "auth.user", "auth.password", "auth.tls.keystore", "auth.tls.keystore.password", "auth.tls.password",
    "message.id.enabled", DEAD_LETTERS,
)  # fmt: skip

_PORT = 4222
_PIPELINED = 500
"""Most records that wait for their confirmation at once."""
_ID = "Nats-Msg-Id"
_NO_SUBJECT = re.compile(r"[\x00-\x20\x7f]|^$")
_NO_VALUE = re.compile(r"[\r\n\x00]")
_FACTOR = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6})?")


@dataclass(frozen=True, slots=True)
class _Item:
    """A record and its message. `numbered` is True if the sink has set the message's id, unique to this record."""

    record: Record
    message: Publication
    numbered: bool = False

    @property
    def has_id(self) -> bool:
        return _ID in self.message.headers


class JetStreamSink(OneWriter):
    """A sink that publishes each value, with the record's headers, to the subject named after its topic.

    As in Debezium Server, keys and records without a value are not sent. Up to 500 messages wait for their confirmation
    at once. If one is not confirmed, it and all messages after it are sent again in order. A batch ends when all
    messages are confirmed.
    """

    name = "nats-jetstream"
    columns = ("op", "topic", "key", "value", "headers", "position", "ordinal")
    delivery = "at least once"

    def __init__(self, options: Mapping[str, str]) -> None:
        settings = Settings(self.name, options)
        settings.only(_KNOWN)
        self._pipelined = settings.boolean("async.enabled", True)
        super().__init__(settings, _PIPELINED)
        self._timeout = settings.seconds("async.timeout.ms", 5000, 1)
        self._servers, self._login = _place(settings)
        self._stream = settings.text("stream-name", "DebeziumStream")
        self._subjects = settings.listed("subjects") or ("*.*.*",)
        self._storage = settings.word("storage", "memory", ("memory", "file"))
        self._creates = settings.boolean("create-stream")
        if not self._creates:
            for name in ("stream-name", "subjects", "storage"):
                if settings.text(name):
                    log.warning("debezium.sink.%s.%s has no effect without create-stream = true", self.name, name)
        self._retries = settings.number("sync.retries", 5)
        self._interval = settings.seconds("sync.retry.interval.ms", 1000, 1)
        self._factor = _factor(settings, "sync.retry.backoff.multiplier", 2.0)
        self._longest = settings.seconds("sync.retry.max.interval.ms", 60_000, 1)
        self._numbers = settings.boolean("message.id.enabled")
        self._numbering = self._stored = False
        self._publisher: Publisher | None = None

    def missing(self) -> list[Finding]:
        if self._servers:
            return []
        return [Finding("warning", "sink", f"debezium.sink.{self.name}.url is not set.", _URL)]

    def servers(self) -> list[reachability.Place]:
        return [(server.host, server.port) for server in self._servers]

    def advice(self) -> list[Finding]:
        found = self.missing()
        if self._login.tls is None:
            for host in [server.host for server in self._servers if advice.is_elsewhere(server.host)][:1]:
                found.append(advice.in_the_clear(host, "Give a URL that begins with tls://.", "The sink's connection"))
        if self._creates and self._storage == "memory":
            text = f"The stream {self._stream} is kept in memory: a restart of the server loses what was delivered."
            found.append(Finding("warning", "sink", text, f"Set debezium.sink.{self.name}.storage = file."))
        return found

    def begin(self) -> None:
        if not self._servers:
            raise SinkError(f"The sink {self.name} needs debezium.sink.{self.name}.url.", _URL)
        if missing():
            raise SinkError(
                f"The sink {self.name} needs the packages nats-py and nkeys.", pip_install("tailrace[nats]")
            )
        if self._login.jwt:
            signer(self._login.seed)
        try:
            publisher = self._opened()
        except JetStreamFault as fault:
            self._give_up(fault, 1)
        if self._creates:
            self._make(publisher)

    def _make(self, publisher: Publisher) -> None:
        """Create the stream, or check the subjects of an existing one. Raises ConnectionFailed or SinkError."""
        own = f"debezium.sink.{self.name}"
        try:
            there = publisher.stream(self._stream, self._subjects, self._storage)
        except JetStreamFault as fault:
            if fault.kind != "lasting":
                self._give_up(fault, 1)
            raise SinkError(
                f"The stream {self._stream} cannot be created: {fault}.",
                f"Check {own}.stream-name, storage and subjects: streams cannot share subjects, and newer servers "
                "refuse subjects that match JetStream's own, as the default does.",
            ) from None
        lacks = [subject for subject in self._subjects if subject not in there]
        if lacks:
            raise SinkError(
                f"The stream {self._stream} already exists, without the subject {lacks[0]}.",
                f"Name another stream in {own}.stream-name, or add the subject to this one.",
            )

    def close(self) -> None:
        publisher, self._publisher = self._publisher, None
        if publisher is not None:
            publisher.close()

    def wanted(self, record: Record) -> bool:
        return record["value"] is not None

    def deliver(self, records: Sequence[Record], first: int) -> None:
        if first == 0:
            self._numbering, self._stored = self._numbers, False
        items = [item for number, record in enumerate(records, first) for item in self._items(record, number)]
        tries, delay = 0, self._interval
        while items:
            # Messages are sent one at a time after a fault, because messages after another fault would be stored twice.
            # The same applies to ids of other origin: JetStream would skip the second of two equal ids.
            alone = tries > 0 or not self._pipelined or any(item.has_id and not item.numbered for item in items)
            done, fault = self._publish(items[:1] if alone else items)
            items = items[done:]
            if done:
                tries, delay = 0, self._interval
            if fault is None:
                continue
            self.close()
            if tries == self._retries or fault.kind == "login":
                self._give_up(fault, tries + 1)
            tries += 1
            log.warning("nats-jetstream %s: %s; try %d of %d follows", self._shown, fault, tries, self._retries)
            self.wait(delay)
            delay = min(delay * self._factor, self._longest)

    def _items(self, record: Record, number: int) -> list[_Item]:
        """Return the record with its message, as a list. If NATS cannot carry the record, refuse it and return []."""
        headers: dict[str, str] = {}
        for header in record["headers"] or ():
            try:
                text = bytes(header["value"] or b"").decode()
            except UnicodeDecodeError:
                text = "\n"
            if not is_header_name(header["key"]) or _NO_VALUE.search(text):
                self.refuse(record, "it has a header that NATS cannot carry")
                return []
            headers[header["key"]] = text
        if _NO_SUBJECT.search(record["topic"]):
            self.refuse(record, "its topic is not a NATS subject")
            return []
        numbered = self._numbering and _ID not in headers
        if numbered:
            headers[_ID] = self._id(record, number)
        return [_Item(record, Publication(record["topic"], bytes(record["value"]), headers), numbered)]

    def _id(self, record: Record, number: int) -> str:
        """Return an id of a record that is unique among all pipelines and the same in a replay of its batch.

        The record's number is not enough: a replay with another configuration may leave out other records, and number
        the rest differently. So may one that reads snapshot rows anew.
        """
        place = (self.batch_name(), number, *identity(record))
        return hashlib.sha256(repr(place).encode()).hexdigest()[:32]

    def _publish(self, items: Sequence[_Item]) -> tuple[int, JetStreamFault | None]:
        """Publish once. Return the number of settled items, from the first on, and the fault of the next item.

        A message that JetStream skips as a duplicate, by the sink's id, is settled only if no message of the batch has
        been newly stored before. Otherwise the earlier copy is stored before messages that it should follow, and the
        last message of a key would not be the newest: ids are switched off and the rest of the batch is sent again.
        """
        try:
            publisher = self._opened()
        except JetStreamFault as fault:
            return 0, fault
        if not self._numbering:
            items = [_plain(item) for item in items]
        most = publisher.most
        sendable = [item for item in items if item.message.size <= most]
        answers = iter(publisher.publish([item.message for item in sendable]))
        for number, item in enumerate(items):
            answer = (
                next(answers) if item.message.size <= most else JetStreamFault("it is larger than NATS takes", "record")
            )
            if isinstance(answer, JetStreamFault):
                if answer.kind != "record":
                    return number, answer
                self.refuse(item.record, str(answer))
            elif answer.again and item.numbered and self._stored:
                self._numbering = False
                return number, None
            elif not answer.again:
                self._stored = True
        return len(items), None

    @property
    def _shown(self) -> str:
        return ", ".join(server.shown for server in self._servers)

    def _opened(self) -> Publisher:
        if self._publisher is None:
            self._publisher = Publisher(self._servers, self._login, self._timeout)
        return self._publisher

    def _give_up(self, fault: JetStreamFault, tries: int) -> NoReturn:
        text = f"NATS at {self._shown} cannot be used: {fault} (tries: {tries})."
        if fault.kind == "passing":
            raise ConnectionFailed(text, f"Check debezium.sink.{self.name}.url and the server.")
        if fault.kind == "login":
            raise SinkError(text, f"Check debezium.sink.{self.name}.auth.*.")
        raise SinkError(
            text, f"Create a stream whose subjects are the topics, or set debezium.sink.{self.name}.create-stream = "
            "true. The user needs publish on the topics, and subscribe on _INBOX.>.",
        )  # fmt: skip


_URL = "Set it, there or as DEBEZIUM_SINK_NATS_JETSTREAM_URL in the environment."


def _plain(item: _Item) -> _Item:
    """Return an item without the sink's id."""
    if not item.numbered:
        return item
    headers = {name: text for name, text in item.message.headers.items() if name != _ID}
    return _Item(item.record, replace(item.message, headers=headers))


def _place(settings: Settings) -> tuple[tuple[NatsAddress, ...], Login]:
    """Return the servers in the URL, and the login from the URL or the options."""
    user, password, seed = (
        settings.text("auth.user"),
        settings.given.get("auth.password", ""),
        settings.text("auth.seed"),
    )
    jwt = settings.text("auth.jwt")
    if bool(user) != bool(password):
        raise settings.wrong("auth.user", "and auth.password need each other")
    if bool(jwt) != bool(seed):
        raise settings.wrong("auth.jwt", "and auth.seed need each other")
    if jwt and user:
        raise settings.wrong("auth.jwt", "cannot stand beside auth.user")
    servers: list[NatsAddress] = []
    schemes: set[str] = set()
    logins: set[tuple[str, str]] = set()
    for part in filter(None, (one.strip() for one in settings.located("url").split(","))):
        try:
            url = urlsplit(part if "://" in part else f"nats://{part}")
            server = NatsAddress(url.hostname or "", url.port or _PORT)
        except ValueError:
            raise settings.wrong("url", "must be nats://host:port, or a list of these") from None
        if url.scheme not in ("nats", "tls") or not server.host or url.path.strip("/") or url.query or url.fragment:
            raise settings.wrong("url", "must be nats://host:port or tls://host:port, or a list of these")
        servers.append(server)
        schemes.add(url.scheme)
        logins.add((unquote(url.username or ""), unquote(url.password or "")))
    if len(schemes) > 1 or len(logins) > 1:
        raise settings.wrong("url", "must have one scheme and one login for all servers")
    named, word = next(iter(logins), ("", ""))
    if word and not named:
        raise settings.wrong("url", "has a password but no user")
    if named and (user or jwt):
        raise settings.wrong("url", "has a login, and auth.* has another one")
    tls = _encryption(settings, "tls" in schemes)
    if named and not word:
        return tuple(servers), Login(token=named, tls=tls)
    return tuple(servers), Login(user or named, password or word, jwt=jwt, seed=seed, tls=tls)


def _encryption(settings: Settings, wanted: bool) -> Encryption | None:
    settings.refuse({"auth.tls.password": "a PEM file has one password, auth.tls.keystore.password"})
    option = "auth.tls.keystore"
    path, password = settings.text(option), settings.given.get(f"{option}.password", "")
    if not path:
        if password:
            raise settings.wrong(f"{option}.password", f"needs {option}")
        if not wanted:
            return None
    context = Encryption(ssl.PROTOCOL_TLS_CLIENT)
    context.load_default_certs()
    try:
        if path:
            context.load_cert_chain(path, password=password)
    except (OSError, ValueError) as error:
        raise SinkError(
            f"The file of debezium.sink.{settings.sink}.{option} cannot be read: {unreadable(error)}.",
            "It must hold the client's certificate and key as PEM; `openssl pkcs12 -in STORE -nodes` makes it from a "
            "Java key store of the type PKCS12.",
        ) from None
    return context


def _factor(settings: Settings, name: str, default: float) -> float:
    text = settings.text(name)
    if not text:
        return default
    if not _FACTOR.fullmatch(text) or float(text) < 1:
        raise settings.wrong(name, "must be a number of 1 or more")
    return float(text)
