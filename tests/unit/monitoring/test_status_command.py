"""`tailrace status` tells from another process what a pipeline does, and why it has ended."""

from __future__ import annotations

import fcntl
import io
import json
from pathlib import Path

import pytest

from tailrace.command.status import lines, show
from tailrace.config.files import RunConfig, SinkConfig
from tailrace.connectors.postgres.offset import PostgresOffset
from tailrace.connectors.registry import parse
from tailrace.errors import ConfigError, PositionLost, TailraceError
from tailrace.monitoring.status_file import StatusFile
from tailrace.snapshot.incremental import Collection, Cursor, PausedTable
from tailrace.snapshot.progress import Progress
from tailrace.snapshot.table_commands import NO_COMMANDS
from tailrace.spark.lock import FILE
from tests.unit.monitoring.planner_file import observation, progress, slot, written

OPTIONS = {"database.hostname": "h", "database.user": "u", "database.dbname": "d", "topic.prefix": "shop"}


def run(folder: Path | str) -> RunConfig:
    return RunConfig(parse("postgres", OPTIONS | {"checkpoint.location": str(folder)}), SinkConfig("console"))


def told(folder: Path) -> str:
    out = io.StringIO()
    assert show(run(folder), is_json=False, is_watched=False, out=out) == 0
    return out.getvalue()


def test_a_pipeline_that_has_failed_says_why(tmp_path: Path) -> None:
    found = observation(written(tmp_path))
    file = StatusFile(tmp_path, found)
    file.start()
    found.end(PositionLost("The slot is gone.", "Take a new snapshot."))
    file.close()
    text = told(tmp_path)
    assert text.startswith("shop (postgres): failed since 2023-11-14 22:13:20 UTC\n")
    assert "The slot is gone. (exit code 5)\n  Take a new snapshot." in text
    assert "public.a: streaming · c 2 u 1 r 3" in text


def test_a_pipeline_that_was_killed_is_lost_and_one_that_runs_is_not(tmp_path: Path) -> None:
    file = StatusFile(tmp_path, observation(written(tmp_path)))
    file.write()
    assert "lost since" in told(tmp_path)
    with open(tmp_path / FILE, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "running since" in told(tmp_path)


def test_json_has_everything(tmp_path: Path) -> None:
    found = observation(written(tmp_path))
    found.end(None)
    StatusFile(tmp_path, found).write()
    out = io.StringIO()
    show(run(tmp_path), is_json=True, is_watched=False, out=out)
    assert json.loads(out.getvalue()) == found.state()


def test_a_watched_status_is_shown_again(tmp_path: Path) -> None:
    found = observation(written(tmp_path))
    file = StatusFile(tmp_path, found)
    file.write()
    out, waits = io.StringIO(), []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            raise KeyboardInterrupt
        found.update(progress(tmp_path / "query.json", rows=9, batch=5))
        file.write()

    with pytest.raises(KeyboardInterrupt):
        show(run(tmp_path), is_json=False, is_watched=True, out=out, sleep=sleep)
    assert out.getvalue().count("shop (postgres)") == 2
    assert "batch 4" in out.getvalue()
    assert "batch 5" in out.getvalue()


def test_a_slot_that_fills_says_when_it_is_full(tmp_path: Path) -> None:
    retention = {
        "slots": [slot(limit_bytes=10_000_000, limit_s=7200.0), slot("old", is_active=False, status="extended")]
    }
    text = "\n".join(lines(observation(written(tmp_path, retention=retention)).state()))
    assert "slot debezium (this pipeline) · read, reserved · retains 5.0 MB of 10.0 MB · full in 2.0 h" in text
    assert "slot old · not read, extended · retains 5.0 MB no limit" in text


def test_a_log_that_is_kept_for_a_time_is_shown_with_the_lag(tmp_path: Path) -> None:
    retention = {"slots": [], "kept_s": 3600.0, "lasting_s": 7200.0, "behind_s": 5400.0, "percent": 75.0, "level": 1}
    text = "\n".join(lines(observation(written(tmp_path, retention=retention)).state()))
    assert "log kept for 2.0 h · 1.5 h behind, 75 % of it" in text


def test_a_checkpoint_without_a_status_or_on_another_system_says_so(tmp_path: Path) -> None:
    with pytest.raises(TailraceError, match="No pipeline has written its status"):
        told(tmp_path)
    with pytest.raises(ConfigError, match=r"not in a local file system"):
        show(run("s3a://bucket/checkpoint"), is_json=False, is_watched=False)


def test_a_full_disk_does_not_end_the_pipeline(tmp_path: Path) -> None:
    file = StatusFile(tmp_path / "gone", observation())
    file.write()
    assert not (tmp_path / "gone").exists()


def test_what_commands_have_changed_is_shown(tmp_path: Path) -> None:
    """The figures come from the offsets of Spark's progress."""
    commands = NO_COMMANDS.adding([("public", "n")], run(tmp_path).source).removing(
        [("public", "o")], run(tmp_path).source
    )
    held = (PausedTable(Collection("public", "p"), Cursor(("7",), ("9",), 3)),)
    offset = PostgresOffset(progress=Progress(commands=commands, held=held)).to_json()
    record = progress(written(tmp_path))
    record["sources"][0]["endOffset"] = json.dumps(offset)
    found = observation()
    found.update(record)
    assert found.state()["commands"] == {"added": ["public.n"], "removed": ["public.o"], "paused": ["public.p"]}
    assert [one["table"] for one in found.state()["tables"] if one["phase"] == "reading paused"] == ["public.p"]
    text = "\n".join(lines(found.state()))
    for line in ("added by a command: public.n", "removed by a command: public.o", "paused by a command: public.p"):
        assert f"\n  {line}\n" in text
