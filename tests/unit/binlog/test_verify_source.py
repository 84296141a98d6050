"""Keys of a comparison as conditions of the server, and places in its log."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, cast

import pytest

from tailrace.columns.table import TableId, TableSchema
from tailrace.connectors.binlog import verify_source
from tailrace.connectors.binlog.verify_source import ComparedSnapshot, compared
from tailrace.connectors.consistent_read import TouchedKeys
from tailrace.connectors.registry import parse
from tailrace.errors import ConnectionFailed, PositionLost
from tailrace.events.event_settings import EventSettings

CONFIG = parse("mysql", {"database.hostname": "h", "database.user": "u", "topic.prefix": "t"})
KEYED, KEYLESS = (TableSchema(TableId("", "d", "t"), (), key) for key in (("k",), ()))


class Session:
    def close(self) -> None:
        pass


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> ComparedSnapshot:
    monkeypatch.setattr(verify_source, "connect", lambda config: Session())
    return compared(CONFIG, EventSettings.from_options(CONFIG))


@pytest.mark.parametrize(
    ("value", "literal"),
    [
        (5, "5"),
        (True, "1"),
        (Decimal("-1.50"), "-1.50"),
        (b"\x00'", "x'0027'"),
        ("plain", "'plain'"),
        # a quote, a backslash and a comment's begin are never in the text of a statement
        ("it's", "_utf8mb4 x'69742773'"),
        ("a\\b", "_utf8mb4 x'615c62'"),
        ("a--b", "_utf8mb4 x'612d2d62'"),
        ("ü", "_utf8mb4 x'c3bc'"),
        (datetime.date(2024, 2, 29), "'2024-02-29'"),
        (datetime.time(3, 4, 5), "'03:04:05'"),
        (datetime.datetime(2024, 2, 29, 3, 4, 5, 600, datetime.UTC), "'2024-02-29 03:04:05.000600'"),
    ],
)
def test_a_value_of_a_key_is_a_literal_of_the_server(value: Any, literal: str, source: ComparedSnapshot) -> None:
    assert source.condition(["k"], [[value]]) == f"`k` in ({literal})"


def test_keys_of_several_columns_are_rows(source: ComparedSnapshot) -> None:
    assert source.condition(["a`b", "c"], [[1, "x"], [2, "y"]]) == "(`a``b`, `c`) in ((1, 'x'), (2, 'y'))"
    assert source.condition(["k"], [[1], [2]]) == "`k` in (1, 2)"


@pytest.mark.parametrize(
    ("failure", "table", "expected"),
    [
        (None, KEYED, TouchedKeys(((b"1", b"2"),))),
        (PositionLost("a", "b"), KEYED, TouchedKeys((), True)),
        (None, KEYLESS, TouchedKeys((), True)),
    ],
)
def test_all_keys_count_as_changed_if_the_log_does_not_tell_which(
    failure: Exception | None,
    table: TableSchema,
    expected: TouchedKeys,
    source: ComparedSnapshot,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def touched(self: object, table: TableSchema, after: str, upto: str) -> set[tuple[bytes, ...]]:
        if failure is not None:
            raise failure
        return {(b"2",), (b"1",)}

    monkeypatch.setattr(ComparedSnapshot, "_touched", touched)
    assert source.touched(table, "", "") == expected


@pytest.mark.parametrize(("files", "begins"), [(["log.000009", "log.000010"], True), (["log.000011"], False)])
def test_changes_are_read_from_the_file_of_the_position_if_it_is_there(
    files: Sequence[str], begins: bool, source: ComparedSnapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[Any] = []

    class Source(Session):
        def __init__(self, *_: Any) -> None:
            pass

        def present(self) -> str:
            return "target"

        def open(self, offset: Any, *_: Any) -> Any:
            begun.append(offset.log)
            raise ConnectionFailed("begun")

    monkeypatch.setattr(verify_source, "BinlogSource", Source)
    monkeypatch.setattr(verify_source, "stored_commands", lambda config: None)
    monkeypatch.setattr(verify_source, "rows", lambda session, statement: [(file, 1) for file in files])
    after = "00000000000A0000000000FF"
    if begins:
        with pytest.raises(ConnectionFailed, match="begun"):
            source.touched(KEYED, after, after)
        assert [(one.file, one.start) for one in begun] == [("log.000010", 255)]
    else:
        assert source.touched(KEYED, after, after) == TouchedKeys((), True)


def test_a_snapshot_is_held_until_the_source_is_closed(
    source: ComparedSnapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[bool] = []

    class Held:
        position, tables, tasks = "0000", (KEYED,), ()

        def __init__(self, *_: Any) -> None:
            pass

        def close(self) -> None:
            closed.append(True)

    monkeypatch.setattr(verify_source, "HeldSnapshot", Held)
    source.close()
    assert closed == []
    source.take()
    assert (source.position, source.tables) == ("0000", (KEYED,))
    assert list(source.of_table(KEYED)) == []
    assert (source.is_running(), source.is_told(), cast(str, source.committed)) == (None, True, "")
    source.close()
    assert closed == [True]
