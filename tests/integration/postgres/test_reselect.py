"""Values that PostgreSQL's log does not carry, read again from their tables by ReselectColumnsPostProcessor."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.config.processors import RESELECT
from tailrace.connectors.postgres.server.arrow import KeptConnection
from tailrace.errors import TransformError
from tests.fix_capture import Captures, Event
from tests.fix_postgres import Database

PLACEHOLDER = "__debezium_unavailable_value"
OPTIONS = {"topic_prefix": "server", "post_processors": "again", "again_type": RESELECT}
ONLY = {**OPTIONS, "again_reselect_null_values": "false"}
WIDE = (
    "create table wide (id int primary key, n int, long text, doc jsonb, list text[], number numeric)",
    "alter table wide alter long set storage external, alter doc set storage external, "
    "alter list set storage external, alter number set storage external",
    "insert into wide select i, 0, repeat('long ' || i, 2000), jsonb_build_object('k', repeat('j', 5000)), "
    "array[repeat('a', 4000), 'b'], (repeat('7', 9000) || '.5')::numeric from generate_series(1, 50) i",
)


@pytest.fixture
def queries(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The queries that tasks run."""
    found: list[str] = []
    query = KeptConnection.query

    def noted(self: KeptConnection, sql: str) -> Any:
        found.append(sql)
        return query(self, sql)

    monkeypatch.setattr(KeptConnection, "query", noted)
    return found


def after(event: Event) -> dict[str, Any]:
    found: dict[str, Any] = event.payload["after"]
    return found


def test_one_query_reads_the_values_of_many_rows(database: Database, capture: Captures, queries: list[str]) -> None:
    one = capture(*WIDE, **ONLY, **{"again_reselect_columns_exclude_list": "public.wide:number"})
    database.execute("update wide set n = 1")
    found = {event.id["id"]: after(event) for event in one.take(50)}
    assert {row: value["long"] for row, value in found.items()} == {i: f"long {i}" * 2000 for i in range(1, 51)}
    assert found[7]["doc"] == '{"k": "%s"}' % ("j" * 5000)
    assert found[7]["list"] == ["a" * 4000, "b"]
    # one query for the present columns, and one for the rows
    assert len(queries) == 2


def test_a_number_without_a_placeholder_is_read_again(database: Database, capture: Captures) -> None:
    one = capture(*WIDE, **ONLY, decimal_handling_mode="string")
    database.execute("update wide set n = 1 where id = 3")
    (event,) = one.take(1)
    assert after(event)["number"] == "7" * 9000 + ".5"


def test_the_value_is_that_of_now(database: Database, capture: Captures) -> None:
    one = capture(*WIDE, **ONLY)
    database.execute("update wide set n = 1 where id = 1", "update wide set long = 'new' where id = 1")
    assert [after(event)["long"] for event in one.take(2)] == ["new", "new"]


def test_a_row_that_is_gone_leaves_the_placeholder(database: Database, capture: Captures) -> None:
    one = capture(*WIDE, **ONLY)
    database.execute("update wide set n = 1 where id < 3", "delete from wide where id = 1")
    found = one.take(4)
    assert [(event.op, event.op == "u" and len(after(event)["long"])) for event in found] == [
        ("u", len(PLACEHOLDER)), ("u", 12_000), ("d", False), ("tombstone", False),
    ]  # fmt: skip


def test_a_row_that_is_gone_ends_the_query_where_that_is_asked_for(database: Database, capture: Captures) -> None:
    one = capture(*WIDE, **ONLY, again_reselect_error_handling_mode="fail")
    database.execute("update wide set n = 1 where id = 1", "delete from wide where id = 1")
    with pytest.raises(
        TransformError, match=r"finds no row .* public\.wide: it was deleted.*change 0 of the transaction"
    ):
        one.take(3)


@pytest.mark.parametrize(
    "statement",
    ["alter table wide drop long", "alter table wide alter long type varchar(20) using 'x'", "drop table wide"],
)
def test_a_table_that_has_changed_is_not_misread(database: Database, capture: Captures, statement: str) -> None:
    one = capture(*WIDE, **ONLY)
    database.execute("update wide set n = 1 where id = 1", statement)
    assert after(one.take(1)[0])["long"] == PLACEHOLDER


def test_a_table_that_may_not_be_read_is_told(database: Database, capture: Captures) -> None:
    one = capture(*WIDE, **ONLY, again_reselect_error_handling_mode="fail")
    database.execute("update wide set n = 1 where id = 1", "alter table wide rename to other")
    with pytest.raises(TransformError, match=r"cannot read public\.wide again: its query fails with SQLSTATE 42P01"):
        one.take(1)


def test_keys_of_any_type_find_their_rows(database: Database, capture: Captures) -> None:
    one = capture(
        """create type mood as enum ('a "quoted"', 'back\\slash', 'c')""",
        "create domain small as numeric(6, 2)",
        "create table keyed (a text, m mood, t timestamptz, s small, u uuid, b bytea, f float8, n int, long text, "
        "primary key (u, a, m, t, s, b, f))",
        "alter table keyed alter long set storage external",
        "insert into keyed select text, mood, '2020-01-02 03:04:05.678901+02', 12.5, gen_random_uuid(), "
        "'\\x00ff', 0.1, 0, repeat(text, 2000) from unnest(array['x, y', 'it''s', '{\"\\}'], "
        "array['a \"quoted\"', 'back\\slash', 'c']::mood[]) as t(text, mood)",
        **ONLY,
    )
    database.execute("update keyed set n = 1")
    assert {after(event)["a"]: after(event)["long"] for event in one.take(3)} == {
        text: text * 2000 for text in ("x, y", "it's", '{"\\}')
    }


def test_key_changes_composite_keys_and_partitions(database: Database, capture: Captures) -> None:
    one = capture(
        "create table parted (a int, b varchar(5), n int, long text, primary key (b, a)) partition by list (b)",
        "create table part_x partition of parted for values in ('x')",
        "alter table parted alter long set storage external",
        "alter table part_x alter long set storage external",
        "insert into parted values (1, 'x', 0, repeat('long ', 2000))",
        **ONLY,
    )
    database.execute("update parted set n = 1")
    assert after(one.take(1)[0])["long"] == "long " * 2000
    # the updated row has another key by the time it is read
    database.execute("update parted set n = 2", "update parted set a = 2")
    found = one.take(4)
    assert [event.op for event in found] == ["u", "d", "tombstone", "c"]
    assert [after(found[place])["long"] for place in (0, 3)] == [PLACEHOLDER, "long " * 2000]


def test_rows_of_a_key_of_ones_own(database: Database, capture: Captures) -> None:
    one = capture(
        "create table nokey (n int, name text, long text)",
        "alter table nokey replica identity nothing, alter long set storage external",
        "insert into nokey values (1, 'a', repeat('long ', 2000)), (2, 'b', null), (3, 'b', null)",
        **OPTIONS, again_reselect_use_event_key="true", message_key_columns="public.nokey:name",
    )  # fmt: skip
    database.execute("insert into nokey values (4, 'a', null), (5, 'b', null), (6, 'c', 'c')")
    found = [after(event)["long"] for event in one.take(3)]
    assert found[0] in (None, "long " * 2000)
    assert found[1:] == [None, "c"]


def test_many_small_tables_are_read_again_each_by_its_own_key(
    database: Database, capture: Captures, queries: list[str]
) -> None:
    tables = [f"small{number}" for number in range(12)]
    made = [f"create table {name} (id int primary key, n int, long text)" for name in tables]
    made += [f"alter table {name} alter long set storage external" for name in tables]
    made += [f"insert into {name} values (1, 0, repeat('{name} ', 1000))" for name in tables]
    one = capture(*made, **ONLY, again_reselect_columns_include_list=r"public\.small[0-8]:long")
    database.execute(*(f"update {name} set n = 1" for name in tables))
    found = {event.topic: after(event)["long"] for event in one.take(12)}
    assert found == {
        f"server.public.{name}": PLACEHOLDER if number > 8 else f"{name} " * 1000 for number, name in enumerate(tables)
    }
    assert len(queries) == 18


def test_nothing_is_asked_for_where_no_post_processor_is_named(
    database: Database, capture: Captures, queries: list[str]
) -> None:
    one = capture(*WIDE, topic_prefix="server")
    database.execute("update wide set n = 1 where id = 1")
    assert after(one.take(1)[0])["long"] == PLACEHOLDER
    assert queries == []
