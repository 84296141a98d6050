"""Typed columns equal the plain conversion, for every type and mode: the same values, and the same texts lost."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace import values
from tailrace.columns import Column, TableId, TableSchema
from tailrace.connectors.db2.values.conversions import TYPES as DB2
from tailrace.connectors.postgres.values.conversions import TYPES as POSTGRES
from tailrace.connectors.sqlserver.values.conversions import TYPES as SQL_SERVER
from tailrace.events.column_plans import shown_columns
from tailrace.events.event_settings import EventSettings
from tailrace.values.conversion import ColumnPlan
from tailrace.values.fragments import plain_json
from tests.extent import examples
from tests.property import captured_batches, json_batches
from tests.property.typed_values import fits, found_in, same, wanted

TYPES = {"postgres": POSTGRES, "sqlserver": SQL_SERVER, "db2": DB2}


def kinds(connector: str) -> list[tuple[Column, st.SearchStrategy[str]]]:
    if connector == "postgres":
        return [(Column("v", name, 0, modifier, **more), texts) for name, modifier, more, texts in json_batches.COLUMNS]
    return [
        (Column("v", name, 0, modifier, default=default), texts)
        for name, modifier, default, texts in captured_batches.KINDS[connector][1]
    ]


def settings_of(connector: str) -> st.SearchStrategy[EventSettings]:
    return json_batches.settings() if connector == "postgres" else captured_batches.settings(connector)


def plan_of(connector: str, column: Column, chosen: EventSettings) -> ColumnPlan | None:
    found, _ = shown_columns(TableSchema(TableId("d", "s", "t"), (column,), ()), chosen, TYPES[connector])
    return found[0] if found else None


def compared(plan: ColumnPlan, texts: list[bytes | None], missing: list[bool]) -> None:
    column = pa.array([b"other", *texts, None], pa.binary()).slice(1, len(texts))
    flags = np.array(missing, np.bool_) if any(missing) else None
    found, lost = values.typed(plan, column, flags)
    found.validate(full=True)
    assert found.type == values.arrow_type(plan)
    assert found.equals(values.arrow(plan, column, flags)) or "nan" in str(found)
    for row, text in enumerate(texts):
        if missing[row]:
            shown: bytes | None = plan.unavailable
        else:
            shown = plan.null if text is None else plain_json(plan, text)
        kept = shown is not None and fits(json.loads(shown), plan.schema)
        assert lost[row] == (not kept), (text, shown)
        value = json.loads(shown if kept and shown is not None else plan.null)
        assert same(found_in(found[row], plan.schema), wanted(value, plan.schema)), (text, shown, found[row])


MARKS = st.sampled_from(
    ["", " BC", "+00", "infinity", "-", "0", "9", "NaN", " ", ":", ".", "e5", "{", "}", ",", '"', "é"]
)


@st.composite
def spoilt(draw: Any, texts: st.SearchStrategy[str]) -> bytes:
    """Draw a text of the type, or one with something removed or inserted, or with bytes that are not text."""
    text = draw(texts)
    kind = draw(st.integers(0, 5))
    if kind < 3:
        return str(text).encode()
    place = draw(st.integers(0, len(text)))
    behind = draw(st.integers(place, min(len(text), place + 2)))
    bad = b"\xff" if kind == 5 and draw(st.booleans()) else str(draw(MARKS)).encode()
    return str(text[:place]).encode() + bad + str(text[behind:]).encode()


@pytest.mark.parametrize("connector", TYPES)
@settings(max_examples=examples(400), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_typed_columns_are_what_the_plain_conversion_gives(connector: str, data: st.DataObject) -> None:
    column, drawn = data.draw(st.sampled_from(kinds(connector)))
    plan = plan_of(connector, column, data.draw(settings_of(connector)))
    if plan is None:
        return
    texts = data.draw(st.lists(st.none() | spoilt(drawn), max_size=6))
    missing = [text is None and data.draw(st.booleans()) for text in texts]
    compared(plan, texts, missing)
