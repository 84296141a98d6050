"""`tailrace remove`: each part is named and asked for, what may be another's stays, and the checkpoint goes last."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tailrace import sinks
from tailrace.command import remove
from tailrace.config import Config
from tailrace.connectors import registry
from tailrace.connectors.descriptor import Descriptor
from tailrace.connectors.removal import Removable, Removal
from tailrace.errors import ConfigError, PrerequisiteError, TailraceError
from tailrace.spark.lock import CheckpointLock
from tests.unit.test_cli import NOWHERE, write

SLOT = Removable("the replication slot s", "select pg_drop_replication_slot('s')")
OTHERS = Removable("the publication p", "drop publication p", "Other slots of this database may be read by it: x.")


class Server:
    """A server with two parts, which refuses statements if it is told to."""

    def __init__(self, *, refuses: bool = False) -> None:
        self.refuses = refuses
        self.removed: list[str] = []

    def found(self, config: Config, offset: Mapping[str, Any] | None) -> list[Removable]:
        assert offset == {"log": 1}
        return [SLOT, OTHERS]

    def remove(self, config: Config, part: Removable) -> None:
        if self.refuses:
            raise PrerequisiteError("PostgreSQL refuses a statement: must be owner.")
        self.removed.append(part.statement)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    made = Server()
    monkeypatch.setattr(Descriptor, "load_removal", lambda _: Removal(made.found, made.remove))
    return made


def pipeline(folder: Path) -> tuple[Any, Path]:
    state = folder / "state"
    (state / "offsets").mkdir(parents=True)
    (state / "tailrace-status.json").touch()
    (state / "offsets" / "0").write_text('v1\n{}\n{"log":1}\n')
    overrides = {"debezium.sink.type": "noop", "checkpoint.location": str(state)}
    return registry.read(write(folder, NOWHERE + "topic.prefix=t\n"), overrides, sinks=sinks.names()), state


def test_what_is_the_pipelines_own_goes_and_the_rest_is_named(
    tmp_path: Path, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    run, state = pipeline(tmp_path)
    assert remove.run(run, yes=True) == 0
    assert server.removed == [SLOT.statement]
    assert not state.exists()
    assert capsys.readouterr().out.splitlines() == [
        "removed  the replication slot s",
        "left     the publication p: Other slots of this database may be read by it: x.",
        "         → drop publication p;",
        f"removed  the checkpoint {state}",
    ]


def test_each_part_is_asked_for_and_the_checkpoint_stays_with_what_is_left(tmp_path: Path, server: Server) -> None:
    run, state = pipeline(tmp_path)
    asked: list[str] = []

    def no(question: str) -> str:
        asked.append(question)
        return ""

    assert remove.run(run, yes=False, ask=no) == 4
    assert asked == ["Remove the replication slot s? [y/N] "]
    assert not server.removed
    assert state.exists()
    assert remove.run(run, yes=False, ask=lambda question: "y") == 0
    assert not state.exists()


def test_a_part_that_the_server_does_not_give_up_keeps_the_checkpoint(
    tmp_path: Path, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    run, state = pipeline(tmp_path)
    server.refuses = True
    assert remove.run(run, yes=True) == 4
    assert state.exists()
    assert "left     the replication slot s: PostgreSQL refuses a statement: must be owner." in capsys.readouterr().out


def test_nothing_is_removed_while_a_run_has_the_checkpoint_or_there_is_nobody_to_ask(
    tmp_path: Path, server: Server
) -> None:
    run, state = pipeline(tmp_path)
    with pytest.raises(ConfigError, match="there is no terminal"):
        remove.run(run, yes=False)
    lock = CheckpointLock(state)
    lock.acquire(0)
    with pytest.raises(TailraceError, match="in use by another run"):
        remove.run(run, yes=True)
    lock.release()
    assert not server.removed


def test_a_directory_with_other_files_is_left(
    tmp_path: Path, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    run, state = pipeline(tmp_path)
    (state / "thesis.doc").touch()
    assert remove.run(run, yes=True) == 4
    assert (state / "thesis.doc").exists()
    assert "files that are not a checkpoint's: thesis.doc" in capsys.readouterr().out


def test_a_checkpoint_that_is_not_there_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Descriptor, "load_removal", lambda _: None)
    run, state = pipeline(tmp_path)
    shutil.rmtree(state)
    assert remove.run(run, yes=True) == 0
    assert capsys.readouterr().out == f"gone     the checkpoint {state}: there is no such directory.\n"
