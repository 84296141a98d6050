"""`database.initial.statements`: every session that reads rows runs them, and sees the rows that they allow."""

from __future__ import annotations

import pickle
import secrets
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tailrace.columns.table import TableId
from tailrace.connectors.postgres.log.reading import ReaderSettings
from tailrace.connectors.postgres.snapshot.tasks import SnapshotTask
from tailrace.errors import PrerequisiteError
from tests.fix_postgres import Database
from tests.fix_query import simple
from tests.integration.postgres.signalled import SIGNALS, execute, is_over, reads, run


@pytest.fixture
def tenant(database: Database) -> Iterator[str]:
    """A role to which row-level security shows only its own rows; the login itself sees all."""
    name = f"tenant_{secrets.token_hex(4)}"
    database.execute(
        SIGNALS,
        "create table t (id int primary key, tenant text)",
        "alter table t enable row level security",
        "create policy own on t using (tenant = current_user)",
        f"create role {name} replication",
        f"insert into t select i, case when i % 2 = 0 then '{name}' else 'other' end from generate_series(1, 12) i",
        f"grant select on t to {name}",
        f"grant insert on debezium_signal to {name}",
        "create publication dbz_publication for table t, debezium_signal",
    )
    yield name
    database.execute(f"drop owned by {name}", f"drop role {name}")


def test_no_session_sees_another_tenants_rows(database: Database, tenant: str, make_query: Any) -> None:
    own = [(str(i).encode(), tenant.encode()) for i in range(2, 13, 2)]
    one = make_query(
        snapshot_mode="initial",
        **{"database.initial.statements": f"set role {tenant}", "publication.autocreate.mode": "disabled"},
    )
    run(one, lambda q: len(reads(q)) >= 6)
    assert reads(one) == own
    for kind in ("incremental", "blocking"):
        one.changes.clear()
        execute(database, "public.t", id=kind, type=kind)
        run(one, lambda q: len(reads(q)) >= 6)
        run(one, is_over)
        assert reads(one) == own
    # by the catch-up gear
    database.execute(f"insert into t values (20, '{tenant}')")
    one.drain_now()
    assert one.changes[-1][:2] == ("c", "t")


def test_a_role_that_may_not_copy_slots_streams_its_backlog(
    database: Database,
    tenant: str,
    make_query: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    original = ReaderSettings.of
    monkeypatch.setattr(ReaderSettings, "of", lambda config: replace(original(config), catch_up_above=1 << 12))
    database.execute(f"alter role {tenant} noreplication")
    one = make_query(**{"database.initial.statements": f"set role {tenant}", "publication.autocreate.mode": "disabled"})
    one.step()
    one.planner.close()
    database.execute("insert into t select i, repeat('y', 100) from generate_series(100, 500) i")
    one.planner = one.start()
    run(one, lambda q: len(q.changes) == 401)
    assert "the user may not copy the slot" in caplog.text


def test_a_statement_that_fails_in_a_task_is_told_by_its_state(database: Database, make_query: Any) -> None:
    database.execute(SIGNALS, "create table t (id int primary key)", "insert into t values (1)")
    one = make_query(
        snapshot_mode="initial", **{"database.initial.statements": "select set_config('a.b', 'hush', false)"}
    )
    start = one.planner.initial_offset()
    end = one.planner.latest_offset(start, None, None)
    end = end if "snapshot" in end else one.planner.latest_offset(end, None, None)
    tasks = [task for task in simple(one.planner.partitions(start, end)) if isinstance(task, SnapshotTask)]
    while not tasks:
        start, end = end, one.planner.latest_offset(end, None, None)
        tasks = [task for task in simple(one.planner.partitions(start, end)) if isinstance(task, SnapshotTask)]
    assert "hush" in pickle.dumps(tasks[0]).decode("latin-1")
    assert "hush" not in repr(tasks[0].address)
    assert repr(tasks[0]) == f"SnapshotTask({TableId(database.name, 'public', 't')}, chunk 0)"
    broken = replace(tasks[0], address=replace(tasks[0].address, initial=("select 1 / 0",)))
    with pytest.raises(PrerequisiteError, match=r"database\.initial\.statements fails: SQLSTATE 22012"):
        list(broken.read())
