"""TimescaleDb: the planner asks the catalog, keeps the answer in offsets, and gives it to tasks without a password."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from tailrace.connectors.postgres.consistent_read import held
from tailrace.connectors.postgres.planner import PostgresPlanner
from tailrace.connectors.registry import parse
from tailrace.errors import ConfigError, ConnectionFailed, PrerequisiteError
from tailrace.events.event_settings import EventSettings
from tailrace.log.contracts import Task
from tests.fix_postgres import Database

CATALOG = (
    "create schema _timescaledb_catalog",
    "create schema _timescaledb_internal",
    "create table _timescaledb_catalog.hypertable (id int primary key, schema_name name, table_name name)",
    "create table _timescaledb_catalog.chunk (hypertable_id int, schema_name name, table_name name)",
    "create table _timescaledb_catalog.continuous_agg"
    " (mat_hypertable_id int, user_view_schema name, user_view_name name)",
    "insert into _timescaledb_catalog.hypertable values (1, 'public', 'conditions')",
)
TABLE = "create table _timescaledb_internal.{0} (id int primary key)"
CHUNK = "insert into _timescaledb_catalog.chunk values (1, '_timescaledb_internal', '{0}')"
ROW = "insert into _timescaledb_internal.{0} values ({1})"
ROUTED, OWN = "timescaledb.public.conditions", "p._timescaledb_internal.{0}"


class Query:
    """A query over a database with this catalog, configured by `options`."""

    def __init__(self, database: Database, **more: str) -> None:
        options = database.options(topic_prefix="p", slot_name=database.name.lower(), poll_interval_ms="50")
        login = {f"transforms.t.{name}": text for name, text in options.items() if name.startswith("database.")}
        kind = "io.debezium.connector.postgresql.transforms.timescaledb.TimescaleDb"
        self.options = {**options, **login, "transforms": "t", "transforms.t.type": kind} | {
            name.replace("_", "."): text for name, text in more.items()
        }
        self.start()
        self.committed = self.planner.initial_offset()

    def start(self) -> None:
        """Begin, as after a restart."""
        config = parse("postgres", self.options)
        self.planner = PostgresPlanner(config, EventSettings.from_options(config, "run"))

    def kill(self) -> None:
        """End it and begin again."""
        self.planner.close()
        self.start()

    def begin(self) -> None:
        """Take the log's present end as the start."""
        self.committed = self.planner.latest_offset(self.committed, None, None)

    def planned(self, commit: bool = True) -> tuple[dict[str, Any], list[Task]]:
        """Return the end and the tasks of the next batch that has tasks."""
        start = self.committed
        while True:
            end = self.planner.latest_offset(start, None, 64 << 20)
            tasks = [] if end == start else list(self.planner.partitions(start, end))
            if commit or not tasks:
                self.committed = start = end
            if tasks:
                return end, tasks

    def delivered(self) -> list[tuple[str, int]]:
        """Return the topics of the next batch that has events; a batch may have none."""
        while not (found := topics(self.planned()[1])):
            pass
        return found


@pytest.fixture
def query(database: Database) -> Iterator[Callable[..., Query]]:
    """Return a maker of queries over the test's database, which first runs some statements."""
    made: list[Query] = []

    def make(*statements: str, **more: str) -> Query:
        database.execute(*CATALOG, *statements)
        made.append(Query(database, **more))
        return made[-1]

    yield make
    for one in made:
        one.planner.close()


def topics(tasks: Sequence[Task]) -> list[tuple[str, int]]:
    """Return the topics of the events of tasks, each with the row's id; without events of tables without a key."""
    rows = [row for task in tasks for part in task.read() for row in part.to_pylist()]
    return [(row["topic"], json.loads(row["key"])["payload"]["id"]) for row in rows if row["key"]]


def test_a_batch_that_is_planned_again_has_the_topics_that_it_had(
    query: Callable[..., Query], database: Database
) -> None:
    running = query(TABLE.format("one"), TABLE.format("two"), CHUNK.format("one"), snapshot_mode="no_data")
    running.begin()
    database.execute(ROW.format("one", 1), CHUNK.format("two"), ROW.format("two", 2))
    end, tasks = running.planned(commit=False)
    first = topics(tasks)
    while len(first) < 2:
        running.committed = end
        end, tasks = running.planned(commit=False)
        first += topics(tasks)
    assert sorted(first) == [(ROUTED, 1), (ROUTED, 2)]
    last = topics(tasks)
    assert running.options["database.password"].encode() not in pickle.dumps(tasks)
    assert running.options["database.password"] not in json.dumps(end) + repr(tasks)
    database.execute("drop schema _timescaledb_catalog cascade")
    running.kill()
    assert topics(list(running.planner.partitions(running.committed, end))) == last


def test_the_catalog_is_asked_again_for_a_table_that_it_has_not_named_yet(
    query: Callable[..., Query], database: Database
) -> None:
    running = query(TABLE.format("one"), TABLE.format("two"), CHUNK.format("one"), snapshot_mode="no_data")
    running.begin()
    database.execute(ROW.format("two", 1))
    assert running.delivered() == [(OWN.format("two"), 1)]
    database.execute(CHUNK.format("two"), ROW.format("two", 2))
    assert running.delivered() == [(ROUTED, 2)]
    database.execute(ROW.format("one", 3))
    assert running.delivered() == [(ROUTED, 3)]
    # both are known: the catalog is not asked again
    database.execute("drop schema _timescaledb_catalog cascade", ROW.format("one", 4))
    assert running.delivered() == [(ROUTED, 4)]


@pytest.mark.parametrize("asked", ["incremental", "blocking"])
def test_snapshots_know_the_chunks_too(query: Callable[..., Query], database: Database, asked: str) -> None:
    running = query(
        *(statement.format("one") for statement in (TABLE, CHUNK)),
        ROW.format("one", 1),
        TABLE.format("other"),
        ROW.format("other", 2),
        *(statement.format("two", 3) for statement in (TABLE, CHUNK, ROW)),
        "create table signals (id text, type text, data text)",
        snapshot_include_collection_list="_timescaledb_internal[.](one|other)",
        signal_data_collection=f"{database.name}.public.signals",
    )
    assert sorted(running.delivered()) == [(OWN.format("other"), 2), (ROUTED, 1)]
    # a table that the query knows only from here
    database.execute(
        "insert into signals values ('1', 'execute-snapshot',"
        ' \'{"data-collections": ["_timescaledb_internal.two"], "type": "' + asked + "\"}')"
    )
    found: list[tuple[str, int]] = []
    while not found:
        found = running.delivered()
    assert found == [(ROUTED, 3)]


def test_one_read_knows_the_chunks_too(query: Callable[..., Query]) -> None:
    running = query(*(statement.format("one") for statement in (TABLE, CHUNK)), ROW.format("one", 1))
    config = parse("postgres", {**running.options, "table.include.list": "_timescaledb_internal.one"})
    snapshot = held(config, EventSettings.from_options(config, "run"))
    try:
        assert topics(snapshot.tasks) == [(ROUTED, 1)]
    finally:
        snapshot.close()


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"transforms_t_database_dbname": "postgres"}, PrerequisiteError, "catalog of TimescaleDB cannot be read in p"),
        ({"transforms_t_database_password": "a-wrong-one"}, ConnectionFailed, "refuses the password of user"),
    ],
)
def test_a_catalog_that_does_not_answer_is_named(
    query: Callable[..., Query], options: dict[str, str], kind: type[Exception], words: str
) -> None:
    running = query(TABLE.format("one"), **options)
    with pytest.raises(kind, match=words) as raised:
        running.planned()
    assert str(raised.value).startswith("What the transform TimescaleDb asks for: ")
    assert "a-wrong-one" not in str(raised.value)


def test_two_such_transforms_are_refused(query: Callable[..., Query]) -> None:
    running = query()
    more = {name.replace(".t.", ".u."): text for name, text in running.options.items() if ".t." in name}
    running.options |= {**more, "transforms": "t,u"}
    with pytest.raises(ConfigError, match="more than once"):
        running.start()
