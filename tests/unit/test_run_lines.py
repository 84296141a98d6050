"""Lines of `tailrace run`: its opening, its phases, what a stop waits for; and which parts it does not reach."""

from __future__ import annotations

import logging
import re
import socket
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from tailrace import pipeline, sinks
from tailrace.command import cli, reachable_parts
from tailrace.command import run as running
from tailrace.command.phases import Phases
from tailrace.command.stop_request import StopRequest
from tailrace.connectors import registry
from tailrace.connectors.postgres.status import describe
from tailrace.errors import ConnectionFailed
from tailrace.process import reachability
from tests.unit.test_cli import NOWHERE, progress, write


def read(folder: Path, **entries: str) -> Any:
    overrides = {name.replace("__", "."): text for name, text in entries.items()}
    return registry.read(write(folder, NOWHERE + "topic.prefix=t\n"), overrides, sinks=sinks.names())


def test_a_run_says_what_it_starts_and_what_it_does_first(tmp_path: Path) -> None:
    state = tmp_path / "state"
    run = read(tmp_path, debezium__sink__type="noop", checkpoint__location=str(state))
    sink = sinks.open("noop", {}, run.source)
    first, second = running.opening(run, sink)
    assert first == "Pipeline t: from PostgreSQL at 127.0.0.1:1 to noop, events of format 3, at least once."
    assert second == f"The checkpoint {state} is new: the run reads the existing rows first, and then the log."
    never = read(tmp_path, checkpoint__location=str(state), snapshot__mode="no_data")
    assert running.opening(never, sink)[1].endswith("reads the log from its present end, and no existing rows.")
    (state / "offsets").mkdir(parents=True)
    offset = '{"log":{"commit":"0/10","end":"1/20"}}'
    (state / "offsets" / "4").write_text(f"v1\n{{}}\n{offset}\n")
    assert running.opening(run, sink)[1] == f"The checkpoint {state} exists: the run goes on from 1/20."


def test_a_phase_is_told_when_it_takes_long_and_at_its_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tailrace")
    now = [100.0]
    phases = Phases(describe, lambda: now[0])
    phases.begin("starting Spark")
    now[0] += 4.4
    phases.look()
    assert not caplog.messages
    now[0] += 0.2
    phases.look()
    phases.look()
    now[0] += 1
    phases.end("Spark is ready")
    now[0] += 60
    phases.look()
    assert caplog.messages == ["Still starting Spark: 5 s so far.", "Spark is ready, 5.6 s."]


def test_a_short_phase_is_no_reason_for_silence(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tailrace")
    now = [0.0]
    phases = Phases(describe, lambda: now[0])
    phases.begin("starting Spark")
    now[0] = 4.0
    phases.look()
    phases.begin("waiting for the database and the sink")
    now[0] = 4.6
    phases.look()
    assert caplog.messages == ["Still waiting for the database and the sink: 1 s so far."]


def test_the_first_batch_and_the_end_of_the_snapshot_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tailrace")
    now = [0.0]
    phases = Phases(describe, lambda: now[0])
    phases.begin("waiting for the first batch")
    now[0] = 12.25
    phases.progress(progress())
    phases.progress(progress(batchId=4))
    phases.idle()
    assert caplog.messages == ["The first batch is delivered: 1,200 events, 12.2 s after the start."]


def test_nothing_to_deliver_is_told_too(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tailrace")
    phases = Phases(describe, lambda: 0.0)
    phases.begin("waiting for the first batch")
    phases.idle()
    phases.idle()
    assert caplog.messages == ["There is nothing to deliver yet, so the run waits for changes, 0.0 s."]


def test_a_stop_during_the_start_is_answered_at_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tailrace")
    started: Future[str] = Future()
    with StopRequest() as stop:
        stop.postpone()
        threading.Timer(0.05, lambda: stop._handle(2, None)).start()
        began = time.monotonic()
        ended = []

        def end() -> None:
            ended.append(time.monotonic() - began)
            started.set_result("ended")

        assert running._await(started, stop, "Spark, which is starting, is ended", end) == "ended"
    assert ended[0] < 1
    (said,) = caplog.messages
    assert said == "Stopping: Spark, which is starting, is ended. A second Ctrl-C ends the run at once."


@pytest.fixture
def silent() -> Any:
    """A place that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[:2]


def test_what_is_not_reached_is_told_within_the_time(silent: tuple[str, int]) -> None:
    began = time.monotonic()
    asked = lambda connection, _: connection.recv(1)  # noqa: E731
    assert reachability.fault([silent], 0.2, asked) == f"127.0.0.1:{silent[1]}: no answer within 0 s"
    assert time.monotonic() - began < 5
    assert reachability.fault([silent, ("127.0.0.1", 1)], 1) == ""
    assert reachability.fault([("127.0.0.1", 1)], 1) == "127.0.0.1:1: Connection refused"


@pytest.mark.parametrize(
    ("sink", "options"),
    [
        ("http", {"url": "http://127.0.0.1:1/x"}),
        ("redis", {"address": "127.0.0.1:1"}),
        ("nats-jetstream", {"url": "nats://127.0.0.1:1"}),
        ("jdbc", {"connection.url": "jdbc:postgresql://127.0.0.1:1/d"}),
        ("kafka", {"producer.bootstrap.servers": "127.0.0.1:1"}),
    ],
)
def test_a_destination_that_is_away_is_an_error_of_check_and_of_the_start(
    tmp_path: Path, sink: str, options: dict[str, str]
) -> None:
    run = read(tmp_path, debezium__sink__type="noop", connect__timeout__ms="1000")
    made = sinks.open(sink, options)
    (finding,) = reachable_parts.findings(run, made, {})
    assert finding.level == "error"
    assert "127.0.0.1:1: Connection refused" in finding.text
    with pytest.raises(ConnectionFailed, match="Connection refused"):
        reachable_parts.demand(run, made, {}, local=True)
    assert [one.level for one in reachable_parts.demand(run, made, {}, local=False)] == ["error"]


def test_registries_stores_and_the_brokers_of_signals_are_asked_too(tmp_path: Path, monkeypatch: Any) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    run = read(
        tmp_path, debezium__sink__type="noop", connect__timeout__ms="1000", signal__enabled__channels="kafka",
        value__converter="io.confluent.connect.avro.AvroConverter", checkpoint__location="s3a://bucket/state",
        value__converter__schema__registry__url="http://127.0.0.1:1", signal__kafka__bootstrap__servers="127.0.0.1:2",
    )  # fmt: skip
    conf = {"spark.hadoop.fs.s3a.endpoint": "http://127.0.0.1:3"}
    found = {one.subject: (one.level, one.text) for one in reachable_parts.findings(run, sinks.open("noop", {}), conf)}
    assert found == {
        "registry": ("error", "The registry is not reached: 127.0.0.1:1: Connection refused."),
        "store": ("error", "The store is not reached: 127.0.0.1:3: Connection refused."),
        "signals": (
            "warning",
            "The brokers of the channel for signals do not answer: 127.0.0.1:2: Connection refused.",
        ),
    }


def test_the_form_of_the_log_is_that_of_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, NOWHERE + "log.format=json\nslot.nmae=x\n")
    assert cli.main(["run", path]) == 2
    assert re.search(r'"message": "slot\.nmae is not an option.*"exit_code": 2', capsys.readouterr().err)


def test_version_and_completion(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert not ended.value.code
    assert "PySpark 4." in capsys.readouterr().out
    for shell in ("bash", "zsh", "fish"):
        assert cli.main(["completion", shell]) == 0
        assert "verify" in capsys.readouterr().out


def test_verify_finds_a_missing_channel_before_it_compares(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sink = ["--set", "debezium.sink.type=tables", "--set", f"debezium.sink.tables.path={tmp_path}"]
    assert cli.main(["verify", write(tmp_path, NOWHERE + "topic.prefix=t\n"), *sink, "--repair"]) == 2
    assert "The configuration has no channel for signals." in capsys.readouterr().err


def test_the_names_of_the_package_for_spark_are_listed() -> None:
    from tailrace import spark

    assert {"data_source", "options", "register"} <= set(dir(spark))


def test_a_stop_while_the_server_is_checked_is_answered_before_the_jvm_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    said: list[str] = []

    def interrupted(*_: object, **__: object) -> None:
        raise SystemExit(0)

    monkeypatch.setattr(pipeline.Pipeline, "begin", lambda self: None)
    monkeypatch.setattr(pipeline.Pipeline, "stop", lambda self, **_: said.append(caplog.messages[-1]))
    monkeypatch.setattr(running, "_check", interrupted)
    path = write(tmp_path, NOWHERE + f"topic.prefix=t\ncheckpoint.location={tmp_path}/state\n")
    with caplog.at_level("INFO"), pytest.raises(SystemExit):
        cli.main(["run", path])
    assert said[0] == "Stopping: nothing was started yet. A second Ctrl-C ends the run at once."
