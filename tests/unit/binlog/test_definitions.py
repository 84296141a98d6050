"""Definitions at each position of the log: what they learn, keep, doubt and refuse."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tailrace.connectors.binlog.dialect import MARIADB, MYSQL
from tailrace.connectors.binlog.schema import catalog
from tailrace.connectors.binlog.schema.changes import record_of
from tailrace.connectors.binlog.schema.definition import Name, TableDefinition
from tailrace.connectors.binlog.schema.definitions import Definitions, FollowRules, State, effect_on
from tailrace.connectors.binlog.schema.statement import (
    NO_OUTCOME,
    UNCAPTURED,
    Place,
    Statement,
    StatementEffects,
    settings_of,
)
from tailrace.connectors.binlog.schema.table_map import ColumnType, TableMap
from tailrace.errors import PrerequisiteError

T: Name = ("d", "t")


def table(sql: str, name: Name = T) -> TableDefinition:
    return catalog.definition(sql, name, MYSQL)


TWO = table(
    "CREATE TABLE `t` (`id` int NOT NULL, `v` varchar(3) DEFAULT NULL, PRIMARY KEY (`id`)) DEFAULT CHARSET=utf8mb4"
)


def at(pos: int, start: int = 0) -> Place:
    return Place(0, 1, start or pos, pos, "binlog.000001")


def statement(sql: str, database: str = "d", **more: bytes) -> Statement:
    return Statement(database, sql.encode(), more.get("status", b""), 1, 0)


def given(*columns: tuple[str, ColumnType, int, bool], named: bool = False, name: Name = T) -> TableMap:
    """Return a map of columns: name, type, parameter, nullable."""
    count = len(columns)
    return TableMap(
        *name,
        tuple(one[1] for one in columns),
        tuple(one[2] for one in columns),
        tuple(one[3] for one in columns),
        repr((name, columns, named)).encode(),
        unsigned=(None,) * count,
        collations=(None,) * count,
        names=tuple(one[0] for one in columns) if named else None,
        labels=(None,) * count,
        geometry_types=(None,) * count,
        dimensions=(None,) * count,
        key=((0, 0),) if named else None,
    )


ID, V = ("id", ColumnType.LONG, 0, False), ("v", ColumnType.VARCHAR, 12, True)


def definitions(
    start: TableDefinition | None = TWO,
    catalog: Callable[[Name], TableDefinition | None] = lambda name: None,
    rereads: bool = False,
    later: State | None = None,
) -> Definitions:
    state = State({} if start is None else {start.id: start}, {"d": "utf8mb4"})
    return Definitions(
        MYSQL,
        lambda database, name: name != "left_out",
        catalog,
        start=state,
        later=later,
        following=FollowRules(rereads=rereads),
    )


def names(found: Definitions, version: int) -> list[str]:
    return [column.name for column in found.versions[version].columns]


def test_rows_of_one_form_have_one_version() -> None:
    found = definitions()
    assert found.version(given(ID, V), at(1)) == found.version(given(ID, V), at(2)) == 0
    assert found.version(given(ID, V, name=("d", "left_out")), at(3)) == UNCAPTURED
    found.statement(statement("alter table t add w int"), at(4))
    assert found.version(given(ID, V, ("w", ColumnType.LONG, 0, True)), at(5)) == 1
    assert [one.version for one in found.versions] == [1, 2]


def test_a_definition_that_does_not_fit_stops_where_the_log_names_no_columns() -> None:
    found = definitions(catalog=lambda name: TWO)
    for wrong in (
        given(ID, V, ("w", ColumnType.LONG, 0, True)),
        given(V, ID),
        given(ID, ("v", ColumnType.VARCHAR, 16, True)),
        given(ID, ("v", ColumnType.VARCHAR, 12, False)),
    ):
        with pytest.raises(PrerequisiteError, match=r"d\.t: the form of its rows at binlog\.000001:7 is not known"):
            found.version(wrong, at(7))


def test_rows_of_an_unknown_form_are_left_out_if_that_is_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    start = State({T: TWO})
    found = Definitions(
        MYSQL, lambda *name: True, lambda name: None, start=start, following=FollowRules(unknown_rows="warn")
    )
    assert found.version(given(V, ID), at(7)) == UNCAPTURED
    assert "Rows are left out" in caplog.text


def test_a_statement_that_is_not_understood_puts_its_table_in_doubt() -> None:
    found = definitions(catalog=lambda name: TWO)
    found.statement(statement("alter table t frobnicate v"), at(4))
    with pytest.raises(PrerequisiteError, match=r"a statement at binlog\.000001:4 was not followed"):
        found.version(given(ID, V), at(5))
    reread = definitions(catalog=lambda name: TWO, rereads=True)
    reread.statement(statement("alter table t frobnicate v"), at(4))
    assert names(reread, reread.version(given(ID, V), at(5))) == ["id", "v"]
    reread.statement(statement("alter table t frobnicate v"), at(6))
    with pytest.raises(PrerequisiteError, match="not known"):
        reread.version(given(ID, ("v", ColumnType.BLOB, 2, True)), at(7))


@pytest.mark.parametrize(
    ("sql", "name"),
    [
        ("alter table t modify v varchar(3)", T),
        ("create unique index u on t (v)", T),
        ("rename table t to s", ("d", "s")),
        ("alter table t rename s", ("d", "s")),
        ("create table s like t", ("d", "s")),
        ("rename table t to s, s to t", T),
    ],
)
def test_a_table_stays_in_doubt_behind_a_statement_that_is_understood(sql: str, name: Name) -> None:
    found = definitions()
    found.statement(statement("alter table t frobnicate v"), at(4))
    found.statement(statement(sql), at(5))
    with pytest.raises(PrerequisiteError, match=r"a statement at binlog\.000001:4 was not followed"):
        found.version(given(ID, V, name=name), at(6))
    # a table that is made anew is known
    found.statement(statement("drop table if exists t, s"), at(7))
    found.statement(statement(f"create table {name[1]} (id int primary key, v varchar(3))"), at(8))
    assert names(found, found.version(given(ID, V, name=name), at(9))) == ["id", "v"]


def test_a_map_that_names_the_columns_ends_the_doubt() -> None:
    found = definitions()
    found.statement(statement("alter table t frobnicate v"), at(4))
    version = found.version(given(ID, V, named=True), at(5))
    assert found.version(given(ID, V, named=True), at(6)) == version
    assert names(found, found.version(given(ID, V), at(7))) == ["id", "v"]
    assert T in found.upto(at(4)).doubtful


def test_where_the_log_names_columns_it_is_right() -> None:
    newer = table(
        "CREATE TABLE `t` (`id` int NOT NULL, `v` varchar(9) DEFAULT 'x', `w` int DEFAULT '4', PRIMARY KEY (`id`))"
    )
    found = definitions(catalog=lambda name: newer)
    seen = given(
        ID,
        ("v", ColumnType.VARCHAR, 16, True),
        ("w", ColumnType.LONG, 0, True),
        ("z", ColumnType.TINY, 0, True),
        named=True,
    )
    version = found.versions[found.version(seen, at(5))]
    assert [(one.name, one.type_name, one.default) for one in version.columns] == [
        ("id", "int", None), ("v", "varbinary(16)", None), ("w", "int", '["text", "4", "4"]'), ("z", "tinyint", None)
    ]  # fmt: skip
    assert version.key == ("id",)
    # what was learned is kept in the state
    assert found.upto(at(5)).tables[T].columns[3].name == "z"


def test_a_replay_finds_what_the_first_reading_found() -> None:
    asked: list[Name] = []

    def ask(name: Name) -> TableDefinition | None:
        asked.append(name)
        return None

    found = definitions(None, ask, later=State({T: TWO}))
    assert names(found, found.version(given(ID, V, named=True), at(5))) == ["id", "v"]
    assert asked == []


def test_states_are_those_of_positions() -> None:
    found = definitions()
    found.begin()
    found.statement(statement("alter table t add w int"), at(10))
    found.keep()
    found.begin()
    found.statement(statement("drop table t"), at(20))
    assert [len(found.upto(at(pos)).tables.get(T, TWO).columns) for pos in (9, 10, 19)] == [2, 3, 3]
    assert T not in found.upto(at(20)).tables
    # a run that failed is read again
    found.begin()
    assert T in found.upto(at(99)).tables
    found.forget(at(15))
    assert len(found.upto(at(1)).tables[T].columns) == 3
    assert State.from_text(found.now.to_text()).tables == found.now.tables


def records(outcome: StatementEffects) -> list[tuple[str, str, list[tuple[str, str]] | None, list[tuple[str, str]]]]:
    found = [record_of(content) for content in outcome.changes]
    return [
        (
            one.ddl,
            one.database,
            None if one.names is None else list(one.names),
            [(c.kind, c.name[1]) for c in one.changes],
        )
        for one in found
    ]


def test_records_tell_what_each_statement_changes() -> None:
    found = definitions()
    tell = lambda sql: records(found.statement(statement(sql), at(5)))  # noqa: E731
    assert tell("rename table t to a, a to b.c") == [
        ("rename table t to a", "d", [("d", "a")], []),
        ("rename table a to b.c", "b", [("b", "c")], [("ALTER", "c")]),
    ]
    assert tell("drop table if exists x, b.c") == [
        ("DROP TABLE IF EXISTS `d`.`x`", "d", [("d", "x")], [("DROP", "x")]),
        ("DROP TABLE IF EXISTS `b`.`c`", "b", [("b", "c")], [("DROP", "c")]),
    ]
    assert tell("create database e") == [("create database e", "e", None, [])]
    assert tell("create index i on t (v)") == [("create index i on t (v)", "d", [], [])]
    assert tell("create view v as select 1") == tell("grant select on *.* to x") == tell("analyze table t") == []
    event = "create definer=`r`@`%` event e on schedule every 1 day do set @x = 1"
    for sql in (event, "alter event e disable", "drop event e", "flush privileges", "rename user a to b"):
        assert tell(sql) == [(sql, "d", [], [])]
    assert tell("create procedure p() select event from e") == tell("flush relay logs") == []
    assert (
        tell('create table q (v varchar(9) default "it\'s")')[0][0] == "create table q (v varchar(9) default 'it''s')"
    )
    assert tell("create temporary table x (a int)") == tell("drop temporary table x") == []


def test_rows_that_a_statement_has_changed_stop_the_query() -> None:
    found = definitions()
    with pytest.raises(PrerequisiteError, match=r"d\.t: a statement at binlog\.000001:5 has changed its rows"):
        found.statement(statement("update t set v = 1"), at(5))
    assert found.statement(statement("insert into left_out values (1)"), at(6)) == NO_OUTCOME
    assert found.statement(statement("delete from mysql.user where user = 'x'"), at(6)) == NO_OUTCOME
    # what a MEMORY table has lost at a restart
    version = found.version(given(ID, V), at(7))
    assert found.statement(statement("DELETE FROM `d`.`t` /* generated by server */"), at(8)).truncated == (version,)
    assert found.statement(statement("truncate t"), at(9)).truncated == (version,)


def test_status_variables_give_modes_and_collations() -> None:
    status = bytes([0]) + bytes(4) + bytes([1]) + (1 << 2 | 1 << 20).to_bytes(8, "little")
    status += bytes([6, 3]) + b"std" + bytes([4, 8, 0, 8, 0, 45, 0, 99])
    found = settings_of(status)
    assert (found.ansi_quotes, found.no_backslashes, found.client_collation, found.server_collation) == (
        True,
        True,
        8,
        45,
    )
    ansi = definitions(None)
    ansi.statement(statement('create table "x y" ("a b" int)', status=status), at(1))
    assert ("d", "x y") in ansi.now.tables


def test_marias_collations_stand_before_the_character_sets() -> None:
    """MariaDB 11.4 writes them with statements that create tables."""
    sets = bytes([4, 30, 0, 30, 0, 45, 0])
    for pairs in (b"", bytes([30, 0, 78, 0]), bytes([30, 0, 78, 0, 45, 0, 0, 9])):
        found = settings_of(bytes([131, len(pairs) // 4]) + pairs + sets)
        assert (found.client_collation, found.server_collation) == (30, 45)
    assert settings_of(bytes([131])) == settings_of(b"")


def test_a_statement_is_in_the_character_set_of_its_session() -> None:
    made = "create table t (`s\xfctun` int, e enum('\u015f', '\u011f') character set latin5)"
    for codec, collation in (("iso8859_9", 30), ("utf-8", 45), ("cp1252", 0)):
        if codec == "cp1252":
            # a session without a character set, and bytes that are not UTF-8: nothing better is known
            text, expected = made.encode("iso8859_9"), ["s\ufffdtun", "e"]
        else:
            text, expected = made.encode(codec), ["s\xfctun", "e"]
        found = definitions(None)
        found.statement(Statement("d", text, bytes([4, collation, 0, 0, 0, 45, 0]), 1, 0), at(1))
        columns = found.now.tables[T].columns
        assert [column.name for column in columns] == expected
        assert codec == "cp1252" or columns[1].labels == ("\u015f", "\u011f")


def test_types_of_oracle_are_those_that_mariadb_makes_of_them() -> None:
    made = b"create table t (n number, m number(5,2), d date, b blob, c clob, v varchar2(9), r raw(4))"
    status = bytes([1]) + (1 << 9).to_bytes(8, "little")
    found = Definitions(MARIADB, lambda *name: True, lambda name: None, start=State())
    for mode, expected in (
        (status, "DOUBLE NUMBER DATETIME LONGBLOB CLOB VARCHAR2 RAW"),
        (b"", "NUMBER NUMBER DATE BLOB CLOB VARCHAR2 RAW"),
    ):
        found.statement(Statement("d", made, mode, 1, 0), at(4))
        assert " ".join(column.words for column in found.now.tables[T].columns) == expected
    old = Definitions(MYSQL, lambda *name: True, lambda name: None, start=State())
    old.statement(Statement("d", b"create table t (d date)", status, 1, 0), at(4))
    assert old.now.tables[T].columns[0].words == "DATE"


_SEQUENCE = tuple(
    (name, ColumnType.TINY if name == "cycle_option" else ColumnType.LONGLONG, 0, False)
    for name in (
        "next_not_cached_value", "minimum_value", "maximum_value", "start_value", "increment", "cache_size",
        "cycle_option", "cycle_count",
    )
)  # fmt: skip


def test_the_rows_of_a_sequence_are_not_those_of_a_table() -> None:
    other = tuple((f"c{place}", *rest) for place, (_, *rest) in enumerate(_SEQUENCE))
    listed = ", ".join(
        f"`{name}` {'tinyint' if kind is ColumnType.TINY else 'bigint'} NOT NULL" for name, kind, *_ in other
    )
    same = catalog.definition(f"CREATE TABLE `t` ({listed})", T, MARIADB)

    def version(columns: object, there: TableDefinition | None, start: State, *, named: bool) -> int:
        found = Definitions(MARIADB, lambda *name: True, lambda name: there, start=start)
        return found.version(given(*columns, named=named), at(4))  # type: ignore[misc]

    assert version(_SEQUENCE, None, State(), named=True) == UNCAPTURED
    assert version(_SEQUENCE, None, State(), named=False) == UNCAPTURED
    # tables of the same types
    assert version(other, same, State(), named=True) == 0
    assert version(other, same, State(), named=False) == 0
    assert version(other, None, State({T: same}), named=False) == 0


def test_a_table_whose_rows_are_logged_as_statements_is_told_with_the_reason() -> None:
    made = (
        "CREATE TABLE `t` (`id` int NOT NULL, `s` bigint unsigned GENERATED ALWAYS AS ROW START, "
        "`e` bigint unsigned GENERATED ALWAYS AS ROW END, PRIMARY KEY (`id`,`e`), PERIOD FOR SYSTEM_TIME (`s`, `e`)) "
        "WITH SYSTEM VERSIONING"
    )
    start = State({T: catalog.definition(made, T, MARIADB)})
    found = Definitions(MARIADB, lambda *name: True, lambda name: None, start=start)
    with pytest.raises(PrerequisiteError) as caught:
        found.statement(statement("update t set id = 2"), at(5))
    assert "marked by transaction ids" in caught.value.remedy
    assert "binlog_format" not in caught.value.remedy


def test_an_alter_in_two_phases_counts_when_it_is_committed() -> None:
    found = Definitions(MARIADB, lambda *name: True, lambda name: None, start=State({T: TWO}))
    for phase, columns in (("start", 2), ("rollback", 2), ("start", 2), ("commit", 3)):
        altered = Statement("d", b"alter table t add w int", b"", 1, 0, phase)
        found.statement(altered, at(4))
        assert len(found.now.tables[T].columns) == columns


@pytest.mark.parametrize(
    ("sql", "effect"),
    [
        ("create table t (id int primary key)", "made"),
        ("create table d.t (id int primary key)", "made"),
        ("create table other (id int)", ""),
        ("create table e.t (id int)", ""),
        ("create temporary table t (id int)", ""),
        # the table may have been there before, or its columns are not said
        ("create table if not exists t (id int)", "altered"),
        ("create table t like other", "altered"),
        ("create table t select 1 as id", "altered"),
        ("alter table t add column w int", "altered"),
        ("alter table other rename to t", "altered"),
        ("rename table other to t", "altered"),
        ("drop table other, t", "altered"),
        ("drop database d", "altered"),
        ("create database d", ""),
        ("alter table t something that nobody knows", "altered"),
        ("truncate table t", ""),
        ("create index i on t (id)", "altered"),
    ],
)
def test_what_a_statement_does_to_a_table_that_is_not_followed(sql: str, effect: str) -> None:
    assert effect_on(T, statement(sql), MYSQL) == effect


def test_a_table_that_a_command_has_removed_keeps_its_numbers() -> None:
    start = State.of([TWO], {}, {})
    number = start.tables[T].number
    made = "create table t (id int not null primary key, v varchar(3)) default charset=utf8mb4"
    for removed, is_same in (((T,), True), ((), False)):
        found = Definitions(
            MYSQL, lambda *name: False, lambda name: None, start=start, following=FollowRules(removed=removed)
        )
        found.statement(statement("drop table t"), at(10))
        found.statement(statement(made), at(20))
        # copies have the earlier table of that name
        assert (found.now.tables[T].number == number) is is_same
