"""Options about columns and keys on a real server: in the snapshot, in the stream, and when tables change."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator

import pyarrow as pa
import pytest

from tailrace.connectors.postgres.snapshot.tasks import SnapshotTask
from tailrace.errors import ConfigError
from tests.fix_capture import Captures
from tests.fix_postgres import Database

TABLE = "create table people (id int primary key, name text, mail varchar(10), secret text)"


def test_snapshot_and_stream_show_the_same_columns_and_the_same_key(capture: Captures, database: Database) -> None:
    one = capture(
        TABLE,
        "insert into people values (1, 'a', 'm', 's')",
        snapshot_mode="initial",
        column_include_list=r"public\.people\.(name|mail)",
        column_mask_with_2_chars=r".*\.mail",
        message_key_columns="public.people:secret,id",
    )
    database.execute("insert into people values (2, 'a', 'm', 's')")
    read, created = one.take(2)
    assert read.payload["after"] == created.payload["after"] == {"name": "a", "mail": "**"}
    assert (read.id, created.id) == ({"secret": "s", "id": 1}, {"secret": "s", "id": 2})
    assert read.value["schema"] == created.value["schema"]
    assert read.key["schema"] == created.key["schema"]


def test_a_snapshot_reads_only_what_is_shown(capture: Captures, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    plain = SnapshotTask.read

    def noted(task: SnapshotTask) -> Iterator[pa.RecordBatch]:
        read.append(task.statement)
        yield from plain(task)

    monkeypatch.setattr(SnapshotTask, "read", noted)
    one = capture(
        TABLE,
        "insert into people values (1, 'a', 'm', 's')",
        snapshot_mode="initial",
        column_exclude_list=r".*\.(id|secret)",
    )
    assert one.take(1)[0].id == {"id": 1}
    assert "secret" not in read[0]
    assert '"name"' in read[0]


def test_a_comment_is_told_with_the_type(capture: Captures, database: Database) -> None:
    one = capture(
        TABLE,
        "comment on column people.name is 'who it is'",
        include_schema_comments="true",
        column_propagate_source_type=r".*\.name",
    )
    database.execute("insert into people values (1)")
    fields = one.take(1)[0].value["schema"]["fields"][0]["fields"]
    assert fields[1]["parameters"]["__debezium.source.column.comment"] == "who it is"
    assert "parameters" not in fields[0]


@pytest.mark.seed("000-09")
def test_tables_that_collide_are_told_at_the_start_and_when_they_appear(
    capture: Captures, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "tailrace"):
        one = capture('create table "a b" (id int primary key)', 'create table "a?b" (id int primary key)')
        assert "the tables public.a b and public.a?b share the topic" in caplog.text
        database.execute('create table "a_b" (id int primary key)', 'insert into "a_b" values (1)')
        one.take(1)
        # beside the table that was read first
        assert re.search(r"the tables public\.a[ ?]b and public\.a_b share the topic", caplog.text)


def test_columns_that_collide_stop_the_start(capture: Captures) -> None:
    with pytest.raises(ConfigError, match=r"columns a-b and a_b of .* both become the field a_b"):
        capture('create table t ("a-b" int, a_b int)', field_name_adjustment_mode="avro")


def test_columns_that_collide_stop_the_stream_where_they_appear(capture: Captures, database: Database) -> None:
    one = capture("create table t (id int primary key, a_b int)", field_name_adjustment_mode="avro")
    database.execute("insert into t values (1, 1)")
    one.take(1)
    database.execute('alter table t add column "a-b" int', "insert into t values (2, 2, 2)")
    with pytest.raises(ConfigError, match="both become the field a_b"):
        one.take(1)


def test_a_key_column_that_is_dropped_stops_the_stream(capture: Captures, database: Database) -> None:
    one = capture(TABLE, message_key_columns="public.people:name")
    database.execute("insert into people values (1, 'n')")
    assert one.take(1)[0].id == {"name": "n"}
    database.execute("alter table people drop column name", "insert into people values (2)")
    with pytest.raises(ConfigError, match="names the column name of public"):
        one.take(1)


def test_a_value_that_cannot_be_converted_is_put_aside_in_the_stream(capture: Captures, database: Database) -> None:
    one = capture(
        "create table late (id int primary key, at timestamp)",
        event_converting_failure_handling_mode="fail",
        event_processing_failure_handling_mode="warn",
    )
    database.execute("insert into late values (1, '2020-01-01'), (2, '294276-12-31 23:59:59'), (3, null)")
    events = one.take(3)
    assert [event.op for event in events] == ["c", "quarantine", "c"]
    assert events[1].topic == "PostgreSQL_server.quarantine"
    assert json.loads(events[1].payload["key"]) == {"id": 2}


def test_a_constraint_that_existing_rows_were_not_checked_for_lets_null_pass(
    capture: Captures, database: Database
) -> None:
    """A null of such a row was 0: the column counted as NOT NULL."""
    if database.server.version < 18:
        pytest.skip("NOT NULL … NOT VALID is PostgreSQL 18's")
    one = capture(
        "create table t (id int primary key, n int)",
        "insert into t values (1, null)",
        "alter table t add constraint given not null n not valid",
        snapshot_mode="initial",
    )
    assert one.take(1)[0].payload["after"] == {"id": 1, "n": None}
    for statement, optional in (
        ("update t set n = 3", True),
        ("alter table t validate constraint given; insert into t values (2, 5)", False),
    ):
        database.execute(statement)
        (record,) = one.take(1)
        shown = {field["field"]: field["optional"] for field in record.value["schema"]["fields"][1]["fields"]}
        assert shown == {"id": False, "n": optional}
