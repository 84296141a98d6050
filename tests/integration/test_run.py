"""The command runs a pipeline as its users do: in a process of its own, from a file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import fix_invariant
from tests.fix_postgres import Database


def write(folder: Path, database: Database, **more: str) -> Path:
    entries = {f"debezium.source.{name}": text for name, text in database.options(topic_prefix="shop", **more).items()}
    entries["debezium.source.slot.name"] = database.name.lower()
    entries["debezium.source.database.password"] = "${env:DB_PASSWORD}"
    entries["debezium.format.schemas.enable"] = "false"
    entries["debezium.sink.type"] = "file"
    entries["debezium.sink.file.path"] = str(folder / "out")
    committed = fix_invariant.committed_in(folder / ".tailrace" / "shop")
    fix_invariant.watch(database.server.dsn(), database.name.lower(), committed)
    path = folder / "application.properties"
    path.write_text("".join(f"{name}={text}\n" for name, text in entries.items()))
    return path


def command(folder: Path, database: Database, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tailrace.cli", "run", *arguments],
        cwd=folder,
        env=os.environ | {"DB_PASSWORD": database.server.password},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def records(folder: Path) -> list[dict[str, object]]:
    files = sorted((folder / "out").glob("batch-*.jsonl"))
    return [json.loads(line) for path in files for line in path.read_text().splitlines()]


def ops(folder: Path) -> list[object]:
    return [record["value"] and record["value"]["op"] for record in records(folder)]  # type: ignore[index]


def test_once_delivers_what_there_is_and_goes_on_from_there(database: Database, tmp_path: Path) -> None:
    database.execute("create table t (id int primary key, v text)", "insert into t values (1, 'a'), (2, 'b')")
    path = write(tmp_path, database)
    first = command(tmp_path, database, str(path), "--once")
    _, said = first.communicate(timeout=240)
    assert first.returncode == 0, said
    assert ops(tmp_path) == ["r", "r"]
    assert "2 in all" in said
    assert "Traceback" not in said
    assert (tmp_path / ".tailrace" / "shop").is_dir()

    database.execute("update t set v = 'c' where id = 1", "delete from t where id = 2")
    running = command(tmp_path, database, str(path))
    deadline = time.monotonic() + 240
    while len(records(tmp_path)) < 5 and time.monotonic() < deadline and running.poll() is None:
        time.sleep(0.5)
    os.kill(running.pid, signal.SIGTERM)
    _, said = running.communicate(timeout=60)
    assert ops(tmp_path) == ["r", "r", "u", "d", None], said
    assert running.returncode == 0, said
    # The group was the command's own: nothing of it may be left.
    assert not left(running.pid)


def left(group: int) -> list[str]:
    """The processes of a session that still run, after a moment to end."""
    for _ in range(20):
        listed = subprocess.run(
            ["ps", "-s", str(group), "-o", "stat=,args="], capture_output=True, text=True, check=False
        )
        alive = [line for line in listed.stdout.splitlines() if not line.startswith("Z")]
        if not alive:
            return []
        time.sleep(0.5)
    return alive


def test_what_the_server_lacks_is_said_before_spark_starts(
    database: Database, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, database, publication_autocreate_mode="disabled")
    started = time.monotonic()
    run = command(tmp_path, database, str(path))
    _, said = run.communicate(timeout=120)
    assert run.returncode == 4
    assert "There is no publication dbz_publication" in said
    assert "Traceback" not in said
    assert time.monotonic() - started < 60
