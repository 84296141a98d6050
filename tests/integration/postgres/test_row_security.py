"""Row-level security that is enabled while a query runs: copies get all rows of a table or an error, never a part."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from tailrace.columns.blocks import ROWS
from tailrace.connectors.postgres.consistent_read import held
from tailrace.connectors.postgres.verify_source import ComparedSnapshot
from tailrace.connectors.registry import parse
from tailrace.errors import PrerequisiteError
from tailrace.events.event_settings import EventSettings
from tests import waiting
from tests.fix_postgres import Database
from tests.fix_query import Query

HIDDEN = r"row-level security hides rows of it from this role"


@pytest.fixture
def guarded(database: Database) -> Iterator[Database]:
    """The database for a role to which policies apply."""
    name = f"guarded_{secrets.token_hex(4)}"
    database.execute(
        "create table t (id int primary key, v text)",
        "insert into t select i, 'v' from generate_series(1, 10) i",
        "create table beat (at timestamptz)",
        "create table signal (id varchar(42) primary key, type varchar(32) not null, data text)",
        "create publication dbz_publication for all tables",
        f"create role {name} login replication password 'guarded'",
        f"grant select on t, signal to {name}",
        f"grant insert on signal, beat to {name}",
        # users guard the tables to which they write
        "create policy p on beat using (true) with check (true)",
        "alter table beat enable row level security",
    )
    yield replace(database, server=replace(database.server, user=name, password="guarded"))
    database.execute(f"drop owned by {name}", f"drop role {name}")


HIDE = ("create policy p on t using (id > 5)", "alter table t enable row level security")


@pytest.mark.parametrize("rows", ["bytes", "typed"])
def test_a_read_that_has_begun_gets_no_part_of_the_rows(database: Database, guarded: Database, rows: str) -> None:
    config = parse("postgres", guarded.options(topic_prefix="p", rows=rows, table_include_list="public.t"))
    settings = EventSettings.from_options(config, "run")
    with closing(held(config, settings)) as read:
        database.execute(*HIDE)
        with pytest.raises(PrerequisiteError, match=HIDDEN) as caught:
            sum(len(batch) for task in read.tasks for batch in task.read())
        assert "bypassrls" in caught.value.remedy


def test_a_comparison_gets_no_part_of_the_rows(database: Database, guarded: Database) -> None:
    options = {"topic_prefix": "p", "slot_name": database.name, "publication_autocreate_mode": "disabled"}
    config = parse("postgres", guarded.options(**options, table_include_list="public.t"))
    settings = replace(EventSettings.from_options(config, "verify"), blocks=ROWS)
    database.execute(f"select pg_create_logical_replication_slot('{database.name}', 'pgoutput')")
    with closing(ComparedSnapshot(config, settings)) as compared:
        compared.take()
        (table,) = compared.tables
        database.execute(*HIDE)
        with pytest.raises(PrerequisiteError, match=HIDDEN):
            sum(len(batch) for task in compared.of_table(table) for batch in task.read())
    with closing(ComparedSnapshot(config, settings)) as compared, pytest.raises(PrerequisiteError, match=HIDDEN):
        compared.take()


def copy(database: Database, **more: str) -> Query:
    options = {
        "table.include.list": "public.t",
        "row.copy": "true",
        "signal.data.collection": "public.signal",
        "publication.autocreate.mode": "disabled",
        "incremental.snapshot.chunk.size": "4",
    }
    return Query(database, **options, **{name.replace("_", "."): text for name, text in more.items()})


def test_a_window_of_a_copy_gets_no_part_of_the_rows(
    database: Database, guarded: Database, caplog: pytest.LogCaptureFixture
) -> None:
    beat = {"heartbeat_interval_ms": "100", "heartbeat_action_query": "insert into beat values (now())"}
    query = copy(guarded, **beat)
    data = json.dumps({"data-collections": ["public.t"], "type": "incremental"})
    try:
        query.until(10)
        database.execute(f"insert into signal values ('1', 'execute-snapshot', '{data}')")
        # heartbeats are written though their table has policies
        waiting.until(lambda: (query.step(), sum(op == "r" for op, _, _ in query.changes) == 20)[1], "a snapshot")
        database.execute(*HIDE, f"insert into signal values ('2', 'execute-snapshot', '{data}')")
        waiting.until(lambda: (query.step(), "a query of public.t fails" in caplog.text)[1], "the refusal")
        assert "row-level security hides rows of it" in caplog.text
        assert "bypassrls" in caplog.text
        database.execute("insert into t values (11, 'still')")
        waiting.until(lambda: (query.step(), ("c", "t", (b"11", b"still")) in query.changes)[1], "a change")
        assert sum(op == "r" for op, _, _ in query.changes) == 20
        assert "heartbeat.action.query fails" not in caplog.text
        with database.connect() as connection:
            assert connection.execute("select count(*) > 0 from beat").fetchone() == (True,)
    finally:
        query.planner.close()


def test_events_are_read_as_the_role_sees_them(database: Database, guarded: Database) -> None:
    database.execute(*HIDE)
    query = Query(guarded, **{"table.include.list": "public.t", "publication.autocreate.mode": "disabled"})
    try:
        assert len(query.until(5)) == 5
    finally:
        query.planner.close()
