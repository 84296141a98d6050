"""Tables that are added to a running query, and removed from it, with its process killed between any two steps."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tailrace.connectors.postgres.consistent_read import HeldSnapshot
from tailrace.connectors.postgres.live_tables import listed
from tailrace.connectors.postgres.log_session import PostgresLogSession
from tailrace.connectors.postgres.setup.prerequisites import check, demand
from tailrace.connectors.registry import parse
from tailrace.errors import ConfigError, PrerequisiteError
from tailrace.events.event_settings import EventSettings
from tests.extent import by_day
from tests.fix_postgres import Database
from tests.integration.postgres.live import Make, latest, published, send, settle, source, state
from tests.integration.postgres.signalled import reads
from tests.waiting import until


@pytest.fixture
def role(database: Database) -> Iterator[str]:
    """A role that may log in and read the log; it is dropped once the queries are closed."""
    name = f"role_{database.name}"[:60]
    database.execute(f"create role {name} login replication password 'pw'")
    yield name
    database.execute(f"drop owned by {name} cascade", f"drop role {name}")


@pytest.mark.parametrize("killed_after", by_day(range(7), 4))
def test_a_table_is_added_whenever_the_process_is_killed(database: Database, make: Make, killed_after: int) -> None:
    query = make()
    settle(query)
    assert published(database) == ["a", "debezium_signal"]
    send(database, "add-tables", "public.b")
    database.execute("update b set v = 'early' where id = 1", "insert into a values (6, 'beside')")
    for step in range(12):
        # killed when the batch is planned and read, and not committed
        if step == killed_after:
            query.step(commit=False)
            query.kill()
        query.step()
        database.execute(
            f"insert into a values ({10 + step}, 'during')",
            f"insert into b values ({20 + step}, 'during')",
            f"update b set v = 'at {step}' where id in (2, {19 + step})",
            f"delete from b where id = {5 if step == 3 else -1}",
        )
    settle(query)
    assert state(query)["added"] == [["public", "b"]]
    assert published(database) == ["a", "b", "debezium_signal"]
    for table in ("a", "b"):
        assert latest(query, table) == source(database, table)
    # it lies in the checkpoint: the lists of the file do not name it
    query.kill()
    database.execute("insert into b values (99, 'after')")
    settle(query)
    assert latest(query, "b") == source(database, "b")


@pytest.mark.parametrize("is_killed", [False, True])
def test_rows_of_a_transaction_that_began_before_the_table_was_added(
    database: Database, make: Make, is_killed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    database.execute("create table c (id int primary key, v text)", "insert into c values (1, 'c')")
    query = make()
    settle(query)
    with database.connect() as writer, database.connect() as prepared:
        # without a row before, and without an index on which a look at the table could see them
        writer.execute("begin")
        writer.execute("insert into b values (500, 'before')")
        writer.execute("update b set v = 'changed' where id = 3")
        send(database, "add-tables", "public.c", "public.b")
        for _ in range(6):
            query.step()
        if is_killed:
            query.kill()
            for _ in range(4):
                query.step()
        # a table before it is read meanwhile, and so is the log
        assert latest(query, "c") == source(database, "c")
        assert not reads(query, "b")
        prepared.execute("insert into b values (501, 'later')")
        query.step()
        writer.execute("insert into b values (502, 'with it')")
        writer.execute("commit")
    settle(query)
    assert latest(query, "b") == source(database, "b")
    assert (
        "public.b is read when the transactions have ended that wrote to it before its changes arrived" in caplog.text
    )


def test_a_transaction_that_writes_to_a_partition(database: Database, make: Make) -> None:
    database.execute(
        "create table p (id int primary key, v text) partition by range (id)",
        "create table p1 partition of p for values from (0) to (1000)",
    )
    query = make(publish_via_partition_root="true")
    settle(query)
    with database.connect() as writer:
        writer.execute("begin")
        writer.execute("insert into p1 values (1, 'before')")
        send(database, "add-tables", "public.p")
        for _ in range(4):
            query.step()
        assert not reads(query, "p")
        writer.execute("commit")
    settle(query)
    assert latest(query, "p") == source(database, "p")


@pytest.mark.parametrize("killed_after", [0, 1, 2])
def test_a_table_is_removed_and_added_again(
    database: Database, make: Make, killed_after: int, caplog: pytest.LogCaptureFixture
) -> None:
    query = make(table_include_list="public.a,public.b,public.debezium_signal")
    settle(query)
    send(database, "remove-tables", "public.b")
    for step in range(4):
        if step == killed_after:
            query.step(commit=False)
            query.kill()
        query.step()
    settle(query)
    assert published(database) == ["a", "debezium_signal"]
    assert state(query)["removed"] == [["public", "b"]]
    assert "no change of public.b arrives any more" not in caplog.text
    count = len([one for one in query.changes if one[1] == "b"])
    database.execute("insert into b values (50, 'unseen')", "insert into a values (50, 'seen')")
    settle(query)
    assert len([one for one in query.changes if one[1] == "b"]) == count
    assert latest(query, "a") == source(database, "a")
    send(database, "add-tables", "public.b", id="again")
    settle(query)
    query.step()
    settle(query)
    # the lists say the same again
    assert not state(query)["removed"]
    assert not state(query)["added"]
    assert latest(query, "b") == source(database, "b")


def test_a_table_that_is_being_read_is_removed(database: Database, make: Make) -> None:
    database.execute("insert into b select i, 'more' from generate_series(100, 400) i")
    query = make(incremental_snapshot_window_chunks="1")
    settle(query)
    send(database, "add-tables", "public.b")
    while not reads(query, "b"):
        query.step()
    send(database, "remove-tables", "public.b", id="gone")
    settle(query)
    assert len(reads(query, "b")) < 300
    assert published(database) == ["a", "debezium_signal"]


def test_what_is_refused_ends_nothing(database: Database, make: Make, caplog: pytest.LogCaptureFixture) -> None:
    query = make()
    settle(query)
    for number, (kind, name, told) in enumerate((
        ("add-tables", "public.nowhere", "no table is named public.nowhere"),
        ("add-tables", "public.a", "public.a is not added: it is captured already"),
        ("add-tables", "pg_catalog.pg_class", "no table is named pg_catalog.pg_class"),
        ("remove-tables", "public.b", "no captured table is named public.b"),
        ("remove-tables", "public.debezium_signal", "the signal table stays"),
        ("remove-tables", "public.a", "it would remove every table"),
    )):  # fmt: skip
        send(database, kind, name, id=f"c{number}")
        settle(query)
        assert told in caplog.text
    assert state(query) is None
    assert published(database) == ["a", "debezium_signal"]


def test_a_publication_of_others_must_have_the_table(
    database: Database, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    database.execute("create publication dbz_publication for table a, debezium_signal")
    query = make(publication_autocreate_mode="disabled")
    settle(query)
    send(database, "add-tables", "public.b")
    settle(query)
    assert "public.b is not added: it is not in the publication dbz_publication: alter publication" in caplog.text
    assert state(query) is None
    database.execute("alter publication dbz_publication add table b")
    send(database, "add-tables", "public.b", id="later")
    settle(query)
    query.step()
    settle(query)
    assert latest(query, "b") == source(database, "b")


def test_a_role_that_may_not_publish_a_table_does_not_end_the_query(
    database: Database, role: str, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    database.execute(
        f"grant create on database {database.name} to {role}",
        f"alter table a owner to {role}",
        f"alter table debezium_signal owner to {role}",
        f"grant select on b to {role}",
    )
    query = make(database_user=role, database_password="pw")
    settle(query)
    send(database, "add-tables", "public.b")
    settle(query)
    assert "public.b is not added: must be owner of table b" in caplog.text
    assert state(query) is None


COLLIDING = ('create schema "public.b"', 'create table "public.b".c (id int primary key, v text)')


@pytest.mark.parametrize(
    ("options", "statements", "added", "told"),
    [
        ({"message_key_columns": r"public\.b:none"}, (), "public.b", "names the column none of public.b"),
        (
            {"guardrail_collections_max": "2", "guardrail_collections_limit_action": "fail"},
            (),
            "public.b",
            "more than guardrail.collections.max = 2",
        ),
        ({"replica_identity_autoset_values": r"public\.b:INDEX none"}, (), "public.b", "cannot be using index"),
        (
            {"table_include_list": r'public\.a,public\.debezium_signal,public\.b\.c', "schema_include_list": "public"},
            ('create table "b.c" (id int primary key, v text)', *COLLIDING),
            '"public.b"."c"',
            "have one name: public.b.c",
        ),
    ],
)  # fmt: skip
def test_a_table_with_which_no_start_would_succeed_is_refused(
    database: Database,
    make: Make,
    caplog: pytest.LogCaptureFixture,
    options: dict[str, str],
    statements: tuple[str, ...],
    added: str,
    told: str,
) -> None:
    if statements:
        database.execute(*statements)
    query = make(**options)
    settle(query)
    before = published(database)
    send(database, "add-tables", added)
    settle(query)
    assert "is not added: " in caplog.text
    assert told in caplog.text
    assert state(query) is None
    assert published(database) == before
    query.kill()
    database.execute("insert into a values (80, 'later')")
    settle(query)
    assert latest(query, "a") == source(database, "a")


def test_a_table_that_the_role_may_not_read_is_refused(
    database: Database, role: str, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    database.execute(
        "create publication dbz_publication for all tables",
        f"grant select on a to {role}",
        f"grant select, insert on debezium_signal to {role}",
        f"grant select (id) on b to {role}",
    )
    query = make(database_user=role, database_password="pw", publication_autocreate_mode="disabled")
    settle(query)
    send(database, "add-tables", "public.b")
    settle(query)
    assert "public.b is not added: The user may not read public.b: it has no right to v." in caplog.text
    assert state(query) is None
    database.execute(f"grant select on b to {role}")
    send(database, "add-tables", "public.b", id="later")
    settle(query)
    query.step()
    settle(query)
    assert latest(query, "b") == source(database, "b")


def test_a_table_is_removed_from_a_publication_of_another_role(
    database: Database, role: str, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    database.execute(
        "create publication dbz_publication for table a, b, debezium_signal",
        f"grant select on a, b to {role}",
        f"grant select, insert on debezium_signal to {role}",
    )
    query = make(
        database_user=role, database_password="pw", table_include_list="public.a,public.b,public.debezium_signal"
    )
    settle(query)
    send(database, "remove-tables", "public.b")
    settle(query)
    query.kill()
    database.execute("insert into b values (50, 'unseen')", "insert into a values (50, 'seen')")
    settle(query)
    assert latest(query, "a") == source(database, "a")
    assert ("c", "b", (b"50", b"unseen")) not in query.changes
    assert "the publication dbz_publication keeps tables that are not captured" in caplog.text
    # a table that the publication lacks is another matter
    query.options["table.include.list"] = "public.a,public.b,public.c,public.debezium_signal"
    query.options["table.commands"] = "commands"
    database.execute("create table c (id int primary key)")
    query.kill()
    with pytest.raises(PrerequisiteError, match="may not create or change the publication"):
        settle(query)


def test_lists_that_contradict_the_checkpoint(database: Database, make: Make) -> None:
    query = make()
    settle(query)
    send(database, "add-tables", "public.b")
    settle(query)
    query.step()
    settle(query)
    query.planner.close()

    def started(lists: str, commands: str = "fail") -> Any:
        query.options |= {"table.include.list": lists, "table.commands": commands}
        query.planner.close()
        query.planner = query.start()
        settle(query)
        return state(query)

    # an edited list that does not name the table
    with pytest.raises(ConfigError, match=r"has added public\.b, which the lists leave out") as caught:
        started("public.a,public.c,public.debezium_signal")
    assert "table.commands=lists" in caught.value.remedy
    # the command may hold: it then does so for these lists
    database.execute("insert into a values (70, 'x')")
    assert started("public.a,public.c,public.debezium_signal", "commands")["added"] == [["public", "b"]]
    assert started("public.a,public.c,public.debezium_signal")["added"] == [["public", "b"]]
    # or the lists: the command is dropped
    database.execute("insert into a values (71, 'x')")
    assert started("public.a,public.debezium_signal", "lists") is None
    assert published(database) == ["a", "debezium_signal"]


def test_a_list_that_names_the_table_takes_the_command_over(database: Database, make: Make) -> None:
    query = make()
    settle(query)
    send(database, "add-tables", "public.b")
    settle(query)
    query.step()
    settle(query)
    query.options["table.include.list"] = "public.a,public.b,public.debezium_signal"
    query.kill()
    database.execute("insert into b values (77, 'x')")
    settle(query)
    assert state(query) is None
    assert latest(query, "b") == source(database, "b")


def test_a_command_is_taken_over_by_a_file_without_signals(
    database: Database, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = make()
    settle(query)
    send(database, "add-tables", "public.b")
    settle(query)
    query.step()
    settle(query)
    opened: list[object] = []
    start = PostgresLogSession.start
    monkeypatch.setattr(PostgresLogSession, "start", lambda self: (opened.append(self), start(self))[1])
    del query.options["signal.data.collection"]
    query.options["table.include.list"] = "public.a,public.b"
    query.kill()
    for number in range(4):
        database.execute(f"insert into b values ({60 + number}, 'x')")
        query.until(0)
    assert latest(query, "b") == source(database, "b")
    assert len(opened) == 1
    assert state(query) is None


def test_the_list_shows_the_lists_and_the_commands(database: Database, make: Make) -> None:
    query = make()
    settle(query)
    config = parse("postgres", database.options(**query.options))
    assert listed(config, None) == [("public.a", "by the lists"), ("public.debezium_signal", "by the lists")]
    send(database, "add-tables", "public.b")
    until(lambda: (query.step(), state(query))[1] is not None, "the command", 20)
    words = "added by a command; the lists leave it out"
    assert ("public.b", f"{words}; its rows are being read") in listed(config, query.committed)
    settle(query)
    assert ("public.b", words) in listed(config, query.committed)
    send(database, "remove-tables", "public.b", id="gone")
    settle(query)
    database.execute("drop table b")
    assert [name for name, _ in listed(config, query.committed)] == ["public.a", "public.debezium_signal"]


def test_check_says_that_lists_contradict_the_checkpoint(database: Database, make: Make, tmp_path: Path) -> None:
    query = make()
    settle(query)
    send(database, "add-tables", "public.b")
    until(lambda: (query.step(), state(query))[1] is not None, "the command", 20)
    settle(query)
    query.planner.close()
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text(f"v1\n{{}}\n{json.dumps(query.committed)}\n")
    options = database.options(**query.options) | {"checkpoint.location": str(tmp_path)}
    assert [one for one in check(parse("postgres", options)) if one.level == "error"] == []
    # verify reads the table too
    config = parse("postgres", options)
    with closing(HeldSnapshot(config, EventSettings.from_options(config, "run"), is_told_apart=False)) as held:
        assert "b" in {one.id.table for one in held.tables}
    edited = parse("postgres", options | {"table.include.list": "public.a"})
    (found,) = [one for one in check(edited) if one.level == "error"]
    assert "has added public.b, which the lists leave out" in found.text
    with pytest.raises(ConfigError, match=r"has added public\.b"):
        demand(edited)
