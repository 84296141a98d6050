"""The sink `nats-jetstream` against a real server: its messages, and its handling of refusals."""

from __future__ import annotations

import base64
import json
import logging
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tailrace import sinks
from tailrace.errors import ConnectionFailed, SinkError
from tailrace.sinks import jetstream
from tailrace.sinks.interruption import Interrupted
from tailrace.sinks.jetstream import JetStreamFault, JetStreamSink, Publication, Publisher
from tailrace.sinks.jetstream import PublishAck as Answer
from tests.servers.certificates import Authority
from tests.servers.nats import NatsServer, Stored
from tests.unit.sinks.stream import Row, Stream, in_background, row, started

QUICK = {"sync.retry.interval.ms": "1", "async.timeout.ms": "20000"}
OPTIONS = "debezium.sink.nats-jetstream"


def made(url: str, **options: str) -> JetStreamSink:
    named = {name.replace("__", "-").replace("_", "."): text for name, text in options.items()}
    sink = sinks.open("nats-jetstream", {"url": url, **QUICK, **named})
    assert isinstance(sink, JetStreamSink)
    return sink


@pytest.fixture
def stream_to(tmp_path: Path) -> Iterator[Callable[..., Stream]]:
    """Yield a factory of streams into a sink with given options, which is closed at the end."""
    opened: list[JetStreamSink] = []

    def stream(url: str, **options: str) -> Stream:
        opened.append(made(url, **options))
        return started(opened[-1], tmp_path)

    yield stream
    for sink in opened:
        sink.close()


def header(name: str, value: bytes | None) -> Row:
    return {"key": name, "value": value}


def stored(*rows: Row, **headers: str) -> list[Stored]:
    return [Stored(one["topic"], one["value"], headers) for one in rows]


def test_a_value_is_a_message_with_its_headers(nats: NatsServer, stream_to: Callable[..., Stream]) -> None:
    """As from Debezium Server 3.6, there is no key and no tombstone, and headers are texts."""
    nats.make("S", ["shop.>", "__debezium-heartbeat.>"])
    headers = [header("__debezium.context.taskId", b'"0"'), header("x", '"ä\\n"'.encode()), header("none", None)]
    rows = [
        row("shop.public.a", 1, headers=headers),
        row("shop.public.a", 2, op="tombstone", value=None),
        row("__debezium-heartbeat.shop", 3, op="heartbeat"),
        row("shop.public.b", 4, key=None, headers=[header("x", b"1"), header("x", b"2")]),
    ]
    stream_to(nats.url).batch(rows)
    assert nats.messages("S") == [
        *stored(rows[0], **{"__debezium.context.taskId": '"0"', "x": '"ä\\n"', "none": ""}),
        *stored(rows[2]),
        *stored(rows[3], x="2"),
    ]


def test_a_stream_is_made_where_there_is_none(nats: NatsServer, stream_to: Callable[..., Stream]) -> None:
    wanted = {"create__stream": "true", "stream__name": "Made", "subjects": "shop.a, shop.b", "storage": "file"}
    stream_to(nats.url, **wanted).batch([row("shop.b", 1)])
    assert (nats.storage("Made"), nats.messages("Made")) == ("file", stored(row("shop.b", 1)))
    # An existing stream stays unchanged, and must have the subjects.
    stream_to(nats.url, create__stream="true", stream__name="Made", subjects="shop.a").batch([row("shop.a", 2)])
    assert len(nats.messages("Made")) == 2
    with pytest.raises(SinkError, match=r"The stream Made already exists, without the subject shop\.c\."):
        stream_to(nats.url, **wanted | {"subjects": "shop.b,shop.c"})
    stream_to(nats.url, create__stream="true", subjects="one.*.*").batch([row("one.two.three", 1)])
    assert (nats.storage("DebeziumStream"), len(nats.messages("DebeziumStream"))) == ("memory", 1)
    said = r"The stream Other cannot be created: JetStream answers: .*\. Check debezium\.sink\.nats-jetstream\.stream"
    for taken in ("shop..a", "shop.a"):
        with pytest.raises(SinkError, match=said):
            stream_to(nats.url, create__stream="true", stream__name="Other", subjects=taken)


def test_the_stream_that_is_made_unless_another_is_named(
    nats: NatsServer, stream_to: Callable[..., Stream], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is Debezium Server's stream, whose subjects only older servers accept."""
    asked: list[tuple[str, tuple[str, ...], str]] = []

    def made_as(self: Publisher, name: str, subjects: tuple[str, ...], storage: str) -> tuple[str, ...]:
        asked.append((name, subjects, storage))
        return subjects

    monkeypatch.setattr(Publisher, "stream", made_as)
    stream_to(nats.url, create__stream="true")
    assert asked == [("DebeziumStream", ("*.*.*",), "memory")]


def test_a_subject_without_a_stream_ends_the_run(
    nats: NatsServer, stream_to: Callable[..., Stream], caplog: pytest.LogCaptureFixture
) -> None:
    said = r"cannot be used: no JetStream stream has its subject \(tries: 3\)\. Create a stream"
    with caplog.at_level(logging.WARNING, "tailrace"), pytest.raises(SinkError, match=said):
        stream_to(nats.url, sync_retries="2").batch([row("a", 1)])
    assert [record.getMessage()[-20:] for record in caplog.records] == ["; try 1 of 2 follows", "; try 2 of 2 follows"]


def test_a_subject_whose_stream_comes_is_waited_for(
    nats: NatsServer, stream_to: Callable[..., Stream], caplog: pytest.LogCaptureFixture
) -> None:
    """Messages after the refused one come again after it, once, so that the last message of each key is the newest."""
    nats.make("S", ["a"])
    rows = [row("a", 1), row("b", 2), row("a", 3)]
    stream = stream_to(nats.url, sync_retries="1000000")
    with caplog.at_level(logging.WARNING, "tailrace"):
        thread, raised = in_background(lambda: stream.batch(rows))
        while "; try 3 of" not in caplog.text:
            thread.join(0.01)
            assert thread.is_alive(), raised
        nats.make("T", ["b"])
        thread.join(60)
    assert raised == []
    assert nats.messages("S") == stored(rows[0], rows[2], rows[2])
    assert nats.messages("T") == stored(rows[1])


def test_logins(nats_program: None, stream_to: Callable[..., Stream]) -> None:
    rights = '{ publish: { deny: "closed" } }'
    users = f'[{{ user: cdc, password: "p:/hush", permissions: {rights} }}]'
    with NatsServer(f"authorization {{ users: {users} }}", user="cdc", password="p:/hush") as server:
        server.make("S", ["open", "closed"])
        at = f"127.0.0.1:{server.port}"
        stream_to(server.url, auth_user="cdc", auth_password="p:/hush").batch([row("open", 1)])
        stream = stream_to(f"nats://cdc:p%3A%2Fhush@{at}", sync_retries="0", async_timeout_ms="200")
        stream.batch([row("open", 2)])
        assert server.messages("S") == stored(row("open", 1), row("open", 2))
        with pytest.raises(SinkError, match='login lacks a permission: permissions violation for publish to "closed"'):
            stream.batch([row("closed", 3)])
        for url in (server.url, f"nats://cdc:hushhush@{at}", f"nats://hushhush@{at}"):
            with pytest.raises(SinkError, match=rf"NATS at {at} cannot be used: the login is refused: ") as raised:
                stream_to(url)
            assert "hush" not in str(raised.value)
    with NatsServer('authorization { token: "word" }', token="word") as server:
        server.make("S", ["a"])
        stream_to(f"nats://word@127.0.0.1:{server.port}").batch([row("a", 1)])
        assert len(server.messages("S")) == 1


def test_a_login_by_jwt(nats_program: None, stream_to: Callable[..., Stream]) -> None:
    """The server has an operator, whose account's user signs the server's nonce."""
    nkeys = pytest.importorskip("nkeys")

    def pair(prefix: int, first: int = 0) -> Any:
        return nkeys.from_seed(bytearray(nkeys.encode_seed(bytes(range(first, first + 32)), prefix)))

    def claims(issuer: Any, subject: Any, kind: str, **more: object) -> str:
        def part(content: object) -> str:
            return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")

        about = {"jti": kind, "iat": 1, "iss": issuer.public_key.decode(), "sub": subject.public_key.decode()}
        nats = {"type": kind, "version": 2, **more}
        text = f"{part({'typ': 'JWT', 'alg': 'ed25519-nkey'})}.{part(about | {'name': kind, 'nats': nats})}"
        return f"{text}.{base64.urlsafe_b64encode(issuer.sign(text.encode())).decode().rstrip('=')}"

    operator, user = pair(nkeys.PREFIX_BYTE_OPERATOR), pair(nkeys.PREFIX_BYTE_USER)
    system, account = pair(nkeys.PREFIX_BYTE_ACCOUNT), pair(nkeys.PREFIX_BYTE_ACCOUNT, 1)
    every = {"subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": True, "conn": -1}
    store = {"mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1}
    names = [one.public_key.decode() for one in (system, account)]
    preloaded = (
        f"{names[0]}: {claims(operator, system, 'account', limits=every)}\n"
        f"{names[1]}: {claims(operator, account, 'account', limits=every | store)}"
    )
    settings = (
        f"operator: {claims(operator, operator, 'operator')}\nsystem_account: {names[0]}\n"
        f"resolver: MEMORY\nresolver_preload: {{\n{preloaded}\n}}"
    )
    with NatsServer(settings) as server:
        shown = claims(account, user, "user", subs=-1, data=-1, payload=-1)
        login = {"auth_jwt": shown, "auth_seed": user.seed.decode(), "create__stream": "true"}
        stream_to(server.url, **login, subjects="a").batch([row("a", 1)])
        stream_to(server.url, **login, subjects="a").batch([row("a", 2)])
        with pytest.raises(SinkError, match="the login is refused: "):
            stream_to(server.url, **login | {"auth_seed": pair(nkeys.PREFIX_BYTE_USER, 9).seed.decode()})
        with pytest.raises(SinkError, match=r"auth\.seed is not the seed of an NKey\."):
            stream_to(server.url, **login | {"auth_seed": "SUhush"})


def test_tls(
    nats_program: None, stream_to: Callable[..., Stream], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, authority = map(str, Authority().pem(tmp_path))
    asked = f'tls {{ cert_file: "{own}", key_file: "{own}", ca_file: "{authority}", verify: true, timeout: 10 }}'
    with NatsServer(asked) as server:
        localhost = f"tls://localhost:{server.port}"
        with pytest.raises(ConnectionFailed, match="cannot be used: TLS: CERTIFICATE_VERIFY_FAILED"):
            stream_to(localhost, auth_tls_keystore=own)
        monkeypatch.setenv("SSL_CERT_FILE", authority)
        stream = stream_to(localhost, auth_tls_keystore=own, create__stream="true", subjects="a")
        stream.batch([row("a", 1)])
        with pytest.raises(ConnectionFailed, match="cannot be used"):
            stream_to(localhost)
        # The certificate is that of localhost.
        with pytest.raises(ConnectionFailed, match="cannot be used: TLS: CERTIFICATE_VERIFY_FAILED"):
            stream_to(f"tls://127.0.0.1:{server.port}", auth_tls_keystore=own)


def test_a_server_in_the_clear_gets_no_login(nats: NatsServer, stream_to: Callable[..., Stream]) -> None:
    """The server decides about TLS; a server without it is not the intended one."""
    sent: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            with listener.accept()[0] as connection:
                connection.sendall(b'INFO {"auth_required":true,"max_payload":1048576,"headers":true}\r\n')
                sent.append(connection.recv(1 << 16))

        thread, raised = in_background(answer)
        with pytest.raises(SinkError, match="it does not speak TLS, which the configuration requires"):
            stream_to(f"tls://cdc:hush@127.0.0.1:{listener.getsockname()[1]}")
        thread.join(10)
    assert (sent, raised) == ([b""], [])
    with pytest.raises(SinkError, match="it does not speak TLS, which the configuration requires"):
        stream_to(nats.url.replace("nats:", "tls:"))


def test_a_server_that_is_killed_gets_what_follows_again(nats_program: None, tmp_path: Path) -> None:
    with NatsServer() as server:
        server.make("S", ["a"])
        away = "127.0.0.1:1"
        sink = made(f"nats://{away},{server.url}", sync_retries="1000000")
        stream = started(sink, tmp_path)
        rows = [row("a", number) for number in range(6)]
        stream.batch(rows[:2])
        server.kill()
        thread, raised = in_background(lambda: stream.batch(rows[2:], 1))
        server.start()
        thread.join(60)
        assert raised == []
        assert server.messages("S") == stored(*rows)
        # A replay, as after a crash of the pipeline, repeats the stretch in its order.
        stream.batch(rows[2:], 1)
        assert server.messages("S") == stored(*rows, *rows[2:])
        sink.close()


def test_a_server_that_is_away_is_an_error(nats_program: None, stream_to: Callable[..., Stream]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        at = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConnectionFailed, match=rf"NATS at {at} cannot be used: Connect.*\(tries: 1\)"):
            stream_to(f"nats://me:hush@{at}")


def test_a_stop_ends_the_wait(nats: NatsServer, stream_to: Callable[..., Stream]) -> None:
    stream = stream_to(nats.url, sync_retry_interval_ms="600000", sync_retries="9")
    thread, raised = in_background(lambda: stream.batch([row("a", 1)]))
    stream.query.stop()
    thread.join(60)
    assert [type(error) for error in raised] == [Interrupted]


def test_records_that_nats_never_takes_are_put_aside(
    nats: NatsServer, stream_to: Callable[..., Stream], tmp_path: Path
) -> None:
    nats.make("S", ["a"], max_msg_size=2000)
    bad = [
        row("a b", 1),
        row("a", 2, headers=[header("a b", b"1")]),
        row("a", 3, headers=[header("x", b"1\r\n2")]),
        row("a", 4, headers=[header("x", b"\xff")]),
        row("a", 5, value=b"x" * 3000),
        row("a", 6, value=b"x" * 2_000_000),
        row("a", 7, value=b"", headers=[header("x", b"x" * 1_048_576)]),
    ]
    good = [row("a", 0), row("a", 9)]
    letters = tmp_path / "letters"
    stream_to(nats.url, dead_letter_file=str(letters)).batch([good[0], *bad, good[1]])
    assert nats.messages("S") == stored(*good)
    found = [json.loads(line) for line in letters.read_text().splitlines()]
    assert sorted(line["position"] for line in found) == [one["position"] for one in bad]
    for one in bad:
        with pytest.raises(SinkError, match=f"refuses a record of the topic {one['topic']} at position"):
            stream_to(nats.url).batch([good[0], one])


def test_a_replay_is_passed_over_by_ids(nats: NatsServer, stream_to: Callable[..., Stream]) -> None:
    nats.make("S", ["a", "b"])
    stream = stream_to(nats.url, message_id_enabled="true")
    # Three records of one change, two of which are sent, and a row of another table at the same place.
    rows = [row("a", 1, op="d"), row("a", 1, op="tombstone", value=None), row("a", 1, op="c"), row("b", 1, op="c")]
    stream.batch(rows[:2], 0)
    stream.batch(rows, 0)
    stream.batch(rows, 0)
    stream.batch(rows, 1)
    kept = [one for one in rows if one["value"] is not None]
    assert [(one.subject, one.payload) for one in nats.messages("S")] == [(o["topic"], o["value"]) for o in kept * 2]
    assert len({one.headers["Nats-Msg-Id"] for one in nats.messages("S")}) == 6


def test_other_snapshot_rows_in_a_replay_are_not_passed_over(
    nats: NatsServer, stream_to: Callable[..., Stream]
) -> None:
    """A row is gone when the snapshot is read anew, so that others have the numbers of those before the crash."""
    rows = [row("a", number, op="r", position="A") for number in range(4)]
    nats.make("S", ["a"])
    stream = stream_to(nats.url, message_id_enabled="true")
    stream.batch(rows[:3], 5)
    stream.batch(rows[1:], 5)
    assert rows[3]["value"] in [one.payload for one in nats.messages("S")]


def test_ids_that_the_server_has_half_forgotten_do_not_turn_the_order(
    nats: NatsServer, stream_to: Callable[..., Stream]
) -> None:
    """The time for which ids are kept may end within a batch: messages after a newly stored one are
    stored anew, too."""
    rows = [row("a", number) for number in range(4)]
    nats.make("S", ["a"])
    stream = stream_to(nats.url, message_id_enabled="true")
    stream.batch(rows)
    old = nats.messages("S")
    nats.delete()
    # As if the first two ids were too old: the other stream knows only the last two.
    nats.make("S", ["a"])
    nats.ask(lambda context: _again(context, old[2:]))
    stream.batch(rows)
    assert [one.payload for one in nats.messages("S")] == [one["value"] for one in (*rows[2:], *rows)]


async def _again(context: Any, messages: list[Stored]) -> None:
    for one in messages:
        await context.publish(one.subject, one.payload, headers=one.headers)


def test_ids_of_the_records_own_stay_and_go_one_by_one(
    nats: NatsServer, stream_to: Callable[..., Stream], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An outbox may set ids. JetStream skips known ones, so nothing may be sent after a message that it may refuse."""
    sizes: list[int] = []
    publish = Publisher.publish

    def counted(self: Publisher, messages: list[Publication]) -> list[Answer | JetStreamFault]:
        sizes.append(len(messages))
        return publish(self, messages)

    monkeypatch.setattr(Publisher, "publish", counted)
    nats.make("S", ["a"])
    stream = stream_to(nats.url, message_id_enabled="true")
    stream.batch([row("a", number, headers=[header("Nats-Msg-Id", b"%d" % (number % 2))]) for number in range(4)])
    assert [one.headers["Nats-Msg-Id"] for one in nats.messages("S")] == ["0", "1"]
    assert sizes == [1] * 4
    stream_to(nats.url).batch([row("a", number) for number in range(4)])
    stream_to(nats.url, async_enabled="false").batch([row("a", number) for number in range(2)])
    assert sizes[4:] == [4, 1, 1]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"url": "http://a"}, r"\.url must be nats://host:port or tls://host:port"),
        ({"url": "nats://a:b"}, r"\.url must be nats://host:port"),
        ({"url": "nats://hush@a,nats://b"}, r"\.url must have one scheme and one login for all servers"),
        ({"url": "nats://:hush@a"}, r"\.url has a password but no user"),
        ({"url": "nats://a,tls://b"}, r"\.url must have one scheme"),
        ({"url": "nats://u:hush@a", "auth.user": "u", "auth.password": "hush"}, r"\.url has a login, and auth\.\*"),
        ({"auth.user": "u"}, r"auth\.user and auth\.password need each other"),
        ({"auth.seed": "hush"}, r"auth\.jwt and auth\.seed need each other"),
        ({"auth.jwt": "h", "auth.seed": "h", "auth.user": "u", "auth.password": "h"}, r"cannot stand beside auth"),
        ({"auth.tls.password": "hush"}, r"auth\.tls\.password is not supported: a PEM file has one password"),
        ({"auth.tls.keystore.password": "hush"}, r"auth\.tls\.keystore\.password needs auth\.tls\.keystore"),
        ({"auth.tls.keystore": __file__}, r"auth\.tls\.keystore cannot be read: it is not a PEM file"),
        ({"auth.tls.keystore": "/no/where"}, r"auth\.tls\.keystore cannot be read: No such file"),
        ({"storage": "disk"}, r"\.storage must be one of memory, file"),
        ({"sync.retry.backoff.multiplier": "0.5"}, r"multiplier must be a number of 1 or more"),
        ({"async.enable": "true"}, r"has no option async\.enable\. The nearest is .*async\.enabled"),
    ],
)  # fmt: skip
def test_options_that_are_wrong(options: dict[str, str], said: str) -> None:
    with pytest.raises(SinkError, match=said) as raised:
        sinks.open("nats-jetstream", options)
    assert "hush" not in str(raised.value)


def test_options_that_lack(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    sink = sinks.open("nats-jetstream", {})
    assert [finding.text for finding in sink.missing()] == [f"{OPTIONS}.url is not set."]
    with pytest.raises(SinkError, match=r"needs debezium\.sink\.nats-jetstream\.url\. Set it"):
        started(sink, tmp_path)  # type: ignore[arg-type]
    with caplog.at_level(logging.WARNING, "tailrace"):
        sinks.open("nats-jetstream", {"subjects": "a"})
    assert f"{OPTIONS}.subjects has no effect without create-stream = true" in caplog.text
    monkeypatch.setenv("DEBEZIUM_SINK_NATS_JETSTREAM_URL", "db.example.com")
    found = sinks.open("nats-jetstream", {})
    assert found.missing() == []
    assert [finding.text for finding in found.advice()] == [
        "The sink's connection with db.example.com is not encrypted: the network in between sees every row."
    ]
    assert sinks.open("nats-jetstream", {"url": "tls://db.example.com"}).advice() == []
    kept = {"url": "tls://db.example.com", "create-stream": "true"}
    (told,) = sinks.open("nats-jetstream", kept).advice()
    assert "a restart of the server loses what was delivered" in told.text
    assert sinks.open("nats-jetstream", kept | {"storage": "file"}).advice() == []
    monkeypatch.setattr(jetstream, "missing", lambda: True)
    with pytest.raises(SinkError, match=r"needs the packages nats-py and nkeys\. pip install .*\[nats\]"):
        started(found, tmp_path)  # type: ignore[arg-type]
