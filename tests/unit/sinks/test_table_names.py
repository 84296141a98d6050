"""The sink's tables have the right paths and names, also if several tables of the source are routed into one."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from tailrace import sinks
from tailrace.columns.blocks import BlockForm
from tailrace.columns.table import TableId
from tailrace.connectors.registry import parse
from tailrace.errors import ConversionError, SinkError
from tailrace.events.event_settings import EventSettings
from tailrace.events.table_routing import Routing
from tailrace.sinks.base import Settings
from tailrace.sinks.tables.names import Known, TableNames
from tests.unit.sinks.test_tables import POSTGRES, change

ORDERS = {"route.regex": r"(.*)\.orders_\d+", "route.replacement": "$1.orders"}
FORM = BlockForm(("id", "v", "big"), (pa.int64(), pa.string(), pa.string()), (0,))


def names(**options: str) -> TableNames:
    return TableNames.of(Settings("tables", {name.replace("_", "."): text for name, text in options.items()}))


def test_the_directory_of_a_table() -> None:
    assert names().path("/lake", ("d", "s", "t")) == "/lake/s.t"
    assert names(table_name_format="${database}-${table}").path("/lake", ("d", "s", "_t")) == "/lake/d-_t"
    assert names(table_name_format="${table}").path("/lake", ("d", "s", "_t")) == "/lake/%5Ft"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"table.name.format": "${topic}"}, "has ${topic}"),
        ({"catalog.name.format": "${schema}.${name}"}, "has ${name}"),
        ({"catalog.name.format": "${table}"}, "the name of a database, a dot"),
        ({"route.regex": "a"}, "need each other"),
        ({"route.regex": "a(", "route.replacement": "b"}, "route is wrong"),
        ({"route.regex": "a", "route.replacement": "$1"}, "names no group"),
    ],
)
def test_wrong_names(options: dict[str, str], said: str) -> None:
    with pytest.raises(SinkError) as caught:
        sinks.open("tables", {"path": "/x", **options})
    assert said in str(caught.value)


def test_two_tables_have_two_targets() -> None:
    made = names()
    known: Known = {}
    for table in (("d", "s", "t"), ("d", "s", "t"), ("d", "s", "u")):
        made.demand_alone(made.path("/lake", table), table, known)
    for table, said in (
        (("e", "s", "t"), "d.s.t and e.s.t have one target, /lake/s.t"),
        (("d", "s", "T"), "differ only in case, /lake/s.t and /lake/s.T"),
    ):
        with pytest.raises(SinkError, match=said):
            made.demand_alone(made.path("/lake", table), table, known)
    with pytest.raises(SinkError, match=r"d\.s\.u has rows of its own, and others are routed to it"):
        made.demand_alone("/lake/s.u", ("d", "s", "u"), known, routed=True)
    reserved = names(table_name_format="${table}")
    with pytest.raises(SinkError, match="over tailrace_positions"):
        reserved.demand_alone("/lake/Tailrace_Positions", ("d", "s", "Tailrace_Positions"), {})


def test_the_source_is_told_which_tables_are_one() -> None:
    sink = sinks.open("tables", {"path": "/x", **ORDERS}, parse("postgres", POSTGRES))
    asked = sink.source_options()
    settings = EventSettings.from_options(parse("postgres", POSTGRES | asked))
    routing = settings.routing
    assert routing is not None
    assert routing.field == "__dbz__physicalTableIdentifier"
    assert routing.target(TableId("d", "s", "orders_12")) == TableId("d", "s", "orders")
    assert routing.target(TableId("d", "s", "customers")) is None
    assert "row.route" not in sinks.open("tables", {"path": "/x"}, parse("postgres", POSTGRES)).source_options()
    with pytest.raises(ConversionError, match="does not name a database"):
        Routing(".*", "orders", "").target(TableId("d", "s", "t"))


def test_rows_of_shards_are_told_apart() -> None:
    """The key has the table's name as a further column, also for a row that came from another key."""
    rows = pa.RecordBatch.from_pylist([change(1, 7, big="b"), change(2, 8, origin={"k0": 7})], FORM.schema)
    merged, form = Routing("", "", "shard").merged(rows, FORM, TableId("d", "s", "t_1"))
    assert (form.names, form.key) == (("id", "v", "big", "shard"), (0, 3))
    assert merged.schema == form.schema
    assert [row["c3"] for row in merged.to_pylist()] == ["d.s.t_1", "d.s.t_1"]
    assert [row["origin"] for row in merged.to_pylist()] == [None, {"k0": 7, "k1": "d.s.t_1"}]
    numbered = replace(FORM, numbers=(1, 2, 3), relation=16_400)
    alone = replace(FORM, shard="d.s.t_1")
    assert Routing("", "", "").merged(rows, numbered, TableId("d", "s", "t_1")) == (rows, alone)
    with pytest.raises(ConversionError, match="has a column v of its own"):
        Routing("", "", "v").merged(rows, FORM, TableId("d", "s", "t_1"))
