"""Tables that are found while a query runs, and tables that are read again because the log lacks changes of them."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.connectors.registry import parse
from tailrace.errors import ConfigError, PositionLost
from tailrace.log import engine
from tests.extent import by_day
from tests.fix_postgres import Database
from tests.fix_query import Query
from tests.integration.postgres.live import Make, latest, published, settle, source, state
from tests.integration.postgres.signalled import SINK, reads
from tests.waiting import until

ALL = "public\\..*"


@pytest.fixture(autouse=True)
def looks_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "LOOK_SECONDS", 0.0)


def told(query: Query) -> list[tuple[str, str]]:
    found = [(one.type, dict(one.data).get("data_collections", "")) for one in query.notifications]
    return [one for one in found if one[0] in ("DISCOVERED", "GAP")]


def expect(query: Query, database: Database, table: str) -> None:
    until(lambda: (query.step(), latest(query, table) == source(database, table))[1], table, 20)


@pytest.mark.parametrize("killed_after", by_day(range(5), 2))
def test_a_new_table_is_found_whenever_the_process_is_killed(database: Database, make: Make, killed_after: int) -> None:
    query = make(table_include_list=ALL, table_discovery="on", **SINK)
    settle(query)
    database.execute("create table n (id int primary key, v text)", "insert into n values (1, 'first'), (2, 'second')")
    for step in range(8):
        if step == killed_after:
            query.step(commit=False)
            query.kill()
        query.step()
        database.execute(f"insert into n values ({10 + step}, 'beside')", f"update n set v = '{step}' where id = 1")
    settle(query)
    expect(query, database, "n")
    assert "n" in published(database)
    assert set(told(query)) == {("DISCOVERED", "public.n")}
    # no command is needed for it
    assert state(query) is None
    count = len(reads(query, "n"))
    settle(query)
    query.kill()
    settle(query)
    assert len(reads(query, "n")) == count


def test_a_table_is_found_without_a_channel_for_signals(database: Database, make: Make) -> None:
    query = make(table_include_list="public.[a-n]", table_discovery="on", signal_data_collection="")
    query.options = {name: text for name, text in query.options.items() if text}
    query.kill()
    settle(query)
    database.execute("create table n (id int primary key, v text)", "insert into n values (1, 'first')")
    database.execute("create table z (id int primary key, v text)")
    expect(query, database, "n")
    assert published(database) == ["a", "b", "n"]


def test_a_table_without_a_key_is_tried_once(database: Database, make: Make, caplog: pytest.LogCaptureFixture) -> None:
    query = make(table_include_list=ALL, table_discovery="on", **SINK)
    settle(query)
    database.execute("create table n (id int, v text)", "insert into n values (1, 'first')")
    until(lambda: (query.step(), bool(told(query)))[1], "the table", 20)
    for _ in range(6):
        query.step()
    assert told(query) == [("DISCOVERED", "public.n")]
    assert "public.n is left out: it has no primary key" in caplog.text


def test_without_discovery_a_new_table_waits_for_a_command(database: Database, make: Make) -> None:
    query = make(table_include_list=ALL)
    settle(query)
    database.execute("create table n (id int primary key, v text)", "insert into n values (1, 'first')")
    for _ in range(4):
        query.step()
    assert "n" not in published(database)
    assert not latest(query, "n")


@pytest.mark.parametrize("is_killed", [False, True])
def test_only_the_tables_that_lack_changes_are_read_again(database: Database, make: Make, is_killed: bool) -> None:
    query = make(table_include_list="public.a,public.b,public.debezium_signal", on_data_loss="resnapshot", **SINK)
    settle(query)
    database.execute(
        "alter publication dbz_publication drop table b",
        "insert into b values (70, 'lost'), (71, 'lost too')",
        "update b set v = 'lost' where id = 1",
        "alter publication dbz_publication add table b",
        "insert into a values (70, 'not lost')",
    )
    if is_killed:
        query.step(commit=False)
        query.kill()
    expect(query, database, "b")
    settle(query)
    assert told(query) == [("GAP", "public.b")]
    assert latest(query, "a") == source(database, "a")
    assert len(reads(query, "a")) == 5
    # it is told once, also after a restart
    query.kill()
    settle(query)
    assert told(query) == [("GAP", "public.b")]


def test_a_lost_position_lets_all_tables_be_read_again(database: Database, make: Make) -> None:
    query = make(on_data_loss="resnapshot", **SINK)
    settle(query)
    query.planner.close()
    with database.connect() as connection:
        until(
            lambda: not connection.execute("select from pg_replication_slots where active").fetchall(), "the slot", 20
        )
        connection.execute("select pg_drop_replication_slot(%s)", (query.options["slot.name"],))
    database.execute("insert into a values (80, 'lost')")
    query.planner = query.start()
    expect(query, database, "a")
    assert [kind for kind, _ in told(query)] == ["GAP"]


def test_a_loss_ends_the_query_if_that_is_wanted(database: Database, make: Make) -> None:
    query = make(table_include_list="public.a,public.b,public.debezium_signal", on_data_loss="stop")
    settle(query)
    database.execute(
        "alter publication dbz_publication drop table b", "insert into b values (70, 'lost')",
        "alter publication dbz_publication add table b",
    )  # fmt: skip
    with pytest.raises(PositionLost, match=r"lists public\.b anew.*on\.data\.loss=stop") as caught:
        settle(query)
    assert "with on.data.loss=resnapshot" in caught.value.remedy
    # it stays so until somebody has decided
    query.kill()
    with pytest.raises(PositionLost):
        settle(query)
    query.options["on.data.loss"] = "resnapshot"
    query.kill()
    expect(query, database, "b")


def test_a_snapshot_beside_the_stream_needs_rows_of_records(database: Database) -> None:
    given: dict[str, Any] = database.options(**{"rows": "typed", "slot.name": "s"})
    for name, value in (("table.discovery", "on"), ("on.data.loss", "resnapshot")):
        with pytest.raises(ConfigError, match=f"{name} = {value} is not supported with rows = typed"):
            parse("postgres", given | {name: value})
