"""The monitor shows a pipeline while it runs, and tells why it has ended."""

from __future__ import annotations

import http.client
import json
import logging
import socket
import stat
import time
from pathlib import Path
from typing import Any

import pytest

from tailrace.config.files import RunConfig, SinkConfig
from tailrace.connectors.captured_tables import CapturedTables
from tailrace.connectors.descriptor import Descriptor
from tailrace.connectors.registry import parse
from tailrace.errors import ConfigError, SinkError
from tailrace.monitoring import lineage
from tailrace.monitoring import monitor as monitors
from tailrace.monitoring.monitor import TOKEN_FILE, Monitor, described, kept_token
from tailrace.snapshot.channels import FileChannel
from tests.servers.web import WebServer

SOURCE = {"database.hostname": "h", "database.user": "u", "database.dbname": "d", "topic.prefix": "shop"}


def run(folder: Path, **options: str) -> RunConfig:
    given = {**SOURCE, "checkpoint.location": str(folder / "checkpoint")}
    given |= {name.replace("_", "."): text for name, text in options.items()}
    return RunConfig(parse("postgres", given), SinkConfig("console"))


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def ask(port: int, path: str, token: str | None, body: Any = None) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    try:
        connection.request("GET" if body is None else "POST", path, body and json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def test_a_page_is_served_until_the_pipeline_ends_and_takes_signals(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    port, signals = free_port(), tmp_path / "signals"
    chosen = run(tmp_path, http_port=str(port), signal_enabled_channels="file", signal_file=str(signals))
    with caplog.at_level(logging.INFO, "tailrace"), Monitor(chosen):
        assert f"The pipeline's page is at http://127.0.0.1:{port}" in caplog.text
        token = kept_token(tmp_path / "checkpoint")
        assert ask(port, "/status", None)[0] == 401
        status, state = ask(port, "/status", token)
        assert (status, state["has_signals"], state["has_tables"]) == (200, True, True)
        assert ask(port, "/api/signals", token, {"type": "pause-snapshot", "id": "one"})[0] == 202
        assert ask(port, "/api/signals", token, {"type": "pause-snapshot", "id": "two", "data": ""})[0] == 202
        named = json.dumps({"data-collections": ["a.(b"]})
        for data in ("[1]", "", named):
            status, answer = ask(port, "/api/signals", token, {"type": "execute-snapshot", "data": data})
            assert status == 400
        assert "The signal would be refused" in answer["error"]
    assert [signal.id for signal, _ in FileChannel(signals).poll(None) if signal] == ["one", "two"]
    with pytest.raises(OSError, match="refused"):
        ask(port, "/status", token)


def test_a_pipeline_without_a_channel_takes_no_signals(tmp_path: Path) -> None:
    port = free_port()
    with Monitor(run(tmp_path, http_port=str(port), http_token="some-token", signal_enabled_channels="source")):
        assert ask(port, "/status", "some-token")[1]["has_signals"] is False
        assert ask(port, "/api/signals", "some-token", {"type": "pause-snapshot"})[0] == 503
    assert not (tmp_path / "checkpoint" / TOKEN_FILE).exists()


@pytest.mark.parametrize(("host", "warned"), [("127.0.0.1", False), ("0.0.0.0", True)])
def test_a_page_for_everyone_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, host: str, warned: bool
) -> None:
    port = free_port()
    with Monitor(run(tmp_path, http_port=str(port), http_auth="none", http_host=host)):
        assert ask(port, "/status", None)[0] == 200
    assert ("demands no token: everyone who reaches it" in caplog.text) is warned


def test_a_made_token_is_kept_for_this_user_alone(tmp_path: Path) -> None:
    made = kept_token(tmp_path / "new" / "checkpoint")
    path = tmp_path / "new" / "checkpoint" / TOKEN_FILE
    assert kept_token(path.parent) == made == path.read_text().strip()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(made) >= 32


def test_a_token_never_goes_through_a_link_or_into_a_file_of_no_folder(tmp_path: Path) -> None:
    (tmp_path / TOKEN_FILE).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match=r"cannot be kept in .*http\.token"):
        kept_token(tmp_path)
    assert not (tmp_path / "elsewhere").exists()


def test_a_checkpoint_that_is_not_local_keeps_no_token(tmp_path: Path) -> None:
    chosen = run(tmp_path, http_port="1", checkpoint_location="s3a://lake/checkpoint")
    with pytest.raises(ConfigError, match=r"a checkpoint that is not local cannot keep a token") as caught:
        Monitor(chosen)
    assert "http.auth to none" in caught.value.remedy


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (SinkError("The table is gone.", "Create it."), ("The table is gone.", "Create it.")),
        (ZeroDivisionError("1/0"), ("The pipeline has failed: ZeroDivisionError.", "This was not expected")),
    ],
)
def test_a_failure_is_told_by_http_before_the_end(tmp_path: Path, error: Exception, told: tuple[str, str]) -> None:
    with WebServer() as web:
        chosen = run(tmp_path, notification_enabled_channels="http", notification_http_url=web.url)
        with pytest.raises(type(error)), Monitor(chosen):
            raise error
        (body,) = map(json.loads, web.bodies)
    assert (body["aggregate_type"], body["type"]) == ("Pipeline", "FAILED")
    data = body["additional_data"]
    assert (data["connector_name"], data["error"]) == ("shop", told[0])
    assert data["remedy"].startswith(told[1])


def test_an_interrupt_is_no_failure(tmp_path: Path) -> None:
    with WebServer() as web:
        chosen = run(tmp_path, notification_enabled_channels="http", notification_http_url=web.url)
        with pytest.raises(KeyboardInterrupt), Monitor(chosen):
            raise KeyboardInterrupt
        assert web.requests == []


def test_lineage_begins_and_ends_with_the_pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Descriptor, "load_captured_tables", lambda _: lambda *_: CapturedTables((), "0/0", None))  # type: ignore[arg-type]
    monkeypatch.setattr(lineage, "BEGIN_SECONDS", 0.01)
    monkeypatch.setattr(lineage, "LOOK_SECONDS", 0.01)
    with WebServer() as web:
        file = tmp_path / "openlineage.yml"
        file.write_text(f"transport:\n  type: http\n  url: {web.url}\n")
        named = {"openlineage.integration.enabled": "true", "openlineage.integration.config.file.path": str(file)}
        with pytest.raises(SinkError), Monitor(run(tmp_path, **named)):
            raise SinkError("The table is gone.", "Create it.")
        events = [json.loads(body) for body in web.bodies]
    assert (events[0]["eventType"], events[-1]["eventType"]) == ("START", "FAIL")
    assert events[-1]["job"]["name"] == "shop.0"


def test_a_query_that_works_is_alive_and_one_that_fails_to_answer_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitors, "BEAT_SECONDS", 0.001)
    beats: list[str] = []
    asked: list[bool] = []

    def works() -> bool:
        asked.append(True)
        if len(asked) == 2:
            raise ConnectionError
        return len(asked) == 3

    with Monitor(run(tmp_path)) as shown:
        monkeypatch.setattr(type(shown.observation), "beat", lambda self: beats.append("beat"))
        shown.follow(works)
        until = time.monotonic() + 10
        while len(asked) < 5 and time.monotonic() < until:
            time.sleep(0.001)
    assert len(asked) >= 5
    assert beats == ["beat"]


def test_without_a_connector_nothing_is_known_of_offsets() -> None:
    assert described("")({}, {}) == described("")({"a": 1}, {})
