"""The sink `jdbc` into a real PostgreSQL handles rows, keys, tables that grow, replays, and refusals of the server."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from tailrace import sinks
from tailrace.connectors.registry import from_entries, parse
from tailrace.errors import ConnectionFailed, SinkError
from tailrace.pipeline import Pipeline
from tailrace.sinks.jdbc.sink import JdbcSink
from tailrace.sinks.jdbc.writing import StatementWriter
from tailrace.sinks.writer import DeadLetters
from tests.fix_postgres import Database
from tests.unit.sinks.stream import Row, Stream, row, started

UPSERT = {
    "insert.mode": "upsert",
    "primary.key.mode": "record_key",
    "delete.enabled": "true",
    "schema.evolution": "basic",
}
ID = {"type": "int32", "optional": False, "field": "id"}
V = {"type": "string", "optional": True, "field": "V"}
TOPIC = "p.public.T"


def document(schema: Any, payload: Any) -> bytes:
    return json.dumps({"schema": schema, "payload": payload}, separators=(",", ":")).encode()


def struct(*fields: Any, **more: Any) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields), "optional": False} | more


def event(op: str, number: int, after: dict[str, Any] | None = None, *fields: Any, topic: str = TOPIC) -> Row:
    """Return an envelope of a row with the fields id, V and `fields`."""
    image = struct(ID, V, *fields, name="Value", optional=True)
    source = struct({"type": "string", "field": "schema"}, {"type": "string", "field": "table"}, field="source")
    envelope = struct({**image, "field": "after"}, source, {"type": "string", "field": "op"}, name="t.Envelope")
    value = {"after": after, "source": {"schema": "Public", "table": "t.t"}, "op": op}
    key = document(struct(ID, name="Key"), {"id": number})
    return row(topic, number, op=op, key=key, value=document(envelope, value))


def put(op: str, number: int, text: str | None, topic: str = TOPIC) -> Row:
    return event(op, number, {"id": number, "V": text}, topic=topic)


def tombstone(number: int) -> Row:
    return put("c", number, None) | {"op": "tombstone", "value": None}


def url(database: Database) -> str:
    return f"jdbc:postgresql://{database.server.host}:{database.server.port}/{database.name}"


def made(database: Database, **options: str) -> JdbcSink:
    named = {name.replace("__", "-").replace("_", "."): text for name, text in options.items()}
    login = {"connection.username": database.server.user, "connection.password": database.server.password}
    sink = sinks.open("jdbc", {"connection.url": url(database), **login, "flush.retry.delay.ms": "1", **named})
    assert isinstance(sink, JdbcSink)
    return sink


@pytest.fixture
def stream_to(tmp_path: Path) -> Iterator[Callable[..., Stream]]:
    opened: list[JdbcSink] = []

    def stream(database: Database, options: dict[str, str], **more: str) -> Stream:
        named = {name.replace(".", "_"): text for name, text in options.items()}
        opened.append(made(database, **named | more))
        found = started(opened[-1], tmp_path)
        found.query.id = f"query {len(opened)}"
        return found

    yield stream
    for sink in opened:
        sink.close()


def rows_of(database: Database, table: str = "p_public_t") -> list[Any]:
    with database.connect() as connection:
        return connection.execute(f"select * from {table} order by 1".encode()).fetchall()


def types_of(database: Database, table: str = "p_public_t") -> dict[str, str]:
    query = "select attname, format_type(atttypid, atttypmod) || case when attnotnull then ' not null' else '' end "
    with database.connect() as connection:
        found = connection.execute(
            (query + f"from pg_attribute where attrelid = '{table}'::regclass and attnum > 0 order by attnum").encode()
        )
        return dict(found.fetchall())


def test_rows_are_written_and_go(database: Database, stream_to: Callable[..., Stream]) -> None:
    stream = stream_to(database, UPSERT, batch_size="3")
    changes = [
        put("r", 1, "a"), put("c", 2, "b"), put("u", 1, "c"), put("c", 3, None), event("d", 2), tombstone(2),
        put("u", 3, "d"), row("beat", 9, op="heartbeat"), put("c", 4, "e"),
    ]  # fmt: skip
    stream.batch(changes)
    wanted = [(1, "c"), (3, "d"), (4, "e")]
    assert rows_of(database) == wanted
    assert types_of(database) == {"id": "integer not null", "v": "text"}
    # A replay goes through earlier states and ends in the same one.
    stream.batch(changes)
    assert rows_of(database) == wanted
    stream.batch([put("u", 1, "later")], 1)
    assert rows_of(database)[0] == (1, "later")


def test_deletes_and_truncates_count_where_they_are_wanted(
    database: Database, stream_to: Callable[..., Stream]
) -> None:
    kept = stream_to(database, UPSERT, delete_enabled="false")
    kept.batch([put("c", 1, "a"), put("c", 2, "b"), event("d", 1), tombstone(1), event("t", 0)])
    assert len(rows_of(database)) == 2
    emptied = stream_to(database, UPSERT, truncate_enabled="true")
    emptied.batch([event("t", 0), put("c", 3, "c")])
    assert rows_of(database) == [(3, "c")]


def test_a_delete_before_the_first_row_finds_nothing(database: Database, stream_to: Callable[..., Stream]) -> None:
    stream_to(database, UPSERT).batch([event("d", 1), put("c", 2, "b")])
    assert rows_of(database) == [(2, "b")]


def test_a_new_field_is_a_new_column(database: Database, stream_to: Callable[..., Stream]) -> None:
    stream = stream_to(database, UPSERT)
    more = {"type": "int32", "optional": False, "field": "Day", "name": "io.debezium.time.Date"}
    stream.batch([put("c", 1, "a"), event("c", 2, {"id": 2, "V": "b", "Day": 19_000}, more), put("c", 3, "c")])
    assert types_of(database) == {"id": "integer not null", "v": "text", "day": "date"}
    assert [(one[0], str(one[2])) for one in rows_of(database)] == [(1, "None"), (2, "2022-01-08"), (3, "None")]


ALTERED = "create table p_public_t (id int primary key, v text, {0})"


@pytest.mark.parametrize(
    ("column", "field", "words"),
    [
        ("old int", None, "has the column old, which the source's rows lack"),
        ("loaded timestamptz default now()", None, ""),
        ("n int generated always as (id + 1) stored", None, ""),
        ("w text", {"type": "string", "optional": True, "field": "w"}, ""),
        ("q int", {"type": "int32", "optional": True, "field": "more"}, "gets the column more, null in the rows"),
        ("w numeric(5,1)", {"type": "double", "optional": True, "field": "w"}, "has numeric(5,1) for the column w"),
        ("w bigint", {"type": "int32", "optional": True, "field": "w"}, ""),
        (
            "w date",
            {"type": "int64", "optional": True, "field": "w", "name": "io.debezium.time.MicroTimestamp"},
            "of the type timestamp(6) by now, and loses digits",
        ),
    ],
)
def test_a_table_that_will_differ_from_its_source_is_told_once(
    database: Database,
    stream_to: Callable[..., Stream],
    caplog: pytest.LogCaptureFixture,
    column: str,
    field: dict[str, Any] | None,
    words: str,
) -> None:
    database.execute(ALTERED.format(column))
    fields = () if field is None else (field,)
    changes = [event("c", number, {"id": number, "V": "a"}, *fields) for number in (1, 2)]
    stream = stream_to(database, UPSERT)
    with caplog.at_level(logging.WARNING, "tailrace"):
        stream.batch(changes)
        stream.batch(changes)
    told = [one.message for one in caplog.records if words and words in one.message]
    assert len(told) == bool(words)
    assert all("jdbc: p_public_t " in one and "; remedy: " in one and "execute-snapshot" in one for one in told)
    assert words or not caplog.records


def test_a_column_that_was_added_and_then_made_finer_is_told_twice(
    database: Database, stream_to: Callable[..., Stream], caplog: pytest.LogCaptureFixture
) -> None:
    stream = stream_to(database, UPSERT)
    with caplog.at_level(logging.WARNING, "tailrace"):
        stream.batch([put("c", 1, "a")])
        for kind in ("float", "double"):
            field = {"type": kind, "optional": True, "field": "w"}
            stream.batch([event("u", 1, {"id": 1, "V": "a", "w": 0.5}, field)])
    assert ["gets the column w" in one.message for one in caplog.records] == [True, False]
    assert "has real for the column w" in caplog.records[1].message


def test_changes_that_are_left_out_are_told(
    database: Database, stream_to: Callable[..., Stream], caplog: pytest.LogCaptureFixture
) -> None:
    stream = stream_to(database, UPSERT, delete_enabled="false")
    with caplog.at_level(logging.WARNING, "tailrace"):
        stream.batch([put("c", 1, "a"), event("d", 1), tombstone(1), event("d", 1), event("t", 0), event("t", 0)])
    assert [one.message.partition(",")[0] for one in caplog.records] == [
        "jdbc: deletes of p_public_t are left out", "jdbc: truncates of p_public_t are left out"
    ]  # fmt: skip


@pytest.mark.parametrize("more", [{}, {"insert.mode": "upsert", "primary.key.mode": "record_value"}])
def test_updates_that_add_rows_are_told_once(
    database: Database, stream_to: Callable[..., Stream], caplog: pytest.LogCaptureFixture, more: dict[str, str]
) -> None:
    stream = stream_to(database, {"schema.evolution": "basic"} | more)
    with caplog.at_level(logging.WARNING, "tailrace"):
        stream.batch([put("c", 1, "a")])
        assert not caplog.records
        stream.batch([put("u", 1, "b"), put("u", 1, "c")])
    assert rows_of(database) == [(1, "a"), (1, "b"), (1, "c")]
    (told,) = [one.message for one in caplog.records]
    assert told.startswith("jdbc: updates of p_public_t add rows beside those with the earlier values")
    assert "insert.mode = upsert" in told


def test_a_key_with_other_columns_than_the_tables(database: Database, stream_to: Callable[..., Stream]) -> None:
    database.execute("create table p_public_t (id int, v text primary key)")
    with pytest.raises(SinkError, match=r"p_public_t has no unique index over the key of its records \(id\)"):
        stream_to(database, UPSERT).batch([put("c", 1, "a"), put("c", 2, "b")])


def test_a_value_that_the_database_did_not_tell_stays(database: Database, stream_to: Callable[..., Stream]) -> None:
    stream_to(database, UPSERT).batch([put("c", 1, "a long one"), put("u", 1, "__debezium_unavailable_value")])
    assert rows_of(database) == [(1, "a long one")]


BIG = {"type": "string", "optional": False, "field": "big"}
HIDDEN = "__debezium_unavailable_value"


def moved(old: int, new: int, *, big: str = HIDDEN) -> list[Row]:
    """Return the records of a key change for which the log does not carry the value of `big`."""
    headers = [
        [{"key": f"__debezium.{kind}", "value": document(struct(ID), {"id": number})}]
        for kind, number in (("newkey", new), ("oldkey", old))
    ]
    gone = event("d", old) | {"headers": headers[0]}
    made = event("c", new, {"id": new, "V": "moved", "big": big}, BIG) | {"headers": headers[1]}
    return [gone, tombstone(old) | {"headers": headers[0]}, made]


def big(op: str, number: int, text: str) -> Row:
    return event(op, number, {"id": number, "V": "v", "big": text}, BIG)


def test_a_row_that_changes_its_key_keeps_what_the_log_leaves_out(
    database: Database, stream_to: Callable[..., Stream]
) -> None:
    stream = stream_to(database, UPSERT, batch_size="2")
    stream.batch([big("c", 1, "one"), big("c", 2, "two"), *moved(1, 5), big("c", 1, "another")])
    wanted = [(1, "v", "another"), (2, "v", "two"), (5, "moved", "one")]
    assert rows_of(database) == wanted
    # A row that another row replaces, and the whole batch after a crash.
    batch = [event("d", 2), tombstone(2), *moved(1, 2), *moved(5, 1)]
    stream.batch(batch)
    wanted = [(1, "moved", "one"), (2, "moved", "another")]
    assert rows_of(database) == wanted
    stream.batch(batch, stream.number)
    assert rows_of(database) == wanted
    for options, words in (
        ({"delete.enabled": "false"}, "only the old row has big: that needs delete.enabled = true"),
        ({"insert.mode": "insert"}, "only the old row has big: that needs insert.mode = upsert"),
    ):
        with pytest.raises(SinkError, match=words):
            stream_to(database, UPSERT | options).batch(moved(2, 3))


def handed_on(*changes: tuple[int, int, str], transaction: str = "T") -> list[Row]:
    """Return the records of a transaction whose rows change their keys, each `(old, new, text)`."""
    rows = []
    for ordinal, (old, new, text) in enumerate(changes):
        headers = [
            [{"key": f"__debezium.{kind}", "value": document(struct(ID), {"id": number})}]
            for kind, number in (("newkey", new), ("oldkey", old))
        ]
        gone, came = event("d", old) | {"headers": headers[0]}, put("c", new, text) | {"headers": headers[1]}
        rows += [one | {"position": transaction, "ordinal": ordinal} for one in (gone, gone | tombstone(old), came)]
        rows[-2]["headers"] = headers[0]
    return rows


@pytest.mark.parametrize("size", ["2", "500"])
@pytest.mark.parametrize(
    "changes",
    [
        [(1, 2, "a"), (2, 3, "b"), (3, 4, "c")],
        [(3, 4, "c"), (2, 3, "b"), (1, 2, "a")],
        [(1, 2, "a"), (2, 1, "b")],
        [(1, 2, "a"), (2, 3, "b"), (3, 1, "c")],
        [(1, 7, "a"), (7, 8, "a"), (2, 1, "b")],
        [(1, 2, "a"), (2, 1, "b"), (1, 2, "b"), (2, 1, "a")],
    ],
)
def test_keys_that_rows_hand_on_in_a_transaction(
    database: Database, stream_to: Callable[..., Stream], size: str, changes: list[tuple[int, int, str]]
) -> None:
    """Also if the transaction is cut over batches, and if a batch is repeated, by another process or as a whole."""
    rows = {1: "a", 2: "b", 3: "c"}
    moving = {text: old for old, _, text in reversed(changes)}
    wanted = {text: number for number, text in rows.items()} | {
        text: next(new for _, new, other in reversed(changes) if other == text) for text in moving
    }
    records = handed_on(*changes)
    for cut in range(0, len(records), 3):
        for repeats in ("", "changes", "whole"):
            stream = stream_to(database, UPSERT, batch_size=size)
            stream.query.id = query = f"{size} {changes} {cut} {repeats}"
            database.execute("drop table if exists p_public_t")
            stream.batch([put("r", number, text) for number, text in rows.items()], 0)
            more = [put("r", 50, "x")] if repeats == "whole" else []
            stream.batch([*more, *records[:cut]], 1)
            if repeats:
                stream = stream_to(database, UPSERT, batch_size=size)
                stream.query.id = query
                stream.batch([*more, *records[:cut]], 1)
            stream.batch([*more, *records[cut:]], 2)
            if repeats:
                stream = stream_to(database, UPSERT, batch_size=size)
                stream.query.id = query
                stream.batch([*more, *records[cut:]], 2)
            # a later transaction's deletes count
            stream.batch([event("d", 60), put("c", 61, "y"), event("d", 61), tombstone(61)], 3)
            found = {text: number for number, text in rows_of(database) if text != "x"}
            assert found == wanted, (cut, repeats)
            assert len(rows_of(database)) == len(wanted) + len(more), (cut, repeats)


def test_an_update_leaves_a_value_that_may_not_be_null(
    database: Database, stream_to: Callable[..., Stream], caplog: pytest.LogCaptureFixture
) -> None:
    stream = stream_to(database, UPSERT)
    stream.batch([big("c", 1, "one"), big("u", 1, HIDDEN), big("u", 1, HIDDEN)])
    assert rows_of(database) == [(1, "v", "one")]
    database.execute("alter table p_public_t alter big drop not null")
    with caplog.at_level(logging.WARNING, "tailrace"):
        stream.batch([big("u", 1, HIDDEN), big("u", 2, HIDDEN), big("u", 3, HIDDEN)])
    assert rows_of(database) == [(1, "v", "one"), (2, "v", None), (3, "v", None)]
    assert [one.message[:66] for one in caplog.records] == [
        "jdbc: p_public_t had no row for a change that leaves out big, which is null there now"[:66]
    ]


def test_a_change_without_a_row_is_seen_beside_one_of_two_rows(
    database: Database, stream_to: Callable[..., Stream]
) -> None:
    database.execute("create table p_public_t (id int, v text, big text)")
    database.execute("insert into p_public_t values (1, 'v', 'one'), (1, 'v', 'two')")
    with pytest.raises(SinkError, match=r"p_public_t has no unique index over the key of its records \(id\)"):
        stream_to(database, UPSERT).batch([big("u", 1, HIDDEN), big("u", 2, HIDDEN)])


@pytest.mark.parametrize("keyed", [True, False])
def test_what_was_inserted_before_a_crash_is_not_inserted_again(
    database: Database, stream_to: Callable[..., Stream], keyed: bool
) -> None:
    """The process ends after some groups of a batch, and after its last group, before Spark has committed the batch."""
    mode = {"primary.key.mode": "record_key"} if keyed else {"primary.key.mode": "none"}
    options = {"insert.mode": "insert", "schema.evolution": "basic", **mode}
    batch = [put("c", number, "a") for number in range(1, 6)]
    for part in (batch[:2], batch, batch):
        stream = stream_to(database, options, batch_size="2")
        stream.query.id = "one query"
        stream.batch(part, 7)
        assert rows_of(database) == [(number, "a") for number in range(1, len(part) + 1)]
    stream.batch([put("c", 6, "a")])
    assert len(rows_of(database)) == 6
    if keyed:
        # Snapshot rows are read anew, and may be others.
        stream.batch([put("r", 8, "a"), put("c", 9, "a")], 9)
        again = stream_to(database, options)
        again.query.id = "one query"
        again.batch([put("r", 8, "b"), put("r", 10, "b"), put("c", 9, "a")], 9)
        assert rows_of(database)[6:] == [(8, "b"), (9, "a"), (10, "b")]


@pytest.mark.parametrize("answered", [False, True])
def test_other_snapshot_rows_are_written_although_their_first_session_ends(
    database: Database, stream_to: Callable[..., Stream], monkeypatch: pytest.MonkeyPatch, answered: bool
) -> None:
    """An earlier attempt has written as many records as the one whose session ends, before or after its commit."""
    stream = stream_to(database, UPSERT)
    stream.query.id = "one query"
    stream.batch([put("r", 1, "a"), put("r", 2, "a"), put("r", 3, "a")], 7)
    again = stream_to(database, UPSERT, batch_size="2")
    again.query.id = "one query"
    flush, lost = StatementWriter.flush, [True]

    def losing(self: StatementWriter, connection: Any, planned: Any) -> None:
        if answered or not lost:
            flush(self, connection, planned)
        if lost:
            lost.clear()
            raise psycopg.OperationalError("the session has ended")

    monkeypatch.setattr(StatementWriter, "flush", losing)
    again.batch([put("r", 4, "b"), put("r", 2, "b"), put("r", 5, "b"), put("r", 6, "b")], 7)
    assert rows_of(database) == [(1, "a"), (2, "b"), (3, "a"), (4, "b"), (5, "b"), (6, "b")]


@pytest.mark.parametrize("mode", ["upsert", "insert"])
@pytest.mark.parametrize("kept", [[1, 3, 5, 6], [1, 3]])
def test_a_batch_that_leaves_out_other_records_after_a_crash_is_written_whole(
    database: Database, stream_to: Callable[..., Stream], caplog: pytest.LogCaptureFixture, mode: str, kept: list[int]
) -> None:
    """A new configuration leaves out a table, so that other records have the numbers of those that are committed."""
    options = UPSERT | {"insert.mode": mode}
    rows = [put("c", number, "a", topic=TOPIC if number % 2 else "p.public.left") for number in range(1, 5)]
    stream = stream_to(database, options)
    stream.query.id = "one query"
    stream.batch(rows[:3], 7)
    again = stream_to(database, options)
    again.query.id = "one query"
    again.batch([put("c", number, "a") for number in kept], 7)
    assert rows_of(database) == [(number, "a") for number in kept]
    assert "batch 7 was begun with other records" in caplog.text
    again.batch([put("c", number, "a") for number in kept], 7)
    assert caplog.text.count("was begun with other records") == 1


def test_a_place_that_an_earlier_version_has_stored_counts(
    database: Database, stream_to: Callable[..., Stream]
) -> None:
    stream = stream_to(database, UPSERT)
    stream.query.id = "one query"
    stream.batch([put("c", 1, "a"), put("c", 2, "a")], 7)
    database.execute("delete from tailrace_batches where query like 'marks of%'", "delete from p_public_t where id = 1")
    again = stream_to(database, UPSERT)
    again.query.id = "one query"
    again.batch([put("c", 1, "a"), put("c", 2, "a"), put("c", 3, "a")], 7)
    assert rows_of(database) == [(2, "a"), (3, "a")]


def test_the_table_of_a_newer_version_is_refused_by_name(database: Database, tmp_path: Path) -> None:
    database.execute(
        "create table tailrace_batches (query text primary key, batch bigint, records bigint, changes bigint)"
    )
    sink = made(database)
    # an earlier version left no mark
    started(sink, tmp_path)
    sink.close()
    database.execute("drop table tailrace_batches")
    sink = made(database)
    started(sink, tmp_path)
    sink.close()
    database.execute("comment on table tailrace_batches is 'tailrace form 2'")
    with pytest.raises(SinkError, match=r"newer tailrace has written the table tailrace_batches .* has the form 2"):
        started(made(database), tmp_path)
    database.execute("comment on table tailrace_batches is 'ours'")
    sink = made(database)
    started(sink, tmp_path)
    sink.close()


def test_inserts_need_a_table_that_tells_what_is_there(
    database: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    database.execute(
        "create role writer login password 'w'", "revoke create on schema public from public",
        "create table t (id int)", "grant all on t to writer",
    )  # fmt: skip
    try:
        login = {"connection_username": "writer", "connection_password": "w"}
        with pytest.raises(SinkError, match=r"tailrace_batches.*cannot be used.*create table tailrace_batches"):
            started(made(database, **login), tmp_path)
        options = {"insert_mode": "upsert", "primary_key_mode": "record_key"}
        with caplog.at_level(logging.WARNING, "tailrace"):
            sink = made(database, **login, **options)
            started(sink, tmp_path)
            sink.close()
        assert "the table tailrace_batches cannot be used" in caplog.text
    finally:
        database.execute("drop owned by writer", "drop role writer")


def test_tables_and_names(database: Database, stream_to: Callable[..., Stream]) -> None:
    database.execute('create schema "Public"')
    stream_to(database, UPSERT, quote_identifiers="true").batch([put("c", 1, "a")])
    assert types_of(database, '"p_public_T"') == {"id": "integer not null", "V": "text"}
    named = {"collection_name_format": "${source.schema}.x_${source.table}", "quote_identifiers": "true"}
    stream_to(database, UPSERT, **named).batch([put("c", 1, "a"), tombstone(1)])
    assert rows_of(database, '"Public"."x_t_t"') == [(1, "a")]
    stream_to(database, UPSERT, table_name_format="public.old_${topic}").batch([put("c", 1, "a", 'x"; drop %s')])
    assert rows_of(database, '"old_x""; drop %s"') == [(1, "a")]


def test_names_and_values_do_not_depend_on_the_encoding_of_the_environment(
    database: Database, stream_to: Callable[..., Stream], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("PGCLIENTENCODING", "LATIN1")
        stream_to(database, UPSERT).batch([put("c", 1, "\u00e9\u20ac", topic="p.\u00e9")])
    assert rows_of(database, "p_\u00e9") == [(1, "\u00e9\u20ac")]


def test_other_keys_and_modes(database: Database, stream_to: Callable[..., Stream]) -> None:
    database.execute("create table p_public_t (id int, v text)")
    plain = stream_to(database, {})
    plain.batch([put("c", 1, "a"), put("u", 1, "b")])
    assert rows_of(database) == [(1, "a"), (1, "b")]
    database.execute("delete from p_public_t where v = 'b'")
    updating = stream_to(database, {"insert.mode": "update", "primary.key.mode": "record_key"})
    updating.batch([put("u", 1, "c"), put("u", 7, "nobody")])
    assert rows_of(database) == [(1, "c")]
    values = {"insert.mode": "upsert", "primary.key.mode": "record_value", "primary.key.fields": "V"}
    database.execute("create unique index on p_public_t (v)")
    stream_to(database, values).batch([put("c", 5, "c")])
    assert rows_of(database) == [(5, "c")]
    primitive = {"insert.mode": "upsert", "primary.key.mode": "record_key", "primary.key.fields": "id"}
    database.execute("create unique index on p_public_t (id)")
    simple = put("u", 5, "d") | {"key": document({"type": "int32", "optional": False}, 5)}
    stream_to(database, primitive).batch([simple])
    assert rows_of(database) == [(5, "d")]
    with pytest.raises(SinkError, match=r"it lacks a field of primary\.key\.fields"):
        stream_to(database, primitive | {"primary.key.fields": "other"}).batch([put("u", 5, "e")])


def test_fields_are_chosen(database: Database, stream_to: Callable[..., Stream]) -> None:
    stream_to(database, UPSERT, field_exclude_list=f"{TOPIC}:V").batch([put("c", 1, "a"), put("c", 2, "b", "q")])
    assert rows_of(database) == [(1,)]
    assert rows_of(database, "q") == [(2, "b")]
    stream_to(database, UPSERT, field_include_list="id").batch([put("c", 3, "a", "only")])
    assert types_of(database, "only") == {"id": "integer not null"}


def test_flattened_records(database: Database, stream_to: Callable[..., Stream]) -> None:
    value = document(struct(ID, V, name="Value"), {"id": 1, "V": "a"})
    gone = put("d", 1, None) | {"value": None}
    stream = stream_to(database, UPSERT)
    stream.batch([put("c", 1, None) | {"value": value}])
    assert rows_of(database) == [(1, "a")]
    stream.batch([gone])
    assert rows_of(database) == []


def test_a_table_that_is_not_there_or_lacks_a_column(database: Database, stream_to: Callable[..., Stream]) -> None:
    stream = stream_to(database, UPSERT, schema_evolution="none")
    with pytest.raises(SinkError, match=r"The table p_public_t does not exist\. .*schema\.evolution = basic"):
        stream.batch([put("c", 1, "a")])
    database.execute("create table p_public_t (id int primary key)")
    with pytest.raises(SinkError, match="The table p_public_t has no column v"):
        stream.batch([put("c", 1, "a")])
    database.execute("alter table p_public_t add v text")
    stream.batch([put("c", 1, "a")])
    assert rows_of(database) == [(1, "a")]


def test_a_row_that_the_server_refuses(
    database: Database, stream_to: Callable[..., Stream], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    database.execute("create table p_public_t (id int primary key, v int)")
    rows = [put("c", 1, "1"), put("c", 2, "hush"), put("c", 3, "3"), put("c", 4, None) | {"key": None}]
    stream = stream_to(database, UPSERT)
    with pytest.raises(SinkError) as refused:
        stream.batch(rows[:3])
    assert "topic p.public.T at position 0000000000000002, ordinal 0" in refused.value.message
    assert "InvalidTextRepresentation" in refused.value.message
    assert "hush" not in str(refused.value)
    letters = tmp_path / "letters"
    with caplog.at_level(logging.WARNING, "tailrace"):
        stream_to(database, UPSERT, dead_letter_file=str(letters)).batch(rows)
    assert rows_of(database) == [(1, 1), (3, 3)]
    reasons = sorted(json.loads(line)["reason"] for line in letters.read_text().splitlines())
    assert reasons == ["InvalidTextRepresentation (SQLSTATE 22P02)", "it has no key"]
    assert "2 records were refused" in caplog.text
    assert "hush" not in caplog.text


def test_a_row_without_a_whole_key_is_refused_with_what_helps(
    database: Database, stream_to: Callable[..., Stream]
) -> None:
    """The key of a table without a primary key may be a unique index over columns that may be null."""
    record = put("c", 1, "hush")
    key = json.loads(record["key"])
    key["payload"]["id"] = None
    null = json.dumps(key, separators=(",", ":")).encode()
    for given, reason in ((null, "the column id of its key is null"), (None, "it has no key")):
        with pytest.raises(SinkError, match=reason) as refused:
            stream_to(database, UPSERT).batch([record | {"key": given}])
        assert "Give its table a primary key" in refused.value.remedy


def test_a_refused_record_is_on_disk_before_the_rows_after_it_are_committed(
    database: Database, stream_to: Callable[..., Stream], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process dies within a batch; its replay leaves out what is committed, and refuses nothing a second time."""
    database.execute("create table p_public_t (id int primary key, v int)")
    rows = [put("c", 1, "1"), put("c", 2, "x"), put("c", 3, None) | {"key": None}, put("c", 4, "4"), put("c", 5, "5")]
    letters = tmp_path / "letters"
    stream = stream_to(database, UPSERT, dead_letter_file=str(letters), batch_size="4")
    stream.query.id = "one query"
    with monkeypatch.context() as dying:
        # what the memory of a process that dies holds is lost
        dying.setattr(DeadLetters, "settle", lambda letters, batch: None)
        stream.batch(rows[:4], 7)
    again = stream_to(database, UPSERT, dead_letter_file=str(letters), batch_size="4")
    again.query.id = "one query"
    again.batch(rows, 7)
    assert rows_of(database) == [(1, 1), (4, 4), (5, 5)]
    assert sorted(json.loads(line)["position"][-1] for line in letters.read_text().splitlines()) == ["2", "3"]


def test_a_text_that_the_server_has_no_form_for_is_refused_at_once(
    database: Database, stream_to: Callable[..., Stream], tmp_path: Path
) -> None:
    """Other databases have the character NUL in texts; a server that is away is tried again, a value is not."""
    stream = stream_to(database, UPSERT)
    rows = [put("c", 1, "a"), put("c", 2, "b\0c"), put("c", 3, "d")]
    with pytest.raises(SinkError, match=r"refuses a record .*cannot contain NUL"):
        stream.batch(rows)
    letters = tmp_path / "letters.jsonl"
    stream_to(database, UPSERT, dead_letter_file=str(letters)).batch(rows)
    assert rows_of(database) == [(1, "a"), (3, "d")]
    assert len(letters.read_text().splitlines()) == 1


def test_a_session_that_ends_is_opened_again(database: Database, stream_to: Callable[..., Stream]) -> None:
    stream = stream_to(database, UPSERT)
    stream.batch([put("c", 1, "a")])
    database.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'tailrace' "
        f"and datname = '{database.name}'"
    )
    stream.batch([put("c", 2, "b")], 1)
    assert rows_of(database) == [(1, "a"), (2, "b")]


def test_a_lock_that_is_not_given_is_waited_for_and_then_an_error(
    database: Database, stream_to: Callable[..., Stream]
) -> None:
    database.execute(f"alter database {database.name} set lock_timeout = '20ms'")
    stream = stream_to(database, UPSERT, flush_max_retries="2")
    stream.batch([put("c", 1, "a")])
    with database.connect(autocommit=False) as other:
        other.execute("lock table p_public_t")
        with pytest.raises(ConnectionFailed, match=r"lock timeout \(SQLSTATE 55P03\)"):
            stream.batch([put("u", 1, "b")], 1)
    stream.batch([put("u", 1, "b")], 1)
    assert rows_of(database) == [(1, "b")]


def test_a_server_that_is_away_and_a_login_that_is_refused(database: Database, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        options = {"connection.url": f"jdbc:postgresql://127.0.0.1:{taken.getsockname()[1]}/d?password=hush"}
        sink = sinks.open("jdbc", options)
        assert isinstance(sink, JdbcSink)
        with pytest.raises(ConnectionFailed, match=r"cannot be used: .*refused") as failed:
            started(sink, tmp_path)
        assert "hush" not in str(failed.value)
    sink = made(database, connection_username="nobody_of_that_name")
    with pytest.raises(SinkError, match=r"refuses: .*nobody_of_that_name.*connection\.username"):
        started(sink, tmp_path)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"connection.url": "jdbc:mysql://h/d"}, "not supported (mysql)"),
        ({"connection.url": ""}, "needs debezium.sink.jdbc.connection.url"),
        ({"insert.mode": "upsert"}, "needs debezium.sink.jdbc.primary.key.mode"),
        ({"primary.key.mode": "kafka"}, "primary.key.mode = kafka is not supported"),
        ({"primary.key.mode": "record_header"}, "primary.key.mode = record_header is not supported"),
        ({"delete.enabled": "true"}, "= true needs debezium.sink.jdbc.primary.key.mode = record_key"),
        ({"use.time.zone": "Europe/Berlin"}, "use.time.zone must be UTC"),
        ({"topics.regex": "a.*"}, "topics.regex is not supported"),
        ({"collection.naming.prefix": "a"}, "collection.naming.prefix is not supported"),
        ({"field.include.list": "a", "field.exclude.list": "b"}, "beside field.exclude.list"),
        ({"collection.name.format": "${database}"}, "may hold only the variables ${topic} and ${source.FIELD}"),
        ({"insert.mod": "upsert"}, "The nearest is debezium.sink.jdbc.insert.mode"),
    ],
)
def test_wrong_options_are_named(options: dict[str, str], words: str) -> None:
    with pytest.raises(SinkError) as refused:
        sinks.open("jdbc", {"connection.url": "jdbc:postgresql://h/d", **options})
    assert words in str(refused.value)


SOURCE = {"database.hostname": "h", "database.user": "u", "database.dbname": "d", "topic.prefix": "p"}


def test_records_without_schemas_are_refused_before_anything_runs() -> None:
    source = parse("postgres", SOURCE | {"value.converter.schemas.enable": "false"})
    with pytest.raises(SinkError, match=r"debezium\.format\.schemas\.enable = true"):
        sinks.open("jdbc", {"connection.url": "jdbc:postgresql://h/d"}, source)


def test_options_without_effect_are_told(caplog: pytest.LogCaptureFixture) -> None:
    options = {"connection.url": "jdbc:postgresql://h/d", "connection.pool.max_size": "3", "hibernate.dialect": "x"}
    with caplog.at_level(logging.WARNING, "tailrace"):
        sinks.open("jdbc", options)
    assert caplog.text.count("has no effect") == 2


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, ["truncates"]),
        ({"delete.tombstone.handling.mode": "drop"}, ["truncates", "deletes"]),
        ({"delete.handling.mode": "drop", "drop.tombstones": "false"}, ["truncates"]),
        ({"predicate": "p"}, ["truncates"]),
        (None, []),
    ],
)
def test_a_transform_that_drops_what_removes_rows_is_told(
    caplog: pytest.LogCaptureFixture, options: dict[str, str] | None, told: list[str]
) -> None:
    unwrap = {"type": "io.debezium.transforms.ExtractNewRecordState", "replace.null.with.default": "false"}
    own = {f"transforms.x.{name}": text for name, text in (unwrap | (options or {})).items()}
    kind = "org.apache.kafka.connect.transforms.predicates.TopicNameMatches"
    matches = {"predicates": "p", "predicates.p.type": kind, "predicates.p.pattern": "p.*"}
    chain = {} if options is None else {"transforms": "x", **own, **(matches if "predicate" in options else {})}
    source = parse("postgres", SOURCE | {"value.converter.schemas.enable": "true"} | chain)
    with caplog.at_level(logging.WARNING, "tailrace"):
        sinks.open("jdbc", {"connection.url": "jdbc:postgresql://h/d"}, source)
    found = [one.getMessage() for one in caplog.records if "drops" in one.getMessage()]
    assert [text.split(" drops ")[1].split(",")[0] for text in found] == told
    assert all("remedy: " in text for text in found)


TYPES = (
    "id int primary key, small smallint, big bigint, price numeric(10,2), free numeric, real4 real, real8 float8, "
    "yes boolean, word text, short varchar(5), data bytea, day date, clock time, clocktz timetz, at timestamp, "
    "attz timestamptz, doc json, docb jsonb, ident uuid, span interval, bits bit(10), "
    "ints int[], words text[], days date[]"
)
VALUES = (
    "(1, -2, 9007199254740993, 12345678.90, -1.5e30, 1.25, 'NaN', true, E'é\"\\\\\\n', 'ab', '\\x00ff', '2024-02-29', "
    "'23:59:59.999999', '10:00+02', '1999-12-31 23:59:59.123456', '2020-06-01 12:00:00.5+02', '{\"a\": [1]}', "
    "'{\"b\": null}', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '1 year 2 mons 3 days 04:05:06.7', B'1010000001', "
    '\'{1,NULL,3}\', $${"a,\\"b",NULL,""}$$, \'{2020-01-01,NULL}\'), '
    "(2, null, null, null, 0, null, '-Infinity', null, null, null, null, 'infinity', null, null, '-infinity', "
    "'infinity', null, null, null, null, null, '{}', null, null)"
)


def test_a_pipeline_copies_a_table_of_many_types(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    """The target is a table that the sink creates, and one that exists with the right types. Both equal the source on
    the server, except for intervals and timetz, which events show differently."""
    database.execute(
        f"create table wide ({TYPES})", f"insert into wide values {VALUES}",
        "create schema copies", f"create table copies.p_public_wide ({TYPES})",
    )  # fmt: skip
    for schema in ("made", "copies"):
        database.execute(f"create schema if not exists {schema}")
        slot = f"{database.name.lower()}_{schema}"[-60:]
        options = database.options(topic_prefix="p", slot_name=slot) | {
            "checkpoint.location": str(tmp_path / schema),
            "table.include.list": "public.wide",
            "interval.handling.mode": "string",
        }
        entries = {f"debezium.source.{name}": text for name, text in options.items()} | {
            "debezium.sink.type": "jdbc",
            "debezium.sink.jdbc.connection.url": url(database),
            "debezium.sink.jdbc.connection.username": database.server.user,
            "debezium.sink.jdbc.connection.password": database.server.password,
            "debezium.sink.jdbc.insert.mode": "upsert",
            "debezium.sink.jdbc.primary.key.mode": "record_key",
            "debezium.sink.jdbc.delete.enabled": "true",
            "debezium.sink.jdbc.schema.evolution": "basic" if schema == "made" else "none",
            "debezium.sink.jdbc.collection.name.format": f"{schema}.$${{topic}}",
        }
        assert Pipeline(from_entries(entries, {}), spark).start(available_now=True).awaitTermination(240)
    with database.connect() as connection:
        names = [name.split()[0] for name in TYPES.split(", ")]
        odd = {"clocktz", "span"}
        texts = ", ".join(f"{name}::text" for name in names if name not in odd)
        wanted = connection.execute(f"select {texts} from wide order by id".encode()).fetchall()
        for schema in ("copies", "made"):
            got = connection.execute(f"select {texts} from {schema}.p_public_wide order by id".encode()).fetchall()
            assert got == wanted
        same = "select c.span = w.span, c.clocktz at time zone 'UTC' = w.clocktz at time zone 'UTC' "
        joined = f"{same} from copies.p_public_wide c join wide w using (id) where id = 1"
        assert connection.execute(joined.encode()).fetchone() == (True, True)


@pytest.mark.parametrize(
    ("first", "second", "options"),
    [
        ("p.public.a.b", "p.public.a_b", {}),
        ("p.public.Ab", "p.public.ab", {}),
        (f"p.public.{'n' * 60}1", f"p.public.{'n' * 60}2", {"quote_identifiers": "true"}),
    ],
)
def test_two_names_that_would_be_one_table_are_refused(
    database: Database, stream_to: Callable[..., Stream], first: str, second: str, options: dict[str, str]
) -> None:
    stream = stream_to(database, UPSERT, **options)
    stream.batch([put("c", 1, "a", topic=first), put("c", 2, "b", topic=first)])
    with pytest.raises(SinkError, match="would both be written to the table") as caught:
        stream.batch([put("c", 1, "c", topic=second)])
    assert first in caught.value.message
    assert second in caught.value.message


@pytest.mark.parametrize(("first", "second"), [("p.public.a.b", "p.public.a_b"), ("p.public.Größe", "p.public.größe")])
def test_a_later_run_knows_whose_rows_a_table_has(database: Database, tmp_path: Path, first: str, second: str) -> None:
    def run(*batches: tuple[int, Row]) -> None:
        sink = made(database, **{name.replace(".", "_"): text for name, text in UPSERT.items()})
        try:
            stream = started(sink, tmp_path)
            for number, one in batches:
                stream.batch([one], number)
        finally:
            sink.close()

    run((0, put("c", 1, "a", topic=first)))
    run((1, put("u", 1, "b", topic=first)))
    with pytest.raises(SinkError, match="would both be written to the table") as caught:
        run((2, put("c", 1, "c", topic=second)))
    assert first in caught.value.message
    # the remedy lets another table have the name
    database.execute(caught.value.remedy[caught.value.remedy.index("delete from") :].rstrip(";"))
    run((2, put("u", 1, "d", topic=second)))


def test_tables_of_two_schemas_are_not_one_table(database: Database, stream_to: Callable[..., Stream]) -> None:
    stream = stream_to(database, UPSERT, collection_name_format="${source.table}")
    other = put("c", 2, "b")
    other["value"] = other["value"].replace(b'"Public"', b'"Sales"')
    stream.batch([put("c", 1, "a")])
    with pytest.raises(SinkError, match=r"Public\.t\.t and Sales\.t\.t would both be written to the table t_t"):
        stream.batch([other])
    # a name that an earlier version has stored without its schema
    database.execute("update tailrace_batches set query = replace(query, '\"Public\", ', '')")
    again = stream_to(database, UPSERT, collection_name_format="${source.table}")
    again.query.id = stream.query.id
    again.batch([put("c", 3, "c")])
    assert rows_of(database, "t_t") == [(1, "a"), (3, "c")]


def test_no_table_is_written_into_that_of_the_progress(database: Database, stream_to: Callable[..., Stream]) -> None:
    with pytest.raises(SinkError, match="Tailrace_Batches would be written to the table tailrace_batches"):
        stream_to(database, UPSERT).batch([put("c", 1, "a", topic="Tailrace_Batches")])


def test_several_topics_go_into_one_table_that_is_named(database: Database, stream_to: Callable[..., Stream]) -> None:
    stream = stream_to(database, UPSERT, collection_name_format="every")
    stream.batch([put("c", 1, "a", topic="p.public.a.b"), put("c", 2, "b", topic="p.public.a_b")])
    assert rows_of(database, "every") == [(1, "a"), (2, "b")]
