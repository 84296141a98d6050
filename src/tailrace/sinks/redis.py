"""The sink `redis`: a Redis stream for each topic, as from Debezium Server. At least once. Driver."""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Mapping, Sequence
from typing import Any

from tailrace.connectors import advice
from tailrace.connectors.findings import Finding
from tailrace.errors import ConnectionFailed, SinkError
from tailrace.process import reachability
from tailrace.sinks.base import Settings, unreadable
from tailrace.sinks.writer import DEAD_LETTERS, OneWriter, Record, log

# --- the protocol of Redis --------------------------------------------------------------------------------------------

_SHOWN = re.compile(r"(?s),? (?:with args|near|while calling|in call).*")


class RedisFault(Exception):
    """An error in an answer of Redis. `code` is its first word; the text contains nothing that was sent."""

    def __init__(self, text: str) -> None:
        # Some servers quote the arguments of a command that they do not know.
        super().__init__(_SHOWN.sub("", text.strip()))
        self.code = text.partition(" ")[0]


class RedisConnection:
    """A connection to a server. Calls raise OSError if it is lost or too slow; it cannot be used after that."""

    def __init__(
        self, host: str, port: int, *, connecting: float, answering: float, tls: ssl.SSLContext | None = None
    ) -> None:
        """Connect within `connecting` seconds. Each answer may take `answering` seconds."""
        self._answering = answering
        plain = socket.create_connection((host, port), connecting)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket = plain if tls is None else tls.wrap_socket(plain, server_hostname=host)
        except BaseException:
            plain.close()
            raise
        self._socket.settimeout(answering)
        self._answers = self._socket.makefile("rb")

    def close(self) -> None:
        self._answers.close()
        self._socket.close()

    def call(self, *words: bytes | str | int, longer: float = 0) -> Any:
        """Return the answer to a command, which may take `longer` additional seconds. Raises RedisFault."""
        self._socket.settimeout(self._answering + longer)
        answer = self.calls([words])[0]
        if isinstance(answer, RedisFault):
            raise answer
        return answer

    def calls(self, commands: Sequence[Sequence[bytes | str | int]]) -> list[Any]:
        """Send commands at once and return their answers, with each error as a RedisFault."""
        data = memoryview(b"".join(_encoded(command) for command in commands))
        while data:
            # Each part may take the full timeout; `sendall` would apply one timeout to all parts together.
            data = data[self._socket.send(data) :]
        return [self._answer() for _ in commands]

    def _answer(self) -> Any:
        line = self._answers.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionResetError("Redis has closed the connection")
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return rest.decode("utf-8", "replace")
        if kind == b"-":
            return RedisFault(rest.decode("utf-8", "replace"))
        if kind == b":":
            return int(rest)
        if kind == b"$":
            size = int(rest)
            return None if size < 0 else self._exactly(size + 2)[:-2]
        if kind == b"*":
            count = int(rest)
            return None if count < 0 else [self._answer() for _ in range(count)]
        raise ConnectionResetError("the server is not Redis")

    def _exactly(self, size: int) -> bytes:
        data = self._answers.read(size)
        if len(data) < size:
            raise ConnectionResetError("Redis has closed the connection")
        return data


def _encoded(words: Sequence[bytes | str | int]) -> bytes:
    parts = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)


# --- the sink ---------------------------------------------------------------------------------------------------------


_KNOWN = (
    "address", "db.index", "user", "password", "ssl.enabled", "ssl.hostname.verification.enabled",
    "ssl.truststore.path", "ssl.truststore.password", "ssl.truststore.type", "ssl.keystore.path",
    "ssl.keystore.password", "ssl.keystore.type", "null.key", "null.value", "batch.size", "retry.initial.delay.ms",
    "retry.max.delay.ms", "connection.timeout.ms", "socket.timeout.ms", "wait.enabled", "wait.timeout.ms",
    "wait.retry.enabled", "wait.retry.delay.ms", "message.format", "memory.threshold.percentage", "memory.limit.mb",
    "skip.heartbeat.messages", "cluster.enabled", DEAD_LETTERS,
)  # fmt: skip

# Transient errors: no memory, a start, a running script, an election, a full disk.
_PASSING = ("OOM", "LOADING", "BUSY", "READONLY", "MASTERDOWN", "TRYAGAIN", "NOREPLICAS", "MISCONF")
_LOGIN = ("NOAUTH", "WRONGPASS")
_CLUSTER = ("MOVED", "ASK", "CROSSSLOT", "CLUSTERDOWN")
_TOO_SLOW = 5
"""Attempts for a single record that times out although Redis answers other commands."""
_MAX_CLIENTS = "max number of clients"


class RedisSink(OneWriter):
    """A sink that adds each record (XADD) to the stream named after its topic, without headers as in Debezium Server.

    Entries are written in transactions (MULTI) of `batch.size`. While Redis cannot be reached or has no memory, the
    sink waits and retries without limit.
    """

    name = "redis"
    columns = ("op", "topic", "key", "value", "position", "ordinal")
    delivery = "at least once"

    def __init__(self, options: Mapping[str, str]) -> None:
        settings = Settings(self.name, options)
        settings.only(_KNOWN)
        super().__init__(settings, settings.number("batch.size", 500, 1))
        if settings.boolean("cluster.enabled"):
            raise SinkError(
                "debezium.sink.redis.cluster.enabled = true is not supported: the sink connects to one server.",
                "Leave it out, and name one server.",
            )
        self._address = settings.located("address")
        self._host, self._port = _host_and_port(settings, self._address)
        self._database = settings.number("db.index", 0, 0, 15)
        self._user, self._password = settings.text("user"), options.get("password", "")
        if self._user and not self._password:
            raise settings.wrong("user", "needs debezium.sink.redis.password beside it")
        self._tls = _tls(settings)
        self._null_key = settings.text("null.key", "default").encode()
        self._null_value = settings.text("null.value", "default").encode()
        self._extended = settings.word("message.format", "compact", ("compact", "extended")) == "extended"
        self._delay = settings.seconds("retry.initial.delay.ms", 300, 1)
        self._longest = settings.seconds("retry.max.delay.ms", 10_000, 1)
        self._connecting = settings.seconds("connection.timeout.ms", 2000, 1)
        if settings.text("connection.timeout.ms"):
            self.connect_s = self._connecting
        self._answering = settings.seconds("socket.timeout.ms", 2000, 1)
        self._replicated = settings.boolean("wait.enabled")
        self._wait_ms = settings.number("wait.timeout.ms", 1000, 1)
        self._wait_again = settings.boolean("wait.retry.enabled")
        self._wait_delay = settings.seconds("wait.retry.delay.ms", 1000)
        self._share = settings.number("memory.threshold.percentage", 85, 0, 100) / 100
        self._limit = settings.number("memory.limit.mb", 0) << 20
        self._skips_heartbeats = settings.boolean("skip.heartbeat.messages", True)
        self._connection: RedisConnection | None = None
        # Records per transaction: less than batch.size after a transaction has timed out.
        self._most = self._size

    def missing(self) -> list[Finding]:
        if self._address:
            return []
        return [Finding("warning", "sink", "debezium.sink.redis.address is not set.", _ADDRESS)]

    def servers(self) -> list[reachability.Place]:
        return [(self._host, self._port)] if self._address else []

    def advice(self) -> list[Finding]:
        found = self.missing()
        if found:
            return found
        if self._tls is None and advice.is_elsewhere(self._host):
            remedy = "Set debezium.sink.redis.ssl.enabled = true."
            found.append(advice.in_the_clear(self._host, remedy, "The sink's connection"))
        elif self._tls is not None and not self._tls.check_hostname:
            found.append(
                Finding(
                    "warning",
                    "encryption",
                    f"The certificate is not checked for the name {self._host}.",
                    "Set debezium.sink.redis.ssl.hostname.verification.enabled = true.",
                )
            )
        return found

    def begin(self) -> None:
        if not self._address:
            raise SinkError("The sink redis needs debezium.sink.redis.address.", _ADDRESS)
        try:
            self._open()
        except (OSError, RedisFault) as error:
            raise self._unreachable(error) from None

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def wanted(self, record: Record) -> bool:
        return not (self._skips_heartbeats and record["op"] == "heartbeat")

    def deliver(self, records: Sequence[Record], first: int) -> None:
        low = 0
        while low < len(records):
            group = records[low : low + self._most]
            refused = self._taken(group)
            if refused is None:
                # Smaller groups may be accepted in time; this size is kept from now on.
                self._most = max(len(group) // 2, 1)
                log.warning(
                    "redis %s: a group of %d records takes longer than socket.timeout.ms; groups now have %d records",
                    self._address,
                    len(group),
                    self._most,
                )
                continue
            for number, fault in refused:
                self.refuse(group[number], f"Redis answers {fault}")
            low += len(group)

    def _taken(self, group: Sequence[Record]) -> list[tuple[int, RedisFault]] | None:
        """Send a group until Redis accepts it. Return the index and the error of each refused record.

        Returns None if a group of several records times out. Raises ConnectionFailed if a single record times out
        `_TOO_SLOW` times although Redis answers.
        """
        commands: list[Sequence[bytes | str | int]] = [self._entry(record) for record in group]
        delay, told, slow = self._delay, "", 0
        while True:
            is_sent = False
            try:
                self._spare_memory()
                is_sent = True
                refused = self._transaction(commands)
                is_sent = False
                self._replicate()
                return refused
            except (OSError, RedisFault) as error:
                self.close()
                if isinstance(error, RedisFault) and not _passes(error):
                    raise self._unreachable(error) from None
                if is_sent and isinstance(error, TimeoutError):
                    if len(group) > 1:
                        return None
                    slow += 1
                    if slow == _TOO_SLOW:
                        raise self._too_slow(group[0]) from None
                reason = _reason(error)
                if reason != told:
                    told = reason
                    log.warning("redis %s: %s; the sink retries until Redis accepts the records", self._address, reason)
            self.wait(delay)
            delay = min(2 * delay, self._longest)

    def _too_slow(self, record: Record) -> ConnectionFailed:
        size = len(record["key"] or b"") + len(record["value"] or b"")
        return ConnectionFailed(
            f"Redis at {self._address} has not accepted a record of {size} bytes for {record['topic']}, at position "
            f"{record['position']}, within {self._answering * 1000:.0f} ms, {_TOO_SLOW} times in turn.",
            "Raise debezium.sink.redis.socket.timeout.ms, or check the network and the server.",
        )

    def _entry(self, record: Record) -> tuple[bytes | str, ...]:
        key = self._null_key if record["key"] is None else bytes(record["key"])
        value = self._null_value if record["value"] is None else bytes(record["value"])
        pairs = ("key", key, "value", value) if self._extended else (key, value)
        return ("XADD", record["topic"], "*", *pairs)

    def _transaction(self, commands: Sequence[Sequence[bytes | str | int]]) -> list[tuple[int, RedisFault]]:
        """Send commands as one transaction. Return the index and the error of each refused command.

        Raises RedisFault if the transaction was not executed, and OSError if this is unknown.
        """
        *queued, done = self._opened().calls([("MULTI",), *commands, ("EXEC",)])
        for answer in queued:
            if isinstance(answer, RedisFault):
                raise answer
        if isinstance(done, RedisFault):
            raise done
        if done is None:
            raise ConnectionResetError("Redis has aborted the transaction")
        return [(number, answer) for number, answer in enumerate(done) if isinstance(answer, RedisFault)]

    def _replicate(self) -> None:
        """Wait until a replica has confirmed the writes, if `wait.enabled` is set."""
        while self._replicated:
            if self._opened().call("WAIT", 1, self._wait_ms, longer=self._wait_ms / 1000) > 0:
                return
            if not self._wait_again:
                raise ConnectionFailed(
                    f"No replica of Redis at {self._address} has confirmed a batch within {self._wait_ms} ms.",
                    "Check the replica; debezium.sink.redis.wait.retry.enabled = true waits for it.",
                )
            self.wait(self._wait_delay)

    def _spare_memory(self) -> None:
        """Wait while Redis uses more than the allowed share of its memory."""
        told, delay = False, self._delay
        while self._share:
            lines = bytes(self._opened().call("INFO", "memory")).decode().splitlines()
            found = dict(line.split(":", 1) for line in lines if ":" in line)
            limit = int(found.get("maxmemory", 0)) or self._limit
            if not limit or int(found.get("used_memory", 0)) < limit * self._share:
                return
            if not told:
                told = True
                log.warning(
                    "redis %s uses %.0f %% of its memory or more; the sink waits", self._address, self._share * 100
                )
            self.wait(delay)
            delay = min(2 * delay, self._longest)

    def _opened(self) -> RedisConnection:
        return self._connection or self._open()

    def _open(self) -> RedisConnection:
        connection = RedisConnection(
            self._host, self._port, connecting=self._connecting, answering=self._answering, tls=self._tls
        )
        try:
            if self._password:
                connection.call("AUTH", *filter(None, (self._user, self._password)))
            connection.call("SELECT", self._database) if self._database else connection.call("PING")
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return connection

    def _unreachable(self, error: OSError | RedisFault) -> ConnectionFailed | SinkError:
        if not isinstance(error, RedisFault) or _passes(error):
            return ConnectionFailed(
                f"Redis at {self._address} cannot be used: {_reason(error)}.",
                "Check debezium.sink.redis.address and the ssl options.",
            )
        if error.code in _CLUSTER:
            return SinkError(
                f"Redis at {self._address} is a cluster ({error.code}), which is not supported.",
                "Name a single server.",
            )
        remedy = "Check the server and debezium.sink.redis.*."
        if error.code in _LOGIN:
            remedy = "Check debezium.sink.redis.user and password."
        elif error.code == "NOPERM":
            remedy = (
                "The user needs MULTI, EXEC and XADD on the streams, and INFO unless "
                "debezium.sink.redis.memory.threshold.percentage is 0; with wait.enabled, WAIT."
            )
        return SinkError(f"Redis at {self._address} refuses: {error}.", remedy)


_ADDRESS = "Set it to host:port, there or as DEBEZIUM_SINK_REDIS_ADDRESS in the environment."


def _passes(error: RedisFault) -> bool:
    """Return True for a transient error of Redis."""
    return error.code in _PASSING or _MAX_CLIENTS in str(error)


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "it does not answer in time"
    if isinstance(error, ssl.SSLError):
        return f"TLS: {error.reason or error}".rstrip(".")
    return str(getattr(error, "strerror", None) or error).rstrip(".")


def _host_and_port(settings: Settings, address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not address:
        return "", 0
    if not colon or not port.isdigit() or not 0 < int(port) < 1 << 16 or "," in address:
        raise settings.wrong("address", "must be host:port")
    return host.strip("[]"), int(port)


def _tls(settings: Settings) -> ssl.SSLContext | None:
    stores = [name for name in settings.given if name.startswith(("ssl.truststore.", "ssl.keystore."))]
    if not settings.boolean("ssl.enabled"):
        if stores:
            raise settings.wrong(stores[0], "has no effect without debezium.sink.redis.ssl.enabled = true")
        settings.boolean("ssl.hostname.verification.enabled")
        return None
    for store in ("truststore", "keystore"):
        path, kind = settings.text(f"ssl.{store}.path"), settings.text(f"ssl.{store}.type", "JKS")
        if path and kind.upper() != "PEM":
            raise SinkError(
                f"debezium.sink.redis.ssl.{store}.type = {kind} is not supported: the sink reads no Java key stores.",
                "Write the certificates to a PEM file, as by `openssl pkcs12 -in STORE -nodes`, and set the type to "
                "PEM.",
            )
    if settings.text("ssl.truststore.password"):
        raise settings.wrong("ssl.truststore.password", "has no meaning for a PEM file")
    context = ssl.create_default_context()
    context.check_hostname = settings.boolean("ssl.hostname.verification.enabled")
    try:
        option = "ssl.truststore.path"
        if settings.text(option):
            context.load_verify_locations(settings.text(option))
        option = "ssl.keystore.path"
        if settings.text(option):
            context.load_cert_chain(settings.text(option), password=settings.given.get("ssl.keystore.password") or "")
    except (OSError, ValueError) as error:
        raise SinkError(
            f"The file of debezium.sink.redis.{option} cannot be read: {unreadable(error)}.",
            "Check its path and content.",
        ) from None
    return context
