"""A server that was promoted, restored or replaced since the checkpoint, and one that standbys follow."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tailrace.connectors.postgres.setup import prerequisites
from tailrace.connectors.registry import parse
from tailrace.demo.embedded import Server
from tailrace.errors import PositionLost, PrerequisiteError
from tests.fix_postgres import SETTINGS, Database, Postgres, describe
from tests.fix_query import Query
from tests.servers.fresh_databases import FreshDatabases
from tests.waiting import until

NAME = "branched"


class Branch:
    """A server for one test, whose files can be copied and restored."""

    def __init__(self, server: Server) -> None:
        self._server = server
        assert server._home is not None
        self._home = server._home
        self._data = self._home / "data"

    def describe(self) -> Postgres:
        return describe(self._server.dsn())

    def run(self, *arguments: str) -> None:
        self._server._run(self._binaries / "pg_ctl", *arguments, "--wait", "--pgdata", str(self._data))

    @property
    def _binaries(self) -> Path:
        assert self._server._bin is not None
        return self._server._bin

    def stop(self) -> None:
        self.run("stop", "--mode", "fast")

    def start(self, standby: bool = False) -> None:
        if standby:
            (self._data / "standby.signal").touch()
        self.run("start", "--log", str(self._home / "log"))

    def promote(self) -> None:
        """Start the stopped server on the next timeline."""
        self.start(standby=True)
        self.run("promote")

    def keep(self, name: str = "kept") -> None:
        """Keep the files of the stopped server."""
        shutil.rmtree(self._home / name, ignore_errors=True)
        _copy(self._data, self._home / name)

    def put_back(self, name: str = "kept") -> None:
        """Restore the kept files of the stopped server."""
        shutil.rmtree(self._data)
        _copy(self._home / name, self._data)


def _copy(source: Path, target: Path) -> None:
    """Copy the files with their owners, sparsely: unwritten parts of the log take no room."""
    subprocess.run(["cp", "-a", "--sparse=always", source, target], check=True)


def _shrink(server: Postgres) -> None:
    """Drop all databases but one to log in to, and create a new one for the tests."""
    with server.connect() as connection:
        FreshDatabases(connection, server.dsn("")).create(NAME)
        rest = "select datname from pg_database where datname not in (%s, current_database())"
        for (name,) in connection.execute(rest, [NAME]).fetchall():
            connection.execute(f"alter database {name} with is_template false".encode())
            connection.execute(f"drop database {name}".encode())
        connection.execute("delete from pg_description")
        connection.execute("vacuum full")


@pytest.fixture(scope="module")
def own() -> Iterator[Branch]:
    with Server(settings=SETTINGS) as server:
        found = Branch(server)
        _shrink(found.describe())
        found.stop()
        found.keep("new")
        found.start()
        yield found


@pytest.fixture
def branch(own: Branch) -> Iterator[Branch]:
    """A running server, new for each test."""
    yield own
    own.run("stop", "--mode", "immediate")
    own.put_back("new")
    own.start()


@pytest.fixture
def made() -> Iterator[list[Query]]:
    queries: list[Query] = []
    yield queries
    for one in queries:
        one.planner.close()


@pytest.fixture
def started(branch: Branch, made: list[Query]) -> Query:
    """Return a query that has delivered the row 1; its planner is closed."""
    database = Database(branch.describe(), NAME)
    database.execute("create table t (id int primary key, v text)")
    one = Query(database, **{"snapshot.mode": "no_data"})
    made.append(one)
    one.step()
    database.execute("insert into t values (1, 'x')")
    one.until(1)
    settle(one)
    return one


def settle(query: Query) -> None:
    """Let the slot advance to the committed position, and stop reading."""
    query.drain_now()
    query.planner.close()


def ids(query: Query) -> list[int]:
    return [int(change[2][0]) for change in query.changes if change[2] and change[2][0]]


def log_of(query: Query) -> dict[str, Any]:
    assert query.committed is not None
    return dict(query.committed)


def test_offsets_name_the_server_from_the_first_one_on(started: Query) -> None:
    with started.database.connect() as connection:
        row = connection.execute("select system_identifier::text from pg_control_system()").fetchone()
    assert row is not None
    assert log_of(started)["server"] == {"system": row[0], "timeline": 1}
    text = json.dumps(started.committed)
    assert text == json.dumps(started.committed, sort_keys=True)


def test_a_promotion_behind_the_position_is_no_break(started: Query, branch: Branch) -> None:
    branch.stop()
    branch.promote()
    started.database.execute("insert into t values (2, 'y')")
    started.drain_now()
    assert ids(started) == [1, 2]
    assert log_of(started)["server"]["timeline"] == 2


@pytest.mark.parametrize("mode", ["no_data", "when_needed"])
def test_a_promotion_before_the_position_is_noticed(started: Query, branch: Branch, mode: str) -> None:
    branch.stop()
    branch.keep()
    branch.start()
    started.database.execute("insert into t values (2, 'of the old branch')")
    started.drain_now()
    assert ids(started) == [1, 2]
    started.planner.close()
    branch.stop()
    branch.put_back()
    branch.promote()
    # the log of the new branch grows beyond the position
    started.database.execute("insert into t select i, repeat('z', 500) from generate_series(3, 500) i")
    started.options["snapshot.mode"] = mode
    started.planner = started.start()
    if mode == "no_data":
        with pytest.raises(PositionLost, match=r"it left timeline 1 at .*, before .*, which was read"):
            started.until(3)
        return
    started.until(2 + 499)
    assert sorted(ids(started)[2:]) == [1, *range(3, 501)]
    assert log_of(started)["server"]["timeline"] == 2


@pytest.mark.parametrize("mode", ["initial", "when_needed"])
def test_a_promotion_before_a_snapshot_that_the_log_has_not_passed_is_noticed(
    started: Query, branch: Branch, made: list[Query], mode: str
) -> None:
    """The new branch assigns transaction ids again that the snapshot has shown on the old branch."""
    branch.stop()
    branch.keep()
    branch.start()
    started.database.execute(*(f"insert into t values ({key}, 'of the old branch')" for key in range(2, 10)))
    # the slot is older than the snapshot, so the log also holds the transactions that the snapshot shows
    one = Query(started.database, **{**started.options, "snapshot.mode": "initial"})
    made.append(one)
    while len(one.changes) < 9:
        one.step()
    one.planner.close()
    assert "visible" in log_of(one)
    branch.stop()
    branch.put_back()
    branch.promote()
    started.database.execute("insert into t values (10, 'of the new branch')")
    one.options["snapshot.mode"] = mode
    one.planner = one.start()
    if mode == "initial":
        with pytest.raises(PositionLost, match=r"it left timeline 1 at .*, before .*, which was read"):
            one.until(10, seconds=5)
        return
    one.until(9 + 2)
    assert sorted(ids(one)[9:]) == [1, 10]


def test_a_server_that_is_back_on_an_earlier_timeline_is_noticed(started: Query, branch: Branch) -> None:
    branch.stop()
    branch.keep()
    branch.promote()
    started.database.execute("insert into t values (2, 'of timeline 2')")
    started.drain_now()
    started.planner.close()
    branch.stop()
    branch.put_back()
    branch.start()
    started.database.execute("insert into t select i, repeat('z', 500) from generate_series(3, 500) i")
    started.planner = started.start()
    with pytest.raises(PositionLost, match="does not come from timeline 2"):
        started.until(3)


def test_another_server_is_noticed_and_an_offset_that_names_none_is_taken(database: Database, query: Any) -> None:
    database.execute("create table t (id int primary key)")
    one = query(**{"snapshot.mode": "no_data"})
    one.step()
    one.planner.close()
    server = one.committed.pop("server")
    database.execute("insert into t values (1)")
    one.planner = one.start()
    one.until(1)
    assert one.committed["server"] == server
    one.planner.close()
    one.committed["server"] = {"system": "1", "timeline": 1}
    database.execute("insert into t values (2)")
    one.planner = one.start()
    with pytest.raises(PositionLost, match=f"its system identifier is {server['system']}"):
        one.until(2)


def test_a_planned_batch_that_reaches_beyond_a_promotion_is_not_replayed(started: Query, branch: Branch) -> None:
    branch.stop()
    branch.keep()
    branch.start()
    started.database.execute("insert into t values (2, 'of the old branch')")
    started.planner = started.start()
    while started.planned is None:
        started.step(commit=False)
    started.planner.close()
    branch.stop()
    branch.put_back()
    branch.promote()
    started.database.execute("insert into t select i, repeat('z', 500) from generate_series(3, 500) i")
    started.planner = started.start()
    with pytest.raises(PositionLost, match="it left timeline 1"):
        started.step()


def test_a_standby_is_refused_by_name(started: Query, branch: Branch) -> None:
    branch.stop()
    branch.start(standby=True)
    config = parse("postgres", started.database.options(**started.options))
    errors = [finding for finding in prerequisites.check(config) if finding.level == "error"]
    assert [(one.text, one.remedy) for one in errors if one.subject == "server"] == [
        ("This server is a standby.", "Name the primary in database.hostname: changes are read from primaries only.")
    ]
    started.planner = started.start()
    with pytest.raises(PrerequisiteError, match="The server is a standby"):
        started.step()
    with pytest.raises(PrerequisiteError, match="The server is a standby"):
        started.planner.stop_at_present()


def test_a_server_that_becomes_a_standby_is_waited_for(
    started: Query, branch: Branch, caplog: pytest.LogCaptureFixture
) -> None:
    started.planner = started.start()
    started.database.execute("insert into t values (2, 'x')")
    started.until(2)
    branch.run("stop", "--mode", "immediate")
    branch.start(standby=True)
    until(lambda: "The server is a standby." in caplog.text, "the refusal")
    branch.run("promote")
    started.database.execute("insert into t values (3, 'y')")
    started.until(3, seconds=60)
    assert ids(started) == [1, 2, 3]


def test_nothing_is_read_before_the_standbys_have_it(branch: Branch, made: list[Query]) -> None:
    """`synchronized_standby_slots`: a failover must not lose changes that consumers have."""
    server = branch.describe()
    if server.version < 17:
        pytest.skip("slots are kept on standbys from PostgreSQL 17 on")
    database = Database(server, NAME)
    database.execute("create table t (id int primary key)")
    one = Query(database, **{"snapshot.mode": "no_data", "slot.failover": "true"})
    made.append(one)
    one.step()
    one.planner.close()
    database.execute(
        "select pg_create_physical_replication_slot('standby', true)",
        "alter system set synchronized_standby_slots = 'standby'",
        "select pg_reload_conf()",
    )
    with database.connect() as connection:

        def value(query: str) -> Any:
            row = connection.execute(query.encode()).fetchone()
            return None if row is None else row[0]

        until(lambda: value("show synchronized_standby_slots") == "standby", "the setting")
        database.execute("insert into t select generate_series(1, 10)")
        drained = threading.Thread(target=one.drain_now)
        drained.start()
        waits = "select count(*) from pg_stat_activity where wait_event = 'WaitForStandbyConfirmation'"
        until(lambda: value(waits) or not drained.is_alive(), "a wait for the standby")
        assert one.changes == []
        database.execute("select pg_replication_slot_advance('standby', pg_current_wal_flush_lsn())")
        drained.join()
    assert ids(one) == list(range(1, 11))
