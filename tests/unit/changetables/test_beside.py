"""Records beside changes over change tables: heartbeats, schemas, numbers, shared topics, guards."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tailrace.columns.batch import Counts
from tailrace.columns.table import TableId
from tailrace.connectors.changetables.log.tasks import SchemaTask
from tailrace.errors import ConfigError, PrerequisiteError
from tailrace.events.schema_changes import SchemaChange
from tailrace.log.control_tasks import BoundaryTask, HeartbeatTask
from tests.unit.changetables.driving import Query, batches_for_rows  # noqa: F401
from tests.unit.changetables.memory import Server, at


def server(**settings: object) -> Server:
    made = Server("b", **settings)  # type: ignore[arg-type]
    made.table("dbo.a", ("id", "v"), ("id",))
    made.table("dbo.b", ("id", "v"), ("id",))
    return made


def test_heartbeats_come_with_batches_and_run_their_statement() -> None:
    database = server()
    query = Query(database, heartbeat__interval__ms="1", heartbeat__action__query="insert into h values (1)")
    for _ in range(4):
        query.batch()
    assert any(isinstance(task, HeartbeatTask) for task in query.others)
    assert database.executed[0] == "insert into h values (1)"


def test_new_and_changed_tables_are_told_on_the_topic_of_schema_changes() -> None:
    database = Server("s")
    database.table("dbo.a", ("id", "v", "w"), ("id",), captured=False)
    database.enable("dbo.a", "_1", ("id", "v"))
    query = Query(database)
    query.drain()
    database.enable("dbo.a", "_2")
    database.table("dbo.late", ("id",), ("id",))
    database.commit(("dbo.late", "c", None, ("1",)))
    query.drain()
    told = [change for task in query.others if isinstance(task, SchemaTask) for change in task.changes]
    assert [(one.kind, str(one.table.id), len(one.table.columns), one.marker.name) for one in told] == [
        ("CREATE", "dbo.a", 2, "TRUE"),
        ("ALTER", "dbo.a", 3, "FALSE"),
        ("CREATE", "dbo.late", 1, "FALSE"),
    ]
    # No change of a row came before.
    assert told[1].preceding is None
    quiet = Query(database, include__schema__changes="false")
    quiet.drain()
    assert not any(isinstance(task, SchemaTask) for task in quiet.others)


def told_by(query: Query) -> list[SchemaChange]:
    return [change for task in query.others if isinstance(task, SchemaTask) for change in task.changes]


@pytest.mark.parametrize("pairs", [False, True])
def test_a_changed_table_is_told_with_the_change_of_any_table_before_it(pairs: bool) -> None:
    database = server(pairs=pairs)
    query = Query(database, snapshot__mode="no_data")
    query.drain()
    database.commit(("dbo.b", "c", None, ("1", "x")), ("dbo.a", "c", None, ("1", "x")))
    last = database.commit(("dbo.a", "c", None, ("2", "x")), ("dbo.b", "u", ("1", "x"), ("1", "y")))
    before = max(query.drain(), key=lambda event: event.change or 0)
    begins = database.enable("dbo.a", "_2").start
    database.commit(("dbo.b", "d", ("1", "y"), None))
    query.drain()
    (altered,) = [one for one in told_by(query) if one.kind == "ALTER"]
    assert (altered.commit_lsn, str(altered.table.id)) == (begins, "dbo.a")
    shown = altered.preceding
    assert shown is not None
    assert (shown.table, shown.commit_lsn, shown.at_us) == (TableId("db", "dbo", "b"), at(last), last * 1_000_000)
    assert (str(shown.table), int.from_bytes(shown.change_lsn, "big"), shown.serial) == (
        before.table,
        before.change,
        before.serial,
    )


def test_changes_that_are_skipped_precede_no_changed_table() -> None:
    database = server()
    query = Query(database, snapshot__mode="no_data", skipped__operations="u,d")
    query.drain()
    kept = database.commit(("dbo.b", "c", None, ("1", "x")))
    database.commit(("dbo.b", "u", ("1", "x"), ("1", "y")))
    database.enable("dbo.a", "_2")
    database.commit(("dbo.b", "d", ("1", "y"), None))
    query.drain()
    (altered,) = [one for one in told_by(query) if one.kind == "ALTER"]
    assert altered.preceding is not None
    assert altered.preceding.commit_lsn == at(kept)


@pytest.mark.parametrize(
    ("only", "names"), [("false", ["dbo.a", "dbo.b", "dbo.bare", "dbo.c"]), ("true", ["dbo.a", "dbo.c"])]
)
def test_tables_that_are_not_captured_are_told_at_the_start(only: str, names: list[str]) -> None:
    database = server()
    database.table("dbo.bare", ("id", "v"), ("id",), captured=False)
    database.table("dbo.c", ("id",), ("id",), captured=False)
    option = {"schema.history.internal.store.only.captured.tables.ddl": only}
    query = Query(database, table__include__list="dbo\\.(a|c)", snapshot__mode="no_data", **option)
    query.drain()
    assert [str(one.table.id) for one in told_by(query)] == names
    assert [one.marker.name for one in told_by(query)] == ["TRUE"] * (len(names) - 1) + ["LAST"]
    assert {one.kind for one in told_by(query)} == {"CREATE"}
    # Later they are of no interest.
    database.enable("dbo.bare")
    database.commit(("dbo.a", "c", None, ("1", "x")))
    query.drain()
    assert len(told_by(query)) == len(names)


def test_the_last_table_that_is_told_ends_a_snapshot_without_rows() -> None:
    query = Query(server(), snapshot__mode="no_data")
    query.drain()
    told = [change for task in query.others if isinstance(task, SchemaTask) for change in task.changes]
    assert [(str(one.table.id), one.marker.name) for one in told] == [("dbo.a", "TRUE"), ("dbo.b", "LAST")]


def test_transaction_metadata_counts_over_all_tables() -> None:
    database = server()
    query = Query(database, snapshot__mode="no_data", provide__transaction__metadata="true")
    query.drain()
    database.commit(
        ("dbo.a", "c", None, ("1", "x")),
        ("dbo.b", "c", None, ("1", "x")),
        ("dbo.a", "u", ("1", "x"), ("1", "y")),
        ("dbo.a", "u", ("1", "y"), ("2", "y")),
    )
    database.commit(("dbo.b", "d", ("1", "x"), None))
    events = sorted(query.drain(), key=lambda event: event.total or 0)
    assert [(event.table, event.op, event.total, event.within) for event in events] == [
        ("dbo.a", "c", 1, 1),
        ("dbo.b", "d", 1, 1),
        ("dbo.b", "c", 2, 1),
        ("dbo.a", "u", 3, 2),
        ("dbo.a", "d", 4, 3),
        ("dbo.a", "c", 5, 4),
    ]
    (task,) = [task for task in query.others if isinstance(task, BoundaryTask)]
    assert [None if one.counts is None else one.counts for one in task.boundaries] == [
        None,
        Counts(5, (("db.dbo.a", 4), ("db.dbo.b", 1))),
        None,
        Counts(1, (("db.dbo.b", 1),)),
    ]


def test_a_key_change_of_paired_rows_is_two_events() -> None:
    database = server(pairs=True)
    query = Query(database, snapshot__mode="no_data", provide__transaction__metadata="true")
    query.drain()
    database.commit(("dbo.a", "c", None, ("1", "x")))
    database.commit(("dbo.a", "u", ("1", "x"), ("2", "x")), ("dbo.a", "c", None, ("3", "x")))
    assert [(event.op, event.total) for event in query.drain()] == [("c", 1), ("u", 1), ("c", 3)]


def test_updates_without_change_are_left_out_if_asked_for() -> None:
    database = server()
    query = Query(
        database,
        snapshot__mode="no_data",
        skip__messages__without__change="true",
        column__exclude__list="dbo.a.v",
        provide__transaction__metadata="true",
    )
    query.drain()
    database.commit(("dbo.a", "c", None, ("1", "x")))
    database.commit(("dbo.a", "u", ("1", "x"), ("1", "y")), ("dbo.b", "c", None, ("1", None)))
    database.commit(("dbo.b", "u", ("1", None), ("1", "z")))
    events = sorted(query.drain(), key=lambda event: event.commit)
    assert [(event.table, event.op, event.total) for event in events] == [
        ("dbo.a", "c", 1),
        ("dbo.b", "c", 1),
        ("dbo.b", "u", 1),
    ]


def test_tables_that_share_a_topic_keep_the_order_of_the_log() -> None:
    database = server(fetch=2)
    query = Query(
        database,
        snapshot__mode="no_data",
        topic__naming__strategy="io.debezium.schema.DefaultRegexTopicNamingStrategy",
        topic__regex=r"(.*)\.[ab]",
        topic__replacement="$1.all",
    )
    query.drain()
    for number in range(5):
        key = str(number)
        database.commit(("dbo.a", "c", None, (key, "x")), ("dbo.b", "c", None, (key, "x")))
        database.commit(("dbo.a", "u", (key, "x"), (key, "y")))
    events = query.drain()
    assert [(event.commit, event.change) for event in events] == sorted(
        (event.commit, event.change or 0) for event in events
    )
    assert [event.table for event in events] == ["dbo.a", "dbo.b", "dbo.a"] * 5


@pytest.mark.parametrize("numbers", ["false", "true"])
def test_commands_order_the_changes_of_a_transaction_over_all_tables(numbers: str) -> None:
    database = server(fetch=2)
    query = Query(
        database,
        snapshot__mode="no_data",
        provide__transaction__metadata=numbers,
        topic__naming__strategy="io.debezium.schema.DefaultRegexTopicNamingStrategy",
        topic__regex=r"(.*)\.[ab]",
        topic__replacement="$1.all",
    )
    query.drain()
    # The log lists the last statement first.
    database.commit(
        ("dbo.b", "c", None, ("1", "fourth")),
        ("dbo.a", "c", None, ("1", "third")),
        ("dbo.a", "c", None, ("2", "second")),
        ("dbo.b", "c", None, ("2", "first")),
    )
    changes = sorted((one for some in database.changes.values() for one in some), key=lambda one: -one.change)
    for command, change in enumerate(changes, 1):
        change.command = command
    events = query.drain()
    assert [(event.after or ())[1] for event in events] == ["first", "second", "third", "fourth"]
    if numbers == "true":
        assert [event.total for event in events] == [1, 2, 3, 4]


def test_too_many_tables_are_an_error_if_they_are_to_be() -> None:
    with pytest.raises(ConfigError, match="2 tables are captured"):
        Query(server(), guardrail__collections__max="1", guardrail__collections__limit__action="fail").drain()


def test_another_list_of_databases_needs_another_checkpoint() -> None:
    database = server()
    query = Query(database)
    query.drain()
    text = json.dumps(query.start).replace('"db"', '"other"')
    query.restart()
    query.start = json.loads(text)
    with pytest.raises(ConfigError, match="different databases"):
        query.drain()


def test_lists_that_match_no_table_are_an_error_at_the_first_start() -> None:
    with pytest.raises(PrerequisiteError, match=r"match no table of the database\. The nearest: dbo\.b, dbo\.a\."):
        Query(server(), table__include__list="dbo\\.c").drain()
    later = {"table__include__list": "dbo\\.c", "no__table__handling__mode": "warn"}
    assert Query(server(), **later).drain() == []
    known = Query(server(), table__include__list="dbo\\.a")
    known.drain()
    known.options["table.include.list"] = "dbo\\.c"
    known.restart()
    assert known.drain() == []


def test_a_table_that_is_captured_late_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "tailrace")
    database = server()
    query = Query(database)
    query.drain()
    database.table("dbo.late", ("id",), ("id",))
    for number in range(3):
        last = database.commit(("dbo.late", "c", None, (str(number),)))
        # the batch is planned, and not committed; a clean-up moves the start of the change table
        assert query.plan() is not None
        *others, late = database.captures
        database.captures = [*others, replace(late, start=at(last))]
    assert sum("dbo.late is captured from" in text for text in caplog.messages) == 1
    assert sum(text.startswith("dbo.late is captured by") for text in caplog.messages) == 1
