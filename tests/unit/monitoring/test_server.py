"""The HTTP server: who may read what, health through a pipeline's life, and signals."""

from __future__ import annotations

import http.client
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tailrace.errors import ConfigError, PositionLost, SinkError
from tailrace.metrics.tally import SinkCounts
from tailrace.monitoring.health import ALL, LIVE, READY, STARTED, Health
from tailrace.monitoring.monitor import TOKEN_FILE, described, kept_token
from tailrace.monitoring.observation import Observation, PipelineNames
from tailrace.monitoring.server import HttpServer
from tailrace.snapshot.signals import TYPES
from tests.unit.monitoring.planner_file import NOW, READING, Clock, observation, progress, slot, written

TOKEN = "a-token-of-tests"
Make = Callable[..., HttpServer]


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[HttpServer] = []

    def server(found: Observation, **more: Any) -> HttpServer:
        given = {"host": "127.0.0.1", "port": 0, "token": TOKEN, **more}
        one = HttpServer(found, Health(found, 60, Clock()), **given)
        made.append(one)
        one.start()
        return one

    yield server
    for one in made:
        one.close()


def ask(
    server: HttpServer, path: str, token: str | None = TOKEN, method: str = "GET", body: Any = None, **headers: str
) -> tuple[int, str, http.client.HTTPMessage]:
    """Return status, body and headers of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    named = {"Authorization": f"Bearer {token}"} if token else {}
    text = None if body is None else body if isinstance(body, str) else json.dumps(body)
    if body is not None:
        named["Content-Type"] = "application/json"
    named |= {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, text, named)
    answer = connection.getresponse()
    try:
        return answer.status, answer.read().decode(), answer.headers
    finally:
        connection.close()


# --- who may read what ------------------------------------------------------------------------------------------------


def test_only_health_and_the_empty_page_need_no_token(make: Make, tmp_path: Path) -> None:
    server = make(observation(written(tmp_path)), send=lambda *_: "sent")
    for path in ("/", "/live", "/started", "/q/health/live"):
        assert ask(server, path, None)[0] == 200
    for path in ("/status", "/metrics"):
        assert [ask(server, path, token)[0] for token in (None, "wrong", TOKEN)] == [401, 401, 200]
    signal = {"type": "pause-snapshot"}
    found = [ask(server, "/api/signals", token, "POST", signal)[0] for token in (None, "wrong", TOKEN)]
    assert found == [401, 401, 202]


def test_the_page_has_no_data_and_loads_nothing_from_elsewhere(make: Make, tmp_path: Path) -> None:
    status, page, headers = ask(make(observation(written(tmp_path))), "/", None)
    assert status == 200
    assert "public.a" not in page
    assert not re.search(r"(?:src|href)=[\"'](?!data:)", page)
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
    nonce = re.search(r"'nonce-([^']+)'", headers["Content-Security-Policy"])
    assert nonce is not None
    assert page.count(f'nonce="{nonce[1]}"') == 2
    # no markup carries a style or a handler of its own, which the policy would refuse
    assert not re.search(r"\s(?:style|on\w+)=", page)


def test_two_pages_have_different_nonces(make: Make) -> None:
    server = make(observation())
    policies = {ask(server, "/", None)[2]["Content-Security-Policy"] for _ in range(2)}
    assert len(policies) == 2


def test_without_a_token_a_foreign_name_for_this_address_is_refused(make: Make) -> None:
    server = make(observation(), token=None)
    assert ask(server, "/status", None)[0] == 200
    assert ask(server, "/status", None, Host="evil.example:80")[0] == 403
    assert ask(server, "/status", None, Host="localhost:80")[0] == 200


def test_a_form_of_another_site_sends_no_signal(make: Make) -> None:
    sent: list[str] = []
    server = make(observation(), token=None, send=lambda _, kind, __: sent.append(kind) or "sent")
    body = json.dumps({"type": "stop-snapshot"})
    assert ask(server, "/api/signals", None, "POST", body, Content_Type="text/plain")[0] == 415
    assert sent == []


def test_a_made_token_is_for_this_user_alone_and_lasts(tmp_path: Path) -> None:
    token = kept_token(tmp_path / "checkpoint")
    assert len(token) >= 24
    assert kept_token(tmp_path / "checkpoint") == token
    assert (tmp_path / "checkpoint" / TOKEN_FILE).stat().st_mode & 0o777 == 0o600


def test_a_port_that_is_taken_is_an_error_that_names_it(make: Make) -> None:
    server = make(observation())
    with pytest.raises(ConfigError, match=rf"cannot listen at 127.0.0.1:{server.port}"):
        make(observation(), port=server.port)


def test_paths_that_are_not_there_say_what_is(make: Make) -> None:
    server = make(observation())
    status, body, _ = ask(server, "/metric")
    assert (status, "/metrics" in body) == (404, True)
    assert ask(server, "/api/signals")[0] == 405
    assert ask(server, "/metrics", method="HEAD")[:2] == (200, "")


def test_idle_clients_take_no_more_than_some_threads_and_nobody_else_waits_for_them(make: Make, tmp_path: Path) -> None:
    server = make(observation(written(tmp_path)))
    before = threading.active_count()
    idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(200)]
    try:
        for connection in idle:
            connection.sendall(b"GET /live HTTP/1.0\r\n")
        assert ask(server, "/live", None)[0] == 200
        assert threading.active_count() - before <= 70
        # those that were there first are sent away
        idle[0].settimeout(5)
        assert idle[0].recv(1) == b""
    finally:
        for connection in idle:
            connection.close()


# --- status and metrics -----------------------------------------------------------------------------------------------


def test_status_and_metrics_are_those_of_the_observation(make: Make, tmp_path: Path) -> None:
    found = observation(written(tmp_path))
    server = make(found)
    state = json.loads(ask(server, "/status")[1])
    assert state == found.state() | {"has_signals": False, "has_tables": False}
    assert (state["pipeline"], state["state"], state["lag_s"]) == ("shop", "running", 2.0)
    body = ask(server, "/metrics")
    assert body[2]["Content-Type"].startswith("text/plain; version=0.0.4")
    assert 'debezium_metrics_Connected{context="streaming",name="shop",plugin="postgres"} 1.0' in body[1]


def test_the_status_of_a_thousand_tables_is_quick(make: Make, tmp_path: Path) -> None:
    server = make(observation(written(tmp_path, [f"s.t{number}" for number in range(1000)])))
    ask(server, "/status")
    began = time.process_time()
    _, body, _ = ask(server, "/status")
    assert time.process_time() - began < 0.5
    assert len(json.loads(body)["tables"]) == 1000


# --- health -----------------------------------------------------------------------------------------------------------


def test_health_through_the_life_of_a_pipeline(tmp_path: Path) -> None:
    clock = Clock()
    found = observation(clock=clock)
    health = Health(found, 60, clock)

    def up() -> list[str]:
        return [group for group in (LIVE, STARTED, READY, ALL) if health.answer(group)[0]]

    clock.now = NOW + 600
    # a start that takes long is no standstill
    assert up() == [LIVE]
    place = written(tmp_path)
    found.update(progress(place))
    assert up() == [LIVE, STARTED, READY, ALL]
    written(tmp_path, reading=READING | {"is_connected": False})
    assert up() == [LIVE, STARTED]
    written(tmp_path, retention={"slots": [slot(status="lost")]})
    assert up() == [LIVE, STARTED]
    written(tmp_path)
    # a loop that stands still: a restart helps
    clock.now += 61
    assert up() == []
    found.tick()
    assert up() == [LIVE, STARTED, READY, ALL]
    # a batch that takes long is no standstill
    clock.now += 59
    found.beat()
    clock.now += 59
    assert LIVE in up()
    found.end(None)
    assert up() == []


@pytest.mark.parametrize(("error", "check"), [(SinkError("no"), "sink"), (PositionLost("no"), "checkpoint")])
def test_the_check_of_what_has_failed_is_down(tmp_path: Path, error: Any, check: str) -> None:
    found = observation(written(tmp_path))
    found.end(error)
    is_up, body = Health(found, 60, Clock()).answer(READY)
    assert not is_up
    assert {"name": check, "status": "DOWN"} in body["checks"]


def test_a_planner_that_tries_again_to_reach_its_database_is_alive_and_not_ready(tmp_path: Path) -> None:
    found = observation(written(tmp_path))
    health = Health(found, 60, Clock())
    assert health.has_tried_again()
    assert not health.has_tried_again()
    written(tmp_path, reading=READING | {"is_connected": False, "setbacks": {"session": 3}})
    assert health.has_tried_again()
    assert not health.has_tried_again()
    assert health.answer(LIVE)[0]
    assert not health.answer(READY)[0]


def test_a_sink_that_waits_for_its_destination_is_not_ready(tmp_path: Path) -> None:
    counts = SinkCounts("redis")
    found = Observation(described, PipelineNames("shop", "shop", "postgres"), Clock(), sink=counts)
    found.update(progress(written(tmp_path)))
    health = Health(found, 60, Clock())
    assert health.answer(READY)[0]
    counts.is_waiting = True
    is_up, body = health.answer(READY)
    assert not is_up
    assert [one["name"] for one in body["checks"] if one["status"] == "DOWN"] == ["sink"]
    # a restart does not help
    assert health.answer(LIVE)[0]


def test_probes_of_debezium_server_find_their_check(make: Make, tmp_path: Path) -> None:
    server = make(observation(written(tmp_path)))
    for path in ("/q/health", "/q/health/live", "/q/health/ready", "/q/health/started"):
        status, body, _ = ask(server, path, None)
        assert status == 200
        assert {"name": "debezium", "status": "UP"} in json.loads(body)["checks"]
    server.observation.end(None)
    status, body, _ = ask(server, "/q/health", None)
    assert (status, json.loads(body)["status"]) == (503, "DOWN")


# --- signals ----------------------------------------------------------------------------------------------------------


def test_a_signal_is_sent_as_it_was_posted(make: Make) -> None:
    sent: list[tuple[str, str, str | None]] = []

    def send(*signal: Any) -> str:
        sent.append(signal)
        return "a row"

    server = make(observation(), send=send)
    data = json.dumps({"type": "incremental", "data-collections": ["public.a"]})
    body = {"id": "7", "type": "execute-snapshot", "data": data, "additionalData": {}}
    assert ask(server, "/api/signals", method="POST", body=body)[:2] == (202, '{"sent": "a row"}')
    assert sent == [("7", "execute-snapshot", data)]


@pytest.mark.parametrize(
    ("body", "status"),
    [("[]", 400), ("{", 400), ("[" * 60_000, 400), ({"id": "1"}, 400), ({"type": 7}, 400), ("x" * 70_000, 413)],
)
def test_a_body_that_is_no_signal_is_refused(make: Make, body: Any, status: int) -> None:
    server = make(observation(), send=lambda *_: pytest.fail("nothing may be sent"))
    assert ask(server, "/api/signals", method="POST", body=body)[0] == status


def test_a_signal_without_a_channel_is_refused(make: Make) -> None:
    status, body, _ = ask(make(observation()), "/api/signals", method="POST", body={"type": "log"})
    assert (status, "signal.enabled.channels" in body) == (503, True)


def test_a_refused_signal_says_why(make: Make) -> None:
    def send(*_: Any) -> str:
        raise ConfigError("The signal would be refused: it names no table.", "Correct type and data.")

    status, body, _ = ask(make(observation(), send=send), "/api/signals", method="POST", body={"type": "x"})
    assert (status, "names no table" in body) == (400, True)


def test_the_page_offers_what_the_pipeline_can(make: Make, tmp_path: Path) -> None:
    sent: list[tuple[str, str | None]] = []

    def send(identity: str, kind: str, data: str | None) -> str:
        sent.append((kind, data))
        return "a row"

    server = make(observation(written(tmp_path)), send=send, has_tables=True)
    assert json.loads(ask(server, "/status")[1])["has_tables"]
    page = ask(server, "/", None)[1]
    for kind in TYPES:
        if kind != "log":
            assert f'"{kind}"' in page, kind
    data = json.dumps({"data-collections": ["public.b"]})
    body = {"type": "pause-tables", "data": data}
    assert ask(server, "/api/signals", None, method="POST", body=body)[0] == 401
    assert ask(server, "/api/signals", method="POST", body=body)[0] == 202
    assert sent == [("pause-tables", data)]
    # without a channel nothing is offered
    silent = make(observation(written(tmp_path)), has_tables=True)
    assert not json.loads(ask(silent, "/status")[1])["has_tables"]
