"""Commands about tables: over which lists they hold, and which connectors have them."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from tailrace.command import cli
from tailrace.config import Config
from tailrace.connectors.registry import parse
from tailrace.errors import ConfigError
from tailrace.snapshot.incremental import Collection, Cursor, IncrementalSnapshot, Notifications, PausedTable
from tailrace.snapshot.progress import NO_PROGRESS, Progress
from tailrace.snapshot.signal_handler import SignalHandler
from tailrace.snapshot.signals import Signal
from tailrace.snapshot.table_commands import NO_COMMANDS, TableCommands, settled

A, B, C = ("s", "a"), ("s", "b"), ("s", "c")


def config(include: str = "s.a,s.b", **more: str) -> Config:
    given = {"database.hostname": "h", "database.user": "u", "database.dbname": "d", "topic.prefix": "p"}
    return parse("postgres", given | {"table.include.list": include, **more})


def test_a_command_that_is_taken_back_leaves_nothing() -> None:
    lists = config()
    commands = NO_COMMANDS.adding([C], lists).removing([A], lists)
    assert (commands.added, commands.removed) == ((C,), (A,))
    back = commands.removing([C], lists).adding([A], lists)
    assert (back.added, back.removed) == ((), ())
    progress = Progress(commands=commands)
    assert Progress.from_json(json.loads(json.dumps(progress.to_json()))) == progress
    assert "tables" not in NO_PROGRESS.to_json()


def test_commands_hold_over_the_lists_that_they_were_given_over() -> None:
    commands = NO_COMMANDS.adding([C], config()).removing([A], config())
    assert settled(commands, config()) == commands
    # other lists that say the same take over
    assert settled(commands, config("s.b,s.c")) == NO_COMMANDS
    with pytest.raises(ConfigError) as caught:
        settled(commands, config("s.a,s.b,s.d"))
    assert "added s.c, which the lists leave out; tailrace tables remove has removed s.a, which the lists name" in str(
        caught.value
    )
    assert settled(commands, config("s.a,s.b,s.d", **{"table.commands": "lists"})) == NO_COMMANDS
    kept = settled(commands, config("s.a,s.b,s.d", **{"table.commands": "commands"}))
    assert (kept.added, kept.removed) == ((C,), (A,))
    assert settled(kept, config("s.a,s.b,s.d")) == kept
    # one that agrees is dropped, and the other one contradicts
    with pytest.raises(ConfigError, match=r"has removed s\.a"):
        settled(commands, config("s.a,s.c"))
    assert settled(TableCommands((C,), (), commands.lists), config("s.c")) == NO_COMMANDS


def test_a_connector_that_cannot_add_tables_says_so(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    handler = SignalHandler(lambda: [A], Notifications("p"), lambda sql: "")
    for kind in ("add-tables", "remove-tables"):
        found = handler.handle(Signal("1", kind, '{"data-collections": ["s.a"]}'), "", NO_PROGRESS, None)
        assert found == (NO_PROGRESS, None, [])
    assert caplog.text.count("this pipeline cannot add or remove tables while it runs") == 2


def test_the_command_refuses_other_databases_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "application.properties"
    place = {"hostname": "h", "user": "u", "names": "d"}
    lines = [f"debezium.source.database.{name}={text}" for name, text in place.items()]
    lines += ["debezium.source.connector.class=SqlServer", "debezium.source.topic.prefix=p"]
    lines += ["debezium.sink.type=console", "debezium.source.name=n"]
    file.write_text("\n".join(lines))
    assert cli.main(["tables", "add", str(file), "dbo.t"]) == 2
    assert "The tables of a pipeline from SQL Server cannot be" in capsys.readouterr().err


def test_the_command_sends_a_signal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, signals = tmp_path / "application.properties", tmp_path / "signals"
    lines = [f"debezium.source.database.{name}=x" for name in ("hostname", "user", "dbname")]
    lines += ["debezium.source.connector.class=PostgreSQL", "debezium.source.topic.prefix=p"]
    lines += ["debezium.source.signal.enabled.channels=file", f"debezium.source.signal.file={signals}"]
    lines += ["debezium.sink.type=console", "debezium.source.name=n"]
    file.write_text("\n".join(lines))
    for action, kind in (("add", "add-tables"), ("remove", "remove-tables"), ("resnapshot", "execute-snapshot")):
        assert cli.main(["tables", action, str(file), "s.a", "s.b"]) == 0
        sent = json.loads(signals.read_text().splitlines()[-1])
        assert sent["type"] == kind
        data = sent["data"] if isinstance(sent["data"], dict) else json.loads(sent["data"])
        assert data["data-collections"] == ["s.a", "s.b"]
    assert cli.main(["tables", "add", str(file)]) == 2
    assert "needs the name of a table" in capsys.readouterr().err


def test_a_paused_table_that_is_stopped_beside_a_snapshot_of_others_is_told() -> None:
    held = PausedTable(Collection(*B), Cursor(("1",), ("9",), 1))
    progress = Progress(state=IncrementalSnapshot("1", (Collection(*A),)), held=(held,))
    handler = SignalHandler(lambda: [A, B], Notifications("p"), lambda sql: "")
    after, _, (note,) = handler.handle(
        Signal("2", "stop-snapshot", '{"data-collections": ["s.b"]}'), "", progress, None
    )
    assert (after.state, after.held) == (progress.state, ())
    assert (note.type, dict(note.data)["data_collections"]) == ("ABORTED", "s.b")
    # a signal that names no table stops all of them
    after, _, (note,) = handler.handle(Signal("2", "stop-snapshot", None), "", progress, None)
    assert (after.state, after.held, note.type) == (None, (), "ABORTED")
