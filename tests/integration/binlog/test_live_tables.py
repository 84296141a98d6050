"""Tables that are added to a running query of MySQL or MariaDB, and removed from it, with its process killed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import product
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

from tailrace.connectors.binlog.live_tables import listed
from tailrace.connectors.binlog.log_session import BinlogLogSession
from tailrace.connectors.binlog.planner import BinlogEngine
from tailrace.connectors.binlog.setup.prerequisites import check
from tailrace.connectors.binlog.status import describe
from tailrace.connectors.binlog.verify_source import compared
from tailrace.connectors.consistent_read import TouchedKeys
from tailrace.connectors.registry import parse
from tailrace.errors import ConfigError
from tailrace.events.event_settings import EventSettings
from tailrace.log.contracts import Offset
from tests.extent import by_day
from tests.fix_mysql import MySqlDatabase
from tests.integration.binlog.driving import Row, read
from tests.servers.mysql import PASSWORD
from tests.waiting import until

SIGNALS = "create table signals (id varchar(64) primary key, type varchar(32), data varchar(2048))"


class Query:
    """A stand-in for Spark's query over a planner, which can be killed between any two steps."""

    def __init__(self, database: MySqlDatabase, **options: str) -> None:
        self.database = database
        own = {
            "table.include.list": f"{database.name}.a", "signal.data.collection": f"{database.name}.signals",
            "include.schema.changes": "false", "incremental.snapshot.chunk.size": "2",
            "incremental.snapshot.window.chunks": "1", "poll.interval.ms": "50",
            "key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false",
        }  # fmt: skip
        self.options = database.options() | own | {name.replace("_", "."): text for name, text in options.items()}
        self.planner = self.start()
        self.committed: Offset = self.planner.initial_offset()
        self.planned: Offset | None = None
        self.planned_rows: list[Any] | None = None
        self.rows: list[Row] = []
        self.max_rows: int | None = 1000
        self._marks = 0

    @property
    def config(self) -> Any:
        return parse(self.database.server.dialect, self.options)

    def start(self) -> BinlogEngine:
        config = self.config
        return BinlogEngine(config, EventSettings.from_options(config, "00000000-0000-0000-0000-000000000000"))

    def kill(self) -> None:
        self.planner.close()
        self.planner = self.start()

    def step(self, commit: bool = True) -> bool:
        """Plan a batch, unless one is planned, and read it.

        A batch that is read again must have the same changes, in the same order for each table.
        """
        if self.planned is None:
            end = self.planner.latest_offset(self.committed, self.max_rows, None)
            if end == self.committed:
                return False
            self.planned = end
        rows = read(self.planner, self.committed, self.planned)
        found = [
            (one["table"], one["op"], one["key"], one["position"], one["ordinal"], one["value"]["after"])
            for one in rows
            if one["op"] in ("c", "u", "d")
        ]
        # tables follow each other in the order in which the planner has met them, which another planner may not share
        found.sort(key=itemgetter(0))
        assert self.planned_rows is None or found == self.planned_rows
        self.planned_rows = found
        if commit:
            self.rows += rows
            self.committed, self.planned, self.planned_rows = self.planned, None, None
        return True

    def settle(self) -> None:
        """Step until what the server's log has now is read, and no snapshot runs."""
        self._marks += 1
        self.database.execute(f"insert into a values ({10_000 + self._marks}, 'mark')")

        def is_over() -> bool:
            self.step()
            marks = [one for one in self.of("a") if one["key"]["id"] == 10_000 + self._marks]
            return bool(marks) and "state" not in self.committed.get("progress", {})

        until(is_over, "the end of the snapshot", 30)
        self.step()

    def of(self, table: str) -> list[Row]:
        return [one for one in self.rows if one["table"] == table and one["op"] in "crud"]

    def copy(self, table: str) -> list[tuple[Any, ...]]:
        """Return the rows of the copy that the events of a table make."""
        found: dict[int, tuple[Any, ...]] = {}
        for one in self.of(table):
            if one["op"] == "d":
                found.pop(one["key"]["id"], None)
            else:
                found[one["key"]["id"]] = tuple(one["value"]["after"].values())
        return sorted(found.values())

    @property
    def commands(self) -> Any:
        return self.committed.get("progress", {}).get("tables")

    def send(self, kind: str, *tables: str, id: str = "cmd") -> None:  # noqa: A002
        data = json.dumps({"data-collections": [f"{self.database.name}.{one}" for one in tables]})
        with self.database.connect() as session, session.cursor() as cursor:
            cursor.execute("insert into signals values (%s, %s, %s)", (id, kind, data))

    def is_equal(self, *tables: str) -> bool:
        for table in tables:
            assert self.copy(table) == sorted(self.database.execute(f"select * from {table} order by id"))
        return True


Make = Callable[..., Query]


@pytest.fixture
def database(todays_binlog_database: MySqlDatabase) -> MySqlDatabase:
    """A database with the captured table `a`, the table `b` that no list names, and a signal table."""
    values = ", ".join(f"({number}, 'v{number}')" for number in range(6))
    todays_binlog_database.execute(
        *(f"create table {name} (id int primary key, v varchar(20))" for name in "ab"),
        *(f"insert into {name} values {values}" for name in "ab"),
        SIGNALS,
    )
    return todays_binlog_database


@pytest.fixture
def make(database: MySqlDatabase) -> Iterator[Make]:
    made: list[Query] = []

    def one(**options: str) -> Query:
        made.append(Query(database, **options))
        return made[-1]

    yield one
    for query in made:
        query.planner.close()


@pytest.mark.parametrize("killed_after", by_day(range(6), 3))
@pytest.mark.parametrize("is_followed", [False, True])
def test_a_table_is_added_whenever_the_process_is_killed(
    database: MySqlDatabase, make: Make, is_followed: bool, killed_after: int
) -> None:
    # with records of schema changes the definitions of all tables are followed, else those of captured ones
    query = make(include_schema_changes=str(is_followed).lower())
    query.settle()
    database.execute("insert into b values (90, 'unseen')", "delete from b where id = 90")
    query.send("add-tables", "b")
    database.execute("update b set v = 'early' where id = 1", "insert into a values (6, 'beside')")
    for step in range(10):
        # killed when the batch is planned and read, and not committed
        if step == killed_after:
            query.step(commit=False)
            query.kill()
        query.step()
        database.execute(
            f"insert into a values ({10 + step}, 'during')",
            f"insert into b (id, v) values ({20 + step}, 'during')",
            f"update b set v = 'at {step}' where id in (2, {19 + step})",
            f"delete from b where id = {5 if step == 3 else -1}",
            *(["alter table b add column w int not null default 7 after id"] if step == 5 else []),
        )
    query.settle()
    assert query.commands["added"] == [[database.name, "b"]]
    assert query.copy("a") == sorted(database.execute("select * from a"))
    # rows that were read before the column was added do not have it
    now = {row[0]: row for row in database.execute("select id, v, w from b")}
    assert {row[0]: row[-1] for row in query.copy("b")} == {key: row[1] for key, row in now.items()}
    assert not [one for one in query.of("b") if one["key"]["id"] == 90]
    # it lies in the checkpoint: the lists of the file do not name it
    query.kill()
    database.execute("insert into b (id, v) values (99, 'after')")
    query.settle()
    assert (99, 7, "after") in query.copy("b")


def test_a_table_is_removed_and_added_again(
    database: MySqlDatabase, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    query = make(table_include_list=f"{database.name}.[ab]")
    query.settle()
    query.send("remove-tables", "b")
    for killed in (True, False, False):
        if killed:
            query.step(commit=False)
            query.kill()
        query.step()
    query.settle()
    assert query.commands["removed"] == [[database.name, "b"]]
    count = len(query.of("b"))
    database.execute(
        "insert into b values (50, 'unseen')", "delete from b where id = 50", "alter table b change v w text",
        "insert into b values (51, 'unseen')", "insert into a values (50, 'seen')",
    )  # fmt: skip
    query.kill()
    query.settle()
    assert len(query.of("b")) == count
    assert query.is_equal("a")
    query.send("add-tables", "b", id="again")
    query.settle()
    # the lists say the same again
    assert not query.commands["removed"]
    assert not query.commands["added"]
    assert query.is_equal("a", "b")
    assert query.of("b")[-1]["value"]["after"].keys() == {"id", "w"}
    assert f"rows that were deleted since {database.name}.b was removed stay in copies" in caplog.text


@pytest.mark.parametrize("is_followed", [False, True])
def test_a_table_that_is_altered_behind_the_signal(
    database: MySqlDatabase, make: Make, is_followed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    query = make(include_schema_changes=str(is_followed).lower())
    query.settle()
    query.max_rows = 1
    # the query is behind: it reads the signal when the table has another form already
    query.send("add-tables", "b")
    database.execute(
        "insert into a values (30, 'beside')",
        "insert into b values (30, 'before')", "alter table b change v w varchar(30)", "insert into b values (31, 'x')",
    )  # fmt: skip
    query.settle()
    if not is_followed:
        assert f"{database.name}.b is not added: the log that is still to be read may alter it" in caplog.text
        assert query.commands is None
        query.send("add-tables", "b", id="again")
        query.settle()
    else:
        names = {one["key"]["id"]: set(one["value"]["after"]) for one in query.of("b") if one["op"] == "c"}
        assert names == {30: {"id", "v"}, 31: {"id", "w"}}
    assert query.is_equal("a", "b")


def test_a_table_is_not_added_while_its_statements_are_far_behind(
    database: MySqlDatabase, make: Make, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other tables go on; the signal is sent again behind what was to be read."""
    monkeypatch.setattr("tailrace.connectors.binlog.live_tables.MOST_LOG_BYTES", 1000)
    query = make()
    query.settle()
    query.max_rows = 1
    query.send("add-tables", "b")
    database.execute(f"insert into a values (30, '{'x' * 20}')", "flush binary logs",
                     *(f"insert into a values ({number}, 'beside')" for number in range(31, 40)))  # fmt: skip
    query.settle()
    assert f"{database.name}.b is not added: the 0 MiB of log and more that are still to be read" in caplog.text
    assert query.commands is None
    assert query.is_equal("a")
    query.max_rows = 1000
    query.send("add-tables", "b", id="again")
    query.settle()
    assert query.commands is not None
    assert query.is_equal("a", "b")


def test_a_table_that_is_created_by_a_file_and_read_only(database: MySqlDatabase, make: Make, tmp_path: Path) -> None:
    file = tmp_path / "signals"
    file.write_text("")
    query = make(read_only="true", signal_enabled_channels="file", signal_file=str(file))
    query.settle()
    signals = database.execute("select count(*) from signals")
    # the query has not read that the table is created
    database.execute("create table c (id int primary key, v varchar(9))", "insert into c values (1, 'x'), (2, 'y')")
    data = {"data-collections": [f"{database.name}.c"]}
    file.write_text(json.dumps({"id": "f1", "type": "add-tables", "data": data}) + "\n")
    until(lambda: (query.step(), query.commands)[1] is not None, "the command", 20)
    query.kill()
    database.execute("insert into c values (3, 'z')", "delete from c where id = 1")
    query.settle()
    assert query.is_equal("a", "c")
    assert database.execute("select count(*) from signals") == signals


def test_a_transaction_that_is_prepared_while_the_table_is_added(database: MySqlDatabase, make: Make) -> None:
    query = make()
    query.settle()
    changes = ("insert into b values (60, 'x')", "update b set v = 'x' where id = 1")
    with closing(database.connect()) as session, session.cursor() as cursor:
        for sql in ("xa start 'live'", *changes, "xa end 'live'", "xa prepare 'live'"):
            cursor.execute(sql)
        try:
            query.send("add-tables", "b")
            query.settle()
            assert (60, "x") not in query.copy("b")
            query.kill()
        finally:
            cursor.execute("xa commit 'live'")
    query.settle()
    assert query.is_equal("a", "b")


def test_rows_that_are_not_read_are_told(database: MySqlDatabase, make: Make) -> None:
    query = make()
    query.settle()
    # behind the initial snapshot
    query.settle()
    name = database.name
    assert describe(query.committed, {}).whole
    query.send("add-tables", "b")
    until(lambda: (query.step(), query.commands)[1] is not None, "the command", 20)
    words = "added by a command; the lists leave it out"
    assert (f"{name}.b", f"{words}; its rows are being read") in listed(query.config, query.committed)
    assert not describe(query.committed, {}).whole
    query.send("stop-snapshot", id="stop")
    query.settle()
    told = f"{words}; rows that it had before are not read: tailrace tables resnapshot"
    assert (f"{name}.b", told) in listed(query.config, query.committed)
    query.kill()
    query.settle()
    assert not describe(query.committed, {}).whole
    query.send("execute-snapshot", "b", id="again")
    query.settle()
    assert (f"{name}.b", words) in listed(query.config, query.committed)
    assert describe(query.committed, {}).whole
    assert query.is_equal("a", "b")


@pytest.mark.parametrize(("kind", "is_told"), by_day(list(product(("incremental", "blocking"), (False, True))), 2))
def test_rows_that_an_edited_list_does_not_bring_are_told(
    database: MySqlDatabase, make: Make, caplog: pytest.LogCaptureFixture, kind: str, is_told: bool
) -> None:
    """`is_told`: the definitions of all tables are kept, not only of captured ones."""
    name = database.name
    database.execute("create table c (id int primary key, v varchar(20))")
    query = make(include_schema_changes=str(is_told).lower())
    query.settle()
    query.settle()
    query.options["table.include.list"] = f"{name}.[abc]"
    query.kill()
    # killed once more behind the plan of a batch, and once behind the batch
    database.execute("insert into b values (100, 'new')", "insert into c values (1, 'first')")
    query.step(commit=False)
    query.kill()
    query.settle()
    query.kill()
    query.settle()
    late = f"{name}.b is captured from now on, but the log does not bring the rows that it already has"
    assert late in caplog.text
    told = "by the lists; rows that it had before are not read: tailrace tables resnapshot"
    assert (f"{name}.b", told) in listed(query.config, query.committed)
    assert not describe(query.committed, {}).whole
    assert query.copy("b") == [(100, "new")]
    with database.connect() as session, session.cursor() as cursor:
        data = json.dumps({"data-collections": [f"{name}.b", f"{name}.c"], "type": kind})
        cursor.execute("insert into signals values ('again', 'execute-snapshot', %s)", (data,))
    query.settle()
    query.settle()
    assert (f"{name}.b", "by the lists") in listed(query.config, query.committed)
    assert describe(query.committed, {}).whole
    assert query.is_equal("a", "b", "c")
    query.options["table.include.list"] = f"{name}.[ac]"
    query.kill()
    query.settle()
    assert f"no change of {name}.b arrives any more, so copies of it stay as they are" in caplog.text
    assert f"{name}.a" not in caplog.text


def test_a_list_that_adds_only_what_is_empty_leaves_copies_whole(
    database: MySqlDatabase, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    database.execute("create table c (id int primary key, v varchar(20))")
    query = make()
    query.settle()
    query.settle()
    query.options["table.include.list"] = f"{database.name}.a,{database.name}.[cd]"
    query.kill()
    query.settle()
    database.execute("create table d like c", *(f"insert into {table} values (1, 'first')" for table in "cd"))
    query.settle()
    assert describe(query.committed, {}).whole
    assert "captured from now on" not in caplog.text
    assert query.is_equal("a", "c", "d")


def test_what_is_refused_ends_nothing(database: MySqlDatabase, make: Make, caplog: pytest.LogCaptureFixture) -> None:
    user, server = f"u{database.name[2:]}", database.server
    server.execute(
        f"create user {user}@'%' identified by '{PASSWORD}'",
        f"grant replication slave, replication client, reload on *.* to {user}@'%'",
        *(f"grant select, insert on {database.name}.{table} to {user}@'%'" for table in ("a", "signals")),
        f"grant select (id) on {database.name}.b to {user}@'%'",
        *([f"grant binlog monitor on *.* to {user}@'%'"] if server.dialect == "mariadb" else []),
        f"create view {database.name}.w as select * from {database.name}.b",
        f"grant select on {database.name}.w to {user}@'%'",
    )
    query = make(database_user=user)
    name = database.name
    try:
        query.settle()
        for number, (kind, table, told) in enumerate((
            ("add-tables", "nowhere", f"no table is named {name}.nowhere"),
            ("add-tables", "w", f"no table is named {name}.w"),
            ("add-tables", "a", f"{name}.a is not added: it is captured already"),
            ("add-tables", "b", f"{name}.b is not added: the user may not read it"),
            ("remove-tables", "b", f"no captured table is named {name}.b"),
            ("remove-tables", "signals", "the signal table stays"),
            ("remove-tables", "a", "it would remove every table"),
        )):  # fmt: skip
            query.send(kind, table, id=f"c{number}")
            query.settle()
            assert told in caplog.text
        assert query.commands is None
    finally:
        query.planner.close()
        server.execute(f"drop user {user}@'%'")


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_table_gets_another_key_while_its_reading_is_paused(
    database: MySqlDatabase, make: Make, is_killed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    query = make(table_include_list=f"{database.name}.[ab]", snapshot_mode="no_data")
    query.step()
    query.send("execute-snapshot", "b", id="read")
    until(lambda: (query.step(), len(query.of("b")) >= 2)[1], "some rows", 20)
    query.send("pause-tables", "b", id="pause")
    query.settle()
    assert "held" in query.committed["progress"]
    # in the order of this key all rows that are not read stand before those that are
    database.execute(
        "alter table b add n int not null default 0",
        "update b set n = 1000 - id",
        "alter table b drop primary key, add primary key (n)",
    )
    query.rows.clear()
    if is_killed:
        query.kill()
    query.send("resume-tables", "b", id="resume")
    query.settle()
    assert sorted(one["value"]["after"]["id"] for one in query.of("b") if one["op"] == "r") == list(range(6))
    assert f"{database.name}.b has another key than before: it is read again" in caplog.text


def test_a_command_is_taken_over_by_a_file_without_signals(
    database: MySqlDatabase, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = make()
    query.settle()
    query.send("add-tables", "b")
    query.settle()
    assert query.commands["added"] == [[database.name, "b"]]
    opened: list[object] = []
    start = BinlogLogSession.start
    monkeypatch.setattr(BinlogLogSession, "start", lambda self: (opened.append(self), start(self))[1])
    del query.options["signal.data.collection"]
    query.options["table.include.list"] = f"{database.name}.[ab]"
    query.kill()
    for number in range(4):
        database.execute(f"insert into b values ({60 + number}, 'x')")
        query.settle()
    assert query.is_equal("b")
    assert len(opened) == 1
    assert query.commands is None


def test_a_blocking_snapshot_of_what_the_user_may_not_read_is_given_up(
    database: MySqlDatabase, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    user, server = f"v{database.name[2:]}", database.server
    server.execute(
        f"create user {user}@'%' identified by '{PASSWORD}'",
        f"grant replication slave, replication client, reload on *.* to {user}@'%'",
        *(f"grant select, insert on {database.name}.{table} to {user}@'%'" for table in ("a", "b", "signals")),
        *([f"grant binlog monitor on *.* to {user}@'%'"] if server.dialect == "mariadb" else []),
    )
    query = make(database_user=user, table_include_list=f"{database.name}.[ab]", snapshot_mode="no_data")
    try:
        query.step()
        server.execute(f"revoke select on {database.name}.b from {user}@'%'")
        data = json.dumps({"data-collections": [f"{database.name}.b"], "type": "blocking"})
        with database.connect() as session, session.cursor() as cursor:
            cursor.execute("insert into signals values ('1', 'execute-snapshot', %s)", (data,))
        query.settle()
        assert f"the blocking snapshot of {database.name}.b is given up: " in caplog.text
        assert "blocking" not in query.committed.get("progress", {})
    finally:
        query.planner.close()
        server.execute(f"drop user {user}@'%'")


def test_a_table_with_which_no_start_would_succeed_is_refused(
    database: MySqlDatabase, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    database.execute(
        "create table c (id int primary key, v varchar(20))",
        "create table gone (id int primary key, v varchar(20)) engine=MyISAM",
        "create table broken (id int, v varchar(20), key (id)) engine=MERGE union=(gone)",
        "drop table gone",
    )
    query = make(guardrail_collections_max="3", guardrail_collections_limit_action="fail")
    query.settle()
    # one statement that fails for good
    query.send("add-tables", "broken", id="broken")
    query.settle()
    assert f"{database.name}.broken is not added: " in caplog.text
    assert query.commands is None
    # two signals of one batch, of which the first one fits
    with database.connect() as session, session.cursor() as cursor:
        session.autocommit(False)
        for name in "bc":
            data = json.dumps({"data-collections": [f"{database.name}.{name}"]})
            cursor.execute("insert into signals values (%s, 'add-tables', %s)", (name, data))
        session.commit()
    query.settle()
    assert f"{database.name}.c is not added: 4 tables are captured, more than guardrail.collections.max" in caplog.text
    assert query.commands["added"] == [[database.name, "b"]]
    query.kill()
    query.settle()
    assert query.is_equal("a", "b")


def test_lists_that_contradict_the_checkpoint(database: MySqlDatabase, make: Make, tmp_path: Path) -> None:
    query = make()
    query.settle()
    name = database.name
    assert listed(query.config, None) == [(f"{name}.a", "by the lists"), (f"{name}.signals", "by the lists")]
    query.send("add-tables", "b")
    query.settle()
    words = "added by a command; the lists leave it out"
    assert (f"{name}.b", words) in listed(query.config, query.committed)
    query.planner.close()
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text(f"v1\n{{}}\n{json.dumps(query.committed)}\n")

    # check and verify take the table with the others
    query.options["checkpoint.location"] = str(tmp_path)
    told = [one.text for one in check(query.config) if one.subject == "tables"]
    assert f"{name}.a, {name}.b" in " ".join(told)
    settings = EventSettings.from_options(query.config, "00000000-0000-0000-0000-000000000000")
    with closing(compared(query.config, settings)) as before:
        before.take()
        (table,) = (one for one in before.tables if one.id.table == "b")
        start = before.position
    database.execute("update b set v = 'later' where id = 2", "insert into a values (80, 'later')")
    with closing(compared(query.config, settings)) as after:
        after.take()
        assert after.touched(table, start, after.position) == TouchedKeys(((b"2",),))

    def started(commands: str, databases: str = f"{name}.*") -> Any:
        query.options |= {"database.include.list": databases, "table.commands": commands}
        query.planner.close()
        query.planner = query.start()
        query.settle()
        return query.commands

    # an edited list that does not name the table
    with pytest.raises(ConfigError, match=rf"has added {name}\.b, which the lists leave out") as caught:
        started("fail")
    assert "table.commands=lists" in caught.value.remedy
    (found,) = [one for one in check(query.config) if one.level == "error"]
    assert f"has added {name}.b, which the lists leave out" in found.text
    assert started("commands")["added"] == [[name, "b"]]
    assert started("lists", f"{name}.?") is None
    count = len(query.of("b"))
    database.execute("insert into b values (77, 'unseen')")
    query.settle()
    assert len(query.of("b")) == count
