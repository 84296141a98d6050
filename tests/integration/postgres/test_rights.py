"""A user with only the rights that the guide names: every part of the pipeline works."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from tailrace.connectors.postgres.captured_tables import captured
from tailrace.connectors.postgres.consistent_read import held
from tailrace.connectors.postgres.server import connection as connections
from tailrace.connectors.postgres.setup.prerequisites import check
from tailrace.connectors.postgres.verify_source import compared
from tailrace.connectors.registry import parse
from tailrace.errors import PrerequisiteError
from tailrace.events.event_settings import EventSettings
from tests import waiting
from tests.fix_postgres import Database
from tests.fix_query import Query


@pytest.fixture
def modest(database: Database) -> Iterator[Database]:
    """The database for a user who may read the log and the tables, and write signals."""
    name = f"modest_{secrets.token_hex(4)}"
    database.execute(
        "create schema app",
        "create table app.t (id int primary key, v text)",
        "insert into app.t select i, 'v' || i from generate_series(1, 10) i",
        "create table app.beat (id int primary key, at timestamptz)",
        "create table app.signal (id varchar(42) primary key, type varchar(32) not null, data text)",
        f"create role {name} login replication password 'modest'",
        f"grant usage on schema app to {name}",
        f"grant select on all tables in schema app to {name}",
        f"grant insert on app.signal, app.beat to {name}",
        f"grant update on app.beat to {name}",
    )
    yield replace(database, server=replace(database.server, user=name, password="modest"))
    database.execute(f"drop owned by {name}", f"drop role {name}")


def signal(database: Database, kind: str) -> None:
    data = json.dumps({"data-collections": ["app.t"], "type": kind})
    with database.connect() as connection:
        connection.execute("insert into app.signal values (%s, 'execute-snapshot', %s)", (kind, data))


def until(query: Query, count: int, op: str) -> list[int]:
    """Return the first values of the changes of `app.t` with `op`, once there are `count`."""

    def found() -> list[int]:
        return [int(values[0]) for kind, table, values in query.changes if kind == op and table == "t"]

    waiting.until(lambda: len(found()) >= count or (query.step(), False)[1], f"{count} changes {op}")
    return found()


@pytest.mark.parametrize("maker", ["superuser", "owner"])
def test_every_part_works_without_a_superuser(database: Database, modest: Database, maker: str) -> None:
    if maker == "superuser":
        database.execute("create publication dbz_publication for all tables")
    else:
        # the owner of the tables creates the publication, with the right to create in the database
        database.execute(
            f"grant create on database {database.name} to {modest.server.user}",
            *(f"alter table app.{table} owner to {modest.server.user}" for table in ("t", "beat", "signal")),
        )
    query = Query(
        modest,
        **{
            "signal.data.collection": "app.signal",
            "publication.autocreate.mode": "disabled" if maker == "superuser" else "filtered",
            "heartbeat.interval.ms": "100",
            "heartbeat.action.query": "insert into app.beat values (1) on conflict (id) do update set at = now()",
            "incremental.snapshot.chunk.size": "4",
            "poll.interval.ms": "50",
        },
    )
    try:
        assert until(query, 10, "r") == list(range(1, 11))
        database.execute("insert into app.t values (11, 'streamed')")
        assert until(query, 1, "c") == [11]
        with database.connect() as connection:
            beats = "select count(*) from app.beat"
            waiting.until(lambda: (query.step(), connection.execute(beats).fetchone())[1] == (1,), "a beat")
            assert connection.execute(beats).fetchone() == (1,)
        signal(database, "incremental")
        assert sorted(until(query, 21, "r")[10:]) == list(range(1, 12))
        signal(database, "blocking")
        assert sorted(until(query, 32, "r")[21:]) == list(range(1, 12))
        query.kill()
        database.execute("insert into app.t select i, repeat('x', 1000) from generate_series(100, 199) i")
        query.planner.stop_at_present()
        assert until(query, 101, "c")[1:] == list(range(100, 200))
    finally:
        query.planner.close()


@pytest.fixture
def partial(database: Database) -> Iterator[Database]:
    """The database for a user who may read some columns of its tables."""
    name = f"partial_{secrets.token_hex(4)}"
    database.execute(
        'create table t (id int primary key, "the name" text, secret text)',
        "insert into t select i, 'v' || i, 'hidden' from generate_series(1, 10) i",
        "create table p (id int primary key, v text, secret text) partition by range (id)",
        "create table p_1 partition of p for values from (0) to (100)",
        "insert into p values (1, 'a', 'hidden')",
        "create table signal (id varchar(42) primary key, type varchar(32) not null, data text)",
        "create publication dbz_publication for all tables with (publish_via_partition_root = true)",
        f"create role {name} login replication password 'partial'",
        f'grant select (id, "the name") on t to {name}',
        f"grant select (id, v) on p to {name}",
        f"grant select, insert on signal to {name}",
    )
    yield replace(database, server=replace(database.server, user=name, password="partial"))
    database.execute(f"drop owned by {name}", f"drop role {name}")


PARTLY = {
    "publication.autocreate.mode": "disabled",
    "publish.via.partition.root": "true",
    "table.include.list": r"public\.(t|p)",
    "signal.data.collection": "public.signal",
    "poll.interval.ms": "50",
    "incremental.snapshot.chunk.size": "4",
}


def test_a_right_to_the_columns_that_are_captured_is_enough(database: Database, partial: Database) -> None:
    listed = {"column.include.list": r"public\.signal\..*,public\.t\.(id|the name),public\.p\.(id|v)"}
    config = parse("postgres", partial.options(**{**PARTLY, **listed, "topic.prefix": "p"}))
    assert [one.text for one in check(config) if one.level == "error"] == []
    query = Query(partial, **PARTLY, **listed)
    try:
        waiting.until(lambda: (query.step(), len(query.changes) >= 11)[1], "a snapshot")
        assert sorted(values for _, _, values in query.changes) == sorted(
            [(b"1", b"a"), *((str(i).encode(), f"v{i}".encode()) for i in range(1, 11))]
        )
        database.execute("insert into t values (11, 'v11', 'hidden')")
        for kind, count in (("incremental", 23), ("blocking", 35)):
            data = json.dumps({"data-collections": ["public.t", "public.p"], "type": kind})
            database.execute(f"insert into signal values ('{kind}', 'execute-snapshot', '{data}')")
            reads = lambda: [one for one in query.changes if one[0] == "r"]  # noqa: E731
            waiting.until(lambda count=count, reads=reads: (query.step(), len(reads()) >= count)[1], kind)
        settings = EventSettings.from_options(config, "run")
        with closing(held(config, settings)) as read:
            assert sum(len(batch) for task in read.tasks for batch in task.read()) == 12
    finally:
        query.planner.close()
    alone = {**PARTLY, **listed, "table.include.list": "public.t", "topic.prefix": "p"}
    del alone["signal.data.collection"]
    config = parse("postgres", partial.options(**alone))
    assert [str(one.id) for one in captured(config, settings).tables] == ["public.t"]


def test_a_column_without_a_right_is_named(
    database: Database, partial: Database, caplog: pytest.LogCaptureFixture
) -> None:
    config = parse("postgres", partial.options(**PARTLY, topic_prefix="p"))
    told = {one.text: one.remedy for one in check(config) if one.level == "error"}
    for table, grant in (("t", 'on "public"."t"'), ("p", 'on "public"."p"')):
        text = f"The user may not read public.{table}: it has no right to secret."
        assert grant in told[text]
        assert "column.include.list" in told[text]
    query = Query(partial, **PARTLY)
    try:
        with pytest.raises(PrerequisiteError, match=r"may not read public\.[tp]: it has no right to secret"):
            query.until(1)
    finally:
        query.planner.close()
    # nor does a signal end the query
    query = Query(partial, **PARTLY, **{"snapshot.mode": "no_data"})
    try:
        query.step()
        data = json.dumps({"data-collections": ["public.t"], "type": "incremental"})
        database.execute(f"insert into signal values ('1', 'execute-snapshot', '{data}')")
        waiting.until(lambda: (query.step(), "public.t is not read" in caplog.text)[1], "the refusal")
        assert "it has no right to secret" in caplog.text
        database.execute("insert into t values (11, 'v11', 'hidden')")
        assert until(query, 1, "c") == [11]
    finally:
        query.planner.close()


@pytest.mark.parametrize("is_in_part", [True, False])
def test_a_blocking_snapshot_of_what_the_role_may_not_read_is_given_up(
    database: Database, partial: Database, caplog: pytest.LogCaptureFixture, is_in_part: bool
) -> None:
    if not is_in_part:
        database.execute(f'revoke select (id, "the name") on t from {partial.server.user}')
    query = Query(partial, **PARTLY, **{"snapshot.mode": "no_data"})
    try:
        query.step()
        data = json.dumps({"data-collections": ["public.t"], "type": "blocking"})
        database.execute(
            f"insert into signal values ('1', 'execute-snapshot', '{data}')",
            "insert into t values (11, 'v11', 'hidden')",
        )
        assert until(query, 1, "c") == [11]
        waiting.until(lambda: (query.step(), "is given up" in caplog.text)[1], "the refusal", 20)
        assert "the blocking snapshot of public.t is given up: " in caplog.text
        query.kill()
        database.execute("insert into t values (12, 'v12', 'hidden')")
        assert until(query, 2, "c") == [11, 12]
        assert query.committed is not None
        assert "blocking" not in query.committed.get("progress", {})
    finally:
        query.planner.close()


def test_a_role_that_may_only_read_is_told_what_it_would_write(database: Database) -> None:
    role = f"reading_{database.name}"
    database.execute(
        "create table t (id int primary key)",
        f"create role {role} superuser login password '{role}'",
        f"alter role {role} set default_transaction_read_only = on",
    )
    query = Query(database, **{"database.user": role, "database.password": role})
    try:
        with pytest.raises(PrerequisiteError, match="default_transaction_read_only"):
            query.step()
        database.execute("create publication dbz_publication for all tables", "insert into t values (1)")
        query.kill()
        until(query, 1, "r")
        database.execute("insert into t values (2)")
        until(query, 1, "c")
    finally:
        query.planner.close()
        database.execute(f"drop owned by {role}", f"drop role {role}")


@pytest.fixture
def hurried(database: Database) -> Iterator[Database]:
    """The database through the eyes of a role whose sessions end after an instant, unless they set limits of their
    own."""
    name = f"hurried_{secrets.token_hex(4)}"
    limits = {"statement_timeout": 10, "lock_timeout": 10, "idle_in_transaction_session_timeout": 10}
    if database.server.version >= 17:
        limits["transaction_timeout"] = 50
    database.execute(
        f"create role {name} superuser login replication password 'hurried'",
        *(f"alter role {name} set {limit} = {value}" for limit, value in limits.items()),
    )
    yield replace(database, server=replace(database.server, user=name, password="hurried"))
    database.execute(f"drop owned by {name}", f"drop role {name}")


def test_no_session_ends_by_the_limits_of_its_role(database: Database, hurried: Database) -> None:
    """Snapshots, windows, the log by both gears, a comparison, the columns of typed rows and the check."""
    longer = "select pg_sleep(0.06)"
    database.execute(
        "create table t (id int primary key, v text)",
        "insert into t select i, 'v' from generate_series(1, 100) i",
        "create table signal (id varchar(42) primary key, type varchar(32) not null, data text)",
    )
    options = {"signal.data.collection": "public.signal", "table.include.list": "public.t"}
    query = Query(hurried, **options, **{"incremental.snapshot.chunk.size": "10", "poll.interval.ms": "10"})
    try:
        for _ in range(3):
            query.step()
            database.execute(longer)
        until(query, 100, "r")
        data = json.dumps({"data-collections": ["public.t"], "type": "incremental"})
        database.execute("insert into t values (101)", f"insert into signal values ('1', 'execute-snapshot', '{data}')")
        for _ in range(3):
            query.step()
            database.execute(longer)
        until(query, 201, "r")
        query.kill()
        database.execute(longer, "insert into t select i, repeat('x', 1000) from generate_series(102, 200) i")
        query.planner.stop_at_present()
        until(query, 100, "c")
        config = parse("postgres", hurried.options(**query.options))
        settings = EventSettings.from_options(config, "run")
        with closing(compared(config, settings)) as both:
            database.execute(longer)
            both.take()
            database.execute(longer)
            [table] = both.tables
            rows = [rows for task in both.of_table(table) for rows in task.read()]
            assert sum(map(len, rows)) == 200
            assert not both.touched(table, both.committed, both.position).everything
        assert "public.t" in [str(one.id) for one in captured(config, settings).tables]
        assert not [one for one in check(config) if one.level == "error"]
    finally:
        query.planner.close()


@pytest.mark.parametrize("replication", [False, True], ids=["plain", "of the log"])
def test_no_limit_of_the_role_ends_a_session(database: Database, replication: bool) -> None:
    """Limits that a role or a database sets for applications would end snapshots and the reading of a backlog."""
    role = f"limited_{database.name}"
    limits = ["statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"]
    with database.connect() as connection:
        version = connection.info.server_version
        limits += ["idle_session_timeout"] if version >= 140000 else []
        limits += ["transaction_timeout"] if version >= 170000 else []
    database.execute(
        f"create role {role} login replication password '{role}'",
        *(f"alter role {role} set {name} = '7s'" for name in limits),
    )
    try:
        options = database.options(topic_prefix="p", database_user=role, database_password=role)
        config = parse("postgres", options)
        with connections.connect(config, replication=replication, limited=False) as session:
            shown = {name: session.execute(f"show {name}".encode()).fetchone() for name in limits}
        assert shown == dict.fromkeys(limits, ("0",))
        with connections.connect(config) as session:
            address = connections.Address.of(config, session)
        for name in limits:
            assert f"-c%20{name}%3D0" in address.uri
    finally:
        database.execute(f"drop role {role}")
