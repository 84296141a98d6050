"""Changes of tables and publication while a query runs give warnings in that run, not at the next start."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import product

import pytest

from tailrace.columns.typed import TYPED_COLUMNS, TypedRows
from tailrace.connectors.postgres.planner import PostgresPlanner
from tailrace.connectors.postgres.status import describe
from tailrace.connectors.registry import parse
from tailrace.errors import ConnectionFailed, PositionLost, PrerequisiteError, SchemaChanged
from tailrace.events.event_settings import EventSettings
from tailrace.log import engine
from tests import waiting
from tests.extent import by_day
from tests.fix_postgres import Database
from tests.fix_query import Query

OPTIONS = {"publication.autocreate.mode": "disabled", "table.include.list": r"public\.(t|u|p_.*)"}


@pytest.fixture
def make(database: Database) -> Iterator[Callable[..., Query]]:
    database.execute(
        "create table t (id int primary key)",
        "create table u (id int primary key)",
        "create table p (id int primary key) partition by range (id)",
        "create table p_1 partition of p for values from (0) to (10)",
        "create publication dbz_publication for table t, u, p",
    )
    made: list[Query] = []

    def query(**options: str) -> Query:
        made.append(Query(database, **OPTIONS, **{name.replace("_", "."): text for name, text in options.items()}))
        return made[-1]

    yield query
    for one in made:
        one.planner.close()


def run(query: Query, *meanwhile: str) -> None:
    """Run a query that ends at the present, and execute the statements before its last look."""
    query.planner.close()
    query.planner = query.start(available_now=True)
    query.step()
    query.database.execute(*meanwhile)
    while query.step():
        pass


CASES = [
    (("alter table u rename to w",), "public.u is called public.w now"),
    (("drop table u",), "public.u was dropped"),
    (("alter publication dbz_publication drop table u",), "no change of public.u arrives any more"),
    (
        ("alter publication dbz_publication drop table u", "alter publication dbz_publication add table u"),
        "lists public.u anew",
    ),
    (("alter publication dbz_publication set (publish = 'insert')",), "does not publish update, delete, so that no"),
    (
        (
            "alter publication dbz_publication set (publish = 'insert')",
            "alter publication dbz_publication set (publish = 'insert, update, delete, truncate')",
        ),
        "the publication dbz_publication was altered",
    ),
    (
        ("alter publication dbz_publication set (publish_via_partition_root = true)",),
        "public.p_1: its changes arrive under the names of other tables (public.p)",
    ),
    (("create table p_2 partition of p for values from (10) to (20)",), ""),
]


@pytest.mark.parametrize(("statements", "said"), CASES, ids=[statements[-1][:40] for statements, _ in CASES])
def test_the_run_that_is_concerned_tells_it(
    make: Callable[..., Query],
    database: Database,
    caplog: pytest.LogCaptureFixture,
    statements: tuple[str, ...],
    said: str,
) -> None:
    query = make()
    run(query)
    database.execute("insert into t values (1)", "insert into u values (1)")
    caplog.clear()
    run(query, *statements)
    assert said in caplog.text
    assert bool(said) == bool(caplog.text)


@pytest.mark.parametrize("way", ["add", "set", "publish", "schema"])
def test_what_was_set_back_between_two_runs_is_told(
    make: Callable[..., Query], database: Database, caplog: pytest.LogCaptureFixture, way: str
) -> None:
    change = "alter publication dbz_publication"
    if way == "schema":
        with database.connect() as connection:
            if connection.info.server_version < 150000:
                pytest.skip("publications have no schemas before PostgreSQL 15")
        database.execute(f"{change} set tables in schema public")
    query = make()
    run(query)
    caplog.clear()
    statements, said = {
        "add": ((f"{change} drop table t", f"{change} add table t"), "lists public.t anew"),
        "set": ((f"{change} set table u", f"{change} set table t, u, p"), "lists public.t anew"),
        "publish": (
            (f"{change} set (publish = 'insert')", f"{change} set (publish = 'insert, update, delete, truncate')"),
            "the publication dbz_publication was altered",
        ),
        "schema": (
            (f"{change} drop tables in schema public", f"{change} add tables in schema public"),
            "lists public.p_1, public.t, public.u anew",
        ),
    }[way]
    database.execute(statements[0], "insert into t values (7)", statements[1])
    run(query)
    assert said in caplog.text
    assert "execute-snapshot" in caplog.text
    # until a batch has noted it
    database.execute("insert into t values (8)")
    run(query)
    caplog.clear()
    run(query)
    assert caplog.text == ""


def test_a_publication_that_is_dropped_ends_the_run(make: Callable[..., Query], database: Database) -> None:
    query = make()
    run(query)
    with pytest.raises((PositionLost, ConnectionFailed), match="publication"):
        run(query, "drop publication dbz_publication", "create publication dbz_publication for table t, u, p")


def test_a_copy_that_cannot_be_kept_any_more_ends_the_run(make: Callable[..., Query], database: Database) -> None:
    query = make(row_copy="true")
    run(query)
    with pytest.raises(PrerequisiteError, match=r"public\.u: the publication does not have it"):
        run(query, "alter publication dbz_publication drop table u")


def test_a_copy_whose_schema_leaves_the_publication_ends_the_run(
    make: Callable[..., Query], database: Database
) -> None:
    """Neither the publication's own row of the catalog nor its list of tables tells of schemas."""
    with database.connect() as connection:
        if connection.info.server_version < 150000:
            pytest.skip("publications have no schemas before PostgreSQL 15")
    database.execute(
        "drop publication dbz_publication", "create publication dbz_publication for tables in schema public"
    )
    query = make(row_copy="true")
    run(query)
    with pytest.raises(PrerequisiteError, match=r"public\.t: the publication does not have it"):
        run(query, "alter publication dbz_publication drop tables in schema public")


def test_a_query_that_goes_on_looks_now_and_then(
    make: Callable[..., Query], database: Database, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = make()
    database.execute("insert into t values (1)")
    query.until(1)
    monkeypatch.setattr(engine, "LOOK_SECONDS", 0.0)
    database.execute("alter table u rename to w")
    waiting.until(lambda: (query.step(), "public.u is called public.w now" in caplog.text)[1], "the warning")
    query.step()
    assert caplog.text.count("public.u is called public.w now") == 1


def test_typed_rows_go_on_where_the_lists_give_a_renamed_table_up(database: Database) -> None:
    database.execute(
        'create schema "a.b"', 'create table "a.b".t (id int primary key)', "create table u (id int primary key)"
    )
    lists = {"table.include.list": r"a\.b\.t,public\.u"}
    query = Query(database, **lists, **{"rows": "typed", "snapshot.mode": "no_data"})
    query.step()

    def start() -> None:
        query.planner.close()
        config = parse("postgres", database.options(**query.options))
        settings = EventSettings.from_options(config, "run").as_typed(TypedRows(), TYPED_COLUMNS)
        query.planner = PostgresPlanner(config, settings)
        query.planner.stop_at_present()
        while query.step():
            pass

    try:
        start()
        database.execute(
            'alter table "a.b".t rename to w', 'insert into "a.b".w values (1)', "insert into u values (2)"
        )
        with pytest.raises(SchemaChanged, match=r"take a\.b\.t out of the lists"):
            start()
        query.options["table.include.list"] = r"public\.u"
        start()
        assert [values for _, _, values in query.changes] == [(b"2",)]
    finally:
        query.planner.close()


def test_partitions_behind_their_root_are_no_tables_of_the_log(
    make: Callable[..., Query], database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """The server describes them beside the root. They counted as captured until the next start, which warned that no
    change of them arrives any more, and rows that one of them had when it was detached were missing without a word."""
    database.execute("create table p_2 partition of p for values from (10) to (20) partition by range (id)")
    database.execute("create table p_3 partition of p_2 for values from (10) to (15)", "insert into p values (1), (11)")
    database.execute("alter publication dbz_publication set (publish_via_partition_root = true)")
    lists = {"publish.via.partition.root": "true", "table.include.list": r"public\.p.*"}
    query = Query(database, **{**OPTIONS, **lists})
    try:
        run(query)
        (text,) = [one for one in caplog.messages if one.startswith("public.p")]
        assert text == (
            "public.p: changes of its partitions (public.p_1, public.p_2, public.p_3) arrive under its name alone. "
            "Leave them out."
        )
        for row in (2, 3):
            database.execute(f"insert into p values ({row})")
            run(query)
        assert {one for one in caplog.messages if one.startswith("public.p")} == {text}
        assert "arrives any more" not in caplog.text
        database.execute(
            "alter table p detach partition p_1", "alter publication dbz_publication add table p_1",
            "insert into p_1 values (4)",
        )  # fmt: skip
        run(query)
        assert "public.p_1 is captured from now on, but the log does not bring the rows that it already" in caplog.text
    finally:
        query.planner.close()


@pytest.mark.parametrize("way", ["change", "end", "start"])
def test_typed_rows_end_where_the_lists_leave_their_table_out(database: Database, way: str) -> None:
    database.execute("create table t (id int primary key)", "insert into t values (1)")
    query = Query(database, **{"table.include.list": "public.t", "rows": "typed", "snapshot.mode": "no_data"})
    config = parse("postgres", database.options(**query.options))
    settings = EventSettings.from_options(config, "run").as_typed(TypedRows(), TYPED_COLUMNS)

    def start(available_now: bool) -> None:
        query.planner.close()
        query.planner = PostgresPlanner(parse("postgres", database.options(**query.options)), settings)
        if available_now:
            query.planner.stop_at_present()

    rename = ("alter table t rename to w", *(("insert into w values (2)",) if way == "change" else ()))
    try:
        start(available_now=way == "end")
        query.step()
        database.execute(*rename)
        if way == "start":
            start(available_now=True)
        with pytest.raises(SchemaChanged, match=r"public\.t is called public\.w now, which the lists leave out"):
            waiting.until(lambda: query.step() and False, "the error")
        query.options["table.include.list"] = "public.w"
        start(available_now=True)
        while query.step():
            pass
        assert [values for _, _, values in query.changes] == ([(b"2",)] if way == "change" else [])
    finally:
        query.planner.close()


REWRITES = {
    "unlogged": (("alter table t set unlogged", "insert into t values (2, 'b')", "alter table t set logged"), True),
    "altered": (("alter table t alter n type bigint", "insert into t values (2, 'b')"), False),
    "vacuum": (("vacuum full t", "cluster t using t_pkey", "truncate t", "insert into t values (3, 'c')"), False),
}


@pytest.mark.parametrize("kind", REWRITES)
def test_a_table_that_was_unlogged_between_two_looks_is_told(
    database: Database, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    """A publication of all tables does not keep the server from it, as one that lists the table does."""
    statements, is_told = REWRITES[kind]
    database.execute(
        "create table t (id int primary key, v text, n int)",
        "insert into t values (1, 'a')",
        "create publication dbz_publication for all tables",
    )
    query = Query(database, **{"publication.autocreate.mode": "disabled"})
    try:
        run(query)
        database.execute(*statements)
        caplog.clear()
        run(query)
        assert ("public.t was rewritten, as by set unlogged and set logged" in caplog.text) is is_told
        # until a batch has noted it
        database.execute("insert into t values (9, 'z')")
        run(query)
        caplog.clear()
        run(query)
        assert "was rewritten" not in caplog.text
    finally:
        query.planner.close()


SIGNAL = "create table signal (id varchar(42) primary key, type varchar(32) not null, data text)"


def whole(query: Query) -> bool:
    assert query.committed is not None
    return describe(query.committed, {}).whole


@pytest.mark.parametrize(
    ("way", "kind"), by_day(list(product(("list", "publication", "logged"), ("incremental", "blocking"))), 3)
)
def test_no_moment_is_whole_until_a_late_table_is_read(
    make: Callable[..., Query], database: Database, caplog: pytest.LogCaptureFixture, kind: str, way: str
) -> None:
    """`whole` is a column of the table of positions. A snapshot with a condition reads only a part of the table."""
    database.execute(SIGNAL, "alter publication dbz_publication add table signal", "insert into u values (1), (2)")
    if way == "publication":
        database.execute("alter publication dbz_publication drop table u")
    elif way == "logged":
        database.execute("alter publication dbz_publication drop table u", "alter table u set unlogged")
    query = make(signal_data_collection="public.signal")
    if way == "list":
        query.options["table.include.list"] = "public.t"
    run(query)
    database.execute("insert into t values (1)")
    run(query)
    assert whole(query)
    query.options["table.include.list"] = OPTIONS["table.include.list"]
    if way == "logged":
        database.execute("alter table u set logged")
    if way != "list":
        database.execute("alter publication dbz_publication add table u")
    database.execute("insert into t values (2)", "insert into u values (3)")
    caplog.clear()
    run(query)
    assert "public.u is captured from now on" in caplog.text
    assert "signal execute-snapshot" in caplog.text
    assert not whole(query)

    def ask(number: int, **more: object) -> None:
        data = json.dumps({"data-collections": ["public.u"], "type": kind, **more})
        with database.connect() as connection:
            connection.execute("insert into signal values (%s, 'execute-snapshot', %s)", (str(number), data))

    condition = "select id from public.u where id > 1" if kind == "blocking" else "id > 1"
    ask(1, **{"additional-conditions": [{"data-collection": "public.u", "filter": condition}]})
    for number in (3, 4):
        run(query)
        database.execute(f"insert into t values ({number})")
    run(query)
    assert not whole(query)
    ask(2)
    for number in (5, 6):
        run(query)
        database.execute(f"insert into t values ({number})")
    run(query)
    assert whole(query)


@pytest.mark.parametrize("kind", ["mood", "mood[]", "inner_mood", "pair"])
def test_a_renamed_label_of_an_enum_is_told(
    make: Callable[..., Query], database: Database, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    """The log has neither the statement nor the rows that show the new label from then on."""
    database.execute(
        "create type mood as enum ('sad', 'fine')",
        "create domain inner_mood as mood",
        "create type pair as (a int, m inner_mood)",
        f"alter table u add m {kind}",
    )
    query = make()
    run(query)
    database.execute("alter type mood add value 'glad' after 'sad'", "insert into u values (1)")
    caplog.clear()
    run(query)
    assert "enum" not in caplog.text
    run(query, "alter type mood rename value 'glad' to 'happy'")
    assert "labels of an enum of public.u were renamed" in caplog.text
    # the look at the end of a run is in no offset until the next batch
    database.execute("insert into u values (2)")
    run(query)
    caplog.clear()
    run(query)
    assert "enum" not in caplog.text
    database.execute("alter type mood rename value 'sad' to 'blue'")
    run(query)
    assert "labels of an enum of public.u were renamed" in caplog.text
    assert "public.t " not in caplog.text


@pytest.mark.parametrize(
    "statements",
    [
        (
            "alter type mood add value 'glat'",
            "insert into u values (1, 'glat')",
            "alter type mood rename value 'glat' to 'glad'",
        ),
        (
            "alter type mood rename value 'sad' to 'blue'",
            "insert into u values (1, 'blue')",
            "alter type mood rename value 'blue' to 'sad'",
        ),
    ],
)
def test_a_name_that_a_label_had_between_two_looks_is_told(
    make: Callable[..., Query], database: Database, caplog: pytest.LogCaptureFixture, statements: tuple[str, ...]
) -> None:
    """The catalog has what it had before, or a new label; the log has rows with the name of that time."""
    database.execute(
        "create type mood as enum ('sad', 'fine')",
        "create type other as enum ('a', 'b')",
        "create table w (id int primary key, o other)",
        "alter table u add m mood",
    )
    query = make()
    run(query)
    database.execute("alter type other rename value 'a' to 'c'", "insert into u values (0)")
    caplog.clear()
    run(query)
    database.execute("insert into u values (5)")
    run(query)
    assert "of an enum" not in caplog.text
    run(query, *statements)
    assert "labels of an enum, perhaps of public.u, had other names for a while" in caplog.text
    assert "perhaps of public.t" not in caplog.text


@pytest.mark.parametrize(
    ("kind", "statements", "text"),
    [
        ("int", ("alter table u alter a type bigint using a * 10",), "was rewritten for the new type of its column a"),
        (
            "int",
            ("alter table u alter a type int using a * 10",),
            "was rewritten, perhaps with other values of its col",
        ),
        (
            "timestamp",
            ("alter table u alter a type timestamp(0)",),
            "was rewritten, perhaps with other values of its c",
        ),
        (
            "numeric(9,3)",
            ("alter table u alter a type numeric(9,1)",),
            "was rewritten, perhaps with other values of it",
        ),
        (
            "int",
            ("alter table u alter a type int using a * 10", "grant select on u to public"),
            "was rewritten, perhaps with other values of its column a",
        ),
        ("int", ("vacuum full u",), ""),
        ("int", ("truncate u",), ""),
        ("int", ("alter table u alter a set default 7", "analyze u"), ""),
        ("int", ("alter table u add b uuid default gen_random_uuid()",), ""),
        ("timestamp(0)", ("alter table u alter a type timestamp(3)",), ""),
    ],
)
def test_values_that_a_statement_has_computed_anew_are_told(
    make: Callable[..., Query],
    database: Database,
    caplog: pytest.LogCaptureFixture,
    kind: str,
    statements: tuple[str, ...],
    text: str,
) -> None:
    """The log has a Relation message at most, and none of the new values."""
    database.execute(f"alter table u add a {kind}", "insert into u (id) values (1)")
    query = make()
    run(query)
    database.execute("insert into u (id) values (2)")
    run(query)
    database.execute(*statements)
    database.execute("insert into u (id) values (3)")
    caplog.clear()
    run(query)
    told = [one.getMessage() for one in caplog.records if "was rewritten" in one.getMessage()]
    assert len(told) == bool(text)
    if text:
        assert f"public.u {text}" in told[0]
        assert "remedy: read public.u by a snapshot" in told[0]


@pytest.mark.parametrize(
    ("statements", "names"),
    [
        (("alter table u drop a, add a int",), "a"),
        (("alter table u drop a", "alter table u add a boolean"), "a"),
        (
            ("begin; alter table u rename a to x; alter table u rename b to a; alter table u rename x to b; commit",),
            "a, b",
        ),
        (("alter table u rename a to x",), ""),
        (("alter table u drop a",), ""),
        (("alter table u add c int",), ""),
    ],
)
@pytest.mark.parametrize("by_name", [True, False])
def test_a_name_that_is_another_columns_now_is_told_where_copies_know_names_alone(
    make: Callable[..., Query],
    database: Database,
    caplog: pytest.LogCaptureFixture,
    statements: tuple[str, ...],
    names: str,
    by_name: bool,
) -> None:
    database.execute("alter table u add a int, add b int", "insert into u (id) values (1)")
    query = make(row_copy=str(by_name).lower())
    run(query)
    database.execute("insert into u (id) values (2)")
    run(query)
    with database.connect() as connection:
        for statement in statements:
            connection.execute(statement.encode())
    database.execute("insert into u (id) values (3)")
    caplog.clear()
    run(query)
    told = [one.getMessage() for one in caplog.records if "has other columns by the names" in one.getMessage()]
    assert len(told) == bool(names and by_name)
    assert all(f"public.u has other columns by the names {names}:" in text for text in told)
