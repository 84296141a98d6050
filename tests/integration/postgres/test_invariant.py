"""The watch beside all tests reports a slot that is ahead of its query's commits, and no other slot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tailrace.connectors.postgres.log import gears
from tests import fix_invariant
from tests.fix_postgres import Database
from tests.waiting import until


def test_a_stream_that_acknowledges_what_it_has_read_is_noticed(
    database: Database, query: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = gears.Streaming.start

    def hasty(self: gears.Streaming, *arguments: Any) -> None:
        start(self, *arguments)
        self.flushed = arguments[2]

    monkeypatch.setattr(gears.Streaming, "start", hasty)
    database.execute("create table t (id int primary key)")
    one = query(**{"snapshot.mode": "no_data", "status.update.interval.ms": "100"})
    one.step()
    database.execute("insert into t select generate_series(1, 100)")
    while one.planned is None:
        one.step(commit=False)
    database.execute(
        "select pg_terminate_backend(active_pid) from pg_replication_slots "
        f"where slot_name = '{one.options['slot.name']}' and active_pid is not null"
    )
    with pytest.raises(fix_invariant.Ahead, match="ahead of what is committed"):
        until(fix_invariant.check, "what is noticed", 30)
    with pytest.raises(fix_invariant.Ahead):
        fix_invariant.stop()


def test_a_slot_that_a_test_moves_by_itself_is_none_of_the_query(database: Database, query: Any) -> None:
    database.execute("create table t (id int primary key)")
    one = query(**{"snapshot.mode": "no_data"})
    one.step()
    one.planner.close()
    slot = one.options["slot.name"]
    database.execute("insert into t values (1)")
    database.execute(f"select pg_replication_slot_advance('{slot}', pg_current_wal_flush_lsn())")
    fix_invariant.stop()


def test_the_last_sample_is_taken_when_the_test_ends(database: Database) -> None:
    database.execute("select pg_create_logical_replication_slot('watched', 'pgoutput')")
    one = fix_invariant.Watch(database.server.dsn())
    one.add("watched", lambda: None)
    until(lambda: one.samples, "a sample")
    with database.connect() as connection:
        connection.execute("create table t (id int)")
        connection.execute("select pg_replication_slot_advance('watched', pg_current_wal_flush_lsn())")
    one.stop()
    assert one.found


def test_a_commit_log_stands_for_the_offset_of_its_newest_batch(tmp_path: Path) -> None:
    committed = fix_invariant.committed_in(tmp_path)
    assert committed() is None
    for folder in ("commits", "offsets"):
        (tmp_path / folder).mkdir()
    for batch in (9, 10, 11):
        offset = {"log": {"commit": "0/1", "end": f"0/{batch:X}", "idle": "1/0"}}
        (tmp_path / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{json.dumps(offset)}")
    for batch in ("9", "10", ".10.crc"):
        (tmp_path / "commits" / batch).write_text("v1\n{}")
    found = committed()
    assert found is not None
    assert found["log"]["end"] == "0/A"
    assert fix_invariant.forgettable(found) == 1 << 32
