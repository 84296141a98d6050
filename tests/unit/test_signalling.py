"""`tailrace signal` makes the signal that its arguments describe, and sends it where it will be read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tailrace.command import cli
from tailrace.connectors.registry import parse
from tailrace.connectors.signalling import send
from tailrace.snapshot.channels import FileChannel
from tailrace.snapshot.signals import ExecuteSnapshot, LogMessage, Signal, StopSnapshot, read

SOURCE = {"database.hostname": "h", "database.user": "u", "database.dbname": "d", "topic.prefix": "p"}
NOWHERE = "database.hostname=127.0.0.1\ndatabase.port=1\ndatabase.user=u\ndatabase.dbname=d\ndatabase.password=s3cret\n"


def write(folder: Path, text: str = "") -> str:
    path = folder / "connector.properties"
    path.write_text(f"{NOWHERE}signal.enabled.channels=file\nsignal.file={folder / 'signals'}\n{text}")
    return str(path)


def sent(folder: Path, *arguments: str) -> Signal:
    assert cli.main(["signal", arguments[0], write(folder), *arguments[1:]]) == 0
    found = [signal for signal, _ in FileChannel(folder / "signals").poll(None) if signal]
    return found[-1]


def test_everything_that_a_snapshot_can_ask_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tables = ("--table", "public.a", "--table", r"public\.b.*", "--surrogate-key", "n", "--type", "incremental")
    filters = ("--filter", "public.a=id = 1", "--filter", '"public"."x=y" = id > 2')
    signal = sent(tmp_path, "execute-snapshot", *tables, *filters, "--id", "one")
    assert read(signal) == ExecuteSnapshot(
        "one",
        False,
        ("public.a", r"public\.b.*"),
        (("public.a", "id = 1"), ('"public"."x=y"', "id > 2")),
        "n",
    )
    assert capsys.readouterr().out == f"execute-snapshot one: a line of {tmp_path / 'signals'}.\n"
    blocking = read(sent(tmp_path, "execute-snapshot", "--table", "a.b", "--type", "blocking"))
    assert isinstance(blocking, ExecuteSnapshot)
    assert blocking.blocking


def test_the_other_signals(tmp_path: Path) -> None:
    assert read(sent(tmp_path, "stop-snapshot", "--id", "1")) == StopSnapshot("1", ())
    assert read(sent(tmp_path, "stop-snapshot", "--table", "a.b", "--id", "2")) == StopSnapshot("2", ("a.b",))
    assert read(sent(tmp_path, "log", "--message", "at {}", "--id", "3")) == LogMessage("3", "at {}")
    for action in ("pause-snapshot", "resume-snapshot"):
        signal = sent(tmp_path, action)
        assert (signal.type, signal.data) == (action, None)
        assert len(signal.id) == 36
    assert len((tmp_path / "signals").read_text().splitlines()) == 5


def test_a_line_that_was_not_finished_stays_a_line_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "signals").write_text('{"half')
    sent(tmp_path, "pause-snapshot", "--id", "x")
    lines = (tmp_path / "signals").read_text().splitlines()
    assert lines[0] == '{"half'
    assert json.loads(lines[1]) == {"id": "x", "type": "pause-snapshot"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["execute-snapshot"], "execute-snapshot needs --table"),
        (["log"], "log needs --message"),
        (["pause-snapshot", "--table", "a.b"], "--table does not belong to pause-snapshot"),
        (["stop-snapshot", "--surrogate-key", "n"], "--surrogate-key does not belong to stop-snapshot"),
        (["execute-snapshot", "--table", "a.b", "--filter", "a.b"], "--filter has no NAME=SQL"),
        (["execute-snapshot", "--table", "a.b", "--filter", "=id > 1"], "--filter has no NAME=SQL"),
        (["execute-snapshot", "--table", "a.(b"], "is not a regular expression"),
        (["execute-snapshot", "--table", " "], "must be a list of table names"),
        (["log", "--message", "x", "--channel", "kafka"], "The channel kafka is not enabled"),
        (["log", "--message", "x", "--channel", "source"], "The channel source is not enabled"),
    ],
)
def test_a_mistake_is_told_before_anything_is_sent(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["signal", arguments[0], write(tmp_path), *arguments[1:]]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "signals").exists()


@pytest.mark.parametrize(
    ("names", "said"), [([" "], "must be a list of table names"), (["a.(b"], "is not a regular expression")]
)
def test_a_name_that_no_pipeline_would_take_is_refused(
    names: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for action in ("add", "remove", "resnapshot", "pause", "resume"):
        assert cli.main(["tables", action, write(tmp_path), *names]) == 2, action
        err = capsys.readouterr().err
        assert "The signal would be refused: " in err
        assert said in err
    assert not (tmp_path / "signals").exists()


@pytest.mark.parametrize("data", ["", "no json", "[1]"])
def test_data_that_a_signal_does_not_need_hinder_no_channel(tmp_path: Path, data: str) -> None:
    given = {**SOURCE, "signal.enabled.channels": "file", "signal.file": str(tmp_path / "signals")}
    send(parse("postgres", given), Signal("one", "pause-snapshot", data))
    ((found, _),) = FileChannel(tmp_path / "signals").poll(None)
    assert found == Signal("one", "pause-snapshot", data)


def test_a_configuration_without_a_channel_is_told_what_to_set(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "connector.properties"
    path.write_text(NOWHERE)
    assert cli.main(["signal", "pause-snapshot", str(path)]) == 2
    assert "Name a table in signal.data.collection, or kafka or file" in capsys.readouterr().err


def test_failures_of_channels_have_their_exit_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = write(tmp_path, "signal.data.collection=public.signals\n")
    text = Path(table).read_text().replace("channels=file", "channels=file,source")
    Path(table).write_text(text)
    # The signal table comes first.
    assert cli.main(["signal", "pause-snapshot", table]) == 3
    said = capsys.readouterr().err
    assert "Nothing listens at 127.0.0.1:1." in said
    assert "s3cret" not in said
    assert cli.main(["signal", "pause-snapshot", table, "--channel", "file"]) == 0
    folder = write(tmp_path)
    Path(folder).write_text(f"{NOWHERE}signal.enabled.channels=file\nsignal.file={tmp_path}\n")
    assert cli.main(["signal", "pause-snapshot", folder]) == 2
    assert "cannot be written" in capsys.readouterr().err
