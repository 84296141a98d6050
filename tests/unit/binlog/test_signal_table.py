"""Faults of a signal table, and signals that are inserted into it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pymysql
import pytest

from tailrace.connectors.binlog.snapshot import signal_table
from tailrace.connectors.binlog.snapshot.signal_table import SignalTable, send
from tailrace.connectors.registry import parse
from tailrace.errors import ConfigError, ConnectionFailed, PrerequisiteError, TailraceError
from tailrace.snapshot.signals import Signal

Columns = Sequence[tuple[str | None, ...]]
ID, TYPE, DATA = ("id", "varchar", "42", "1"), ("type", "varchar", "32", "1"), ("data", "varchar", "2048", "0")
GOOD = (ID, TYPE, DATA)


class Session:
    """A session that shows a table's columns, and answers an insert as it is told."""

    def __init__(self, patch: pytest.MonkeyPatch, columns: Columns, answer: Exception | None = None) -> None:
        self.columns, self.answer = columns, answer
        self.inserted: list[str] = []
        self.is_closed = False
        patch.setattr(signal_table, "connect", lambda config: self)
        patch.setattr(signal_table, "rows", lambda session, statement: list(self.columns))
        patch.setattr(signal_table, "run", lambda session, statement: self.insert(statement))

    def insert(self, statement: str) -> None:
        if self.answer is not None:
            raise self.answer
        self.inserted.append(statement)

    def close(self) -> None:
        self.is_closed = True


def config(**more: str) -> Any:
    options = {"database.hostname": "h", "database.user": "u", "topic.prefix": "t"}
    return parse("mysql", options | {name.replace("_", "."): value for name, value in more.items()})


NAMED = config(signal_data_collection="shop.signals")


@pytest.mark.parametrize(
    ("columns", "more", "level", "words", "remedy"),
    [
        ((), {}, "error", "There is no signal table shop.signals", "CREATE TABLE `shop`.`signals` (id VARCHAR(42)"),
        ((ID, TYPE), {}, "error", "must be texts: id, type and data.", "CREATE TABLE"),
        ((("id", "INT", None, "1"), TYPE, DATA), {}, "error", "must be texts", "CREATE TABLE"),
        ((ID, TYPE, ("da`ta", "VARCHAR", "100", "0")), {}, "warning", "only 100 characters; data may need 2048",
         "ALTER TABLE `shop`.`signals` MODIFY `da``ta` TEXT;"),
        ((*GOOD, ("more", "int", None, "1")), {}, "error", "The column more of the signal table shop.signals may not",
         "Let `more` of `shop`.`signals` be null"),
    ],
)  # fmt: skip
def test_a_fault_of_the_table_has_a_remedy(
    columns: Columns, more: dict[str, str], level: str, words: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    session: Any = Session(monkeypatch, columns)
    (found,) = SignalTable(config(signal_data_collection="shop.signals", **more)).faults(session)
    assert found.level == level
    assert words in found.text
    assert remedy in found.remedy


@pytest.mark.parametrize(
    ("columns", "more"),
    [
        (GOOD, {}),
        ((ID, TYPE, ("data", "longtext", None, "0"), ("at", "timestamp", None, "0")), {}),
        ((*GOOD, ("more", "int", None, "1")), {"read_only": "true"}),
        (GOOD, {"table_include_list": "shop.orders"}),
    ],
)
def test_a_table_that_serves_has_no_fault(
    columns: Columns, more: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    session: Any = Session(monkeypatch, columns)
    table = SignalTable(config(signal_data_collection="shop.signals", **more))
    assert list(table.faults(session)) == []
    assert table.texts(session)[:3] == [True, True, True]


def test_a_signal_is_inserted_by_the_places_of_the_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session(monkeypatch, (("a", "varchar", "42", "1"), ("b`c", "varchar", "32", "1"), DATA))
    assert send(NAMED, Signal("1", "log", '{"message": "it\'s"}')) == "shop.signals"
    assert send(NAMED, Signal("", "log", None)) == "shop.signals"
    data = b'{"message": "it\'s"}'.hex()
    assert session.inserted == [
        "insert into `shop`.`signals` (`a`, `b``c`, `data`) values "
        f"(_utf8mb4 x'31', _utf8mb4 x'6c6f67', _utf8mb4 x'{data}')",
        "insert into `shop`.`signals` (`a`, `b``c`, `data`) values ('', _utf8mb4 x'6c6f67', null)",
    ]
    assert session.is_closed


@pytest.mark.parametrize(
    ("columns", "answer", "kind", "words"),
    [
        ((), None, PrerequisiteError, "shop.signals is not there, or has fewer columns"),
        (GOOD, pymysql.err.OperationalError(2013, "Lost connection"), ConnectionFailed, "error 2013"),
        (GOOD, pymysql.err.IntegrityError(1062, "Duplicate entry '1'"), PrerequisiteError, "has a signal of this id"),
        (GOOD, pymysql.err.DataError(1406, "Data too long"), PrerequisiteError, r"\(error 1406\).*tailrace check says"),
        ((ID, TYPE, ("data", "varchar", "9", "0")), pymysql.err.DataError(1406, "Data too long"), PrerequisiteError,
         r"\(error 1406\).*MODIFY `data` TEXT;"),
    ],
)  # fmt: skip
def test_a_signal_that_the_server_refuses_says_why(
    columns: Columns,
    answer: Exception | None,
    kind: type[TailraceError],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = Session(monkeypatch, columns, answer)
    with pytest.raises(kind, match=words):
        send(NAMED, Signal("1", "log", "{}"))
    assert session.is_closed


def test_a_signal_needs_a_table() -> None:
    with pytest.raises(ConfigError, match="No signal table is named"):
        send(config(), Signal("1", "log", "{}"))
