"""The command: exit codes, messages without stack traces, the status line, what the console shows."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tailrace import errors, sinks
from tailrace.command import cli
from tailrace.command.stop_request import StopRequest
from tailrace.connectors import registry
from tailrace.connectors.postgres.status import describe
from tailrace.errors import (
    ConnectionFailed,
    ConversionError,
    DiskFailed,
    PositionLost,
    PrerequisiteError,
    SinkError,
    TailraceError,
)
from tailrace.monitoring.failures import cause, recognise
from tailrace.monitoring.status import METRIC, Status, StatusLine
from tailrace.pipeline import Pipeline
from tailrace.process import disk
from tailrace.sinks.console import render
from tailrace.spark import session
from tailrace.spark.lock import CheckpointLock
from tailrace.verify import arguments as verifying

NOWHERE = "database.hostname=127.0.0.1\ndatabase.port=1\ndatabase.user=u\ndatabase.dbname=d\ndatabase.password=s3cret\n"


def write(folder: Path, text: str) -> str:
    path = folder / "connector.properties"
    path.write_text(text)
    return str(path)


def test_a_wrong_option_is_one_message_and_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", write(tmp_path, NOWHERE + "slot.nmae=x\n")]) == 2
    said = capsys.readouterr().err
    assert "slot.nmae is not an option; the nearest is slot.name" in said
    assert "Traceback" not in said


def test_a_secret_comes_from_a_file_and_not_from_the_list_of_processes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, NOWHERE)
    word = tmp_path / "word"
    word.write_text("hun${ter}2\n")
    parser = cli._parser()
    given = parser.parse_args(["check", path, "--set-file", f"database.password={word}"])
    assert cli._read(given).source["database.password"] == "hun${ter}2"
    assert cli._read(parser.parse_args(["check", path, "--set", "database.password=${env:PATH}"]))
    assert "--set-file" not in caplog.text
    # The text is in no line of this file, which a stack trace would show.
    secret = "".join(("hunter", "2"))
    assert cli._read(parser.parse_args(["check", path, "--set", f"database.password={secret}"]))
    assert caplog.text.count("use --set-file database.password=PATH") == 1
    for wrong in (["--set", secret], ["--set-file", secret], ["--set-file", f"database.password={tmp_path}"]):
        assert cli.main(["check", path, *wrong]) == 2
    assert secret not in caplog.text + capsys.readouterr().err


def test_an_unknown_sink_is_told_with_those_there_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", write(tmp_path, NOWHERE), "--set", "debezium.sink.type=kinesis"]) == 8
    known = "kafka, file, parquet, console, noop, http, redis, nats-jetstream, jdbc, tables"
    assert f"Known: {known}." in capsys.readouterr().err


def test_a_server_that_is_not_there_is_exit_code_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("check", "run"):
        assert cli.main([command, write(tmp_path, NOWHERE)]) == 3
        said = capsys.readouterr().err
        assert "Nothing listens at 127.0.0.1:1." in said
        assert "s3cret" not in said


def test_debug_shows_the_stack(tmp_path: Path) -> None:
    with pytest.raises(ConnectionFailed):
        cli.main(["check", write(tmp_path, NOWHERE), "--debug"])


def test_what_was_not_expected_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(name: str) -> Any:
        raise ZeroDivisionError("by zero\nsecond line")

    monkeypatch.setattr("tailrace.command.cli.importlib.import_module", fail)
    assert cli.main(["demo"]) == 1
    said = capsys.readouterr().err
    assert "ZeroDivisionError: by zero" in said
    assert "second line" not in said


def test_verify_keeps_its_1_for_tables_that_differ(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(arguments: Any, opening: str = "") -> Any:
        raise ValueError("something")

    monkeypatch.setattr(cli, "_read", fails)
    assert cli.main(["verify", "there.properties"]) == 13
    assert cli.main(["run", "there.properties"]) == 1
    monkeypatch.undo()
    # Before Spark starts.
    assert cli.main(["verify", write(tmp_path, NOWHERE)]) == 2
    assert "compares the tables of debezium.sink.type=tables" in capsys.readouterr().err


def test_version_names_the_engine(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["version"]) == 0
    assert "PySpark 4." in capsys.readouterr().out


def test_every_error_has_a_documented_exit_code() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, TailraceError)]
    codes = {kind.exit_code for kind in kinds}
    assert verifying.FAILED not in codes
    assert codes | {verifying.FAILED} == set(range(1, len(codes) + 2))
    # A class without a code of its own has its base class's.
    own = [kind for kind in kinds if "exit_code" in vars(kind)]
    assert len(own) == len(codes)
    assert all(f" {code}  " in cli._EXIT_CODES for code in codes)


def test_an_error_out_of_spark_is_found_in_the_text() -> None:
    text = """[STREAM_FAILED] Query terminated with exception: [PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed:
Traceback (most recent call last):
  File "/x/planner.py", line 3, in latest_offset
    raise PositionLost(
tailrace.errors.PositionLost: The slot is gone. Delete the checkpoint.
 SQLSTATE: 38000
	at org.apache.spark.sql.execution.Runner.latestOffset(Runner.scala:235)
Caused by: tailrace.errors.SinkError: another one"""
    found = recognise(text)
    assert isinstance(found, PositionLost)
    assert str(found) == "The slot is gone. Delete the checkpoint."
    assert recognise("java.io.EOFException: nothing of ours") is None
    assert recognise("tailrace.errors.NoSuchError: x") is None


def test_an_error_of_several_lines_is_found_whole() -> None:
    found = recognise("tailrace.errors.ConfigError: There are 2 faults:\n  - one\n  - two\n\n\tat org.apache.X")
    assert found is not None
    assert found.message == "There are 2 faults:\n  - one\n  - two"


def test_kafkas_own_exceptions_are_the_sinks() -> None:
    text = "Caused by: org.apache.kafka.common.errors.TimeoutException: Topic t not present after 60000 ms."
    found = recognise(text, sinks.open("kafka", {"producer.bootstrap.servers": "b"}).failure)
    assert recognise(text, sinks.open("console", {}).failure) is None
    assert isinstance(found, SinkError)
    assert "Topic t not present" in found.message


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("tailrace.connectors.postgres.log.endings.SlotInUse: The slot is in use. Stop it.", PrerequisiteError),
        ("tailrace.connectors.postgres.log.gears.StreamEnded: closed", ConnectionFailed),
        ("tailrace.formats.avro.values.NullError: a null", ConversionError),
        ("tailrace.errors.StatementCutOff: too long", ConnectionFailed),
    ],
)
def test_an_error_of_any_room_is_one_of_those_with_an_exit_code(text: str, kind: type[TailraceError]) -> None:
    found = recognise(f"Traceback\n{text}\n\tat org.apache.X")
    assert isinstance(found, kind)
    assert found.exit_code == kind.exit_code
    assert found.message == text.partition(": ")[2]


def test_other_names_of_ours_are_no_errors() -> None:
    assert recognise("tailrace.no.such.Room: x") is None
    assert recognise("tailrace.snapshot.windows.WindowVoid: x") is None


def test_the_cause_is_found_behind_other_exceptions() -> None:
    inner = SinkError("no sink", "find one")
    outer = RuntimeError("outside")
    outer.__cause__ = inner
    assert cause(outer) is inner
    assert cause(RuntimeError("nothing")) is None


def progress(**changes: Any) -> dict[str, Any]:
    source = {
        "endOffset": {"log": {"commit": "0/10", "end": "1/20"}},
        "latestOffset": {"log": {"commit": "0/0", "end": "0/0", "idle": "1/5DC"}},
    }
    return {
        "batchId": 3,
        "numInputRows": 1200,
        "processedRowsPerSecond": 600.4,
        "timestamp": "2026-01-01T00:00:02.500Z",
        "observedMetrics": {METRIC: {"newest_us": 1767225600_000_000}},
        "sources": [source],
    } | changes


def test_the_status_reads_rate_lag_and_position() -> None:
    status = Status.of(progress(), describe)
    assert status.lag_bytes == 0x5DC - 0x20
    assert status.lag_s == pytest.approx(2.5)
    assert status.position == "1/20"
    assert status.line(1200) == "600 events/s · 1,200 in all · lag 1.5 kB / 2.5 s · batch 3 · at 1/20"


def test_the_status_leaves_out_what_is_not_known() -> None:
    bare = progress(sources=[{"endOffset": None}], observedMetrics={}, processedRowsPerSecond="NaN")
    assert Status.of(bare, describe).line(0) == "0 events/s · 0 in all · batch 3"
    assert Status.of({}, describe).line(0) == "0 events/s · 0 in all · batch 0"


def test_the_status_counts_what_was_put_aside() -> None:
    aside = progress(observedMetrics={METRIC: {"newest_us": 1767225600_000_000, "quarantined": 2}})
    assert " · 2 quarantined · batch 3" in Status.of(aside, describe).line(0)
    left_out = progress(sources=[{"latestOffset": '{"log":{"end":"0/0"},"unchanged":4}'}])
    assert " · 4 unchanged left out · batch 3" in Status.of(left_out, describe).line(0)


def test_without_a_terminal_a_line_comes_every_ten_seconds() -> None:
    now = [0.0]
    out = io.StringIO()
    line = StatusLine(describe, out, lambda: now[0])
    line.update(progress())
    line.update(progress(batchId=4))
    now[0] = 9.9
    line.update(None)
    assert out.getvalue().count("\n") == 1
    now[0] = 10.0
    line.update(None)
    assert out.getvalue().count("\n") == 2
    assert "2,400 in all · lag 1.5 kB / 2.5 s · batch 4" in out.getvalue().splitlines()[1]
    line.close()
    assert out.getvalue().count("\n") == 2


def test_the_last_state_is_written_at_the_end() -> None:
    out = io.StringIO()
    line = StatusLine(describe, out, lambda: 0.0)
    line.update(progress())
    line.update(progress(batchId=4, numInputRows=1))
    line.close()
    assert out.getvalue().splitlines()[-1].startswith("600 events/s · 1,201 in all")


def test_a_terminal_gets_one_line_that_is_rewritten() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    out = Terminal()
    line = StatusLine(describe, out)
    line.update(progress())
    line.update(progress(numInputRows=0, processedRowsPerSecond=0.0))
    line.close()
    assert out.getvalue().count("\r") == 2
    assert out.getvalue().count("\n") == 1


def test_the_first_signal_asks_and_the_second_leaves() -> None:
    left: list[int] = []
    before = signal.getsignal(signal.SIGTERM)
    with StopRequest(left.append) as interruption:
        interruption.postpone()
        os.kill(os.getpid(), signal.SIGTERM)
        assert interruption.wait(5)
        assert left == []
        os.kill(os.getpid(), signal.SIGINT)
        assert left == [130]
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_signal_before_the_query_runs_ends_the_command() -> None:
    def interrupted() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        signal.pause()

    with StopRequest(), pytest.raises(SystemExit) as caught:
        interrupted()
    assert caught.value.code == 0


def event(payload: dict[str, Any]) -> bytes:
    return json.dumps({"schema": {}, "payload": payload}).encode()


def test_the_console_shows_what_an_update_changes() -> None:
    value = event({"before": {"id": 1, "a": "x", "b": 2}, "after": {"id": 1, "a": "y", "b": 2}, "op": "u"})
    assert render("u", "p.s.t", event({"id": 1}), value, colour=False) == "update     p.s.t  [id=1]  a: x → y"


def test_the_console_shows_columns_keys_and_tombstones() -> None:
    created = render("c", "p.s.t", b'{"id":1}', b'{"before":null,"after":{"id":1,"n":1.10},"op":"c"}', colour=False)
    assert created == "create     p.s.t  [id=1]  id=1  n=1.10"
    assert render("tombstone", "p.s.t", b'{"id":1}', None, colour=False) == "tombstone  p.s.t  [id=1]"
    assert render("t", "p.s.t", None, event({"op": "t"}), colour=False) == "truncate   p.s.t  [no key]"


def test_the_console_is_safe_and_fits() -> None:
    value = event({"after": {"a": "\x1b[2J" + "x" * 200}})
    line = render("c", "p.s.t", None, value, colour=False, width=40)
    assert len(line) == 40
    assert "\x1b" not in render("c", "p.s.t", None, value, colour=False)
    assert render("c", "t", None, value, colour=True).startswith("\x1b[32mcreate\x1b[0m ")


def test_sinks_refuse_what_they_do_not_have() -> None:
    with pytest.raises(SinkError, match=r"needs debezium\.sink\.file\.path"):
        sinks.open("file", {})
    with pytest.raises(SinkError, match=r"The nearest is debezium\.sink\.file\.path"):
        sinks.open("file", {"path": "/x", "pth": "/y"})
    with pytest.raises(SinkError, match="the nearest is parquet"):
        sinks.open("parquett", {})
    with pytest.raises(SinkError, match=r"needs debezium\.sink\.kafka\.producer\.bootstrap\.servers"):
        sinks.open("kafka", {"producer.acks": "all"})
    with pytest.raises(SinkError, match=r"value\.serializer"):
        sinks.open("kafka", {"producer.bootstrap.servers": "b", "producer.value.serializer": "x.AvroSerializer"})


def test_the_kafka_sink_hands_the_producers_options_to_spark() -> None:
    sink = sinks.open(
        "kafka",
        {
            "producer.bootstrap.servers": "b:9092",
            "producer.linger.ms": "5",
            "producer.key.serializer": "org.apache.kafka.common.serialization.StringSerializer",
        },
    )
    assert sink.options == {  # type: ignore[attr-defined]
        "kafka.bootstrap.servers": "b:9092",
        "kafka.linger.ms": "5",
        "kafka.batch.size": "262144",
        "kafka.compression.type": "lz4",
    }


class Launched:
    """A stand-in for a JVM that is starting."""

    def __init__(self) -> None:
        self.ended = 0

    def abandon(self) -> None:
        self.ended += 1


def test_the_jvm_that_starts_early_has_the_settings_that_the_sink_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[dict[str, str]] = []

    def launch(conf: dict[str, str], **_: object) -> Launched:
        given.append(conf)
        return Launched()

    monkeypatch.setattr(session, "launch", launch)
    path = write(tmp_path, NOWHERE + "topic.prefix=t\n")
    sink = ["--set", "debezium.sink.type=tables", "--set", f"debezium.sink.tables.path={tmp_path}"]
    conf = ["--conf", "spark.a=b"]
    assert cli.main(["run", path, *sink, *conf, "--checkpoint", str(tmp_path / "state")]) == 3
    (settings,) = given
    assert settings["spark.a"] == "b"
    assert settings["spark.sql.extensions"] == "io.delta.sql.DeltaSparkSessionExtension"


def test_a_run_whose_server_is_away_ends_the_jvm_that_was_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    launched = Launched()
    files: list[tuple[int, ...]] = []

    def launch(conf: object, *, keep: tuple[int, ...], **_: object) -> Launched:
        files.append(keep)
        return launched

    monkeypatch.setattr(session, "launch", launch)
    checkpoint = tmp_path / "state"
    path = write(tmp_path, NOWHERE + "topic.prefix=t\n")
    given = ["run", path, "--set", "debezium.sink.type=noop", "--checkpoint", str(checkpoint)]
    assert cli.main(given) == 3
    assert "Traceback" not in capsys.readouterr().err
    # It would have held the lock as well, which is free again.
    assert len(files) == 1
    assert len(files[0]) == 1
    assert launched.ended == 1
    lock = CheckpointLock(checkpoint)
    lock.acquire(0)
    lock.release()


@pytest.mark.parametrize("command", ["run", "check", "status", "remove", "tables list", "slots", "verify"])
def test_each_command_about_a_checkpoint_can_be_told_where_it_is(tmp_path: Path, command: str) -> None:
    path = write(tmp_path, NOWHERE + "topic.prefix=t\n")
    given = cli._parser().parse_args([*command.split(), path, "--checkpoint", str(tmp_path / "state")])
    assert cli._read(given).checkpoint == tmp_path / "state"


def test_the_end_of_a_query_ends_the_wait_for_it() -> None:
    with StopRequest() as interruption:
        interruption.wake()
        # Longer than any test may take.
        assert not interruption.wait(100_000)
        # And it ends only that wait.
        assert not interruption.wait(0)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["rnu", "f"], "invalid choice: 'rnu' (choose from 'run', "),
        (["rnu", "f"], " The nearest is run. tailrace --help shows what there is."),
        (["run", "f", "--onec"], "unrecognized arguments: --onec. The nearest is --once. tailrace run --help"),
        # an option of another command is not the nearest
        (["remove", "f", "--once"], "unrecognized arguments: --once. tailrace remove --help"),
        (["signal", "execute-snapshto", "f"], "The nearest is execute-snapshot. tailrace signal --help shows"),
        (["check"], "the following arguments are required: FILE. tailrace check --help shows what there is."),
    ],
)
def test_a_wrong_word_names_the_nearest(capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    with pytest.raises(SystemExit) as left:
        cli.main(words)
    assert left.value.code == 2
    assert said in capsys.readouterr().err


def test_ctrl_c_during_the_imports_ends_without_a_traceback(tmp_path: Path) -> None:
    # the first module that the command imports after its own package
    (tmp_path / "argparse.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); sys.path.insert(0, sys.argv[1])"
    )
    code += "; import tailrace.command; sys.exit(tailrace.command.main())"
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "org.apache.hadoop.fs.FSError: No space left on device\n\tat org.x",
            "No space is left on",
        ),
        ("[Errno 122] Disk quota exceeded", "The quota is used up on"),
        ("java.io.IOException: File too large", "A limit on the size of files is reached on a disk"),
    ],
)
def test_a_disk_that_takes_no_files_is_named_by_what_is_written(tmp_path: Path, text: str, said: str) -> None:
    overrides = {"debezium.sink.type": "file", "debezium.sink.file.path": "/out", "checkpoint.location": "/state"}
    configured = registry.read(write(tmp_path, NOWHERE + "topic.prefix=t\n"), overrides, sinks=sinks.names())
    found = Pipeline(configured).cause(RuntimeError(text))
    assert found is not None
    assert found.message.startswith(said)
    room = r" \(.* MB free\)"
    assert re.search(
        rf"the checkpoint /state{room}, the sink's /out{room} or temporary files in /\S*{room}", found.message
    )
    assert "checkpoint.location or debezium.sink.file.path or TMPDIR" in found.remedy
    assert "nothing is lost" in found.remedy
    assert isinstance(found, DiskFailed)
    assert found.exit_code not in cli.LASTING


def test_of_several_disks_those_without_room_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    places = [disk.Directory("the checkpoint", "/state", "checkpoint.location"), disk.temporary()]
    monkeypatch.setattr(disk, "free", lambda place: 4096 if str(place) == "/state" else 1 << 40)
    found = disk.failure("java.io.IOException: No space left on device", places)
    assert found is not None
    assert found.message == "No space is left on a disk that is written to: the checkpoint /state (0.0 MB free)."
    assert found.remedy.startswith("Make room there, or name another directory in checkpoint.location;")
    # a quota says nothing about what is free
    found = disk.failure("java.io.IOException: Disk quota exceeded", places)
    assert found is not None
    assert " or temporary files in " in found.message


@pytest.mark.parametrize(
    ("text", "named", "option"),
    [
        (
            "java.io.FileNotFoundException: /state/x/y (Read-only file system)",
            "the checkpoint /state",
            "checkpoint.loc",
        ),
        ("OSError: [Errno 28] No space left on device: '/out/part (1)'", "the sink's /out", "debezium.sink.file.path"),
        ("OSError: [Errno 28] No space left on device: '/elsewhere/z'", "the directory /elsewhere", "Make room there."),
    ],
)
def test_a_file_that_the_system_names_tells_the_directory(tmp_path: Path, text: str, named: str, option: str) -> None:
    overrides = {"debezium.sink.type": "file", "debezium.sink.file.path": "/out", "checkpoint.location": "/state"}
    configured = registry.read(write(tmp_path, NOWHERE + "topic.prefix=t\n"), overrides, sinks=sinks.names())
    found = Pipeline(configured).cause(RuntimeError(text))
    assert found is not None
    assert f"that is written to: {named} (" in found.message
    assert " or " not in found.message
    assert option in found.remedy


def test_a_server_that_calls_a_request_too_large_is_no_full_disk() -> None:
    assert disk.failure("HTTP 413: File too large") is None


def test_a_full_disk_outside_of_a_query_has_its_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, NOWHERE + "topic.prefix=t\n")

    def full(*_: object, **__: object) -> str:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/nowhere/made/x")

    monkeypatch.setattr(tempfile, "mkdtemp", full)
    assert cli.main(["run", path, "--checkpoint", str(tmp_path / "state")]) == 11
    said = capsys.readouterr().err
    assert "No space is left on a disk that is written to: the directory /nowhere/made (" in said
    assert "Traceback" not in said
