"""The sink `redis` against a real server: its entries, and its handling of refusals."""

from __future__ import annotations

import io
import json
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest

from tailrace import sinks
from tailrace.errors import ConnectionFailed, SinkError
from tailrace.sinks.interruption import Interrupted
from tailrace.sinks.redis import RedisConnection, RedisFault, RedisSink
from tests.servers.certificates import Authority
from tests.servers.redis import RedisServer
from tests.unit.sinks.stream import Stream, in_background, row, started

QUICK = {"retry.initial.delay.ms": "1", "retry.max.delay.ms": "5", "socket.timeout.ms": "20000"}


def made(address: str, **options: str) -> RedisSink:
    named = {name.replace("_", "."): text for name, text in options.items()}
    sink = sinks.open("redis", {"address": address, **QUICK, **named})
    assert isinstance(sink, RedisSink)
    return sink


@pytest.fixture
def stream_to(tmp_path: Path) -> Iterator[Callable[..., Stream]]:
    """Yield a factory of streams into a sink with given options, which is closed at the end."""
    opened: list[RedisSink] = []

    def stream(server: RedisServer, **options: str) -> Stream:
        opened.append(made(server.address, **options))
        return started(opened[-1], tmp_path)

    yield stream
    for sink in opened:
        sink.close()


def pairs(*rows: dict[str, bytes]) -> list[list[bytes]]:
    return [[one["key"], one["value"]] for one in rows]


def test_a_record_is_an_entry_of_the_stream_of_its_topic(redis: RedisServer, stream_to: Callable[..., Stream]) -> None:
    rows = [row("a", 1), row("b", 2), row("a", 3, key=None), row("a", 4, op="tombstone", value=None)]
    stream_to(redis, batch_size="3").batch(rows)
    assert redis.entries("a") == [
        [rows[0]["key"], rows[0]["value"]],
        [b"default", rows[2]["value"]],
        [rows[3]["key"], b"default"],
    ]
    assert redis.entries("b") == pairs(rows[1])


def test_the_extended_format(redis: RedisServer, stream_to: Callable[..., Stream]) -> None:
    rows = [row("a", 1), row("a", 2, key=None, value=None)]
    stream_to(redis, message_format="extended", null_key="no key", null_value="none").batch(rows)
    assert redis.entries("a") == [
        [b"key", rows[0]["key"], b"value", rows[0]["value"]],
        [b"key", b"no key", b"value", b"none"],
    ]


@pytest.mark.parametrize(("option", "kept"), [({}, 0), ({"skip_heartbeat_messages": "false"}, 1)])
def test_heartbeats_are_left_out_unless_they_are_wanted(
    option: dict[str, str], kept: int, redis: RedisServer, stream_to: Callable[..., Stream]
) -> None:
    stream_to(redis, **option).batch([row("beat", 1, op="heartbeat"), row("a", 2)])
    assert len(redis.entries("beat")) == kept
    assert len(redis.entries("a")) == 1


def test_a_database_and_a_login(redis_program: None, stream_to: Callable[..., Stream]) -> None:
    users = ("--user", "cdc", "on", ">hush", "~*", "+@all", "--requirepass", "word")
    with RedisServer(*users) as server:
        stream_to(server, password="word", db_index="3").batch([row("a", 1)])
        stream_to(server, user="cdc", password="hush").batch([row("b", 2)])
        assert server.call("DBSIZE", login=["word"]) == 1
        for login in ({"password": "other"}, {}):
            with pytest.raises(SinkError, match=r"refuses: (WRONGPASS|NOAUTH) .*\. Check debezium\.sink\.redis\.user"):
                stream_to(server, **login)


def test_tls(redis_program: None, stream_to: Callable[..., Stream], tmp_path: Path) -> None:
    own, authority = map(str, Authority().pem(tmp_path))
    asked = ("--tls-cert-file", own, "--tls-key-file", own, "--tls-ca-cert-file", authority)
    with RedisServer(*asked, tls=True) as server:
        trusted = {"ssl_enabled": "true", "ssl_truststore_path": authority, "ssl_truststore_type": "PEM"}
        shown = {"ssl_keystore_path": own, "ssl_keystore_type": "PEM"}
        stream_to(server, **trusted, **shown).batch([row("a", 1)])
        # The certificate is that of localhost.
        named = trusted | shown | {"ssl_hostname_verification_enabled": "true"}
        started(made(f"localhost:{server.port}", **named), tmp_path).batch([row("a", 2)])
        with pytest.raises(ConnectionFailed, match="TLS: CERTIFICATE_VERIFY_FAILED"):
            stream_to(server, **named)
        with pytest.raises(ConnectionFailed, match="TLS: CERTIFICATE_VERIFY_FAILED"):
            stream_to(server, ssl_enabled="true")
        with pytest.raises(ConnectionFailed, match="cannot be used"):
            stream_to(server, **trusted)
        with pytest.raises(ConnectionFailed, match="cannot be used"):
            stream_to(server)


def test_a_server_that_is_killed_gets_the_batch_again(redis_program: None, tmp_path: Path) -> None:
    with RedisServer() as server:
        sink = made(server.address, batch_size="2")
        stream = started(sink, tmp_path)
        rows = [row("a", number) for number in range(6)]
        stream.batch(rows[:2])
        server.kill()
        thread, raised = in_background(lambda: stream.batch(rows[2:], 1))
        server.start()
        thread.join(60)
        assert raised == []
        assert server.entries("a") == pairs(*rows)
        # A replay, as after a crash of the pipeline, repeats the stretch in its order.
        stream.batch(rows[2:], 1)
        assert server.entries("a") == pairs(*rows, *rows[2:])
        sink.close()


class SlowServer:
    """A server that accepts groups of up to `most` entries, and answers no others, nor those with
    the value b"never"."""

    def __init__(self, most: int) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.groups: list[int] = []
        self._most = most
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._answer, args=(client,), daemon=True).start()

    def _answer(self, client: socket.socket) -> None:
        data, values = b"", []
        with client, suppress(OSError):
            while part := client.recv(1 << 16):
                data += part
                while (found := _command(data)) is not None:
                    words, data = found
                    if words[0] == b"XADD":
                        values.append(words[-1])
                        client.sendall(b"+QUEUED\r\n")
                    elif words[0] != b"EXEC":
                        client.sendall(b"+OK\r\n")
                    elif len(values) <= self._most and b"never" not in values:
                        self.groups.append(len(values))
                        client.sendall(b"*%d\r\n" % len(values) + b"$3\r\n1-1\r\n" * len(values))
                        values = []

    def close(self) -> None:
        self._listener.close()


def _command(data: bytes) -> tuple[list[bytes], bytes] | None:
    """Return the words of the first command, and the rest; None if it is incomplete."""
    if not data.endswith(b"\r\n") and b"\r\n" not in data:
        return None
    head, _, rest = data.partition(b"\r\n")
    words = []
    for _ in range(int(head[1:])):
        size, mark, rest = rest.partition(b"\r\n")
        if not mark or len(rest) < int(size[1:]) + 2:
            return None
        words.append(rest[: int(size[1:])])
        rest = rest[int(size[1:]) + 2 :]
    return words, rest


def test_a_group_that_takes_too_long_goes_in_parts(tmp_path: Path) -> None:
    server = SlowServer(most=3)
    options = {"batch_size": "8", "socket_timeout_ms": "250", "memory_threshold_percentage": "0"}
    sink = made(server.address, **options)
    try:
        stream = started(sink, tmp_path)
        stream.batch([row("a", number) for number in range(8)])
        stream.batch([row("a", number) for number in range(3)])
        assert server.groups == [2, 2, 2, 2, 2, 1]
        with pytest.raises(ConnectionFailed, match=r"a record of 13 bytes for a, at .*socket\.timeout\.ms"):
            stream.batch([row("a", 1, value=b"never")])
    finally:
        sink.close()
        server.close()


def test_what_is_sent_may_take_longer_than_one_part_of_it() -> None:
    class Parts:
        """A socket that accepts a few bytes at once."""

        def __init__(self) -> None:
            self.data = b""

        def send(self, data: memoryview) -> int:
            self.data += bytes(data[:5])
            return len(data[:5])

    connection = RedisConnection.__new__(RedisConnection)
    connection._socket = parts = cast(Any, Parts())
    connection._answers = cast(Any, io.BytesIO(b"+PONG\r\n"))
    assert connection.calls([("PING",)]) == ["PONG"]
    assert parts.data == b"*1\r\n$4\r\nPING\r\n"


def test_a_server_that_is_away_at_the_start_is_an_error(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(ConnectionFailed, match=r"Redis at 127\.0\.0\.1:\d+ cannot be used: Connection refused\."):
            started(made(f"127.0.0.1:{taken.getsockname()[1]}"), tmp_path)


def test_a_server_without_memory_is_waited_for(
    redis: RedisServer, stream_to: Callable[..., Stream], caplog: pytest.LogCaptureFixture
) -> None:
    """Redis refuses (OOM), or is near its limit."""
    stream = stream_to(redis, memory_threshold_percentage="0")
    near = stream_to(redis, memory_threshold_percentage="50")
    redis.call("CONFIG", "SET", "maxmemory", "1")
    for number, (one, words) in enumerate(((stream, "OOM command not allowed"), (near, "uses 50 % of its memory"))):
        caplog.clear()
        with caplog.at_level(logging.WARNING, "tailrace"):
            thread, raised = in_background(lambda one=one, number=number: one.batch([row("a", number)]))  # type: ignore[misc]
            while words not in caplog.text:
                thread.join(0.01)
                assert thread.is_alive(), raised
            assert redis.entries("a") == pairs(*(row("a", before) for before in range(number)))
            redis.call("CONFIG", "SET", "maxmemory", "0")
            thread.join(60)
        assert raised == []
        # Once, however long it takes.
        assert caplog.text.count(words) == 1
        redis.call("CONFIG", "SET", "maxmemory", "1")
    assert redis.entries("a") == pairs(row("a", 0), row("a", 1))


def test_a_limit_of_ones_own_counts_where_redis_has_none(redis: RedisServer, stream_to: Callable[..., Stream]) -> None:
    stream = stream_to(redis, memory_limit_mb="1", memory_threshold_percentage="1")
    thread, raised = in_background(lambda: stream.batch([row("a", 1)]))
    thread.join(0.2)
    assert thread.is_alive()
    stream.query.stop()
    thread.join(60)
    assert [type(error) for error in raised] == [Interrupted]
    assert redis.entries("a") == []


def test_replicas_are_waited_for(redis: RedisServer, redis_program: None, stream_to: Callable[..., Stream]) -> None:
    with pytest.raises(ConnectionFailed, match=r"No replica of Redis .* has confirmed a batch within 1 ms"):
        stream_to(redis, wait_enabled="true", wait_timeout_ms="1").batch([row("a", 1)])
    stream = stream_to(
        redis, wait_enabled="true", wait_timeout_ms="50", wait_retry_enabled="true", wait_retry_delay_ms="1"
    )
    thread, raised = in_background(lambda: stream.batch([row("a", 2)]))
    with RedisServer("--replicaof", "127.0.0.1", str(redis.port)) as replica:
        thread.join(60)
        assert raised == []
        assert replica.entries("a") == pairs(row("a", 1), row("a", 2))


def test_what_is_no_stream_is_refused_or_put_aside(
    redis: RedisServer, stream_to: Callable[..., Stream], tmp_path: Path
) -> None:
    redis.call("SET", "b", "a text")
    rows = [row("a", 1), row("b", 2), row("a", 3)]
    with pytest.raises(SinkError, match=r"record of the topic b at position 0{15}2, .*: Redis answers WRONGTYPE"):
        stream_to(redis).batch(rows)
    letters = tmp_path / "letters"
    redis.call("DEL", "a")
    stream_to(redis, dead_letter_file=str(letters)).batch(rows)
    assert redis.entries("a") == pairs(rows[0], rows[2])
    (line,) = letters.read_text().splitlines()
    assert json.loads(line)["value"] == rows[1]["value"].decode()


def test_a_user_without_rights_is_told_which(redis_program: None, stream_to: Callable[..., Stream]) -> None:
    with RedisServer("--user", "cdc", "on", ">hush", "~*", "+xadd", "+multi", "+exec", "+ping") as server:
        with pytest.raises(SinkError, match=r"NOPERM.* INFO unless"):
            stream_to(server, user="cdc", password="hush").batch([row("a", 1)])
        stream_to(server, user="cdc", password="hush", memory_threshold_percentage="0").batch([row("a", 1)])
        assert len(server.entries("a")) == 1


def test_what_answers_is_no_redis(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:

        def answer() -> None:
            connection, _ = other.accept()
            with connection:
                connection.recv(100)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread, _ = in_background(answer)
        with pytest.raises(ConnectionFailed, match="the server is not Redis"):
            started(made(f"127.0.0.1:{other.getsockname()[1]}"), tmp_path)
        thread.join()


def test_errors_of_redis_hold_nothing_of_what_was_sent() -> None:
    fault = RedisFault("ERR unknown command 'XADD', with args beginning with: 'topic' '*' '{\"id\":1}'")
    assert str(fault) == "ERR unknown command 'XADD'"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"address": "h"}, "address must be host:port"),
        ({"address": "h:1,i:2"}, "address must be host:port"),
        ({"cluster.enabled": "true"}, "cluster.enabled = true is not supported"),
        ({"message.format": "json"}, "message.format must be one of compact, extended"),
        ({"db.index": "16"}, "between 0 and 15"),
        ({"user": "u"}, "user needs debezium.sink.redis.password"),
        ({"batch.size": "0"}, "between 1 and"),
        ({"ssl.truststore.path": "x"}, "has no effect without debezium.sink.redis.ssl.enabled"),
        ({"ssl.enabled": "true", "ssl.truststore.path": "x"}, "ssl.truststore.type = JKS is not supported"),
        (
            {"ssl.enabled": "true", "ssl.truststore.path": "/none", "ssl.truststore.type": "PEM"},
            "ssl.truststore.path cannot be read: No such file",
        ),
        (
            {"ssl.enabled": "true", "ssl.truststore.path": __file__, "ssl.truststore.type": "PEM"},
            "ssl.truststore.path cannot be read: it is not a PEM file, or its password is wrong",
        ),
        (
            {"ssl.enabled": "true", "ssl.keystore.path": __file__, "ssl.keystore.type": "PEM"},
            "ssl.keystore.path cannot be read: it is not a PEM file, or its password is wrong",
        ),
        (
            {"ssl.enabled": "true", "ssl.truststore.type": "PEM", "ssl.truststore.password": "hush"},
            "ssl.truststore.password has no meaning",
        ),
        ({"stream": "s"}, "has no option stream"),
    ],
)
def test_wrong_options_are_named(options: dict[str, str], words: str) -> None:
    with pytest.raises(SinkError) as refused:
        sinks.open("redis", {"address": "h:1", **options})
    assert words in str(refused.value)
    assert "hush" not in str(refused.value)


def test_the_address_may_come_from_the_environment(
    redis: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = sinks.open("redis", {"message.format": "extended"})
    assert isinstance(sink, RedisSink)
    assert [finding.level for finding in sink.advice()] == ["warning"]
    with pytest.raises(SinkError, match=r"The sink redis needs debezium\.sink\.redis\.address\."):
        started(sink, tmp_path)
    monkeypatch.setenv("DEBEZIUM_SINK_REDIS_ADDRESS", redis.address)
    sink = sinks.open("redis", {})
    assert isinstance(sink, RedisSink)
    started(sink, tmp_path).batch([row("a", 1)])
    sink.close()
    assert len(redis.entries("a")) == 1
