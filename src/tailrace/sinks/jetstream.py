"""Records to NATS JetStream, one subject for each topic, as Debezium Server publishes them. At least once. Driver."""

from __future__ import annotations

import hashlib
import re
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn
from urllib.parse import unquote, urlsplit

from tailrace.connectors import advice
from tailrace.connectors.findings import Finding
from tailrace.errors import ConnectionFailed, SinkError
from tailrace.sinks.base import Settings, unreadable
from tailrace.sinks.publisher import Encryption, Fault, Login, Message, Publisher, Server, missing, signer
from tailrace.sinks.web import is_header_name
from tailrace.sinks.writer import DEAD_LETTERS, OneWriter, Record, log

_KNOWN = (
    "url", "create-stream", "stream-name", "subjects", "storage", "async.enabled", "async.timeout.ms", "sync.retries",
    "sync.retry.interval.ms", "sync.retry.backoff.multiplier", "sync.retry.max.interval.ms", "auth.jwt", "auth.seed",
    "auth.user", "auth.password", "auth.tls.keystore", "auth.tls.keystore.password", "auth.tls.password",
    "message.id.enabled", DEAD_LETTERS,
)  # fmt: skip

_PORT = 4222
_PIPELINED = 500
"""The most records that are on their way at once."""
_ID = "Nats-Msg-Id"
_NO_SUBJECT = re.compile(r"[\x00-\x20\x7f]|^$")
_NO_VALUE = re.compile(r"[\r\n\x00]")
_FACTOR = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6})?")


@dataclass(frozen=True, slots=True)
class _Item:
    """A record and its message; `numbered`: the id in the message is the sink's, which stands for this record alone."""

    record: Record
    message: Message
    numbered: bool = False

    @property
    def has_id(self) -> bool:
        return _ID in self.message.headers


class JetStreamSink(OneWriter):
    """Each value is a message with the record's headers, published to the subject that is called as its topic. Keys
    and records without a value are not sent, as there.

    Up to 500 messages are on their way at once. What follows the first one that JetStream does not confirm is sent
    again with it, in order; a batch ends when all are confirmed.
    """

    name = "nats-jetstream"
    columns = ("op", "topic", "key", "value", "headers", "position", "ordinal")
    delivery = "at least once"

    def __init__(self, options: Mapping[str, str]) -> None:
        settings = Settings(self.name, options)
        settings.only(_KNOWN)
        self._pipelined = settings.flag("async.enabled", True)
        super().__init__(settings, _PIPELINED)
        self._timeout = settings.seconds("async.timeout.ms", 5000, 1)
        self._servers, self._login = _place(settings)
        self._stream = settings.text("stream-name", "DebeziumStream")
        self._subjects = settings.listed("subjects") or ("*.*.*",)
        self._storage = settings.choice("storage", "memory", ("memory", "file"))
        self._creates = settings.flag("create-stream")
        if not self._creates:
            for name in ("stream-name", "subjects", "storage"):
                if settings.text(name):
                    log.warning("debezium.sink.%s.%s has no effect without create-stream = true", self.name, name)
        self._retries = settings.number("sync.retries", 5)
        self._interval = settings.seconds("sync.retry.interval.ms", 1000, 1)
        self._factor = _factor(settings, "sync.retry.backoff.multiplier", 2.0)
        self._longest = settings.seconds("sync.retry.max.interval.ms", 60_000, 1)
        self._numbers = settings.flag("message.id.enabled")
        self._numbering = self._stored = False
        self._publisher: Publisher | None = None

    def missing(self) -> list[Finding]:
        if self._servers:
            return []
        return [Finding("warning", "sink", f"debezium.sink.{self.name}.url is not set.", _URL)]

    def advice(self) -> list[Finding]:
        found = self.missing()
        if self._login.tls is None:
            for host in [server.host for server in self._servers if advice.is_elsewhere(server.host)][:1]:
                found.append(advice.in_the_clear(host, "Give a URL that begins with tls://.", "The sink's connection"))
        return found

    def begin(self) -> None:
        if not self._servers:
            raise SinkError(f"The sink {self.name} needs debezium.sink.{self.name}.url.", _URL)
        if missing():
            raise SinkError(
                f"The sink {self.name} needs the packages nats-py and nkeys.", "pip install 'tailrace[nats]'"
            )
        if self._login.jwt:
            signer(self._login.seed)
        try:
            publisher = self._opened()
        except Fault as fault:
            self._give_up(fault, 1)
        if self._creates:
            self._make(publisher)

    def _make(self, publisher: Publisher) -> None:
        """Make the stream, or find that it has the subjects."""
        own = f"debezium.sink.{self.name}"
        try:
            there = publisher.stream(self._stream, self._subjects, self._storage)
        except Fault as fault:
            if fault.kind != "lasting":
                self._give_up(fault, 1)
            raise SinkError(
                f"The stream {self._stream} cannot be made: {fault}.",
                f"Check {own}.stream-name, storage and subjects: newer servers take no subjects that stand for those "
                "of JetStream itself, as the default does, and streams do not share subjects.",
            ) from None
        lacks = [subject for subject in self._subjects if subject not in there]
        if lacks:
            raise SinkError(
                f"The stream {self._stream} is there already, without the subject {lacks[0]}.",
                f"Name another one in {own}.stream-name, or add the subject to it.",
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
            # Nothing is sent behind what may not be taken: after a fault, since what follows would come twice, and with
            # ids that others have given, since JetStream would pass over the second one.
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
        """The record with its message; nothing where NATS cannot carry it, and it is put aside."""
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
            self.refuse(record, "its topic is no subject of NATS")
            return []
        numbered = self._numbering and _ID not in headers
        if numbered:
            headers[_ID] = self._id(record, number)
        return [_Item(record, Message(record["topic"], bytes(record["value"]), headers), numbered)]

    def _id(self, record: Record, number: int) -> str:
        """What distinguishes a record from all others of all pipelines; the same in a replay of its batch.

        It is made of more than the record's number, so that another configuration at the replay, which may leave other
        records out, gives no record the id of another one.
        """
        place = (self.batch_name(), number, record["position"], record["ordinal"], record["op"], record["topic"])
        return hashlib.sha256(repr(place).encode()).hexdigest()[:32]

    def _publish(self, items: Sequence[_Item]) -> tuple[int, Fault | None]:
        """Publish once; how many from the first on are settled, and what hinders the next one.

        A message that JetStream has passed over by the sink's id is settled only while nothing of the batch was stored
        anew: behind that it would stand before what it followed, and the last message of a key would not be its last.
        """
        try:
            publisher = self._opened()
        except Fault as fault:
            return 0, fault
        if not self._numbering:
            items = [_plain(item) for item in items]
        most = publisher.most
        sendable = [item for item in items if item.message.size <= most]
        answers = iter(publisher.publish([item.message for item in sendable]))
        for number, item in enumerate(items):
            answer = next(answers) if item.message.size <= most else Fault("it is larger than NATS takes", "record")
            if isinstance(answer, Fault):
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

    def _give_up(self, fault: Fault, tries: int) -> NoReturn:
        text = f"NATS at {self._shown} cannot be used: {fault} (tries: {tries})."
        if fault.kind == "passing":
            raise ConnectionFailed(text, f"Check debezium.sink.{self.name}.url and the server.")
        if fault.kind == "login":
            raise SinkError(text, f"Check debezium.sink.{self.name}.auth.*.")
        raise SinkError(
            text, f"Make a stream that has the topics as its subjects; debezium.sink.{self.name}.create-stream = true "
            "makes one. The user needs publish on them, and subscribe on _INBOX.>.",
        )  # fmt: skip


_URL = "Set it, there or as DEBEZIUM_SINK_NATS_JETSTREAM_URL in the environment."


def _plain(item: _Item) -> _Item:
    """An item without the sink's id."""
    if not item.numbered:
        return item
    headers = {name: text for name, text in item.message.headers.items() if name != _ID}
    return _Item(item.record, replace(item.message, headers=headers))


def _place(settings: Settings) -> tuple[tuple[Server, ...], Login]:
    """The servers of the URL, and the login of the URL or of the options."""
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
    servers: list[Server] = []
    schemes: set[str] = set()
    logins: set[tuple[str, str]] = set()
    for part in filter(None, (one.strip() for one in settings.located("url").split(","))):
        try:
            url = urlsplit(part if "://" in part else f"nats://{part}")
            server = Server(url.hostname or "", url.port or _PORT)
        except ValueError:
            raise settings.wrong("url", "must be nats://host:port, or a list of such") from None
        if url.scheme not in ("nats", "tls") or not server.host or url.path.strip("/") or url.query or url.fragment:
            raise settings.wrong("url", "must be nats://host:port or tls://host:port, or a list of such")
        servers.append(server)
        schemes.add(url.scheme)
        logins.add((unquote(url.username or ""), unquote(url.password or "")))
    if len(schemes) > 1 or len(logins) > 1:
        raise settings.wrong("url", "must have one scheme and one login for all servers")
    named, word = next(iter(logins), ("", ""))
    if word and not named:
        raise settings.wrong("url", "has a password, and no user")
    if named and (user or jwt):
        raise settings.wrong("url", "has a login, and auth.* another one")
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
            "It has to hold the client's certificate and key as PEM; `openssl pkcs12 -in STORE -nodes` writes one from "
            "a Java key store of the type PKCS12.",
        ) from None
    return context


def _factor(settings: Settings, name: str, default: float) -> float:
    text = settings.text(name)
    if not text:
        return default
    if not _FACTOR.fullmatch(text) or float(text) < 1:
        raise settings.wrong(name, "must be a number of 1 or more")
    return float(text)
