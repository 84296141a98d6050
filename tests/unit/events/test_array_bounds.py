"""Arrays whose elements are not numbered from 1, which a list shows like others."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.columns import Column
from tailrace.connectors.postgres.log.form import FORM
from tailrace.errors import ConversionError
from tailrace.events.record_assembly import rows_of_tables, to_rows
from tailrace.events.table_plan import TablePlans, table_plan
from tests.unit.events.changes import Change, batch, plain_settings, table

INT = Column("id", "int4", 23, nullable=False)
ARRAY = Column("a", "_int4", 1007, nullable=False, kind="array", element=Column("a", "int4", 23))
VECTOR = Column("v", "vector", 20_000)
PLAIN: list[Change] = [("c", None, ("1", "{1,2}", "[1,2]"))]
BOUNDED: list[Change] = [("c", None, ("1", "[2:3]={1,2}", "[1,2]"))]
VALUE = table("t", [INT, ARRAY, VECTOR], "id")
KEY = table("t", [INT, ARRAY, VECTOR], "id", "a")


@pytest.mark.parametrize("options", [{"blocks": "last"}, {"copy": True}])
def test_a_copy_warns_of_a_value_and_refuses_a_key(options: dict[str, Any]) -> None:
    settings = plain_settings(**options)
    found = batch(VALUE, BOUNDED)
    list(to_rows(found, settings, FORM))
    (told,) = [text for text in found.warnings if "numbered from 1" in text]
    assert told.startswith("Column a of public.t has arrays")
    assert "a[:]" in told
    with pytest.raises(ConversionError, match=r"key column a of public\.t has arrays") as caught:
        list(to_rows(batch(KEY, BOUNDED), settings, FORM))
    assert "message.key.columns" in caught.value.remedy
    # a vector's brackets are no bounds
    for of in (VALUE, KEY):
        found = batch(of, PLAIN)
        list(to_rows(found, settings, FORM))
        assert not any("numbered" in text for text in found.warnings)


def test_events_are_debeziums() -> None:
    found = batch(KEY, BOUNDED)
    list(to_rows(found, plain_settings(), FORM))
    assert not any("numbered" in text for text in found.warnings)


def test_tables_that_are_converted_together_are_converted_apart_to_tell_it() -> None:
    for changes, is_none in ((PLAIN, False), (BOUNDED, True)):
        found = batch(VALUE, changes)
        plans = TablePlans((table_plan(VALUE, plain_settings(copy=True), FORM),), found.op * 0)
        assert (rows_of_tables(found, plans, plain_settings(copy=True), FORM) is None) is is_none
