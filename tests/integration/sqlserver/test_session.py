"""The dialect's session works with the TDS test server: every statement that it sends, and the text of every type."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from tailrace.columns import TableId
from tailrace.connectors.changetables.dialect import KeyRange
from tailrace.connectors.sqlserver import dialect
from tailrace.connectors.sqlserver.dialect import SqlServerSession
from tailrace.connectors.sqlserver.server import statements
from tailrace.errors import ConfigError, ConnectionFailed, PositionLost, PrerequisiteError
from tdsserver.process import TestDatabase, TestServer
from tests.integration.sqlserver.reading import START, changed, connected, only, read

# For each type: its declaration, a value in a statement, and the value's text.
TYPES = [
    ("bigint", "-9223372036854775808", "-9223372036854775808"),
    ("int", "2147483647", "2147483647"),
    ("smallint", "-32768", "-32768"),
    ("tinyint", "255", "255"),
    ("bit", "1", "t"),
    ("bit", "0", "f"),
    ("decimal(10, 2)", "-12.30", "-12.30"),
    ("decimal(38, 10)", "0.0000000001", "0.0000000001"),
    ("decimal(38, 0)", "12345678901234567890123456789012345678", "12345678901234567890123456789012345678"),
    ("numeric(18, 6)", "0", "0.000000"),
    ("money", "-922337203685477.5808", "-922337203685477.5808"),
    ("smallmoney", "214748.3647", "214748.3647"),
    ("float", "1.5e300", "1.5e+300"),
    ("float", "0.1", "0.1"),
    ("real", "1.1", "1.1"),
    ("date", "'0001-01-01'", "0001-01-01"),
    ("date", "'9999-12-31'", "9999-12-31"),
    ("time(7)", "'23:59:59.9999999'", "23:59:59.9999999"),
    ("time(3)", "'00:00:00.001'", "00:00:00.001"),
    ("time(0)", "'12:34:56'", "12:34:56"),
    ("datetime", "'2026-01-02T03:04:05.007'", "2026-01-02 03:04:05.007"),
    ("smalldatetime", "'2026-01-02 03:04:00'", "2026-01-02 03:04:00"),
    ("datetime2(7)", "'0001-01-01 00:00:00.0000001'", "0001-01-01 00:00:00.0000001"),
    ("datetime2(3)", "'9999-12-31 23:59:59.999'", "9999-12-31 23:59:59.999"),
    ("datetime2(0)", "'2026-01-02 03:04:05'", "2026-01-02 03:04:05"),
    ("datetimeoffset(7)", "'2026-01-02 03:04:05.1234567 +05:30'", "2026-01-02 03:04:05.1234567 +05:30"),
    ("datetimeoffset(0)", "'2026-01-02 03:04:05 -08:00'", "2026-01-02 03:04:05 -08:00"),
    ("char(5)", "'ab'", "ab   "),
    ("varchar(20)", "'caf\u00e9'", "caf\u00e9"),
    ("varchar(max)", "'long'", "long"),
    ("nchar(3)", "N'\u65e5'", "\u65e5  "),
    ("nvarchar(20)", "N'\u017duk \U0001f600'", "\u017duk \U0001f600"),
    ("nvarchar(max)", "N''", ""),
    ("text", "'old'", "old"),
    ("ntext", "N'\u65e5\u672c'", "\u65e5\u672c"),
    ("binary(4)", "0x0102", "\\x01020000"),
    ("varbinary(20)", "0x00ff", "\\x00ff"),
    ("varbinary(max)", "0x", "\\x"),
    ("image", "0x0a", "\\x0a"),
    ("uniqueidentifier", "'6f9619ff-8b86-d011-b42d-00c04fc964ff'", "6F9619FF-8B86-D011-B42D-00C04FC964FF"),
    ("xml", "N'<a b=\"1\"/>'", '<a b="1"/>'),
]


@pytest.mark.parametrize("mode", ["direct", "function"])
def test_every_type_has_its_text_in_changes_and_in_rows(sqlserver_database: TestDatabase, mode: str) -> None:
    declared = ", ".join(f"c{place} {kind} null" for place, (kind, _, _) in enumerate(TYPES))
    listed = ", ".join(value for _, value, _ in TYPES)
    sqlserver_database.execute(f"create table t (id int not null primary key, {declared})")
    sqlserver_database.enable("t")
    sqlserver_database.execute(f"insert into t values (1, {listed})", "insert into t (id) values (2)")
    sqlserver_database.capture()
    expected = [("1", *(text for _, _, text in TYPES)), ("2", *(None for _ in TYPES))]
    with connected(sqlserver_database, {"data.query.mode": mode}) as session:
        _, table = only(session)
        assert changed(session) == [(2, *row) for row in expected]
        assert read(session, table, KeyRange(("id",))) == expected


Read = Callable[..., list[tuple[Any, ...]]]
Place = Callable[[Read, str, Callable[[], None]], Read]


def before(read: Read, statement: str, act: Callable[[], None]) -> Read:
    """Return a function that acts before it reads the statement like `read`."""

    def reading(session: SqlServerSession, asked: str, *parameters: Any) -> list[tuple[Any, ...]]:
        if asked == statement:
            act()
        return read(session, asked, *parameters)

    return reading


def after(read: Read, statement: str, act: Callable[[], None]) -> Read:
    """Return a function that acts after it has read the statement like `read`."""

    def reading(session: SqlServerSession, asked: str, *parameters: Any) -> list[tuple[Any, ...]]:
        found = read(session, asked, *parameters)
        if asked == statement:
            act()
        return found

    return reading


def test_a_capture_instance_is_described_with_its_source(sqlserver_database: TestDatabase) -> None:
    sqlserver_database.execute(
        "create table [odd ]]name] (b decimal(9, 3) not null default 1.5, [a\u00e4] int not null, c nvarchar(7), "
        "d as b * 2, constraint pk primary key ([a\u00e4], b))"
    )
    sqlserver_database.enable("odd ]name")
    with connected(sqlserver_database) as session:
        capture, table = only(session)
        assert capture.source == TableId(sqlserver_database.name, "dbo", "odd ]name")
        assert capture.name == "dbo_odd ]name"
        assert (capture.change_schema, capture.change_table) == ("cdc", "dbo_odd ]name_CT")
        assert capture.columns == ("b", "a\u00e4", "c", "d")
        assert table.key == capture.key == ("a\u00e4", "b")
        assert [(one.type_name, one.modifier, one.nullable) for one in table.columns[:3]] == [
            ("decimal", 9 << 16 | 3, False),
            ("int", -1, False),
            ("nvarchar", 7, True),
        ]
        assert table.columns[0].default == "((1.5))"
        assert table.columns[3].generated
        assert session.oldest(capture) == capture.start
        assert session.tables() == [capture.source]
        assert session.lineage()


def test_tables_without_capture_instance_are_described_as_they_are(
    sqlserver_database: TestDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dialect, "_LISTED", 1)
    sqlserver_database.execute(
        "create table t (id int not null primary key)",
        "create table u (b nvarchar(7) default N'x', id int identity not null, d as id * 2, primary key (id))",
        "create table a (v int)",
    )
    sqlserver_database.enable("t")
    with connected(sqlserver_database) as session:
        captured = {TableId(sqlserver_database.name, "dbo", "t")}
        bare, other = session.uncaptured(captured)
        assert [str(bare.id), str(other.id)] == ["dbo.a", "dbo.u"]
        assert [(one.name, one.type_name, one.identity, one.generated) for one in other.columns] == [
            ("b", "nvarchar", False, False),
            ("id", "int", True, False),
            ("d", "int", False, True),
        ]
        assert (bare.key, other.key, other.columns[0].default) == ((), ("id",), "(N'x')")
        assert session.uncaptured({*captured, bare.id, other.id}) == []


def test_an_update_is_two_rows_and_a_change_of_the_key_too(sqlserver_database: TestDatabase) -> None:
    sqlserver_database.execute("create table t (id int not null primary key, v int)")
    sqlserver_database.enable("t")
    sqlserver_database.execute(
        "insert into t values (1, 1)", "update t set v = 2 where id = 1", "update t set id = 2", "delete from t"
    )
    sqlserver_database.capture()
    with connected(sqlserver_database) as session:
        assert changed(session) == [
            (2, "1", "1"), (3, "1", "1"), (4, "1", "2"), (1, "1", "2"), (2, "2", "2"), (1, "2", "2"),
        ]  # fmt: skip


def test_commands_order_the_rows_of_a_transaction(sqlserver_database: TestDatabase) -> None:
    """Microsoft's documentation: "__$seqval should not be used for ordering", but __$command_id should."""
    sqlserver_database.execute("create table t (id int not null primary key)")
    sqlserver_database.enable("t")
    sqlserver_database.execute("insert into t values (1), (2), (3)", "update t set id = id + 1")
    sqlserver_database.capture()
    # Keys are moved: all rows are deleted first, and each insert has its delete's place in the log.
    moved = "from cdc.dbo_t_CT where [__$start_lsn] = (select max([__$start_lsn]) from cdc.dbo_t_CT)"
    for operation, first in ((1, 100), (2, 200)):
        for (key,) in sqlserver_database.query(f"select id {moved} and [__$operation] = {operation}"):
            sqlserver_database.execute(
                f"update cdc.dbo_t_CT set [__$command_id] = {first + key} where [__$operation] = {operation} "
                f"and id = {key} and [__$start_lsn] = (select max([__$start_lsn]) from cdc.dbo_t_CT)"
            )
    with connected(sqlserver_database) as session:
        assert changed(session)[3:] == [(1, "1"), (1, "2"), (1, "3"), (2, "2"), (2, "3"), (2, "4")]
        capture, table = only(session)
        newest = session.newest()
        assert newest is not None
        (rows,) = session.changes(capture, table, START, newest)
        assert rows.command is not None
        assert rows.command[3:].tolist() == [101, 102, 103, 202, 203, 204]
    # A change table without the column for commands.
    sqlserver_database.execute(
        "drop index [dbo_t_CT_clustered_idx] on cdc.dbo_t_CT", "alter table cdc.dbo_t_CT drop column [__$command_id]"
    )
    with connected(sqlserver_database) as session:
        assert len(changed(session)) == 9


@pytest.mark.parametrize("mode", ["direct", "function"])
def test_a_range_is_open_below_and_closed_above(sqlserver_database: TestDatabase, mode: str) -> None:
    sqlserver_database.execute("create table t (id int not null primary key)")
    sqlserver_database.enable("t")
    for number in range(4):
        sqlserver_database.execute(f"insert into t values ({number}), ({number + 10})")
    newest = sqlserver_database.capture()
    with connected(sqlserver_database, {"data.query.mode": mode}) as session:
        capture, table = only(session)
        counted = session.counts(capture, START, newest)
        positions = [position for position, _ in counted]
        assert [count for _, count in counted] == [2, 2, 2, 2]
        assert positions == sorted(positions)
        assert positions[-1] == newest == session.newest()
        low, high = positions[0], positions[2]
        assert session.counts(capture, low, high) == counted[1:3]
        assert session.total(capture, low, high) == 4
        assert [row[1] for row in changed(session, low)] == ["1", "11", "2", "12", "3", "13"]
        (rows,) = session.changes(capture, table, low, high)
        assert [one.hex() for one in rows.commit.to_pylist()] == [p.hex() for p in positions[1:3] for _ in range(2)]
        assert session.total(capture, newest, newest) == 0
        assert list(session.changes(capture, table, newest, newest)) == []
        (bare,) = session.changes(capture, replace(table, columns=(), key=()), low, high)
        assert (len(bare), bare.columns) == (4, [])
        assert [session.last(capture, one, ()) for one in (START, low, newest)] == [None, low, newest]
        assert session.last(capture, newest, (2,)) is None
        assert session.last(capture, newest, (1, 3, 4)) == newest
        assert session.nth(START, 2) == positions[1]
        assert session.nth(positions[1], 2) == positions[3]
        assert session.nth(START, 5) is None
        times = session.commit_times(low, high)
        assert times.positions.to_pylist() == positions[1:3]
        assert list(times.at_us) == sorted(times.at_us)


@pytest.mark.parametrize("mode", ["direct", "function"])
def test_a_range_that_was_cleaned_up_is_an_error(sqlserver_database: TestDatabase, mode: str) -> None:
    sqlserver_database.execute("create table t (id int not null primary key)")
    sqlserver_database.enable("t")
    sqlserver_database.execute("insert into t values (1)")
    middle = sqlserver_database.capture()
    sqlserver_database.execute("insert into t values (2)")
    newest = sqlserver_database.capture()
    with connected(sqlserver_database, {"data.query.mode": mode}) as session:
        capture, table = only(session)
        sqlserver_database.clean_up("dbo_t", newest)
        with pytest.raises(PositionLost, match="begins at"):
            list(session.changes(capture, table, START, newest))
        with pytest.raises(PositionLost, match="raise the retention"):
            list(session.changes(capture, table, middle[:-1] + b"\0", newest))
        # The changes after the new low end are still complete.
        before = (int.from_bytes(newest, "big") - 1).to_bytes(10, "big")
        assert [len(rows) for rows in session.changes(capture, table, before, newest)] == [1]


def test_a_clean_up_while_rows_are_read_is_an_error(sqlserver_database: TestDatabase) -> None:
    sqlserver_database.execute("create table t (id int not null primary key)")
    sqlserver_database.enable("t")
    for number in range(3):
        sqlserver_database.execute(f"insert into t values ({number})")
    newest = sqlserver_database.capture()
    with connected(sqlserver_database, {"query.fetch.size": "1"}) as session:
        capture, table = only(session)
        reading = session.changes(capture, table, START, newest)
        assert len(next(reading)) == 1
        sqlserver_database.clean_up("dbo_t", newest)
        with pytest.raises(PositionLost):
            list(reading)


def test_a_capture_instance_that_is_dropped_is_an_error(sqlserver_database: TestDatabase) -> None:
    sqlserver_database.execute("create table t (id int not null primary key)")
    sqlserver_database.enable("t")
    sqlserver_database.execute("insert into t values (1)")
    newest = sqlserver_database.capture()
    with connected(sqlserver_database) as session:
        capture, table = only(session)
        sqlserver_database.execute(
            "exec sys.sp_cdc_disable_table @source_schema = N'dbo', @source_name = N't', @capture_instance = N'all'"
        )
        assert session.captures() == []
        for call in (
            lambda: list(session.changes(capture, table, START, newest)),
            lambda: session.describe([capture]),
            lambda: session.oldest(capture),
        ):
            with pytest.raises(PositionLost, match="dbo_t"):
                call()


@pytest.mark.parametrize(
    "statement",
    [statements.CAPTURES, statements.INDEX_COLUMNS, statements.CAPTURED_COLUMNS],
    ids=["instances", "keys", "columns"],
)
@pytest.mark.parametrize("place", [before, after])
def test_an_instance_that_comes_or_goes_while_they_are_read_has_its_columns(
    sqlserver_database: TestDatabase, monkeypatch: pytest.MonkeyPatch, statement: str, place: Place
) -> None:
    sqlserver_database.execute("create table t (id int not null primary key, name varchar(9))")
    sqlserver_database.enable("t")
    arguments = "@source_schema = N'dbo', @source_name = N't', @capture_instance = N't_v2'"
    for change in (f"sp_cdc_enable_table {arguments}, @role_name = null", f"sp_cdc_disable_table {arguments}"):
        act = partial(sqlserver_database.execute, f"exec sys.{change}")
        with monkeypatch.context() as patched, connected(sqlserver_database) as session:
            patched.setattr(SqlServerSession, "all", place(SqlServerSession.all, statement, act))
            found = session.captures()
            assert found[0].name == "dbo_t"
            assert [one.columns for one in found] == [("id", "name")] * len(found)
            assert [one.key for one in found] == [("id",)] * len(found)


def test_captures_can_be_chosen_by_their_names(sqlserver_database: TestDatabase) -> None:
    sqlserver_database.execute("create table t (id int not null primary key)")
    sqlserver_database.enable("t")
    sqlserver_database.execute(
        "exec sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N't', @role_name = null, "
        "@capture_instance = N't_v2'"
    )
    with connected(sqlserver_database) as session:
        assert [one.name for one in session.captures()] == ["dbo_t", "t_v2"]
    for option in ({"capture.instance.include.list": ".*_v2"}, {"capture.instance.exclude.list": "DBO_.*"}):
        with connected(sqlserver_database, option) as session:
            assert [one.name for one in session.captures()] == ["t_v2"]


def test_a_database_without_capture_says_what_to_do(sqlserver_database: TestDatabase) -> None:
    with connected(sqlserver_database) as session, pytest.raises(PrerequisiteError, match="sp_cdc_enable_db"):
        session.check()


def test_while_the_agent_is_stopped_nothing_is_lost(sqlserver: TestServer, sqlserver_database: TestDatabase) -> None:
    sqlserver.execute("exec master.dbo.xp_servicecontrol N'stop', N'SQLServerAgent'")
    try:
        sqlserver_database.execute("create table t (id int not null primary key)")
        sqlserver_database.enable("t")
        sqlserver_database.execute("insert into t values (1)")
        with connected(sqlserver_database) as session:
            session.check()
            assert session.newest() is None
            told = " ".join(session.warnings(session.captures()))
            assert "SQL Server Agent is not running" in told
            assert "No transaction was captured yet" in told
    finally:
        sqlserver.execute("exec master.dbo.xp_servicecontrol N'start', N'SQLServerAgent'")
    sqlserver_database.capture()
    with connected(sqlserver_database) as session:
        assert changed(session) == [(2, "1")]
        assert session.warnings(session.captures()) == []


# --- rows of source tables ------------------------------------------------------------------------------------------


def test_chunks_follow_each_other_by_key(sqlserver_database: TestDatabase) -> None:
    sqlserver_database.execute("create table t (a int not null, b varchar(5) not null, v int, primary key (a, b))")
    sqlserver_database.enable("t")
    keys = [(a, b) for a in range(3) for b in ("x", "y", "z")]
    sqlserver_database.execute(*(f"insert into t values ({a}, '{b}', 0)" for a, b in reversed(keys)))
    with connected(sqlserver_database) as session:
        _, table = only(session)
        found, after = [], None
        while (upto := session.boundary(table, KeyRange(("a", "b"), after), 2)) is not None:
            found.append(read(session, table, KeyRange(("a", "b"), after, upto)))
            after = upto
        rest = read(session, table, KeyRange(("a", "b"), after))
        assert [len(chunk) for chunk in found] == [2, 2, 2, 2]
        assert len(rest) == 1
        assert [(int(a), b) for chunk in (*found, rest) for a, b, _ in chunk] == keys
        assert session.maximum(table, KeyRange(("a", "b"))) == ("2", "z")
        assert session.maximum(table, KeyRange(("a", "b"), None, ("1", "x"))) == ("1", "x")
        assert session.maximum(table, KeyRange(("a", "b"), ("2", "z"))) is None
        assert read(session, table, KeyRange(("a", "b"), ("1", "z"), None, "b <> 'x' or v is null")) == [
            ("2", "y", "0"),
            ("2", "z", "0"),
        ]
        among = (("1", "x"), ("2", "z"), ("7", "x"))
        assert [row[:2] for row in read(session, table, KeyRange(("a", "b"), keys=among))] == [("1", "x"), ("2", "z")]
        assert len(read(session, table, KeyRange(("a",), keys=(("1",), ("2",))))) == 6
        assert session.row_count(table.id) == 9
        assert not session.is_empty(table.id)


@pytest.mark.parametrize(
    ("kind", "literals"),
    [
        ("datetime2(7)", ["'2026-01-02 03:04:05.0000001'", "'2026-01-02 03:04:05.0000002'"]),
        ("datetime", ["'2026-01-02T03:04:05.003'", "'2026-01-02T03:04:05.007'"]),
        ("datetimeoffset(7)", ["'2026-01-02 03:04:05.1 +02:00'", "'2026-01-02 03:04:05.1 -02:00'"]),
        ("smalldatetime", ["'2026-01-02 03:04:00'", "'2026-01-02 03:05:00'"]),
        ("date", ["'0001-01-01'", "'2026-01-02'"]),
        ("time(7)", ["'03:04:05.0000001'", "'03:04:05.0000002'"]),
        ("bit", ["0", "1"]),
        ("float", ["0.1", "1.5e300"]),
        ("decimal(38, 20)", ["-0.00000000000000000001", "0.00000000000000000001"]),
        ("money", ["-1.2345", "1.2345"]),
        ("nvarchar(10)", ["N'\u65e5'", "N'\u672c'"]),
        ("varbinary(10)", ["0x00", "0xff00"]),
        ("bigint", ["-9223372036854775808", "9223372036854775807"]),
    ],
)
def test_a_key_of_any_type_bounds_a_chunk(sqlserver_database: TestDatabase, kind: str, literals: list[str]) -> None:
    sqlserver_database.execute(f"create table t (k {kind} not null primary key)")
    sqlserver_database.enable("t")
    sqlserver_database.execute(*(f"insert into t values ({literal})" for literal in literals))
    with connected(sqlserver_database) as session:
        _, table = only(session)
        every = read(session, table, KeyRange(("k",)))
        assert len(every) == 2
        first = session.boundary(table, KeyRange(("k",)), 1)
        assert first == every[0]
        assert read(session, table, KeyRange(("k",), None, first)) == every[:1]
        assert read(session, table, KeyRange(("k",), first)) == every[1:]


@pytest.mark.parametrize("collation", ["Cyrillic_General_CI_AS", "Latin1_General_100_CI_AS_SC_UTF8"])
def test_a_key_with_a_code_page_of_its_own_bounds_a_chunk(sqlserver_database: TestDatabase, collation: str) -> None:
    """In the database's code page these texts would be question marks."""
    texts = ["\u0436", "\u0436\u0436", "\u044f"]
    sqlserver_database.execute(
        f"create table t (a int not null, k varchar(10) collate {collation} not null, primary key (a, k))"
    )
    sqlserver_database.enable("t")
    sqlserver_database.execute(*(f"insert into t values (1, N'{text}')" for text in texts))
    rows = [("1", text) for text in texts]
    with connected(sqlserver_database) as session:
        _, table = only(session)
        first = session.boundary(table, KeyRange(("a", "k")), 1)
        assert first == rows[0]
        assert read(session, table, KeyRange(("a", "k"), None, first)) == rows[:1]
        assert read(session, table, KeyRange(("a", "k"), first)) == rows[1:]
        assert read(session, table, KeyRange(("a", "k"), keys=(rows[2],))) == rows[2:]
        assert read(session, table, KeyRange(("k",), keys=((texts[1],),))) == rows[1:2]


def test_rows_with_null_in_a_surrogate_key_come_with_the_first_chunk(sqlserver_database: TestDatabase) -> None:
    sqlserver_database.execute("create table t (id int not null primary key, s int)")
    sqlserver_database.enable("t")
    sqlserver_database.execute("insert into t values (1, null), (2, null), (3, 5), (4, 6)")
    with connected(sqlserver_database) as session:
        _, table = only(session)
        upto = session.boundary(table, KeyRange(("s",)), 1)
        assert upto == ("5",)
        assert [row[0] for row in read(session, table, KeyRange(("s",), None, upto))] == ["1", "2", "3"]
        assert [row[0] for row in read(session, table, KeyRange(("s",), upto))] == ["4"]


@pytest.mark.parametrize("mode", ["repeatable_read", "snapshot", "read_committed", "read_uncommitted", "exclusive"])
def test_rows_are_read_under_every_isolation(sqlserver_database: TestDatabase, mode: str) -> None:
    sqlserver_database.execute("create table t (id int not null primary key)")
    sqlserver_database.enable("t")
    sqlserver_database.execute("insert into t values (1), (2)")
    options = {"snapshot.isolation.mode": mode, "incremental.snapshot.option.recompile": "true"}
    with connected(sqlserver_database, options) as session:
        _, table = only(session)
        if mode == "snapshot":
            with pytest.raises(PrerequisiteError, match="allow_snapshot_isolation on"):
                read(session, table, KeyRange(("id",)))
            sqlserver_database.execute(f"alter database [{sqlserver_database.name}] set allow_snapshot_isolation on")
        assert read(session, table, KeyRange(("id",))) == [("1",), ("2",)]
        # An abandoned read leaves the session usable.
        reading = session.rows(table, KeyRange(("id",)))
        next(reading)
        reading.close()  # type: ignore[attr-defined]
        assert session.newest() is not None


def test_a_select_of_the_users_replaces_the_table(sqlserver_database: TestDatabase) -> None:
    sqlserver_database.execute("create table t (id int not null primary key, at datetime2(7))")
    sqlserver_database.enable("t")
    sqlserver_database.execute("insert into t values (1, '2026-01-02 03:04:05.1234567'), (2, null), (3, null)")
    with connected(sqlserver_database) as session:
        _, table = only(session)
        for statement in (
            "select at, id from dbo.t where id < 2",
            "select at, id from dbo.t where id < 2 order by id desc;",
        ):
            assert read(session, table, KeyRange(), statement) == [("1", "2026-01-02 03:04:05.1234567")]
        with pytest.raises(ConfigError, match=r"snapshot.select.statement.overrides.dbo.t fails"):
            read(session, table, KeyRange(), "select id from dbo.t")


# --- writing, and what goes wrong -----------------------------------------------------------------------------------


def test_signals_are_written_and_deleted(sqlserver_database: TestDatabase) -> None:
    sqlserver_database.execute(
        "create table [my signals] (number varchar(42), [what for] varchar(32), x varchar(2048))"
    )
    table = TableId(sqlserver_database.name, "dbo", "my signals")
    with connected(sqlserver_database) as session:
        session.write_signal(table, "1", "snapshot-window-open", '{"a": "\u00e4"}')
        session.write_signal(table, "2", "snapshot-window-close", None)
        assert sqlserver_database.query("select * from [my signals] order by number") == [
            ("1", "snapshot-window-open", '{"a": "\u00e4"}'),
            ("2", "snapshot-window-close", None),
        ]
        session.delete_signal(table, "1")
        session.delete_signal(table, "2")
        assert sqlserver_database.query("select * from [my signals]") == []
        with pytest.raises(PrerequisiteError, match="There is no table"):
            session.delete_signal(TableId(sqlserver_database.name, "dbo", "none"), "1")


def test_a_statement_of_the_users_is_run(sqlserver_database: TestDatabase) -> None:
    sqlserver_database.execute("create table beats (n int)")
    with connected(sqlserver_database) as session:
        session.execute("insert into beats values (1)")
        assert sqlserver_database.query("select n from beats") == [(1,)]
        with pytest.raises(ConfigError, match=r"heartbeat\.action\.query fails"):
            session.execute("insert into nowhere values (1)")


def test_a_lost_connection_is_told_and_a_new_one_works(sqlserver: TestServer, sqlserver_database: TestDatabase) -> None:
    sqlserver_database.execute("create table t (id int not null primary key)")
    sqlserver_database.enable("t")
    sqlserver_database.execute("insert into t values (1)")
    sqlserver_database.capture()
    with connected(sqlserver_database, {"driver.connectRetryCount": "0"}) as session:
        session.check()
        sqlserver.disconnect()
        with pytest.raises(ConnectionFailed, match="was lost"):
            session.newest()
    with connected(sqlserver_database) as session:
        assert changed(session) == [(2, "1")]


def test_the_database_keeps_its_own_spelling(make_sqlserver_database: Callable[..., TestDatabase]) -> None:
    database = make_sqlserver_database(name="MixedCase")
    database.execute("create table t (id int not null primary key)")
    database.enable("t")
    with connected(database, {"database.names": "mixedCASE"}) as session:
        assert session.database == "MixedCase"
        assert only(session)[0].source.database == "MixedCase"


def test_tables_that_differ_by_case_are_two(make_sqlserver_database: Callable[..., TestDatabase]) -> None:
    database = make_sqlserver_database(collation="SQL_Latin1_General_CP1_CS_AS")
    database.execute("create table t (id int not null primary key)", "create table T (ID int not null primary key)")
    database.enable("t", "T")
    database.execute("insert into t values (1)", "insert into T values (2)")
    newest = database.capture()
    with connected(database) as session:
        found = {}
        for one in session.describe(session.captures()):
            (rows,) = session.changes(one.capture, one.table, START, newest)
            found[one.table.id.table] = (one.table.columns[0].name, rows.columns[0].to_pylist())
        assert found == {"t": ("id", [b"1"]), "T": ("ID", [b"2"])}
