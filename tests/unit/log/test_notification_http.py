"""Notifications over HTTP: signed, in order, tried again while that may help, and never at the planner's cost."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from tailrace.connectors.registry import parse
from tailrace.errors import ConfigError, PositionLost
from tailrace.log import notification_http
from tailrace.log.notification_http import SIGNATURE, HttpChannel
from tailrace.monitoring.monitor import failed
from tailrace.snapshot.incremental import InitialNotifications, Notification
from tests.servers.web import Request, WebServer, always
from tests.unit.log.memory import query

OPTIONS = {
    "database.hostname": "h", "database.user": "u", "database.dbname": "d", "topic.prefix": "shop",
    "notification.enabled.channels": "http",
}  # fmt: skip


@pytest.fixture
def server() -> Iterator[WebServer]:
    with WebServer() as found:
        yield found


def channel(server: WebServer, **options: str) -> HttpChannel:
    url = f"{server.url}/hook?key=hidden"
    named = {f"notification.http.{name}": value for name, value in options.items()}
    return HttpChannel(parse("postgres", OPTIONS | {"notification.http.url": url} | named), lambda _: None)


def note(kind: str = "COMPLETED") -> tuple[Notification, int]:
    return InitialNotifications("shop").of(kind, status="SUCCEEDED"), 1_700_000_000_000


def test_a_notification_has_debeziums_fields_and_a_text_for_chats(server: WebServer) -> None:
    found = channel(server)
    found.send([note("STARTED"), note()])
    found.flush(10)
    bodies = [json.loads(request.body) for request in server.requests]
    assert [body["type"] for body in bodies] == ["STARTED", "COMPLETED"]
    assert bodies[1] == {
        "id": bodies[1]["id"], "aggregate_type": "Initial Snapshot", "type": "COMPLETED",
        "timestamp": 1_700_000_000_000,
        "additional_data": {"connector_name": "shop", "status": "SUCCEEDED"},
        "text": "shop: Initial Snapshot COMPLETED, status SUCCEEDED",
    }  # fmt: skip
    assert server.requests[0].header(SIGNATURE) is None


def test_a_notification_is_signed_with_the_secret(server: WebServer) -> None:
    found = channel(server, secret="key")
    found.send([note()])
    found.flush(10)
    (request,) = server.requests
    assert request.header(SIGNATURE) == f"sha256={hmac.new(b'key', request.body, hashlib.sha256).hexdigest()}"


@pytest.mark.parametrize(("status", "tries"), [(500, 3), (429, 3), (0, 3), (400, 1), (302, 1)])
def test_what_may_pass_is_tried_again_and_nothing_else(
    server: WebServer, status: int, tries: int, caplog: pytest.LogCaptureFixture
) -> None:
    server.answers = always(status)
    found = channel(server, retries="2")
    with caplog.at_level(logging.WARNING):
        found.send([note()])
        found.flush(10)
    assert len(server.requests) == tries
    assert "A notification is dropped" in caplog.text
    assert "hidden" not in caplog.text


def test_a_receiver_that_comes_back_gets_it(server: WebServer) -> None:
    answers = iter([503, 503, 200])

    def answer(_: Request) -> tuple[int, bytes]:
        return next(answers), b""

    server.answers = answer
    found = channel(server)
    found.send([note()])
    found.flush(10)
    assert len(server.requests) == 3


def test_a_receiver_that_stands_still_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notification_http, "MOST_WAITING", 3)
    found = HttpChannel(parse("postgres", OPTIONS | {"notification.http.url": "http://127.0.0.1:9/"}), lambda _: None)
    monkeypatch.setattr(found, "_run", lambda: None)
    found.send([note()] * 10)
    assert found._waiting.qsize() == 3


def test_a_snapshot_tells_the_channel(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Any] = []
    monkeypatch.setattr(HttpChannel, "send", lambda _, notifications: sent.extend(notifications))
    options = {"notification_enabled_channels": "http", "notification_http_url": "http://127.0.0.1:9/"}
    found = query(snapshot_mode="initial", **options)
    found.next()
    assert [one.type for one, _ in sent] == ["STARTED"]


def test_a_failure_names_its_remedy() -> None:
    found = failed(PositionLost("The slot is gone.", "Take a new snapshot."), "shop")
    assert (found.aggregate, found.type) == ("Pipeline", "FAILED")
    assert dict(found.data) == {
        "connector_name": "shop", "error": "The slot is gone.", "remedy": "Take a new snapshot.", "exit_code": "5",
    }  # fmt: skip


def test_the_channel_needs_a_url_that_is_never_shown() -> None:
    with pytest.raises(ConfigError, match=r"notification.http.url is missing"):
        parse("postgres", OPTIONS)
    config = parse("postgres", OPTIONS | {"notification.http.url": "https://hooks.example/T0/secret"})
    assert "T0" not in repr(config)
