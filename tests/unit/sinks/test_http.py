"""The sink `http` against a server that answers well, badly or not at all."""

from __future__ import annotations

import base64
import errno
import hashlib
import hmac
import json
import logging
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tailrace import sinks
from tailrace.errors import ConnectionFailed, DiskFailed, SinkError
from tailrace.metrics.tally import SinkCounts
from tailrace.sinks.authentication import Jwt, OAuth2
from tailrace.sinks.base import Settings
from tailrace.sinks.http import HttpSink
from tailrace.sinks.interruption import Interrupted, is_writing
from tests.servers.web import Answers, Request, WebServer, always
from tests.unit.sinks.stream import Row, Stream, in_background, row, started

QUICK = {"retry.interval.ms": "1", "timeout.ms": "10000"}
HEADER = {"key": "__debezium.oldkey", "value": b'{"id":0}'}


@pytest.fixture
def server() -> Iterator[WebServer]:
    with WebServer() as running:
        yield running


def stream_to(server: WebServer, folder: Path, **options: str) -> Stream:
    named = {name.replace("__", "-").replace("_", "."): text for name, text in options.items()}
    sink = sinks.open("http", {"url": f"{server.url}/in?k=v", **QUICK, **named})
    assert isinstance(sink, HttpSink)
    return started(sink, folder)


def one_by_one(*statuses: int) -> Answers:
    """Return an answer function: these answers in turn, then 200."""
    left = list(statuses)
    return lambda request: (left.pop(0) if left else 200, b"")


def test_each_value_is_the_body_of_a_request(server: WebServer, tmp_path: Path) -> None:
    rows = [row("t", 1, headers=[HEADER, HEADER]), row("t", 2, value=None), row("t", 3)]
    stream_to(server, tmp_path).batch(rows)
    assert server.bodies == [rows[0]["value"], rows[2]["value"]]
    first = server.requests[0]
    assert (first.method, first.path, first.header("content-type")) == ("POST", "/in?k=v", "application/json")
    sent = [value for name, value in first.headers if name == "x-debezium-__debezium.oldkey"]
    assert sent == [base64.b64encode(b'{"id":0}').decode()] * 2
    assert server.connections == 1


def test_headers_as_they_are(server: WebServer, tmp_path: Path) -> None:
    stream = stream_to(server, tmp_path, headers_prefix="x-", headers_encode_base64="false")
    stream.batch([row("t", 1, headers=[{"key": "a", "value": b"text"}, {"key": "b", "value": None}])])
    assert server.requests[0].header("x-a") == "text"
    assert server.requests[0].header("x-b") == ""
    with pytest.raises(SinkError, match=r"topic t at position 0{15}2, ordinal 0: it has a header that HTTP cannot"):
        stream.batch([row("t", 2, headers=[{"key": "a", "value": b"x\r\nEvil: 1"}])])
    assert len(server.requests) == 1


def test_batches_are_arrays(server: WebServer, tmp_path: Path) -> None:
    stream = stream_to(server, tmp_path, batch_enabled="true", batch_max__size="2")
    rows = [row("t", number, headers=[HEADER]) for number in range(5)]
    stream.batch([*rows, row("t", 9, value=None)])
    assert [json.loads(body) for body in server.bodies] == [
        [json.loads(one["value"]) for one in part] for part in (rows[:2], rows[2:4], rows[4:])
    ]
    assert all(request.header("x-debezium-__debezium.oldkey") is None for request in server.requests)
    with pytest.raises(SinkError, match="with values that are not JSON"):
        stream.batch([row("t", 1, value=b"\x00\x01")])


def test_a_request_is_tried_again_in_its_place(
    server: WebServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server.answers = one_by_one(503, 0, 429, 404)
    rows = [row("t", 1), row("t", 2)]
    with caplog.at_level(logging.WARNING, "tailrace"):
        stream = stream_to(server, tmp_path)
        stream.batch(rows)
    assert stream.sink.counts == SinkCounts("http", 3, 0)
    assert server.bodies == [rows[0]["value"]] * 5 + [rows[1]["value"]]
    assert "status 503; try 1 of 5 follows" in caplog.text
    assert server.url in caplog.text
    assert "/in" not in caplog.text


@pytest.mark.parametrize(("status", "kind"), [(503, ConnectionFailed), (429, ConnectionFailed), (404, SinkError)])
def test_tries_come_to_an_end(server: WebServer, tmp_path: Path, status: int, kind: type[Exception]) -> None:
    server.answers = always(status)
    stream = stream_to(server, tmp_path, retries="2")
    with pytest.raises(kind, match=rf"{server.url} has not accepted a record in 3 tries: status {status}\."):
        stream.batch([row("t", 1), row("t", 2)])
    assert len(server.requests) == 3
    # The next start repeats the batch, so nothing was skipped.
    server.answers = always(202)
    stream.batch([row("t", 1), row("t", 2)])
    assert server.bodies[3:] == [row("t", 1)["value"], row("t", 2)["value"]]


def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/?token=hush"
        sink = sinks.open("http", {"url": url, "retries": "1", **QUICK})
        assert isinstance(sink, HttpSink)
        with pytest.raises(ConnectionFailed) as failed:
            started(sink, tmp_path).batch([row("t", 1)])
    assert "in 2 tries: Connection refused." in failed.value.message
    assert "hush" not in str(failed.value)


def test_a_server_that_does_not_answer_and_one_that_speaks_otherwise(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        options = {"url": f"http://127.0.0.1:{silent.getsockname()[1]}", "retries": "0", "timeout.ms": "50"}
        sink = sinks.open("http", options)
        assert isinstance(sink, HttpSink)
        with pytest.raises(ConnectionFailed, match=r"in 1 tries: no answer in time\."):
            started(sink, tmp_path).batch([row("t", 1)])

        def speak() -> None:
            connection, _ = silent.accept()
            with connection:
                connection.sendall(b"220 mail.example ESMTP\r\n")

        silent.accept()[0].close()
        thread, _ = in_background(speak)
        sink = sinks.open("http", options | {"timeout.ms": "10000"})
        assert isinstance(sink, HttpSink)
        with pytest.raises(ConnectionFailed, match=r"its answer is not HTTP|Connection reset|Broken pipe"):
            started(sink, tmp_path).batch([row("t", 1)])
        thread.join()


def refusing(*numbers: int) -> Answers:
    """Return an answer function that permanently refuses requests with the values of these keys."""
    bad = [row("t", number)["value"] for number in numbers]
    return lambda request: (422 if any(value in request.body for value in bad) else 200, b"")


@pytest.mark.parametrize("batches", ["true", "false"])
def test_a_refused_record_ends_the_batch_or_is_put_aside(
    batches: str, server: WebServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server.answers = refusing(2)
    rows = [row("t", 1), row("t", 2, headers=[HEADER], key=b"\xff"), row("t", 3)]
    with pytest.raises(SinkError, match=r"topic t at position 0{15}2, ordinal 0: the server answers with status 422"):
        stream_to(server, tmp_path, batch_enabled=batches).batch(rows)
    server.requests.clear()
    letters = tmp_path / "letters.jsonl"
    stream = stream_to(server, tmp_path, batch_enabled=batches, dead_letter_file=str(letters))
    assert stat.S_IMODE(letters.stat().st_mode) == 0o600
    with caplog.at_level(logging.WARNING, "tailrace"):
        stream.batch(rows, 7)
    bodies = server.bodies if batches == "false" else server.bodies[1:]
    taken = [body.strip(b"[]") for body in bodies if rows[1]["value"] not in body]
    assert taken == [rows[0]["value"], rows[2]["value"]]
    assert [json.loads(line) for line in letters.read_text().splitlines()] == [
        {
            "reason": "the server answers with status 422",
            "batch": 7,
            "position": rows[1]["position"],
            "ordinal": 0,
            "topic": "t",
            "key": {"base64": "/w=="},
            "value": rows[1]["value"].decode(),
            "headers": [{"key": HEADER["key"], "value": '{"id":0}'}],
        }
    ]
    assert f"batch 7: 1 records were refused and are in {letters}" in caplog.text
    assert stream.sink.counts == SinkCounts("http", 0, 1)


def test_a_dead_letter_file_that_cannot_be_written(server: WebServer, tmp_path: Path) -> None:
    with pytest.raises(SinkError, match=r"nowhere/x cannot be written: No such file or directory\."):
        stream_to(server, tmp_path, dead_letter_file=str(tmp_path / "nowhere" / "x"))
    with pytest.raises(SinkError, match=r"dead\.letter\.file must be the path of a file"):
        stream_to(server, tmp_path, dead_letter_file="s3a://bucket/x")


def test_a_full_disk_leaves_no_half_line_of_a_refused_record(
    server: WebServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.answers = refusing(2)
    letters = tmp_path / "letters.jsonl"
    stream = stream_to(server, tmp_path, dead_letter_file=str(letters))
    write = os.write

    def full(file: int, data: bytes) -> int:
        if len(data) < 20:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(file, data[:10])

    with monkeypatch.context() as patch:
        patch.setattr("tailrace.sinks.writer.os.write", full)
        with pytest.raises(DiskFailed, match=rf"No space is left .*: the dead letters {letters} .*dead\.letter\.file"):
            stream.batch([row("t", 1), row("t", 2)], 7)
    stream.batch([row("t", 1), row("t", 2)], 7)
    assert [json.loads(line)["batch"] for line in letters.read_text().splitlines()] == [7]


def test_a_sink_that_waits_says_so_and_is_at_work(server: WebServer, tmp_path: Path) -> None:
    seen: list[tuple[bool, bool]] = []

    def answers(request: Request) -> tuple[int, bytes]:
        seen.append((is_writing(), stream.sink.counts.is_waiting))
        return (503 if len(seen) == 1 else 202), b""

    stream = stream_to(server, tmp_path)
    server.answers = answers
    assert not is_writing()
    stream.batch([row("t", 1), row("t", 2)])
    assert seen == [(True, False), (True, True), (True, False)]
    assert not is_writing()
    assert not stream.sink.counts.is_waiting


def test_a_stop_ends_the_tries(server: WebServer, tmp_path: Path) -> None:
    asked = len(server.requests)
    server.answers = always(503)
    stream = stream_to(server, tmp_path, retries="1000", retry_interval_ms="600000")

    def answers(request: Request) -> tuple[int, bytes]:
        stream.query.stop()
        return 503, b""

    server.answers = answers
    with pytest.raises(Interrupted, match=r"java\.lang\.InterruptedException"):
        stream.batch([row("t", 1)])
    assert len(server.requests) == asked + 1


SECRET = base64.b64encode(b"s" * 24).decode()


@pytest.mark.parametrize("prefix", ["", "whsec_"])
def test_webhooks_are_signed(prefix: str, server: WebServer, tmp_path: Path) -> None:
    options = {"authentication_type": "standard-webhooks", "authentication_webhook_secret": prefix + SECRET}
    stream = stream_to(server, tmp_path, **options)
    server.answers = one_by_one(500)
    rows = [row("t", 1), row("t", 1), row("t", 2)]
    stream.batch(rows, 4)
    ids = []
    for request in server.requests:
        name, at = request.header("webhook-id"), request.header("webhook-timestamp")
        signed = hmac.new(b"s" * 24, f"{name}.{at}.".encode() + request.body, hashlib.sha256).digest()
        assert request.header("webhook-signature") == f"v1,{base64.b64encode(signed).decode()}"
        ids.append(name)
    # A repeated try has the same id, and so has a replay; two equal records have different ids.
    assert [name.rpartition("-")[0] for name in ids] == ["c0ffee-4-0", "c0ffee-4-0", "c0ffee-4-1", "c0ffee-4-2"]
    server.requests.clear()
    stream.batch(rows, 4)
    assert [request.header("webhook-id") for request in server.requests] == ids[1:]


@pytest.mark.parametrize("batches", ["false", "true"])
def test_other_records_in_a_replay_have_ids_of_their_own(server: WebServer, tmp_path: Path, batches: str) -> None:
    """A receiver that keeps the ids would pass over a record with the id of another one."""
    stream = stream_to(
        server, tmp_path, authentication_type="standard-webhooks", authentication_webhook_secret=SECRET,
        batch_enabled=batches,
    )  # fmt: skip
    changes = [row("t", number, position="A", op="u", ordinal=number) for number in range(3)]
    keyed = [row("t", number, position="A", op="r") for number in range(3)]
    plain = [row("t", number, position="A", op="r", key=None) for number in range(3)]
    for rows in (changes, keyed, plain):
        found = []
        for part in (rows[:2], rows[1:], rows[:2]):
            server.requests.clear()
            stream.batch(part, 4)
            found.append([request.header("webhook-id") for request in server.requests])
        assert not set(found[0]) & set(found[1])
        assert found[0] == found[2]


class TokenServer:
    """A server that gives tokens `t1`, `t2` … and refuses all but the last one."""

    def __init__(self, field: str, **more: Any) -> None:
        self.field, self.more, self.given = field, more, 0

    def __call__(self, request: Request) -> tuple[int, bytes]:
        if request.path.startswith(("/auth/", "/token")):
            self.given += 1
            return 200, json.dumps({self.field: f"t{self.given}", **self.more}).encode()
        return (200 if request.header("authorization") == f"Bearer t{self.given}" else 401), b""


def test_jwt(server: WebServer, tmp_path: Path) -> None:
    server.answers = tokens = TokenServer("jwt", jwt_refresh_token="again")
    options = {
        "authentication.type": "jwt",
        "authentication.jwt.url": f"{server.url}/",
        "authentication.jwt.username": "me",
        "authentication.jwt.password": "hush",
        "authentication.jwt.token_expiration": "10",
    }
    sink = sinks.open("http", {"url": f"{server.url}/in", **QUICK, **options})
    assert isinstance(sink, HttpSink)
    stream = started(sink, tmp_path)
    stream.batch([row("t", 1), row("t", 2)])
    assert [request.path for request in server.requests] == ["/auth/authenticate", "/in", "/in"]
    assert json.loads(server.bodies[0]) == {"username": "me", "password": "hush", "token_expiry_in_minutes": 10}
    # The server has forgotten the token: the sink fetches another one, by the refresh token, and continues.
    tokens.given += 1
    server.requests.clear()
    stream.batch([row("t", 3)])
    assert [request.path for request in server.requests] == ["/in", "/auth/refreshToken", "/in"]
    assert json.loads(server.bodies[1]) == {"jwt_refresh_token": "again", "token_expiry_in_minutes": 10}


def test_a_token_is_renewed_before_it_ends_and_the_login_is_shown_again_where_that_fails(server: WebServer) -> None:
    time = [0.0]
    area = "authentication.jwt."
    given = {f"{area}url": server.url, f"{area}username": "u", f"{area}password": "p", f"{area}token_expiration": "10"}
    server.answers = TokenServer("jwt", jwt_refresh_token="r")
    login = Jwt(Settings("http", given), 10, lambda: time[0])
    assert login.headers("", b"") == {"Authorization": "Bearer t1"}
    time[0] = 569
    assert login.headers("", b"") == {"Authorization": "Bearer t1"}
    time[0] = 571
    assert login.headers("", b"") == {"Authorization": "Bearer t2"}
    server.answers = lambda request: (401, b"") if "refresh" in request.path else (200, b'{"jwt": "new"}')
    time[0] = 2000
    assert login.headers("", b"") == {"Authorization": "Bearer new"}
    assert [request.path.rpartition("/")[2] for request in server.requests] == [
        "authenticate", "refreshToken", "refreshToken", "authenticate",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("more", "shown"),
    [
        ({}, "Basic " + base64.b64encode(b"a%3Ab:c%2Fd").decode()),
        ({"client_auth_method": "client_secret_post"}, None),
        ({"token_url.http_method": "GET"}, "Basic " + base64.b64encode(b"a%3Ab:c%2Fd").decode()),
    ],
)
def test_oauth2(more: dict[str, str], shown: str | None, server: WebServer) -> None:
    server.answers = TokenServer("access_token", expires_in=100)
    time = [0.0]
    given = {"client_id": "a:b", "client_secret": "c/d", "token_url": f"{server.url}/token", "scope": "x y"} | more
    named = {f"authentication.oauth2.{name}": text for name, text in given.items()}
    named["authentication.oauth2.params.audience"] = "https://api"
    login = OAuth2(Settings("http", named), 10, lambda: time[0])
    assert login.headers("", b"") == {"Authorization": "Bearer t1"}
    asked = server.requests[0]
    form = "grant_type=client_credentials&scope=x+y&audience=https%3A%2F%2Fapi"
    if shown is None:
        form += "&client_id=a%3Ab&client_secret=c%2Fd"
    assert asked.header("authorization") == shown
    assert (asked.path.partition("?")[2] if asked.method == "GET" else asked.body.decode()) == form
    time[0] = 71
    assert login.headers("", b"") == {"Authorization": "Bearer t2"}


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        ((401, b"hush"), SinkError, "status 401"),
        ((200, b"hush"), SinkError, "its answer has no jwt"),
        ((200, b'{"jwt": "a\\nb"}'), SinkError, "its answer has no jwt"),
        ((503, b"hush"), ConnectionFailed, "status 503"),
    ],
)
def test_a_server_that_gives_no_token(
    answer: tuple[int, bytes], kind: type[Exception], words: str, server: WebServer, tmp_path: Path
) -> None:
    server.answers = lambda request: answer
    area = "authentication.jwt."
    options = {"authentication.type": "jwt", f"{area}url": server.url, f"{area}username": "u", f"{area}password": "pw"}
    sink = sinks.open("http", {"url": server.url, "retries": "1", **QUICK, **options})
    assert isinstance(sink, HttpSink)
    with pytest.raises(kind, match=rf"{server.url} gives no token: {words}\.") as failed:
        started(sink, tmp_path).batch([row("t", 1)])
    assert "hush" not in str(failed.value)


JWT = {"authentication.type": "jwt", "authentication.jwt.url": "http://h", "authentication.jwt.username": "u"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"url": "ftp://h"}, "url must be a URL that begins with http"),
        ({"url": "http://u:hush@h"}, "url must hold no user and no password"),
        ({"url": "http://h:x"}, "url is not a URL"),
        ({"url": "http://h/ä"}, "url has characters that must be percent-encoded"),
        ({"retries": "many"}, "retries must be a whole number between 0 and"),
        ({"timeout.ms": "0"}, "must be a whole number between 1 and"),
        ({"headers.prefix": "a b"}, "headers.prefix has characters"),
        ({"batch.enabled": "maybe"}, "batch.enabled must be true or false"),
        ({"batch.max.size": "2"}, "The nearest is debezium.sink.http.batch.max-size"),
        ({"authentication.type": "basic"}, "authentication.type must be one of"),
        ({"authentication.webhook.secret": SECRET}, "needs debezium.sink.http.authentication.type = standard-webhooks"),
        ({"authentication.type": "standard-webhooks"}, "needs debezium.sink.http.authentication.webhook.secret"),
        (
            {"authentication.type": "standard-webhooks", "authentication.webhook.secret": "c2hvcnQ="},
            "must have between 24 and 64 bytes",
        ),
        (
            {"authentication.type": "standard-webhooks", "authentication.webhook.secret": "hush!"},
            "must be in base64",
        ),
        (JWT, "needs debezium.sink.http.authentication.jwt.password"),
        ({"headers.header.x": "1"}, "has no option headers.header.x"),
    ],
)
def test_wrong_options_are_named(options: dict[str, str], words: str) -> None:
    with pytest.raises(SinkError) as refused:
        sinks.open("http", {"url": "http://h", **options})
    assert words in str(refused.value)
    assert "hush" not in str(refused.value)


def test_the_address_may_come_from_the_environment(
    server: WebServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = sinks.open("http", {})
    assert [finding.level for finding in sink.advice()] == ["warning"]
    with pytest.raises(SinkError, match=r"The sink http needs debezium\.sink\.http\.url\."):
        started(sink, tmp_path)  # type: ignore[arg-type]
    for variable in ("K_SINK", "DEBEZIUM_SINK_HTTP_URL"):
        monkeypatch.setenv(variable, f"{server.url}/{variable}")
        sink = sinks.open("http", {})
        assert isinstance(sink, HttpSink)
        started(sink, tmp_path).batch([row("t", 1)])
    # Debezium Server's own variable belongs to the option, so it comes before the other.
    assert [request.path for request in server.requests] == ["/K_SINK", "/DEBEZIUM_SINK_HTTP_URL"]


def rows_of(count: int) -> list[Row]:
    return [row("t", number) for number in range(count)]


def test_a_batch_that_failed_half_way_is_sent_again_from_its_beginning(server: WebServer, tmp_path: Path) -> None:
    """As after a crash, delivery is at least once, and after the repeat the order continues."""
    rows = rows_of(6)
    server.answers = lambda request: (200 if len(server.requests) < 4 else 0, b"")
    stream = stream_to(server, tmp_path, retries="0")
    with pytest.raises(ConnectionFailed):
        stream.batch(rows)
    sent = len(server.bodies)
    server.answers = always(200)
    stream.batch(rows)
    values = [one["value"] for one in rows]
    # The fourth was sent twice, because its connection had been idle.
    assert server.bodies == [*values[:4], values[3], *values]
    assert sent == 5
