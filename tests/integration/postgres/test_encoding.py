"""Databases without an encoding: their texts are any bytes, and none of them may stop a session or break JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tailrace.connectors.postgres.planner import PostgresPlanner
from tailrace.connectors.registry import parse
from tailrace.errors import ConversionError, PrerequisiteError
from tailrace.events.event_settings import EventSettings
from tests.fix_postgres import Database, Postgres, drop

NAME, OTHER = "test_no_encoding", "test_windows_encoding"


@pytest.fixture
def plain_bytes(postgres: Postgres) -> Iterator[Database]:
    """A fresh database of the encoding SQL_ASCII."""
    drop(postgres, NAME)
    with postgres.connect() as connection:
        connection.execute(
            f"create database {NAME} template template0 encoding 'SQL_ASCII' lc_collate 'C' lc_ctype 'C'".encode()
        )
    yield Database(postgres, NAME)
    drop(postgres, NAME)


@pytest.fixture
def windows(postgres: Postgres) -> Iterator[Database]:
    """A fresh database of the encoding WIN1252, in which the byte 81 is no character."""
    drop(postgres, OTHER)
    with postgres.connect() as connection:
        connection.execute(
            f"create database {OTHER} template template0 encoding 'WIN1252' lc_collate 'C' lc_ctype 'C'".encode()
        )
    yield Database(postgres, OTHER)
    drop(postgres, OTHER)


def after(planner: PostgresPlanner, count: int, start: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return the `after` of the next `count` records, read as tasks read them, and the offset behind them."""
    rows: list[Any] = []
    deadline = time.monotonic() + 30
    while len(rows) < count and time.monotonic() < deadline:
        end = planner.latest_offset(start, None, 64 << 20)
        if end == start:
            continue
        for task in planner.partitions(start, end):
            for batch in task.read():
                rows += [json.loads(value)["after"] for value in batch.column("value").to_pylist()]
        start = end
    return rows, start


def planner_of(database: Database, **options: str) -> PostgresPlanner:
    given = {"slot.name": NAME, "topic.prefix": "s", "value.converter.schemas.enable": "false"}
    given |= {"tombstones.on.delete": "false", **options}
    config = parse("postgres", database.options(**given))
    return PostgresPlanner(config, EventSettings.from_options(config, "run"))


BAD = "E'a\\377b'"


@pytest.mark.parametrize("lies", [False, True])
def test_texts_that_are_not_utf8_are_null_in_snapshot_stream_and_catch_up(plain_bytes: Database, lies: bool) -> None:
    plain_bytes.execute(
        "create table t (id int primary key, v text, ok text, xs text[])",
        f"insert into t values (1, {BAD}, 'é', array[{BAD}]), (2, 'good', {BAD}, array['é'])",
    )
    if lies:
        # the server does not check the encoding of stored bytes
        plain_bytes.execute(
            f"update pg_catalog.pg_database set encoding = pg_char_to_encoding('UTF8') where datname = '{NAME}'"
        )
        with plain_bytes.connect() as connection:
            assert connection.info.parameter_status("server_encoding") == "UTF8"
    wanted = [{"v": None, "ok": "é", "xs": None}, {"v": "good", "ok": None, "xs": ["é"]}]
    planner = planner_of(plain_bytes)
    try:
        rows, start = after(planner, 2, planner.initial_offset())
        assert rows == [{"id": number + 1, **row} for number, row in enumerate(wanted)]
        plain_bytes.execute("update t set id = id + 10")
        rows, start = after(planner, 4, start)
        assert [row for row in rows if row] == [{"id": number + 11, **row} for number, row in enumerate(wanted)]
    finally:
        planner.close()
    plain_bytes.execute("insert into t select id + 10, v, ok, xs from t")
    again = planner_of(plain_bytes)
    again.stop_at_present()
    try:
        rows, _ = after(again, 2, start)
        assert rows == [{"id": number + 21, **row} for number, row in enumerate(wanted)]
    finally:
        again.close()


def test_a_text_that_is_not_utf8_fails_where_failures_are_asked_for(plain_bytes: Database) -> None:
    plain_bytes.execute("create table t (id int primary key, v text)", f"insert into t values (1, {BAD})")
    planner = planner_of(plain_bytes, **{"event.converting.failure.handling.mode": "fail"})
    try:
        with pytest.raises(ConversionError, match="column v of public"):
            after(planner, 1, planner.initial_offset())
    finally:
        planner.close()


UNTRANSLATABLE = "insert into t values (2, convert_from('\\x81'::bytea, 'WIN1252'))"


@pytest.mark.parametrize("way", ["snapshot", "stream", "catch-up"])
def test_a_text_without_a_form_in_utf8_is_an_error_that_says_so(windows: Database, way: str) -> None:
    """It was tried again for ever, as a session that the server has ended."""
    windows.execute("create table t (id int primary key, v text)", "insert into t values (1, '€')")
    if way == "snapshot":
        windows.execute(UNTRANSLATABLE)
    planner = planner_of(windows, **{"slot.name": OTHER})
    try:
        if way != "snapshot":
            _, start = after(planner, 1, planner.initial_offset())
            windows.execute(UNTRANSLATABLE)
        if way == "catch-up":
            planner.close()
            planner = planner_of(windows, **{"slot.name": OTHER})
            planner.stop_at_present()
        with pytest.raises(PrerequisiteError, match="it has no form in UTF-8"):
            after(planner, 2, planner.initial_offset() if way == "snapshot" else start)
    finally:
        planner.close()
