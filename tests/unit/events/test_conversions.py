"""Types of SQL Server and Db2 in every mode: schema and value are those that Debezium's own converters gave.

`recorded/*-conversions.jsonl.gz` was made by calling the value converters of Debezium's connectors (SQL Server
1.0.0.Final and 3.6.1.Final, Db2 2.3.0.Final and 3.6.1.Final) with columns as the JDBC drivers describe them and values
as they give them. A line is: event format, type, modifier, decimal.handling.mode, time.precision.mode,
binary.handling.mode, the text that the value has in change tables, the schema, the value as JSON (floating-point
numbers as their text). Left out is what the converters get wrong: timestamps beyond 64 bits of ns that wrap around
before 3.6, and times with a fraction in 1.0, which cuts them to milliseconds or fails.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tailrace.columns import Column, TableId, TableSchema
from tailrace.connectors.db2.values.conversions import FORM as DB2
from tailrace.connectors.sqlserver.values.conversions import FORM as SQL_SERVER
from tailrace.events.captured_form import CapturedForm
from tailrace.events.event_settings import EventSettings
from tailrace.values.conversion import ColumnPlan
from tailrace.values.fragments import column_fragment, json_array, plain_json
from tailrace.values.json_text import schema_text
from tests.event_settings import event_settings

FORMS = {"sqlserver": SQL_SERVER, "db2": DB2}
RECORDED = Path(__file__).parent / "recorded"


def settings(connector: str, form: str = "3", **modes: Any) -> EventSettings:
    return event_settings("server", "d", connector=connector, event_format=form, **modes)


def plan_of(connector: str, column: Column, chosen: EventSettings) -> ColumnPlan | None:
    columns, _ = FORMS[connector].columns(TableSchema(TableId("d", "s", "t"), (column,), ()), chosen)
    return columns[0] if columns else None


def both(plan: ColumnPlan, text: str) -> tuple[str, str]:
    """Return the JSON of one value by the plain conversion and by the column's kernel."""
    fragment, _ = column_fragment(plan, pa.array([text.encode()], pa.binary()), None)
    compiled = json_array(fragment).to_pylist()[0]
    plain = plain_json(plan, text.encode())
    return "null" if plain is None else plain.decode(), f'"{compiled}"' if fragment.quoted else compiled


def rows(connector: str) -> list[list[Any]]:
    with gzip.open(RECORDED / f"{connector}-conversions.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@pytest.mark.parametrize("connector", FORMS)
def test_schemas_and_values_are_those_of_debeziums_converters(connector: str) -> None:
    found = rows(connector)
    assert len(found) > 400
    for form, kind, modifier, decimal, time, binary, text, schema, value in found:
        chosen = settings(
            connector, form, decimal_handling_mode=decimal, time_precision_mode=time, binary_handling_mode=binary
        )
        where = (form, kind, modifier, decimal, time, binary, text)
        plan = plan_of(connector, Column("c", kind, 0, modifier), chosen)
        assert (None if plan is None else json.loads(schema_text(plan.schema))) == schema, where
        if plan is not None:
            plain, compiled = both(plan, text)
            floating = plan.schema.connect in ("float", "double")
            wanted = value if value is None or not floating else Verbatim(value)
            assert shown(plain, floating) == wanted, where
            assert compiled == plain, where


class Verbatim(str):
    """The text of a floating-point number."""

    __slots__ = ()


def shown(text: str, floating: bool) -> Any:
    return Verbatim(text) if floating and text != "null" else json.loads(text)


@pytest.mark.parametrize("form", ["1.0", "3"])
def test_a_type_without_a_mapping_is_left_out(form: str) -> None:
    table = TableSchema(TableId("d", "s", "t"), (Column("v", "sql_variant", 98), Column("i", "int", 56)), ())
    columns, unknown = SQL_SERVER.columns(table, settings("sqlserver", form))
    assert [plan.name for plan in columns] == ["i"]
    assert unknown == ("v",)


@pytest.mark.parametrize(
    ("kind", "modifier", "text"),
    [
        ("datetime2", 7, "9999-12-31 23:59:59.9999999"),
        ("datetime2", 7, "1600-01-01 00:00:00.0000000"),
        ("datetime2", 7, "2019-02-30"),
        ("datetime2", 7, "2019-05-27T13:58:28"),
        ("time", 7, "25:00:00.0000000"),
        ("time", 7, "24:00:00.0000001"),
        ("datetime2", 7, "2024-02-29 24:59:59.999999"),
        ("time", 7, "13:58:28."),
        ("datetimeoffset", 7, "2019-05-27 13:58:28.1234567"),
        ("varbinary", 8, "00ff"),
        ("int", -1, ""),
    ],
)
def test_what_does_not_fit_its_type_is_lost_on_both_paths(kind: str, modifier: int, text: str) -> None:
    plan = plan_of("sqlserver", Column("c", kind, 0, modifier), settings("sqlserver"))
    assert plan is not None
    if kind != "int":  # Numbers are used in the server's form.
        _, lost = column_fragment(plan, pa.array([text.encode()], pa.binary()), None)
        assert lost == 1
    assert plain_json(plan, text.encode()) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2019-05-27 24:00:00", 1_559_001_600_000),
        ("0001-01-01 00:00:00.000", -62_135_596_800_000),
        ("9999-12-31 23:59:59.999", 253_402_300_799_999),
    ],
)
def test_timestamps_reach_from_the_first_year_to_the_last(text: str, value: int) -> None:
    plan = plan_of("db2", Column("c", "TIMESTAMP", 93, 3), settings("db2"))
    assert plan is not None
    assert both(plan, text) == (str(value), str(value))


def test_structured_times_keep_their_nanoseconds() -> None:
    chosen = settings("sqlserver", time_precision_mode="structured")
    plan = plan_of("sqlserver", Column("c", "datetimeoffset", 43, 7), chosen)
    assert plan is not None
    plain, compiled = both(plan, "2019-05-27 13:58:28.1234567 -05:30")
    assert plain == compiled
    parts = json.loads(plain)
    assert (parts["hour"], parts["nanos"], parts["offsetSeconds"], parts["zoneId"], parts["precision"]) == (
        *(13, 123_456_700, -19_800, "-05:30", 7),
    )


def test_forms_share_no_state() -> None:
    assert isinstance(SQL_SERVER, CapturedForm)
    assert SQL_SERVER.serial
    assert not DB2.serial
