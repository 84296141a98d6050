"""Rows are read again by their keys for a sink of tables, in the types that the sink's blocks have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from tailrace.connectors.postgres import row_lookup
from tailrace.connectors.postgres.row_lookup import PostgresPresent, PostgresTable, present
from tailrace.connectors.registry import parse
from tailrace.errors import ConnectionFailed, SinkError
from tailrace.events.event_settings import EventSettings
from tests.fix_postgres import Database

TYPES = {
    "i": ("int8", pa.int64()),
    "t": ("text", pa.string()),
    "u": ("uuid", pa.string()),
    "e": ("mood", pa.string()),
    "b": ("bool", pa.bool_()),
    "y": ("bytea", pa.binary()),
    "d": ("date", pa.date32()),
    "n": ("numeric(12,2)", pa.decimal128(12, 2)),
    "s": ("timestamp", pa.timestamp("us")),
    "z": ("timestamptz", pa.timestamp("us", "UTC")),
}


@pytest.fixture
def tables(database: Database) -> Iterator[PostgresPresent]:
    config = parse("postgres", database.options(topic_prefix="s"))
    found = present(config, EventSettings.from_options(config, "run"))
    yield found
    found.close()


def read(table: PostgresTable, key: list[str], keys: list[pa.Array], columns: list[str]) -> dict[int, list[Any]]:
    """Return the values of the columns for each key's index."""
    found: dict[int, list[Any]] = {}
    for places, given in table.values(key, keys, columns):
        found |= dict(
            zip(places, (list(row) for row in zip(*(one.to_pylist() for one in given), strict=True)), strict=True)
        )
    return found


def test_rows_that_are_there_are_returned_with_the_index_of_their_key(
    database: Database, tables: PostgresPresent
) -> None:
    database.execute(
        "create table a (id int primary key, v text, n numeric)",
        "insert into a select i, 'v' || i, i from generate_series(1, 150) i where i <> 2",
        "update a set v = null where id = 3",
    )
    table = tables.table((database.name, "public", "a"))
    assert repr(table) == "PostgresTable(public.a)"
    found = read(table, ["id"], [pa.array([3, 2, 1, *range(100, 200)], pa.int32())], ["v", "id"])
    assert found[0] == [None, 3]
    assert 1 not in found
    assert found[2] == ["v1", 1]
    assert {found[place][0] for place in range(3, 54)} == {f"v{number}" for number in range(100, 151)}
    assert len(found) == 53


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ("i", "-9000000000"),
        ("t", "a''b\\c\",{}"),
        ("u", "12345678-1234-5678-1234-567812345678"),
        ("e", "so so"),
        ("b", "true"),
        ("y", "\\x00ff41"),
        ("d", "2024-02-29"),
        ("n", "-1234.50"),
        ("s", "2024-02-29 01:02:03.000004"),
        ("z", "2024-02-29 01:02:03.000004+05:30"),
    ],
)
def test_a_key_of_any_faithful_type_finds_its_row(database: Database, column: str, text: str) -> None:
    """The key's values have the types of the sink's blocks, and come from a read of the same row."""
    database.execute(
        "create type mood as enum ('fine', 'so so')",
        f"create table k (id int primary key, {column} {TYPES[column][0]} unique not null)",
        f"insert into k values (7, '{text}')",
    )
    config = parse("postgres", database.options(topic_prefix="s"))
    tables = present(config, EventSettings.from_options(config, "run"))
    table = tables.table((database.name, "public", "k"))
    with database.connect() as connection:
        row = connection.execute(f"select {column} from k".encode()).fetchone()
    assert row is not None
    given = str(row[0]) if column == "u" else row[0]
    assert read(table, [column], [pa.array([given], TYPES[column][1])], ["id"]) == {0: [7]}
    tables.close()


def test_a_key_whose_values_have_several_texts_is_refused(database: Database, tables: PostgresPresent) -> None:
    database.execute("create table f (id float8 primary key, v text)")
    table = tables.table((database.name, "public", "f"))
    with pytest.raises(SinkError, match=r"public\.f cannot be read again by the column id, of the type float8"):
        read(table, ["id"], [pa.array([0.1])], ["v"])


def test_a_renamed_column_is_found_by_its_number_and_a_dropped_one_is_an_error(
    database: Database, tables: PostgresPresent
) -> None:
    database.execute(
        "create table r (id int primary key, v text, w text)",
        "alter table r rename v to x",
        "alter table r rename w to v",
        "insert into r values (1, 'first', 'second')",
    )
    table = tables.table((database.name, "public", "r"))
    assert table.called([("v", 2), ("w", 3), ("gone", 9), ("id", 0)]) == ["x", "v", "gone", "id"]
    table.demand(["x"])
    assert read(table, ["id"], [pa.array([1])], ["x", "v"]) == {0: ["first", "second"]}
    with pytest.raises(SinkError, match=r"public\.r has no column w any more"):
        read(table, ["id"], [pa.array([1])], ["w"])


def test_a_table_that_is_altered_after_it_was_found_is_not_read(database: Database, tables: PostgresPresent) -> None:
    database.execute("create table a (id int primary key, v int)", "insert into a values (1, 1)")
    table = tables.table((database.name, "public", "a"))
    database.execute("alter table a alter v type text")
    with pytest.raises(SinkError, match=r"cannot read public\.a again: its columns have changed meanwhile"):
        read(table, ["id"], [pa.array([1])], ["v"])


def test_a_table_that_is_gone_is_an_error(database: Database, tables: PostgresPresent) -> None:
    with pytest.raises(SinkError, match=r"public\.no no longer exists, so its values cannot be read again"):
        tables.table((database.name, "public", "no"))


def test_the_position_is_not_before_what_has_been_committed(database: Database, tables: PostgresPresent) -> None:
    before = tables.position()
    database.execute("create table a (id int primary key)", "insert into a values (1)")
    after = tables.position()
    assert len(before) == len(after)
    assert before < after


def test_a_table_is_read_once_writers_before_it_are_done(
    database: Database, tables: PostgresPresent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit is in the log before it is visible, so the read waits for whoever holds a lock of a writer."""
    database.execute("create table a (id int primary key)")
    writer = database.connect(autocommit=False)
    writer.execute("insert into a values (1)")
    paused: list[float] = []

    def pause(seconds: float) -> None:
        paused.append(seconds)
        if len(paused) == 2:
            writer.commit()

    monkeypatch.setattr(row_lookup.time, "sleep", pause)
    table = tables.table((database.name, "public", "a"))
    assert len(paused) == 2
    assert read(table, ["id"], [pa.array([1])], ["id"]) == {0: [1]}
    writer.close()


@pytest.mark.parametrize("standbys", [False, True])
def test_a_long_writer_counts_only_if_it_may_wait_for_a_standby(
    database: Database, tables: PostgresPresent, monkeypatch: pytest.MonkeyPatch, standbys: bool
) -> None:
    database.execute("create table a (id int primary key)")
    writer = database.connect(autocommit=False)
    writer.execute("insert into a values (1)")
    monkeypatch.setattr(row_lookup, "_WAIT_S", 0.0)
    monkeypatch.setattr(row_lookup, "_STANDBYS", f"select {standbys}")
    if standbys:
        with pytest.raises(ConnectionFailed, match="They may wait for a synchronous standby"):
            tables.table((database.name, "public", "a"))
    else:
        assert read(tables.table((database.name, "public", "a")), ["id"], [pa.array([1])], ["id"]) == {}
    writer.close()
