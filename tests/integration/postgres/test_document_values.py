"""The documented PostgreSQL events, form 1.7: values. If document and recording differ, the recording counts."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

import psycopg
import pytest

from tests.fix_capture import Captures, Event
from tests.fix_postgres import Database

CUSTOMERS = (
    "create table customers (id serial, first_name varchar(255) not null, last_name varchar(255) not null,"
    " email varchar(255) not null, primary key (id))"
)
ANNE = "insert into customers (first_name, last_name, email) values ('Anne', 'Kretchmar', 'annek@noanswer.org')"
ROW = {"id": 1, "first_name": "Anne", "last_name": "Kretchmar", "email": "annek@noanswer.org"}
UPDATE = "update customers set first_name = 'Anne Marie'"


def field(name: str, kind: str, optional: bool = False, /, **more: Any) -> dict[str, Any]:
    return {"type": kind, "optional": optional, **more, "field": name}


def struct(*fields: dict[str, Any], name: str | None = None, optional: bool = False, field: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {"type": "struct", "fields": list(fields), "optional": optional}
    return found | ({"name": name} if name else {}) | ({"field": field} if field else {})


CUSTOMER = [
    field("id", "int32", default=0),
    *(field(name, "string") for name in ("first_name", "last_name", "email")),
]
MARKER = {"name": "io.debezium.data.Enum", "version": 1, "parameters": {"allowed": "true,last,false"}}
SOURCE = [
    *(field(name, "string") for name in ("version", "connector", "name")),
    field("ts_ms", "int64"),
    field("snapshot", "string", True, **MARKER, default="false"),
    field("db", "string"),
    field("sequence", "string", True),
    field("schema", "string"),
    field("table", "string"),
    *(field(name, "int64", True) for name in ("txId", "lsn", "xmin")),
]
TRANSACTION = [field("id", "string"), field("total_order", "int64"), field("data_collection_order", "int64")]
ENVELOPE = struct(
    struct(*CUSTOMER, name="PostgreSQL_server.public.customers.Value", optional=True, field="before"),
    struct(*CUSTOMER, name="PostgreSQL_server.public.customers.Value", optional=True, field="after"),
    struct(*SOURCE, name="io.debezium.connector.postgresql.Source", field="source"),
    field("op", "string"),
    field("ts_ms", "int64", True),
    struct(*TRANSACTION, optional=True, field="transaction"),
    name="PostgreSQL_server.public.customers.Envelope",
)


def images(events: Sequence[Event]) -> list[tuple[str, Any, Any]]:
    """Return the operation and the two rows of each event, without tombstones."""
    shown = [event.payload for event in events if event.value is not None]
    return [(value["op"], value["before"], value["after"]) for value in shown]


@pytest.mark.seed("000-23", "000-23b", "000-24")
def test_the_schema_of_a_value_is_as_the_wire_has_it(database: Database, capture: Captures) -> None:
    # The document draws a boolean `snapshot`, no `sequence` and no `transaction`, and a schema named inventory.
    query = capture(CUSTOMERS)
    database.execute(ANNE)
    (event,) = query.take(1)
    assert json.dumps(event.value["schema"]) == json.dumps(ENVELOPE)
    payload = event.value["payload"]
    assert list(payload) == ["before", "after", "source", "op", "ts_ms", "transaction"]
    assert payload["transaction"] is None
    assert list(payload["source"]) == [one["field"] for one in SOURCE]


@pytest.mark.seed("000-25", "000-33")
def test_all_events_of_a_table_have_one_schema(database: Database, capture: Captures) -> None:
    query = capture(CUSTOMERS, ANNE, snapshot_mode="initial", truncate_handling_mode="include")
    (read,) = query.take(1)
    database.execute(
        ANNE, UPDATE, "update customers set id = 7 where id = 1", "delete from customers", "truncate customers"
    )
    events = [event for event in query.take(11) if event.value is not None]
    assert [event.payload["op"] for event in events] == ["c", "u", "u", "d", "c", "d", "d", "t"]
    texts = {event.row["value"].partition(b',"payload":')[0] for event in (read, *events)}
    assert len(texts) == 1


@pytest.mark.seed("000-26", "000-27", "000-32")
def test_a_create_has_the_new_row_alone(database: Database, capture: Captures) -> None:
    query = capture(CUSTOMERS)
    database.execute(ANNE)
    (event,) = query.take(1)
    assert images([event]) == [("c", None, ROW)]
    source = event.source
    assert (source["version"], source["connector"], source["name"]) == (
        "1.7.2.Final",
        "postgresql",
        "PostgreSQL_server",
    )
    assert (source["db"], source["schema"], source["table"]) == (database.name, "public", "customers")


@pytest.mark.seed("000-28")
def test_the_sequence_is_the_last_commit_and_the_own_position(database: Database, capture: Captures) -> None:
    query = capture(CUSTOMERS)
    database.execute(ANNE, ANNE)
    with database.connect(autocommit=False) as connection:
        connection.execute(ANNE.encode())
        connection.execute(ANNE.encode())
        connection.commit()
    sources = [event.source for event in query.take(4)]
    pairs = [json.loads(source["sequence"]) for source in sources]
    assert [pair[1] for pair in pairs] == [str(source["lsn"]) for source in sources]
    # No commit was seen before the first; the later ones name the end of the commit before.
    assert pairs[0][0] is None
    assert sources[0]["lsn"] < int(pairs[1][0]) <= sources[1]["lsn"] < int(pairs[2][0]) <= sources[2]["lsn"]
    assert pairs[2][0] == pairs[3][0]
    assert all(set(text) <= set('[]",0123456789nul') for text in (source["sequence"] for source in sources))


@pytest.mark.seed("000-29")
def test_the_two_times_are_those_of_the_change_and_of_its_processing(database: Database, capture: Captures) -> None:
    query = capture(CUSTOMERS)
    with database.connect() as connection:

        def clock() -> int:
            row = connection.execute("select floor(extract(epoch from clock_timestamp()) * 1000)::bigint").fetchone()
            assert row is not None
            return int(row[0])

        begin = clock()
        connection.execute(ANNE.encode())
        end = clock()
    time.sleep(0.4)
    asked = time.time_ns() // 1_000_000
    (event,) = query.take(1)
    changed, processed = event.source["ts_ms"], event.payload["ts_ms"]
    assert begin <= changed <= end
    assert asked <= processed <= time.time_ns() // 1_000_000
    assert processed - changed >= 400


@pytest.mark.seed("000-30", "000-32")
def test_the_source_tells_snapshot_transaction_and_position(database: Database, capture: Captures) -> None:
    query = capture(CUSTOMERS, ANNE, ANNE, snapshot_mode="initial")
    reads = query.take(2)
    assert [event.payload["op"] for event in reads] == ["r", "r"]
    assert [event.source["snapshot"] for event in reads] == ["true", "last"]
    with database.connect(autocommit=False) as connection:
        row = connection.execute("select pg_current_xact_id()::text::bigint").fetchone()
        connection.execute(ANNE.encode())
        connection.commit()
    database.execute(UPDATE, "delete from customers")
    events = [event for event in query.take(10) if event.value is not None]
    assert row == (events[0].source["txId"],)
    assert [event.payload["op"] for event in events] == ["c", "u", "u", "u", "d", "d", "d"]
    assert {event.source["snapshot"] for event in events} == {"false"}
    assert {event.source["xmin"] for event in (*reads, *events)} == {None}
    positions = [event.source["lsn"] for event in events]
    assert positions == sorted(set(positions))
    assert all(type(position) is int for position in positions)


@pytest.mark.seed("000-31")
def test_the_source_suffices_to_order_events_and_to_group_them_by_transaction(
    database: Database, capture: Captures
) -> None:
    query = capture("create table t (id int primary key)")
    with database.connect(autocommit=False) as first, database.connect(autocommit=False) as second:
        first.execute("insert into t values (1)")
        second.execute("insert into t values (11)")
        first.execute("insert into t values (2)")
        second.execute("insert into t values (12)")
        second.commit()
        first.commit()
    database.execute("insert into t values (21)")
    events = query.take(5)
    assert [event.payload["after"]["id"] for event in events] == [11, 12, 1, 2, 21]
    transactions = [event.source["txId"] for event in events]
    assert [transactions[0] == transactions[1], transactions[2] == transactions[3]] == [True, True]
    assert len(set(transactions)) == 3
    # Compared by the last commit first: the positions of concurrent transactions interleave.
    keys = [[int(part or 0) for part in json.loads(event.source["sequence"])] for event in events]
    assert keys == sorted(keys)
    assert [key[1] for key in keys] != sorted(key[1] for key in keys)


@pytest.mark.seed("000-17", "000-18", "000-33", "000-34")
def test_under_the_default_identity_a_delete_has_the_old_key_and_an_update_none(
    database: Database, capture: Captures
) -> None:
    # The document draws the unchanged key as `before` of the update; the log has no old row then, and the wire null.
    query = capture(CUSTOMERS)
    database.execute(ANNE, UPDATE, "delete from customers")
    created, updated, deleted = query.take(4)[:3]
    after = ROW | {"first_name": "Anne Marie"}
    empty = {"id": 1, "first_name": "", "last_name": "", "email": ""}
    assert images([updated, deleted]) == [("u", None, after), ("d", empty, None)]
    assert list(updated.source) == list(deleted.source) == list(created.source)
    assert (updated.source["snapshot"], deleted.source["snapshot"]) == ("false", "false")
    assert created.source["lsn"] < updated.source["lsn"] < deleted.source["lsn"]
    assert created.source["ts_ms"] <= updated.source["ts_ms"] <= deleted.source["ts_ms"]
    assert updated.key == deleted.key == created.key


@pytest.mark.seed("000-18", "000-17")
def test_under_the_default_identity_a_changed_key_shows_the_whole_old_key(
    database: Database, capture: Captures
) -> None:
    query = capture("create table t (a int, b int, v text, primary key (a, b))")
    database.execute("insert into t values (1, 2, 'x')", "update t set b = 3")
    _, deleted, _, created = query.take(4)
    assert images([deleted, created]) == [
        ("d", {"a": 1, "b": 2, "v": None}, None),
        ("c", None, {"a": 1, "b": 3, "v": "x"}),
    ]


@pytest.mark.seed("000-17", "000-21", "000-33", "000-34")
def test_under_the_full_identity_all_old_values_are_there(database: Database, capture: Captures) -> None:
    query = capture(CUSTOMERS, "alter table customers replica identity full")
    database.execute(ANNE, UPDATE, "delete from customers")
    marie = ROW | {"first_name": "Anne Marie"}
    assert images(query.take(4)) == [("c", None, ROW), ("u", ROW, marie), ("d", marie, None)]


@pytest.mark.seed("000-17", "000-22")
def test_under_an_index_as_identity_its_columns_are_there(database: Database, capture: Captures) -> None:
    query = capture(
        "create table t (code varchar(10) not null, v text)",
        "create unique index t_code on t (code)",
        "alter table t replica identity using index t_code",
    )
    database.execute(
        "insert into t values ('a', 'x')", "update t set v = 'y'", "update t set code = 'b', v = 'z'", "delete from t"
    )
    assert images(query.take(7))[1:] == [
        # Columns outside of the index changed: the log has no old row.
        ("u", None, {"code": "a", "v": "y"}),
        ("d", {"code": "a", "v": None}, None),
        ("c", None, {"code": "b", "v": "z"}),
        ("d", {"code": "b", "v": None}, None),
    ]


@pytest.mark.seed("000-22")
def test_under_an_index_beside_the_primary_key_the_old_primary_key_is_missing(
    database: Database, capture: Captures
) -> None:
    # The log has the index's columns alone; for the others that cannot be null the wire has the type's zero, in the
    # key as well, and so the update is a change of the key there.
    query = capture(
        "create table t (id int primary key, code varchar(10) not null, v text)",
        "create unique index t_code on t (code)",
        "alter table t replica identity using index t_code",
    )
    database.execute("insert into t values (1, 'a', 'x')", "update t set code = 'b'")
    _, deleted, _, created = query.take(4)
    assert (deleted.id, created.id) == ({"id": 0}, {"id": 1})
    assert images([deleted, created]) == [
        ("d", {"id": 0, "code": "a", "v": None}, None),
        ("c", None, {"id": 1, "code": "b", "v": "x"}),
    ]


@pytest.mark.seed("000-17", "000-19", "000-20", "000-38")
@pytest.mark.parametrize(
    ("table", "identity"),
    [("a int, v text", "default"), ("a int, v text", "nothing"), ("a int primary key, v text", "nothing")],
)
def test_without_an_identity_there_are_creates_alone(
    database: Database, capture: Captures, table: str, identity: str
) -> None:
    # The document speaks of a delete without `before`; the server refuses such a change while updates are published,
    # and publishes none of them otherwise.
    query = capture(f"create table t ({table})", f"alter table t replica identity {identity}")
    database.execute("insert into t values (1, 'x')")
    for statement in ("update t set v = 'y'", "delete from t"):
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="replica identity"):
            database.execute(statement)
    database.execute(
        "alter publication dbz_publication set (publish = 'insert')",
        "update t set v = 'y'",
        "delete from t",
        "insert into t values (2, 'z')",
    )
    assert images(query.take(2)) == [("c", None, {"a": 1, "v": "x"}), ("c", None, {"a": 2, "v": "z"})]


@pytest.mark.seed("000-38")
def test_the_full_identity_makes_deletes_without_a_key_usable(database: Database, capture: Captures) -> None:
    query = capture("create table t (a int, v text)", "alter table t replica identity full")
    database.execute("insert into t values (1, 'x'), (1, 'x')", "delete from t")
    events = query.take(6)
    assert images(events)[2:] == [("d", {"a": 1, "v": "x"}, None)] * 2
    assert [event.key for event in events] == [None] * 6
