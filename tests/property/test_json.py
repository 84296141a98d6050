"""The columnar path from texts to events equals the plain path on random batches."""

from __future__ import annotations

import json
from unittest.mock import patch

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace.columns import ROW_SCHEMA, ChangeBatch, Column, TableId, TableSchema
from tailrace.connectors.postgres.log.form import FORM
from tailrace.connectors.postgres.values.conversions import plan_columns
from tailrace.events import names
from tailrace.events.event_settings import EventSettings
from tailrace.events.mapping import SourceForm
from tailrace.events.record_assembly import to_rows
from tailrace.events.table_plan import table_plan
from tailrace.values.fragments import column_fragment, json_array, plain_json
from tailrace.values.json_text import dumps
from tests.event_schemas import event_schemas
from tests.event_settings import event_settings
from tests.extent import examples
from tests.property import captured_batches, json_batches
from tests.property.reference import Event, Reference

NOW = 1_795_222_828_465_236_739


def columnar(batch: ChangeBatch, chosen: EventSettings, form: SourceForm = FORM) -> list[Event]:
    events: list[Event] = []
    with patch("tailrace.events.record_assembly.time.time_ns", lambda: NOW):
        for rows in to_rows(batch, chosen, form):
            rows.validate(full=True)
            assert rows.schema == ROW_SCHEMA
            for row in rows.to_pylist():
                headers = tuple((pair["key"], pair["value"]) for pair in row["headers"] or [])
                events.append(Event(row["op"], row["key"], row["value"], headers))
    return events


def plain(batch: ChangeBatch, chosen: EventSettings, form: SourceForm = FORM) -> list[Event]:
    plan = table_plan(batch.table, chosen, form)
    schemas = event_schemas(batch.table, plan.columns, plan.key, chosen, form)
    told = names.table_field(chosen, batch.table.id)
    reference = Reference(plan.columns, plan.key, schemas.key, schemas.value, chosen, form, NOW, told)
    return list(reference.events(batch))


@settings(max_examples=examples(250), deadline=None, suppress_health_check=list(HealthCheck))
@given(json_batches.batches(), json_batches.settings())
def test_columnar_events_are_the_plain_ones(batch: ChangeBatch, chosen: EventSettings) -> None:
    wanted = plain(batch, chosen)
    got = columnar(batch, chosen)
    assert got == wanted
    for event in got:
        for text in (event.key, event.value, *(value for _, value in event.headers)):
            if text is not None:
                json.loads(text)


@settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data(), st.sampled_from(sorted(captured_batches.KINDS)))
def test_columnar_events_of_change_tables_are_the_plain_ones(data: st.DataObject, connector: str) -> None:
    batch = data.draw(captured_batches.batches(connector))
    chosen = data.draw(captured_batches.settings(connector))
    form = captured_batches.form_of(connector)
    wanted = plain(batch, chosen, form)
    got = columnar(batch, chosen, form)
    assert got == wanted
    for event in got:
        for text in (event.key, event.value, *(value for _, value in event.headers)):
            if text is not None:
                json.loads(text)


@settings(max_examples=examples(400), deadline=None)
@given(
    st.lists(
        st.none()
        | st.text('{},"\\NULl[]=:1é😀 ', max_size=12)
        | st.builds("{{{}}}".format, st.text('{},"\\nul1', max_size=9)),
        max_size=6,
    ),
    st.booleans(),
)
def test_any_text_as_an_array(texts: list[str | None], nulls: bool) -> None:
    """On both paths a text that is not an array counts as lost, and nothing else does."""
    of = Column("e", "text", 25) if nulls else Column("e", "mood", 0, kind="enum", enum_labels=("a",))
    table = TableSchema(TableId("d", "s", "t"), (Column("v", "_text", 1009, kind="array", element=of),), ())
    (plan,), _ = plan_columns(table, event_settings("server", "golden"))
    column = pa.array([None if text is None else text.encode() for text in texts], pa.binary())
    fragment, lost = column_fragment(plan, column, None)
    wanted = [plan.null if text is None else plain_json(plan, text) for text in column.to_pylist()]
    assert lost == wanted.count(None)
    assert json_array(fragment).to_pylist() == [(plan.null if text is None else text).decode() for text in wanted]


_LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()


@given(st.recursive(_LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_json_text_reads_back(value: object) -> None:
    # Lone surrogates are not text in a database; json.loads would read them back unchanged.
    assert json.loads(dumps(value)) == value


@settings(max_examples=examples(20), deadline=None)
@given(st.integers(1, 3))
def test_blocks_keep_order_and_count(factor: int) -> None:
    """More changes than fit into one block come in several batches, every record once."""
    count = 20_000 * factor
    batch = json_batches.inserts(count)
    chosen = event_settings("server", "golden", key_schemas_enable=False)
    rows = pa.Table.from_batches(list(to_rows(batch, chosen, FORM)))
    assert rows.column("ordinal").to_pylist() == list(range(count))
    assert rows.column("key")[count - 1].as_py() == b'{"id":%d}' % (count - 1)
