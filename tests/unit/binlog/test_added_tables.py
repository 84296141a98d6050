"""Tables that a signal adds: what refuses them, and their definitions at the end of the signal's batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pymysql
import pytest

from tailrace.connectors.binlog import live_tables
from tailrace.connectors.binlog.dialect import MYSQL
from tailrace.connectors.binlog.live_tables import MOST_LOG_BYTES, AddedTables
from tailrace.connectors.binlog.log.identity import ServerIdentity
from tailrace.connectors.binlog.log.position import BinlogPosition
from tailrace.connectors.binlog.schema import catalog
from tailrace.connectors.binlog.schema.catalog import Created
from tailrace.connectors.binlog.schema.ddl.tokens import Unparsable
from tailrace.connectors.binlog.schema.definitions import State
from tailrace.connectors.binlog.schema.statement import Statement
from tailrace.connectors.registry import parse
from tailrace.errors import ConnectionFailed, PrerequisiteError
from tailrace.events.event_settings import EventSettings

T = ("d", "t")
TEXT = "CREATE TABLE `t` (`id` int NOT NULL, PRIMARY KEY (`id`)) DEFAULT CHARSET=utf8mb4"
TABLE = catalog.definition(TEXT, T, MYSQL)
END = BinlogPosition("binlog.000002", 400, 500, gtids="3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5", server="s")
CONFIG = parse("mysql", {"database.hostname": "h", "database.user": "u", "topic.prefix": "t"})


class Server:
    """A server with the table d.t, whose log goes on behind the batch with `statements`; None: they are unknown."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.shown: Any = {T: Created(TABLE, TEXT)}
        self.uuid, self.file, self.end = "s", "binlog.000002", 900
        self.statements: Sequence[str] | None = ()
        self.is_folded, self.writes = False, True
        self.fault: Exception | None = None
        self.asked: list[tuple[Any, Any]] = []
        patch.setattr(live_tables.catalog, "created", lambda *_: self.created())
        patch.setattr(live_tables, "rows", lambda session, statement: [("binlog.000001", 100), ("binlog.000002", 900)])
        patch.setattr(live_tables, "unlogged", lambda *_: ())
        patch.setattr(live_tables, "identify", lambda session: self.identity())

    def created(self) -> Any:
        if isinstance(self.shown, Exception):
            raise self.shown
        return self.shown

    def identity(self) -> ServerIdentity:
        return ServerIdentity(False, self.uuid, "", "", True, self.file, self.end)

    def between(self, begin: Any, end: Any) -> list[Statement] | None:
        self.asked.append((begin, end))
        return None if self.statements is None else [Statement("d", one.encode(), b"", 1, 0) for one in self.statements]

    def admit(self, table: Any) -> Any:
        if self.fault is not None:
            raise self.fault
        return table

    def added(self, end: BinlogPosition = END, known: State | None = None) -> AddedTables:
        made = AddedTables(
            CONFIG, EventSettings.from_options(CONFIG), lambda: cast(Any, None), self.admit, self.between,
            lambda: self.is_folded, lambda: 1, writes=self.writes,
        )  # fmt: skip
        made.begin(end, known or State())
        return made


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    return Server(monkeypatch)


@pytest.mark.parametrize(
    ("changes", "name", "words"),
    [
        ({"is_folded": True}, ("D", "t"), "the log has names in lower case alone"),
        ({"shown": {}}, T, "it is gone."),
        ({"shown": Unparsable("a type is not known")}, T, "its definition is not understood: a type is not known."),
        (
            {"shown": pymysql.err.OperationalError(1142, "denied")},
            T,
            "the user may not read it: GRANT SELECT ON `d`.`t`",
        ),
        ({"shown": pymysql.err.OperationalError(1049, "Unknown database")}, T, "it is gone."),
        ({"fault": PrerequisiteError("no key", "add one")}, T, "no key"),
        ({"uuid": "other"}, T, "the server was replaced, and its log is not read yet"),
        ({"end": 500 + MOST_LOG_BYTES + 1}, T, "the 128 MiB of log and more"),
        ({"statements": None}, T, "the log that is still to be read may alter it"),
        ({"statements": ["alter table t add a int"]}, T, "the log that is still to be read may alter it"),
    ],
)
def test_a_table_that_cannot_be_captured_from_here_on_says_why(
    changes: dict[str, Any], name: tuple[str, str], words: str, server: Server
) -> None:
    for field, value in changes.items():
        setattr(server, field, value)
    refused = server.added().prepared([name])
    assert list(refused) == [name]
    assert refused[name].startswith(words)


def test_an_unexpected_error_of_the_server_is_not_taken_for_a_table_that_is_gone(server: Server) -> None:
    server.shown = pymysql.err.OperationalError(2013, "Lost connection")
    with pytest.raises(pymysql.err.OperationalError):
        server.added().prepared([T])


def test_without_ids_of_transactions_and_watermarks_no_table_is_added(server: Server) -> None:
    server.writes = False
    plain = BinlogPosition("binlog.000002", 400, 500, server="s")
    assert server.added(plain).prepared([T])[T].startswith("without GTIDs its rows cannot be read beside the stream")
    assert server.added().prepared([T]) == {}


@pytest.mark.parametrize("statements", [(), ("alter table other add a int", "create table u (a int)")])
def test_a_table_that_the_log_leaves_alone_has_the_definition_of_the_catalog(
    statements: Sequence[str], server: Server
) -> None:
    server.statements = statements
    added = server.added()
    assert added.prepared([T]) == {}
    assert server.asked == [(("binlog.000002", 500), ("binlog.000002", 900))]
    assert added.defined(State(), END).tables == {T: TABLE}


def test_a_table_whose_definition_the_log_has_given_is_not_looked_up(server: Server) -> None:
    assert server.added(known=State({T: TABLE}, {})).prepared([T]) == {}
    assert server.asked == []


def test_a_table_that_is_altered_while_it_is_added_ends_the_batch(server: Server) -> None:
    added = server.added()
    assert added.prepared([T]) == {}
    later = BinlogPosition("binlog.000003", 100, 200, server="s")
    assert added.defined(State(), later).tables == {T: TABLE}
    assert server.asked[-1] == (("binlog.000002", 900), ("binlog.000003", 200))
    server.statements = ["drop table t"]
    with pytest.raises(ConnectionFailed, match="Tables were altered while a signal added them"):
        added.defined(State(), later)
