"""Headers: the context of the connector, and the other key of a key change before it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tailrace.columns import Column
from tailrace.events.headers import context
from tests.event_settings import event_settings
from tests.unit.events import captured_changes
from tests.unit.events.changes import Change, batch, plain_settings, read, rows, table

TABLE = table("t", [Column("id", "int4", 23, nullable=False), Column("v", "text", 25)], "id")
CHANGES: list[Change] = [
    ("c", None, ("1", "a")),
    ("u", ("1", None), ("2", "b")),
    ("d", ("2", None), None),
    ("t", None, None),
]
CONTEXT = [
    ("__debezium.context.connectorLogicalName", b'"server"'),
    ("__debezium.context.taskId", b'"0"'),
    ("__debezium.context.connectorName", b'"postgresql"'),
    ("__debezium.context.runId", b'"run"'),
]


def headers(changes: list[Change] = CHANGES, **more: Any) -> list[list[tuple[str, bytes]] | None]:
    settings = plain_settings(skipped_operations=frozenset(), **more)
    found = [row["headers"] for row in rows(batch(TABLE, changes), settings)]
    return [None if pairs is None else [(pair["key"], pair["value"]) for pair in pairs] for pairs in found]


@pytest.mark.seed("000-37")
def test_every_record_has_the_context_and_those_of_a_key_change_the_other_key_first() -> None:
    new, old = ("__debezium.newkey", b'{"id":2}'), ("__debezium.oldkey", b'{"id":1}')
    assert headers() == [
        CONTEXT,
        *([new, *CONTEXT], [new, *CONTEXT], [old, *CONTEXT]),
        *(CONTEXT, CONTEXT),
        CONTEXT,
    ]


@pytest.mark.parametrize("more", [{"event_format": "1.7"}, {"extended_headers_enabled": False}])
def test_without_the_context_key_changes_alone_have_headers(more: dict[str, Any]) -> None:
    new, old = [("__debezium.newkey", b'{"id":2}')], [("__debezium.oldkey", b'{"id":1}')]
    assert headers(CHANGES[:3], **more) == [None, new, new, old, None, None]


def test_where_no_record_has_headers_the_column_is_null() -> None:
    assert headers(CHANGES[:1], event_format="1.7") == [None]


def test_a_key_in_a_header_has_its_schema() -> None:
    found = headers(CHANGES[1:2], header_schemas_enable=True)
    assert found[0] is not None
    told = json.loads(found[0][0][1])
    assert told == {
        "schema": {
            "type": "struct",
            "fields": [{"type": "int32", "optional": False, "field": "id"}],
            "optional": False,
            "name": "server.public.t.Key",
        },
        "payload": {"id": 2},
    }
    assert found[0][1][1] == b'{"schema":{"type":"string","optional":false},"payload":"server"}'


def test_headers_of_many_key_changes_are_each_ones_own() -> None:
    changes: list[Change] = [("u", (str(number), None), (str(number + 1), "v")) for number in range(0, 600, 2)]
    found = headers(changes, extended_headers_enabled=False)
    assert found[3 * 150 : 3 * 151] == [
        [("__debezium.newkey", b'{"id":301}')],
        [("__debezium.newkey", b'{"id":301}')],
        [("__debezium.oldkey", b'{"id":300}')],
    ]
    assert len(found) == 900


@pytest.mark.parametrize(("connector", "name"), [("sqlserver", "sqlserver"), ("db2", "db2")])
def test_the_context_calls_the_connector_as_its_events_do(connector: str, name: str) -> None:
    tables = {"sqlserver": captured_changes.CUSTOMERS, "db2": captured_changes.DB2_CUSTOMERS}
    settings = event_settings("server", "d", connector, run_id="run", header_schemas_enable=False)
    part = captured_changes.batch(tables[connector], [("c", 1, None, captured_changes.JOHN)])
    (row,) = rows(part, settings, captured_changes.FORMS[connector])
    assert [pair["value"] for pair in row["headers"]] == [b'"server"', b'"0"', b'"%s"' % name.encode(), b'"run"']


def test_the_context_is_empty_in_the_older_forms() -> None:
    assert [header.name for header in context(plain_settings())] == [name for name, _ in CONTEXT]
    assert context(plain_settings(event_format="1.7")) == ()


def test_rows_of_snapshots_have_the_context_too() -> None:
    (row,) = read(batch(TABLE, [("r", None, ("1", "a"))], [1]), plain_settings())
    assert list(row["headers"]) == [name for name, _ in CONTEXT]
