"""The documented PostgreSQL events, form 1.7: their parts, their names, their keys. Each test names what it shows."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.fix_capture import Captures, payload
from tests.fix_postgres import Database

CUSTOMERS = (
    "create table customers (id serial, first_name varchar(255) not null, last_name varchar(255) not null,"
    " email varchar(255) not null, primary key (id))"
)
ANNE = "insert into customers (first_name, last_name, email) values ('Anne', 'Kretchmar', 'annek@noanswer.org')"
NAME = r"[A-Za-z_][A-Za-z0-9_]*"
PLAIN = {"key_converter_schemas_enable": "false", "value_converter_schemas_enable": "false"}


def fits(schema: dict[str, Any], value: Any) -> bool:
    """Return True if a value fits its schema: fields in the schema's order, of their types, null only where allowed."""
    if value is None:
        return bool(schema["optional"])
    kind = schema["type"]
    if kind == "struct":
        names = [field["field"] for field in schema["fields"]]
        return list(value) == names and all(fits(field, value[field["field"]]) for field in schema["fields"])
    kinds = {"int32": int, "int64": int, "string": str, "boolean": bool}
    return type(value) is kinds[kind]


def schema_names(schema: dict[str, Any]) -> set[str]:
    """Return the names of a schema and of all schemas within it."""
    found = {schema["name"]} if "name" in schema else set()
    return found.union(*(schema_names(field) for field in schema.get("fields", [])))


@pytest.mark.seed("000-01")
def test_each_row_changed_is_one_event_with_a_key_and_a_value_of_its_table(
    database: Database, capture: Captures
) -> None:
    query = capture(CUSTOMERS, "create table orders (number int primary key, buyer int)")
    database.execute(
        ANNE,
        "insert into orders values (10, 1), (11, 1), (12, 1)",
        "update orders set buyer = 2 where number > 10",
        "update orders set buyer = 9 where number = 99",
        "delete from customers",
    )
    events = query.take(8)
    of_customers = [event for event in events if event.row["table"] == "customers"]
    of_orders = [event for event in events if event.row["table"] == "orders"]
    assert [(event.op, event.id) for event in of_customers] == [
        ("c", {"id": 1}),
        ("d", {"id": 1}),
        ("tombstone", {"id": 1}),
    ]
    assert [(event.op, event.id, event.payload["after"]) for event in of_orders] == [
        ("c", {"number": 10}, {"number": 10, "buyer": 1}),
        ("c", {"number": 11}, {"number": 11, "buyer": 1}),
        ("c", {"number": 12}, {"number": 12, "buyer": 1}),
        ("u", {"number": 11}, {"number": 11, "buyer": 2}),
        ("u", {"number": 12}, {"number": 12, "buyer": 2}),
    ]


@pytest.mark.seed("000-02", "000-03", "000-16")
def test_an_event_has_four_parts_and_describes_itself(database: Database, capture: Captures) -> None:
    query = capture(CUSTOMERS)
    database.execute(ANNE, "update customers set email = 'a@noanswer.org'", "delete from customers")
    events = query.take(4)[:3]
    for event in events:
        assert list(event.key) == list(event.value) == ["schema", "payload"]
        assert fits(event.key["schema"], event.key["payload"])
        assert fits(event.value["schema"], event.value["payload"])
        assert event.value["schema"]["name"].endswith(".Envelope")
    assert [event.payload["op"] for event in events] == ["c", "u", "d"]
    assert not fits(events[0].value["schema"], events[0].payload | {"source": None})


@pytest.mark.seed("000-04")
@pytest.mark.parametrize(("of_key", "of_value"), [(True, False), (False, True), (False, False)])
def test_schemas_are_there_only_where_the_converter_is_told_so(
    database: Database, capture: Captures, of_key: bool, of_value: bool
) -> None:
    query = capture(
        CUSTOMERS,
        key_converter_schemas_enable=str(of_key).lower(),
        value_converter_schemas_enable=str(of_value).lower(),
    )
    database.execute(ANNE)
    (event,) = query.take(1)
    assert ("schema" in event.key, "schema" in event.value) == (of_key, of_value)
    assert event.id == {"id": 1}
    assert event.payload["after"]["email"] == "annek@noanswer.org"


@pytest.mark.seed("000-05", "000-10", "000-15")
@pytest.mark.parametrize(
    ("table", "key"),
    [
        ("a int unique, b int, c int, primary key (c, b)", {"c": 3, "b": 2}),
        ("a int not null unique, b int, c int", {"a": 1}),
        ("a int not null, b int not null, c int, unique (b, a)", {"b": 2, "a": 1}),
        ("a int unique, b int, c int", {"a": 1}),
        ("a int, b int, c int", None),
    ],
)
def test_the_key_is_the_primary_key_or_a_unique_one_or_null(
    database: Database, capture: Captures, table: str, key: dict[str, int] | None
) -> None:
    query = capture(f"create table t ({table})")
    database.execute("insert into t values (1, 2, 3)")
    (event,) = query.take(1)
    if key is None:
        assert event.row["key"] is None
    else:
        assert list(event.id.items()) == list(key.items())
        assert event.key["schema"]["name"] == "PostgreSQL_server.public.t.Key"
        assert [field["field"] for field in event.key["schema"]["fields"]] == list(key)


@pytest.mark.seed("000-10")
def test_the_key_is_that_of_the_time_of_the_change(database: Database, capture: Captures) -> None:
    query = capture("create table t (a int primary key, b int not null)")
    keys = []
    for change, row in (
        (None, "(1, 2)"),
        ("alter table t drop constraint t_pkey, add primary key (b)", "(3, 4)"),
        ("alter table t drop constraint t_pkey, add primary key (b, a)", "(5, 6)"),
    ):
        database.execute(*filter(None, (change, f"insert into t values {row}")))
        keys += [event.id for event in query.take(1)]
    assert keys == [{"a": 1}, {"b": 4}, {"b": 6, "a": 5}]
    assert list(keys[2]) == ["b", "a"]


@pytest.mark.seed("000-06")
def test_an_event_goes_to_the_topic_named_after_its_table(database: Database, capture: Captures) -> None:
    query = capture("create schema inventory", CUSTOMERS, "create table inventory.items (id int primary key)")
    database.execute(ANNE, "insert into inventory.items values (1)", "delete from inventory.items")
    assert sorted(event.topic for event in query.take(4)) == [
        *["PostgreSQL_server.inventory.items"] * 3,
        "PostgreSQL_server.public.customers",
    ]


@pytest.mark.seed("000-08")
@pytest.mark.parametrize(
    ("server", "schema", "table", "name"),
    [
        ("PostgreSQL_server", "public", "customers", "PostgreSQL_server.public.customers"),
        ("my-server", "sales-eu", "order items", "my_server.sales_eu.order_items"),
        ("9server", "Größe", "a#b", "_9server.Gr__e.a_b"),
        ("_server", "s", "kunde€2", "_server.s.kunde_2"),
    ],
)
def test_schemas_have_names_that_avro_allows(
    database: Database, capture: Captures, server: str, schema: str, table: str, name: str
) -> None:
    qualified = f'"{schema}"."{table}"'
    query = capture(
        f'create schema if not exists "{schema}"',
        f"create table {qualified} (id int primary key)",
        database_server_name=server,
    )
    database.execute(f"insert into {qualified} values (1)")
    (event,) = query.take(1)
    found = schema_names(event.key["schema"]) | schema_names(event.value["schema"])
    assert {part for part in found if part.startswith(name)} == {
        f"{name}.{end}" for end in ("Key", "Value", "Envelope")
    }
    assert all(re.fullmatch(rf"{NAME}(\.{NAME})*", one) for one in found)
    # The source block keeps the database's own names.
    assert (event.source["schema"], event.source["table"]) == (schema, table)


@pytest.mark.seed("000-05")
@pytest.mark.parametrize(("chosen", "key"), [("b,c", {"b": 2, "c": 3}), ("C", {"c": 3})])
@pytest.mark.parametrize("table", ["a int primary key, b int, c int", "a int, b int, c int"])
def test_message_key_columns_go_before_the_primary_key(
    database: Database, capture: Captures, table: str, chosen: str, key: dict[str, int]
) -> None:
    query = capture(
        f"create table t ({table})",
        "alter table t replica identity full",
        message_key_columns=rf"public\.other:a;public\.t:{chosen}",
    )
    database.execute(
        "insert into t values (1, 2, 3)", "update t set a = 7", "update t set b = 5, c = 5", "delete from t"
    )
    events = query.take(7)
    assert [event.op for event in events] == ["c", "u", "d", "tombstone", "c", "d", "tombstone"]
    changed = dict.fromkeys(key, 5)
    assert [event.id for event in events] == [key] * 4 + [changed] * 3


@pytest.mark.seed("000-14")
@pytest.mark.parametrize(
    "options",
    [
        {"column_exclude_list": r"public\.t\.(id|region|v)"},
        {"column_include_list": r"public\.t\.n"},
        {"column_exclude_list": ".*[.](id|region|v)", "snapshot_mode": "initial"},
    ],
)
@pytest.mark.parametrize("key", ["primary key (region, id)", "unique (region, id)"])
def test_column_lists_leave_the_key_whole(
    database: Database, capture: Captures, options: dict[str, str], key: str
) -> None:
    query = capture(
        f"create table t (id int not null, region int not null, v text, n int, {key})",
        "alter table t replica identity full",
        "insert into t values (1, 2, 'x', 10)",
        **options,
    )
    if "snapshot_mode" in options:
        (read,) = query.take(1)
        assert (read.id, read.payload["after"]) == ({"region": 2, "id": 1}, {"n": 10})
    database.execute("update t set n = 20", "update t set id = 3", "delete from t")
    events = query.take(6)
    assert [event.id for event in events] == [{"region": 2, "id": 1}] * 3 + [{"region": 2, "id": 3}] * 3
    assert [event.op for event in events] == ["u", "d", "tombstone", "c", "d", "tombstone"]
    shown = [event.payload for event in events if event.value is not None]
    assert [row for value in shown for row in (value["before"], value["after"]) if row] == [
        *({"n": 10}, {"n": 20}),
        *({"n": 20}, {"n": 20}),
        {"n": 20},
    ]


@pytest.mark.seed("000-09")
def test_names_that_collide_are_told_when_the_tables_are_first_seen(
    database: Database, capture: Captures, caplog: pytest.LogCaptureFixture
) -> None:
    query = capture('create table "a b" (id int primary key)', "create table ab (id int primary key)")
    database.execute('insert into "a b" values (1)', "insert into ab values (2)")
    query.take(2)
    assert "share" not in caplog.text
    database.execute(
        "create table a_b (id int primary key)",
        'create table "a-b" (id int primary key)',
        "insert into a_b values (3)",
        'insert into "a-b" values (4)',
        "insert into a_b values (5)",
    )
    by_table = {event.row["table"]: event for event in query.take(3)}
    assert [record.message for record in caplog.records if "share" in record.message] == [
        "the tables public.a b and public.a_b share the topic PostgreSQL_server.public.a_b",
        "the schemas of the tables public.a b and public.a-b share the name PostgreSQL_server.public.a_b",
    ]
    # Only a warning: consumers find the two in one topic, or under one name.
    assert by_table["a_b"].topic == "PostgreSQL_server.public.a_b"
    assert by_table["a-b"].key["schema"]["name"] == by_table["a_b"].key["schema"]["name"]


@pytest.mark.seed("000-11")
@pytest.mark.parametrize("identity", ["full", "using index t_code"])
def test_without_a_primary_key_a_unique_key_and_a_replica_identity_make_the_key(
    database: Database, capture: Captures, identity: str
) -> None:
    query = capture(
        "create table t (region int not null, code varchar(10) not null, v text)",
        "create unique index t_code on t (region, code)",
        f"alter table t replica identity {identity}",
    )
    database.execute("insert into t values (1, 'a', 'x')", "update t set v = 'y'", "delete from t")
    events = query.take(4)
    assert [event.op for event in events] == ["c", "u", "d", "tombstone"]
    assert [event.id for event in events] == [{"region": 1, "code": "a"}] * 4


@pytest.mark.seed("000-12", "000-13")
def test_the_key_of_customers_is_as_the_wire_has_it(database: Database, capture: Captures) -> None:
    # The document draws fields as {"name", "index", "schema"} and the id as text; the JSON converter never wrote that.
    query = capture(CUSTOMERS)
    database.execute(ANNE)
    (event,) = query.take(1)
    assert event.row["key"] == (
        b'{"schema":{"type":"struct","fields":[{"type":"int32","optional":false,"default":0,"field":"id"}],'
        b'"optional":false,"name":"PostgreSQL_server.public.customers.Key"},"payload":{"id":1}}'
    )


@pytest.mark.seed("000-44")
def test_whatever_the_rows_hold_the_json_is_valid(database: Database, capture: Captures) -> None:
    query = capture('create table "we""ird\\ t" ("k""\\" text primary key, f float8, j json, b bytea)')
    database.execute(
        r"""insert into "we""ird\ t" values (E'"\\\x01\t\n\u2028é😀', 'NaN', '{"a": "\u00e9\""}', '\x00ff22')""",
        """insert into "we""ird\\ t" values ('', '-Infinity', null, '')""",
    )
    # Reading a record's key, value or headers raises ValueError where they are not JSON.
    first, second = query.take(2)
    assert payload(first.key) == {'k"\\': '"\\\x01\t\n\u2028é😀'}
    assert first.payload["after"]["b"] == "AP8i"
    assert second.payload["after"]['k"\\'] == ""
