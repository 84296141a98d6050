"""Typed rows hold the same as the JSON of the changes, in Spark's types, and null where JSON has no value.

A value that a change does not have is null, whatever JSON shows in its place: the zero of a NOT NULL column, the
placeholder of a value that the log did not carry.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace.columns import ChangeBatch, Image
from tailrace.columns.logical import LogicalType
from tailrace.columns.typed import TYPED_COLUMNS, TypedRows
from tailrace.connectors.postgres.log.form import FORM
from tailrace.events.event_settings import EventSettings
from tailrace.events.mapping import SourceForm
from tailrace.events.record_assembly import numbered_rows
from tailrace.values.conversion import ColumnPlan, plain_value
from tailrace.values.texts import VALUE
from tests.extent import examples
from tests.property import captured_batches, json_batches
from tests.property.test_typed import logical
from tests.property.typed_values import INFINITE, fits, found_in, instant_us, same, wanted

NOW = 1_795_222_828_465_236_739
PLAIN = ("topic", "op", "database", "schema", "table", "position", "ordinal", "transaction", "source_ts", "snapshot")
# The digits of a second, and the factor from a number in this unit to ns.
TIMES = {
    "io.debezium.time.Time": (3, 1_000_000),
    "io.debezium.time.MicroTime": (6, 1000),
    "io.debezium.time.NanoTime": (9, 1),
    "org.apache.kafka.connect.data.Time": (3, 1_000_000),
}
MILLISECONDS = {"io.debezium.time.Timestamp", "org.apache.kafka.connect.data.Timestamp"}
DATES = {"io.debezium.time.Date", "org.apache.kafka.connect.data.Date"}
INSTANTS = {*MILLISECONDS, "io.debezium.time.MicroTimestamp", "io.debezium.time.ZonedTimestamp"}
NANOSECONDS = "io.debezium.time.NanoTimestamp"
# The days since 1970 of 9999-12-31 and 0001-01-03, which stand for the infinite values that JSON shows.
LATEST, EARLIEST = 2_932_896, -719_160
DAY = 86_400_000_000


def infinite_end(value: Any, name: str) -> int | None:
    """Return the day that stands for an infinite date, or its first µs for a timestamp; None for a finite value."""
    least, largest = INFINITE["-infinity"], INFINITE["infinity"]
    if name in DATES:
        return {2**31 - 1: LATEST, -(2**31): EARLIEST}.get(value)
    if name == NANOSECONDS:
        return {2**63 - 1: LATEST * DAY, -(2**63): EARLIEST * DAY}.get(value)
    if name in INSTANTS:
        unit = 1000 if name in MILLISECONDS else 1
        ends = {largest // unit: LATEST * DAY, least // unit: EARLIEST * DAY}
        return ends.get(instant_us(value) if isinstance(value, str) else value)
    return None


def held_value(value: Any, kind: LogicalType) -> Any:
    """Return Spark's number for a number in JSON."""
    name = kind.name or ""
    if value is None:
        return None
    if (end := infinite_end(value, name)) is not None:
        return end
    if name in TIMES:
        digits, unit = TIMES[name]
        seconds, rest = divmod(value * unit, 1_000_000_000)
        return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{rest // unit:0{digits}}"
    if name in MILLISECONDS:
        return value * 1000
    if name == NANOSECONDS:
        return value // 1000
    if kind.connect == "array" and kind.items is not None:
        return [held_value(item, kind.items) for item in value]
    return wanted(value, kind)


def fits_spark(value: Any, kind: LogicalType) -> bool:
    """Return True if the columns of both Arrow and Spark can hold it."""
    if kind.connect == "array" and kind.items is not None and value is not None:
        return all(fits_spark(item, kind.items) for item in value)
    if kind.name in MILLISECONDS and value is not None:
        return -(2**63) <= value * 1000 < 2**63
    return fits(value, kind)


def has_value(plan: ColumnPlan, text: bytes) -> bool:
    return plain_value(plan.conversion, text)[0] == VALUE


def check_image(
    found: pa.Scalar, shown: dict[str, Any] | None, image: Image | None, change: int, plans: dict[str, Any]
) -> None:
    assert found.is_valid == (shown is not None)
    if shown is None:
        return
    assert image is not None
    assert [field.name for field in found.type] == list(shown)
    for name, value in shown.items():
        plan, kind = plans[name]
        text = image.columns[plan.index][change].as_py()
        flags = image.unavailable[plan.index]
        if text is None or (flags is not None and flags[change]) or not has_value(plan, text):
            assert not found[name].is_valid, (name, text)
        elif fits_spark(value, kind):
            assert same(found_in(found[name], kind), held_value(value, kind)), (name, found[name], value, kind)


def unavailable(image: Image | None, change: int, plans: dict[str, tuple[ColumnPlan, LogicalType]]) -> list[str] | None:
    """Return the fields that the image should have and the log did not carry."""
    if image is None:
        return None
    flags = {name: image.unavailable[plan.index] for name, (plan, _) in plans.items()}
    return [name for name, flag in flags.items() if flag is not None and flag[change]] or None


def fields_of(schema: LogicalType, name: str) -> dict[str, LogicalType]:
    inner = next(field.type for field in schema.fields if field.name == name)
    return {field.name: field.type for field in inner.fields}


def compare(batch: ChangeBatch, chosen: EventSettings, form: SourceForm) -> None:
    chosen = replace(chosen, value_schemas_enable=True, key_schemas_enable=True, tombstones_on_delete=False)
    chosen = replace(chosen, replace_null_with_default=False)
    plans = {plan.name: plan for plan in form.columns(batch.table, chosen)[0]}
    with patch("tailrace.events.record_assembly.time.time_ns", lambda: NOW):
        rows = [(row, int(at)) for part, at_of in numbered_rows(batch, chosen, form)
                for row, at in zip(part.to_pylist(), at_of, strict=True)]  # fmt: skip
        typed = list(numbered_rows(batch, chosen.as_typed(TypedRows(), TYPED_COLUMNS), form))
    assert [int(at) for _, at_of in typed for at in at_of] == [at for _, at in rows]
    scalars = [(part, row) for part, _ in typed for row in range(part.num_rows)]
    for (row, change), (part, place) in zip(rows, scalars, strict=True):
        part.validate(full=True)
        assert {name: row[name] for name in PLAIN} == {name: part.column(name)[place].as_py() for name in PLAIN}
        document = json.loads(row["value"])
        schema, payload = logical(document["schema"]), document["payload"]
        for name, image in (("before", batch.before), ("after", batch.after)):
            of = {one: (plans[one], kind) for one, kind in fields_of(schema, name).items()}
            check_image(part.column(name)[place], payload[name], image, change, of)
            if name == "after":
                missing = unavailable(image, change, of) if payload[name] is not None else None
                assert part.column("unavailable")[place].as_py() == missing
        source = part.column("source")[place]
        for name, kind in fields_of(schema, "source").items():
            assert same(found_in(source[name], kind), held_value(payload["source"][name], kind))
        assert part.column("key")[place].is_valid == (row["key"] is not None)
        assert part.column("value")[place].as_py() is None


@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(json_batches.batches(), json_batches.settings())
def test_of_a_table_of_a_log(batch: ChangeBatch, chosen: EventSettings) -> None:
    compare(batch, chosen, FORM)


@settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data(), st.sampled_from(sorted(captured_batches.KINDS)))
def test_of_change_tables(data: st.DataObject, connector: str) -> None:
    batch = data.draw(captured_batches.batches(connector))
    compare(batch, data.draw(captured_batches.settings(connector)), captured_batches.form_of(connector))
