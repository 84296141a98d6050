"""Effects of statements on tables: columns by number, values of existing rows, and tables that take another's place."""

from __future__ import annotations

import pytest

from tailrace.connectors.binlog.dialect import MARIADB, MYSQL
from tailrace.connectors.binlog.schema import catalog
from tailrace.connectors.binlog.schema.ddl.evolution import rewritten, succeeding
from tailrace.connectors.binlog.schema.ddl.parser import parse
from tailrace.connectors.binlog.schema.ddl.statements import AlterTable
from tailrace.connectors.binlog.schema.ddl.tokens import SqlSettings, Unparsable
from tailrace.connectors.binlog.schema.definition import Name, TableDefinition
from tailrace.connectors.binlog.schema.definitions import Definitions, FollowRules, State
from tailrace.connectors.binlog.schema.statement import Place, Statement, StatementEffects
from tailrace.connectors.binlog.schema.tables import aligned, schema_of

T: Name = ("d", "t")
STRICT = b"\x01" + (1 << 21).to_bytes(8, "little")
MADE = (
    "CREATE TABLE `t` (`id` int NOT NULL, `a` int, `b` int, `v` varchar(9), PRIMARY KEY (`id`)) DEFAULT CHARSET=utf8mb4"
)


def table(sql: str = MADE, name: Name = T) -> TableDefinition:
    return catalog.definition(sql, name, MYSQL)


class Log:
    """Definitions of a copy that begin with tables, and statements that they follow."""

    def __init__(self, *tables: TableDefinition, by_name: bool = False) -> None:
        start = State.of(tables or [table()], {"d": "utf8mb4"}, {})
        following = FollowRules(empties=True, by_name=by_name)
        self.found = Definitions(
            MYSQL, lambda *name: True, lambda name: None, start=start, told=None, following=following
        )
        self._pos = 4

    def follow(self, *statements: str, status: bytes = STRICT) -> list[StatementEffects]:
        found = []
        for one in statements:
            self._pos += 1
            at = Place(0, 1, self._pos, self._pos, "binlog.000001")
            found.append(self.found.statement(Statement("d", one.encode(), status, 1, 0), at))
        return found

    def emptied(self, *statements: str) -> list[str]:
        """Return the names of the tables that statements empty."""
        outcomes = self.follow(*statements)
        return [str(self.found.versions[place].id) for outcome in outcomes for place in outcome.truncated]

    def columns(self, name: str = "t") -> dict[str, int]:
        return {column.name: column.number for column in self.found.now.tables["d", name].columns}


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("alter table t change a b int, change b a int", {"id": 1, "b": 2, "a": 3, "v": 4}),
        ("alter table t rename column a to b, rename column b to a", {"id": 1, "b": 2, "a": 3, "v": 4}),
        ("alter table t drop a, add a int", {"id": 1, "b": 3, "v": 4, "a": 5}),
        ("alter table t change a c int after v, add d int after c", {"id": 1, "b": 3, "v": 4, "c": 2, "d": 5}),
        ("alter table t modify v varchar(9) first, add c int first", {"c": 5, "v": 4, "id": 1, "a": 2, "b": 3}),
        ("alter table t add c int after a, drop b, change a x int", None),
        ("alter table t add column if not exists a int, drop v", {"id": 1, "a": 2, "b": 3}),
    ],
)
def test_an_alteration_names_columns_as_they_were_before_it(statement: str, expected: dict[str, int] | None) -> None:
    log = Log()
    log.follow(statement)
    if expected is None:
        # AFTER names a column as it is called then
        assert T in log.found.now.doubtful
    else:
        assert log.columns() == expected
        assert list(log.columns()) == list(expected)


def test_numbers_of_columns_are_never_used_again_and_are_kept_in_the_offset() -> None:
    log = Log()
    log.follow("alter table t drop v", "alter table t add w int", "alter table t change a a bigint")
    assert log.columns() == {"id": 1, "a": 2, "b": 3, "w": 5}
    again = State.from_text(log.found.now.to_text())
    assert [column.number for column in again.tables[T].columns] == [1, 2, 3, 5]
    assert (again.tables[T].number, again.tables[T].highest) == (1, 5)


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ("c int", (False, None)),
        ("c int default 7", (True, "7")),
        ("c int not null", (True, "0")),
        ("c varchar(4) default 'x '", (True, "x ")),
        ("c char(4) default 'x '", (True, "x")),
        ("c enum('p','q') not null", (True, "p")),
        ("c decimal(6,2) not null default '1.5'", (True, "1.5")),
        ("c bit(3) default b'101'", (True, "\\x05")),
        ("c binary(2) not null", (True, "\\x0000")),
        ("c date default '2024-01-02'", (True, "2024-01-02")),
        # the server's clock, a time in the session's zone, and what the server computes are not known
        ("c datetime default current_timestamp", (True, None)),
        ("c timestamp default '2024-01-02 03:04:05'", (True, None)),
        ("c timestamp null", (False, None)),
        ("c timestamp", (True, None)),
        ("c int auto_increment unique", (True, None)),
        ("c int as (a + 1) stored", (True, None)),
    ],
)
def test_a_new_column_says_what_existing_rows_have_in_it(column: str, expected: tuple[bool, str | None]) -> None:
    log = Log()
    log.follow(f"alter table t add {column}")
    found = schema_of(log.found.now.tables[T]).columns[-1]
    assert (found.filled, found.missing) == expected


def altered(before: str, after: str, *, strict: bool = True) -> list[str]:
    start = State.of([table(f"CREATE TABLE `t` (`id` int NOT NULL, `c` {before}, PRIMARY KEY (`id`))")], {}, {})
    found = Definitions(MYSQL, lambda *name: True, lambda name: None, start=start)
    found.statement(Statement("d", f"alter table t modify c {after}".encode(), b"", 1, 0), Place(0, 1, 5, 5))
    return rewritten(start.tables[T], found.now.tables[T], strict=strict)


@pytest.mark.parametrize(
    ("before", "after", "strict", "lenient"),
    [
        ("int", "bigint", True, True),
        ("int", "smallint", True, False),
        ("int", "int unsigned", True, False),
        ("int", "varchar(20)", False, False),
        ("varchar(5)", "varchar(9)", True, True),
        ("varchar(9)", "varchar(5)", True, False),
        ("varchar(9)", "char(9)", False, False),
        ("text", "mediumtext", True, True),
        ("mediumtext", "text", True, False),
        ("decimal(6,2)", "decimal(8,3)", True, True),
        ("decimal(6,2)", "decimal(6,3)", True, False),
        ("decimal(6,2)", "decimal(8,1)", False, False),
        ("datetime", "datetime(3)", True, True),
        ("datetime(3)", "datetime", False, False),
        ("enum('a','b')", "enum('b','a','c')", True, True),
        ("enum('a','b')", "enum('b')", True, False),
        ("int", "int not null", True, False),
        ("varchar(9) character set latin1", "varchar(9) character set utf8mb4", True, True),
        ("varchar(9) character set utf8mb4", "varchar(9) character set latin1", True, False),
        ("int as (id + 1)", "int as (id + 2)", False, False),
        ("int as (id + 1)", "int as (id + 1)", True, True),
        ("int as (id + 1) stored", "int", True, True),
    ],
)
def test_a_type_that_may_change_values_is_told(before: str, after: str, strict: bool, lenient: bool) -> None:
    assert (altered(before, after) == [], altered(before, after, strict=False) == []) == (strict, lenient)


def test_generated_columns_change_with_what_they_are_made_of() -> None:
    before = table("CREATE TABLE `t` (`id` int, `c` decimal(4,1), `g` text AS (concat(`c`)) STORED)")
    start = State.of([before], {}, {})
    found = Definitions(MYSQL, lambda *name: True, lambda name: None, start=start)
    found.statement(Statement("d", b"alter table t modify c decimal(6,2)", b"", 1, 0), Place(0, 1, 5, 5))
    assert rewritten(start.tables[T], found.now.tables[T], strict=True) == ["g"]


def test_a_dropped_table_empties_its_copy_and_its_successor_goes_on_with_it() -> None:
    log = Log()
    assert log.emptied("drop table t") == ["d.t"]
    assert log.emptied("create table t (id int primary key, v varchar(9), z int not null)") == ["d.t"]
    now = log.found.now.tables[T]
    assert (now.number, log.columns()) == (1, {"id": 1, "v": 4, "z": 5})
    # no row is older than the table
    assert not schema_of(now).columns[2].filled
    assert log.emptied("create or replace table t (id int primary key)", "drop database d") == ["d.t", "d.t"]
    again = State.from_text(log.found.now.to_text())
    assert again.former.keys() == {T}
    assert log.emptied("create table if not exists u (id int)", "create table if not exists u (id int)") == []


def test_only_copies_are_emptied() -> None:
    found = Definitions(MYSQL, lambda *name: True, lambda name: None, start=State.of([table()], {}, {}), told=None)
    assert found.statement(Statement("d", b"drop table t", b"", 1, 0), Place(0, 1, 5, 5)).truncated == ()


def test_the_names_of_tables_that_come_and_go_do_not_fill_the_checkpoint() -> None:
    log = Log()
    for number in range(150):
        log.follow(f"create table day_{number} (id int primary key)", f"drop table day_{number}")
    assert len(log.found.now.former) == 100


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [record.getMessage() for record in caplog.records]
    caplog.clear()
    return found


@pytest.mark.parametrize(("tool", "ghost"), [("gh-ost", "_t_gho"), ("pt-online-schema-change", "_t_new")])
def test_a_table_that_a_tool_has_altered_online_is_the_same_table(
    caplog: pytest.LogCaptureFixture, tool: str, ghost: str
) -> None:
    log = Log()
    made = f"create table {ghost} like t" if tool == "gh-ost" else MADE.replace("`t`", ghost)
    log.follow(made, f"alter table {ghost} add c int default 5 after id, drop b")
    caplog.clear()
    log.follow(f"rename table t to _t_old, {ghost} to t")
    assert log.found.now.tables[T].number == 1
    assert log.columns() == {"id": 1, "c": 5, "a": 2, "v": 4}
    assert [text for text in warnings(caplog) if text.startswith("d.t:")] == []
    log.follow("create table _t_gho like t", "alter table _t_gho modify v varchar(2)")
    caplog.clear()
    log.follow("rename table t to _t_del, _t_gho to t")
    # the tool copies what fits: by sql_mode the alteration itself was of an empty table
    assert any(text.startswith("d.t:") and "remedy" in text for text in warnings(caplog)) is False


def test_a_table_that_takes_anothers_name_is_told(caplog: pytest.LogCaptureFixture) -> None:
    log = Log(table(), table("CREATE TABLE `u` (`id` int NOT NULL, `z` int, PRIMARY KEY (`id`))", ("d", "u")))
    log.follow("rename table t to x, u to t, x to u")
    texts = warnings(caplog)
    assert [text.split(":")[0] for text in texts] == ["d.t", "d.u"]
    assert all("remedy: tailrace verify --repair" in text for text in texts)
    assert log.columns("t") == {"id": 1, "z": 5}
    assert log.found.now.tables["d", "t"].number == 1
    assert log.columns("u") == {"id": 1, "a": 3, "b": 4, "v": 5}
    log.follow("alter table t add w int, rename to v")
    assert [text.split(" ")[0] for text in warnings(caplog)] == ["d.v:", "d.t"]
    assert log.emptied("create table t like u") == ["d.t"]


@pytest.mark.parametrize(
    ("statement", "tables"),
    [
        ("alter table t drop partition p0", ["d.t"]),
        ("alter table t truncate partition all", ["d.t"]),
        ("alter table t exchange partition p0 with table e.u without validation", ["d.t", "e.u"]),
        ("alter table t convert partition p0 to table u", ["d.t", "d.u"]),
        ("alter table t discard tablespace", ["d.t"]),
        ("alter table t add partition (partition p9 values less than (9))", []),
        ("alter table t reorganize partition p0 into (partition p0 values less than (9))", []),
        ("alter table t remove partitioning", []),
        ("alter table t partition by hash (id) partitions 4", []),
    ],
)
def test_rows_that_go_with_partitions_are_told_of_each_table(
    caplog: pytest.LogCaptureFixture, statement: str, tables: list[str]
) -> None:
    log = Log()
    log.follow(statement)
    assert [text.split(":")[0] for text in warnings(caplog)] == tables


@pytest.mark.parametrize("by_name", [True, False])
@pytest.mark.parametrize(
    ("statements", "names"),
    [
        (("alter table t change a b int, change b a int",), "a, b"),
        (("alter table t drop a, add a int",), "a"),
        (("alter table t drop a", "alter table t add a int"), "a"),
        (("alter table t rename column a to x", "alter table t rename column b to a, rename column x to b"), "a, b"),
        (
            ("create table _t_gho like t", "alter table _t_gho drop b, add b int", "rename table t to x, _t_gho to t"),
            "b",
        ),
        (("alter table t rename column a to x", "alter table t rename column x to a"), ""),
        (("alter table t drop a", "alter table t add c int"), ""),
        (("alter table t modify a bigint after b",), ""),
    ],
)  # fmt: skip
def test_names_of_other_columns_are_told_to_copies_that_know_no_more(
    caplog: pytest.LogCaptureFixture, statements: tuple[str, ...], names: str, by_name: bool
) -> None:
    """A restart between any two statements changes nothing."""
    log = Log(by_name=by_name)
    for statement in statements:
        again = Log(by_name=by_name)
        again.found = Definitions(
            MYSQL, lambda *name: True, lambda name: None, start=State.from_text(log.found.now.to_text()), told=None,
            following=FollowRules(empties=True, by_name=by_name),
        )  # fmt: skip
        log = again
        log.follow(statement)
    told = [text for text in warnings(caplog) if text.startswith("d.t has other columns")]
    assert len(told) == bool(by_name and names)
    assert all(f"by the names {names} since" in text and "remedy: read d.t by a snapshot" in text for text in told)


def test_alter_ignore_may_delete_rows(caplog: pytest.LogCaptureFixture) -> None:
    log = Log()
    log.follow("alter ignore table t add unique key (a)")
    (text,) = warnings(caplog)
    assert text.startswith("d.t: ALTER IGNORE")
    assert "remedy: tailrace verify --repair" in text


def test_a_statement_that_is_not_followed_names_a_remedy(caplog: pytest.LogCaptureFixture) -> None:
    log = Log()
    log.follow("alter table t frobnicate everything")
    (text,) = warnings(caplog)
    assert "remedy: read d.t by a snapshot" in text


def test_rows_that_the_catalog_shows_get_the_numbers_of_the_log() -> None:
    log = Log()
    log.follow("alter table t drop a", "alter table t add c int")
    known = log.found.now.tables[T]
    shown = schema_of(table("CREATE TABLE `t` (`id` int NOT NULL, `c` int, PRIMARY KEY (`id`))"))
    found = aligned(shown, known)
    assert (found.oid, [column.number for column in found.columns]) == (1, [1, 5])
    other = schema_of(table("CREATE TABLE `t` (`id` int NOT NULL, `later` int, PRIMARY KEY (`id`))"))
    assert [column.number for column in aligned(other, known).columns] == [0, 0]
    assert aligned(shown, None).oid == 0


def test_a_state_of_the_catalog_follows_an_older_one_by_names() -> None:
    log = Log()
    log.follow("alter table t drop a", "create table gone (id int primary key)")
    now = State.of([table("CREATE TABLE `t` (`v` varchar(9), `n` int)"), table(MADE, ("d", "new"))], {}, {})
    found = now.after(log.found.now)
    assert [(one.name, one.number) for one in found.tables[T].columns] == [("v", 4), ("n", 5)]
    assert (found.tables["d", "new"].number, found.former.keys()) == (3, {("d", "gone")})


def test_a_successor_keeps_what_has_the_same_name() -> None:
    before = State.of([table()], {}, {}).tables[T]
    found = succeeding(table("CREATE TABLE `t` (`v` text, `x` int)"), before)
    assert [(one.name, one.number) for one in found.columns] == [("v", 4), ("x", 5)]


def test_alter_ignore_is_parsed() -> None:
    ((found, _),) = parse("alter online ignore table t add a int", "d", SqlSettings())
    assert isinstance(found, AlterTable)
    assert found.ignores


@pytest.mark.parametrize("kind", ["PRIMARY KEY", "UNIQUE KEY `k`"])
def test_a_key_without_overlaps_has_the_columns_of_the_period(kind: str) -> None:
    """One room is booked again and again, so its number alone identifies no row."""
    made = (
        "CREATE TABLE `t` (`room` int NOT NULL, `since` date NOT NULL, `till` date NOT NULL, "
        f"PERIOD FOR `stay` (`since`, `till`), {kind} (`room`,`stay` WITHOUT OVERLAPS))"
    )
    assert catalog.definition(made, T, MARIADB).key() == ("room", "till", "since")
    versioned = catalog.definition(made + " WITH SYSTEM VERSIONING", T, MARIADB)
    assert versioned.key() == ("room", "till", "since")
    with pytest.raises(Unparsable, match="over a period whose columns are not known"):
        catalog.definition(made.replace("PERIOD FOR `stay` (`since`, `till`), ", ""), T, MARIADB)


def followed(made: str, *statements: str) -> TableDefinition:
    """Return MariaDB's table after statements on it."""
    found = Definitions(
        MARIADB, lambda *name: True, lambda name: None, start=State.of([catalog.definition(made, T, MARIADB)], {}, {})
    )
    for place, one in enumerate(statements, 4):
        at = Place(0, 1, place, place, "binlog.000001")
        found.statement(Statement("d", one.encode(), STRICT, 1, 0), at)
    assert not found.now.doubtful
    return found.now.tables[T]


BOOKED = "CREATE TABLE `t` (`room` int NOT NULL, `since` date, `till` date, `v` int)"


def test_a_period_is_added_and_dropped() -> None:
    added = "alter table t add period for stay (since, till)"
    found = followed(BOOKED, added, "alter table t add unique k (room, stay without overlaps)")
    assert found.key() == ("room", "till", "since")
    # the server allows no null in a period's columns
    assert [column.nullable for column in found.columns] == [False, False, False, True]
    assert followed(BOOKED, added + ", add unique (room, stay without overlaps)").key() == ("room", "till", "since")
    again = "alter table t add column x date not null, add period for stay (since, x)"
    dropped = followed(BOOKED, added, "alter table t drop period for stay", again)
    assert [column.period for column in dropped.columns] == ["", "from", "", "", "until"]
    assert not dropped.columns[2].nullable


@pytest.mark.parametrize(
    "made",
    [
        "create table t (id int primary key, a int with system versioning, b int)",
        "create table t (id int primary key, a int, b int without system versioning) with system versioning",
    ],
)
def test_a_versioned_column_makes_a_versioned_table(made: str) -> None:
    assert followed(MADE, "drop table t", made).versioned
    assert not followed(MADE, "drop table t", "create table t (a int without system versioning)").versioned


def test_only_historical_rows_go_with_the_partitions_of_a_versioned_table(caplog: pytest.LogCaptureFixture) -> None:
    made = "CREATE TABLE `t` (`id` int NOT NULL, PRIMARY KEY (`id`)) WITH SYSTEM VERSIONING"
    followed(made, "alter table t drop partition p0")
    assert warnings(caplog) == []
    # the partition of current rows may be emptied and exchanged
    followed(made, "alter table t truncate partition pn", "alter table t exchange partition pn with table d.u")
    assert [text.split(":")[0] for text in warnings(caplog)] == ["d.t", "d.t", "d.u"]


def test_a_conversion_to_binary_makes_bytes_of_texts() -> None:
    made = (
        "CREATE TABLE `t` (`c` char(4), `v` varchar(9), `t` text, `e` enum('a'), `l` longtext) DEFAULT CHARSET=latin1"
    )
    found = followed(made, "alter table t convert to character set binary")
    assert [(column.words, column.charset) for column in found.columns] == [
        ("BINARY", None), ("VARBINARY", None), ("BLOB", None), ("ENUM", "binary"), ("LONGBLOB", None),
    ]  # fmt: skip
    assert [column.length for column in found.columns[:2]] == [4, 9]


def test_texts_of_every_spelling_are_bytes_in_a_binary_table() -> None:
    made = "create table t (a character varying(5), b char varying(5), c long varchar, d long, e character(2))"
    found = followed(MADE, "drop table t", f"{made} charset binary")
    words = ["VARBINARY", "VARBINARY", "MEDIUMBLOB", "MEDIUMBLOB", "BINARY"]
    assert [(column.words, column.charset) for column in found.columns] == [(one, None) for one in words]


def test_a_conversion_reaches_national_texts() -> None:
    made = "create table t (a nchar(4), b nvarchar(9), c national char(3), d national varchar(3))"
    found = followed(MADE, "drop table t", made, "alter table t convert to character set latin1")
    words = ["CHAR", "VARCHAR", "CHAR", "VARCHAR"]
    assert [(column.words, column.charset) for column in found.columns] == [(one, "latin1") for one in words]


@pytest.mark.parametrize(
    ("statements", "columns", "hidden"),
    [
        ((), "id a b v", [("k", 4)]),
        # the server's own column stays where it is
        (("alter table t add x bigint",), "id a b v x", [("k", 4)]),
        (("alter table t add x bigint after v",), "id a b v x", [("k", 5)]),
        (("alter table t add x bigint first, drop a",), "x id b v", [("k", 4)]),
        (("alter table t modify v bigint after id, add x bigint",), "id v a b x", [("k", 4)]),
        (("alter table t add x bigint", "create index l on t ((a + 1), (b + 1))", "alter table t add y bigint"),
         "id a b v x y", [("k", 4), ("l", 5), ("l", 5)]),
        (("alter table t add x bigint, add unique ((b * 2))", "alter table t drop index k"),
         "id a b v x", [("functional_index", 5)]),
        (("alter table t rename index k to m", "drop index m on t"), "id a b v", []),
        (("create table u like t", "rename table u to t"), "id a b v", [("k", 4)]),
    ],
)  # fmt: skip
def test_columns_for_expressions_of_indexes_have_their_places(
    statements: tuple[str, ...], columns: str, hidden: list[tuple[str, int]]
) -> None:
    log = Log(table(MADE.replace(", PRIMARY KEY", ", KEY `k` ((`a` + `b`)), PRIMARY KEY")))
    log.follow(*statements)
    found = log.found.now.tables[T]
    assert (" ".join(column.name for column in found.columns), list(found.hidden)) == (columns, hidden)
    assert TableDefinition.from_json(found.to_json()) == found
