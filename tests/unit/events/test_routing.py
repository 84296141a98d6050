"""A table's records go to the right topic, and tables can share one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from tailrace.columns import Column, TableId
from tailrace.columns.blocks import BlockForm
from tailrace.config.expressions import compile_groups
from tailrace.config.naming import TopicNaming
from tailrace.errors import ConversionError
from tailrace.events import names
from tailrace.events.event_settings import EventSettings
from tailrace.events.table_routing import Routing
from tests.event_settings import event_settings
from tests.unit.events.changes import Change, batch, plain_settings, read, table
from tests.unit.events.recorded import recorded, settings_of

SHARDS = [
    table(name, [Column("id", "int4", 23, nullable=False), Column("v", "text", 25)], "id")
    for name in ("customers_shard1", "customers_shard2")
]
INSERT: list[Change] = [("c", None, ("1", "x"))]
BY_EXPRESSION = TopicNaming(
    expression=compile_groups(r"(.*)customers_shard(.*)"),
    replacement="$1customers_all_shards",
    key_field="__dbz__physicalTableIdentifier",
)


@pytest.mark.seed("000-06", "004-04")
@pytest.mark.parametrize(
    "case",
    [
        "postgres/topic_delimiter",
        "postgres/topic_strategy_default",
        "postgres/topic_regex",
        "postgres/topic_regex_default",
        "postgres/topic_default_regex",
        "postgres/names_dots",
        "postgres/names_field_only",
        "postgres/names_schema_avro",
        "postgres-1.7/names_dots",
        "sqlserver-1.0/names",
        "sqlserver-3/names",
        "sqlserver-3/several_databases",
    ],
)
def test_topics_and_names_of_schemas_are_as_recorded(case: str) -> None:
    found = recorded(case)
    assert found.made() == found.lines


@pytest.mark.seed("000-08")
@pytest.mark.parametrize(
    ("case", "columns"),
    [
        (
            "postgres/names_adjusted_unicode",
            {
                "a_u002eb": "a.b",
                "_u0031c_u0020d": "1c d",
                "_u00fc_u005fx": "ü_x",
                "Dollar_u0024": "Dollar$",
                "_ud83d_ude00": "😀",
                "_u005fu": "_u",
            },
        ),
        ("postgres/names_adjusted_first", {"_u0039": "9", "a_u005f": "a_", "_u005f_u005f": "__"}),
    ],
)
def test_adjusted_names_are_as_recorded(case: str, columns: dict[str, str]) -> None:
    found = recorded(case, columns)
    assert found.made() == found.lines


# As recorded with 3.6.1 and the transform ByLogicalTableRouter with its own options.
@pytest.mark.parametrize(
    ("shortened", "values"), [({}, ["server.public.customers_shard1", "server.public.customers_shard2"]),
                              ({"key_expression": compile_groups(r"(.*)customers_shard(.*)"), "key_replacement": "$2"},
                               ["1", "2"])],
)  # fmt: skip
def test_tables_that_share_a_topic_differ_in_their_keys(shortened: dict[str, Any], values: list[str]) -> None:
    settings = plain_settings(naming=replace(BY_EXPRESSION, **shortened), key_schemas_enable=True)
    for shard, told in zip(SHARDS, values, strict=True):
        (row,) = read(batch(shard, INSERT), settings)
        assert row["topic"] == "server.public.customers_all_shards"
        assert row["key"]["payload"] == {"id": 1, "__dbz__physicalTableIdentifier": told}
        assert row["key"]["schema"]["name"] == "server.public.customers_all_shards.Key"
        # The source block shows the source's table.
        assert row["value"]["source"]["table"] == row["table"] == shard.id.table


def test_a_table_without_a_key_gets_one_of_its_name_alone() -> None:
    settings = plain_settings(naming=BY_EXPRESSION)
    keyless = replace(SHARDS[0], key=())
    changes: list[Change] = [*INSERT, ("u", ("1", "x"), ("2", "y")), ("d", ("2", "y"), None)]
    found = read(batch(keyless, changes), settings)
    assert [row["op"] for row in found] == ["c", "u", "d", "tombstone"]
    assert {row["key"]["__dbz__physicalTableIdentifier"] for row in found} == {"server.public.customers_shard1"}


def test_no_field_tells_the_table_where_keys_need_not_be_unique() -> None:
    (row,) = read(batch(SHARDS[0], INSERT), plain_settings(naming=replace(BY_EXPRESSION, key_field="")))
    assert row["key"] == {"id": 1}


def test_a_table_that_the_expression_does_not_match_keeps_its_name() -> None:
    other = replace(SHARDS[0], id=TableId("golden", "public", "orders"))
    (row,) = read(batch(other, INSERT), plain_settings(naming=BY_EXPRESSION))
    assert row["topic"] == "server.public.orders"


T = TableId("db", "s", "t")


@pytest.mark.parametrize(
    ("connector", "form", "by_schema", "topic"),
    [
        ("postgres", "3", True, "p.s.t"),
        ("postgres", "3", False, "p.t"),
        ("sqlserver", "1.0", True, "p.s.t"),
        ("sqlserver", "3", True, "p.db.s.t"),
        ("sqlserver", "3", False, "p.db.t"),
        ("db2", "3", True, "p.s.t"),
        ("db2", "2.3", True, "p.s.t"),
    ],
)
def test_a_topic_has_the_parts_that_connector_form_and_strategy_say(
    connector: str, form: str, by_schema: bool, topic: str
) -> None:
    settings = event_settings("p", "db", connector, form, naming=TopicNaming(by_schema))
    assert names.topic(settings, T) == topic
    assert names.schema_prefix(settings, T) == topic


@pytest.mark.parametrize(("connector", "name"), [("postgres", "s.t"), ("sqlserver", "db.s.t"), ("db2", "s.t")])
def test_a_collection_is_called_with_its_database_where_there_are_several(connector: str, name: str) -> None:
    assert names.collection(event_settings("p", "db", connector), T) == name


def tables(*found: str) -> list[TableId]:
    return [TableId("golden", "public", name) for name in found]


def by_router(regex: str, replacement: str) -> EventSettings:
    prefix = "transforms.route."
    return settings_of(
        "postgres/tutorial",
        transforms="route",
        **{
            prefix + "type": "io.debezium.transforms.ByLogicalTableRouter",
            prefix + "topic.regex": regex,
            prefix + "topic.replacement": replacement,
        },
    )


def test_tables_whose_records_may_meet_are_told_by_one_topic() -> None:
    a, b, c = tables("a1", "a2", "b")
    assert names.shared(plain_settings(), [a, b, c]) == {one: f"server.{one}" for one in (a, b, c)}
    found = names.shared(by_router(r"(.*)\.a\d", "$1.all"), [a, b, c])
    assert found[a] == found[b] == "dbserver1.public.all"
    assert found[c] == "dbserver1.public.b"


def test_a_table_that_is_called_as_a_shared_topic_meets_those_that_share_it() -> None:
    a, b, all_of_them = tables("a1", "a2", "all")
    found = names.shared(by_router(r"(.*)\.a\d", "$1.all"), [a, b, all_of_them])
    assert len(set(found.values())) == 1


def test_tables_that_meet_in_one_of_several_topics_are_told_by_one() -> None:
    router = "io.debezium.transforms.ByLogicalTableRouter"
    settings = settings_of(
        "postgres/tutorial",
        **{
            "transforms": "one,other",
            "transforms.one.type": router,
            "transforms.one.topic.regex": r"(.*)\.a",
            "transforms.one.topic.replacement": "$1.all",
            "transforms.one.predicate": "tombstone",
            "transforms.one.negate": "true",
            "predicates": "tombstone",
            "predicates.tombstone.type": "org.apache.kafka.connect.transforms.predicates.RecordIsTombstone",
            "transforms.other.type": router,
            "transforms.other.topic.regex": r"(.*)\.x",
            "transforms.other.topic.replacement": "$1.a",
        },
    )
    a, x, b = tables("a", "x", "b")
    # Tombstones of a stay in its own topic, where the records of x go.
    found = names.shared(settings, [x, a, b])
    assert found[a] == found[x]
    assert found[b] == "dbserver1.public.b"


ROUTING = Routing(r"golden\.public\.customers_shard\d", "lake.public.customers", "shard")
FORM = BlockForm(("id", "v"), (pa.int32(), pa.string()), (0,), numbers=(1, 2), relation=16384)


def rows_of(origin: list[dict[str, int] | None]) -> pa.RecordBatch:
    count = len(origin)
    return pa.RecordBatch.from_pydict(
        {
            "op": ["c"] * count,
            "position": ["00"] * count,
            "ordinal": list(range(count)),
            "part": [0] * count,
            "at": [None] * count,
            "missing": [None] * count,
            "origin": origin,
            "c0": list(range(count)),
            "c1": ["x"] * count,
        },
        schema=FORM.schema,
    )


def test_a_routing_survives_being_an_option() -> None:
    assert Routing.of(ROUTING.text()) == ROUTING
    assert Routing.of(None) is Routing.of("") is None


def test_a_routing_names_the_table_that_rows_are_put_into() -> None:
    assert ROUTING.target(SHARDS[1].id) == TableId("lake", "public", "customers")
    assert ROUTING.target(TableId("golden", "public", "orders")) is None
    # The whole name must match, and a name with fewer parts is refused.
    assert ROUTING.target(TableId("golden", "public", "customers_shard10")) is None
    with pytest.raises(ConversionError, match="does not name a database, a schema and a table"):
        Routing(".*", "customers", "").target(T)


def test_rows_of_a_routed_table_tell_their_shard_as_a_part_of_the_key() -> None:
    rows, form = ROUTING.merged(rows_of([None, {"k0": 7}]), FORM, SHARDS[0].id)
    assert (form.names, form.key) == (("id", "v", "shard"), (0, 2))
    # Numbers and the relation belong to a single table.
    assert (form.numbers, form.relation) == ((), 0)
    assert rows["c2"].to_pylist() == ["golden.public.customers_shard1"] * 2
    assert rows["origin"].to_pylist() == [None, {"k0": 7, "k1": "golden.public.customers_shard1"}]
    assert rows.schema.equals(form.schema)


def test_keys_that_are_unique_over_all_tables_need_no_shard() -> None:
    rows, form = replace(ROUTING, field="").merged(rows_of([None]), FORM, SHARDS[0].id)
    assert (form.names, form.key, form.numbers) == (("id", "v"), (0,), ())
    assert rows.schema.names == FORM.schema.names


def test_a_column_of_the_shards_name_is_an_error() -> None:
    with pytest.raises(ConversionError, match="has a column v of its own"):
        replace(ROUTING, field="v").merged(rows_of([None]), FORM, SHARDS[0].id)
