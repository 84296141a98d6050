"""Conditions of signals stay one expression or one select, whatever they contain."""

from __future__ import annotations

import json
import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.connectors.registry import parse
from tailrace.connectors.signalling import send
from tailrace.errors import ConfigError
from tailrace.snapshot.conditions import FORBIDDEN, fault, refusal
from tailrace.snapshot.incremental import Notifications
from tailrace.snapshot.progress import NO_PROGRESS
from tailrace.snapshot.signal_handler import SignalHandler
from tailrace.snapshot.signals import Signal
from tests.extent import examples


@pytest.mark.parametrize(
    "sql",
    [
        "id > 1000",
        "name = 'O''Brien; --' and [a;]]b] = 1",
        "\"a;b\" in (select x from dbo.u where y = ')')",
        "deleted = 1 and update_count > 0 and [update] = 1",
        "id = 1 -- the first;\nor id = 2",
        "id = /* one; ) */ 1",
        "id between (1) and ((2))",
        "n'x' = N'y' and @@rowcount = 0",
        "select * from dbo.t where id = 1 ; ",
    ],
)
def test_what_is_one_condition_is_taken(sql: str) -> None:
    assert fault(sql, brackets=True) == ""


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("1=1)); delete from dbo.t; --", "closes a parenthesis"),
        ("1=1); delete from dbo.t; select * from (select 1 as x where (1=1", "closes a parenthesis"),
        # Two statements need no semicolon between them.
        ("1=1)) delete from t select * from (select 1 x where ((1=1", "closes a parenthesis"),
        ("1=1; delete from dbo.t", "semicolon"),
        ("(1=1", "does not close"),
        ("id = 'x", "quote"),
        ('"x = 1', "quote"),
        ("[x = 1", "quote"),
        ("[a]]= 1", "quote"),
        ("1=1 --", "comment"),
        ("1=1 /* ", "comment"),
        ("1=1 /* /* */ ) */", "comment"),
        ("1=1 -- \r) x\n", "comment"),
        ("1=1 -- \u2028) x\n", "comment"),
        ("exists (select * from openquery(other, 'drop table t'))", "openquery"),
        ("exists (select * from OpenRowset('a', 'b', 'c'))", "openrowset"),
        ("id in (select id from (delete from t output deleted.id) x)", "delete"),
        ("1=1 exec sp_who", "exec"),
        ("1=1update t set a = 1", "update"),
    ],
)
def test_what_could_be_more_is_refused(sql: str, said: str) -> None:
    assert said in fault(sql, brackets=True)


def test_square_brackets_quote_nothing_where_they_do_not() -> None:
    assert "closes a parenthesis" in fault("a [ ) ] = 1", brackets=False)
    assert fault("a [ ) ] = 1", brackets=True) == ""


PIECES = ("'", "''", '"', '""', "[", "]", "]]", "(", ")", ";", "--", "\n", "/*", "*/", "-", "/", "*", "a", "1", " ")


def stays_inside(sql: str, brackets: bool) -> bool:
    """Return True for a condition without a semicolon and without an unopened parenthesis, outside of literals and
    comments."""
    ends = {"'": "'", '"': '"'} | ({"[": "]"} if brackets else {})
    depth = at = 0
    while at < len(sql):
        if sql.startswith("--", at):
            end = sql.find("\n", at)
            if end < 0:
                return False
            at = end
        elif sql.startswith("/*", at):
            end = sql.find("*/", at + 2)
            if end < 0:
                return False
            at = end + 1
        elif sql[at] in ends:
            close = ends[sql[at]]
            at += 1
            while at < len(sql) and (sql[at] != close or sql.startswith(close * 2, at)):
                at += 2 if sql[at] == close else 1
            if at >= len(sql):
                return False
        else:
            depth += {"(": 1, ")": -1}.get(sql[at], 0)
            if depth < 0 or sql[at] == ";":
                return False
        at += 1
    return depth == 0


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=24).map("".join), st.booleans())
def test_what_is_taken_stays_within_its_parentheses(sql: str, brackets: bool) -> None:
    if not fault(sql, brackets=brackets):
        assert stays_inside(sql.rstrip("; \n"), brackets)


REQUIRED = {
    "postgres": {"database.dbname": "d"},
    "sqlserver": {"database.names": "d", "database.password": "p"},
    "db2": {"database.dbname": "d", "database.password": "p"},
    "mongodb": {"mongodb.connection.string": "mongodb://h/?replicaSet=r"},
}
LOGIN = {"database.hostname": "h", "database.user": "u", "topic.prefix": "p"}


@pytest.mark.parametrize("connector", REQUIRED)
def test_conditions_can_be_forbidden(
    connector: str, caplog: pytest.LogCaptureFixture, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("signals") / "signals"
    login = {} if connector == "mongodb" else LOGIN
    options = login | REQUIRED[connector] | {"topic.prefix": "p"}
    options |= {"signal.enabled.channels": "file", "signal.file": str(path)}
    assert refusal(parse(connector, options))("anything") == ""
    config = parse(connector, options | {"signal.filters.enabled": "false"})
    data = {"data-collections": ["a.b"], "additional-conditions": [{"data-collection": "a.b", "filter": "1 = 1"}]}
    signal = Signal("s1", "execute-snapshot", json.dumps(data))
    obedience = SignalHandler(lambda: [("a", "b")], Notifications("p"), refusal(config))
    with caplog.at_level(logging.WARNING):
        assert obedience.handle(signal, "", NO_PROGRESS, None) == (NO_PROGRESS, None, [])
    assert FORBIDDEN in caplog.text
    with pytest.raises(ConfigError, match="would be refused"):
        send(config, signal)
    assert not path.exists()
    del data["additional-conditions"]
    assert obedience.handle(Signal("s2", signal.type, json.dumps(data)), "", NO_PROGRESS, None)[0] != NO_PROGRESS
