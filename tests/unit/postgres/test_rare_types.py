"""Types and modes beside the common ones: times in parts, vectors of pgvector, arrays of unknown elements, defaults."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tailrace.columns import Column
from tailrace.columns.logical import ABSENT
from tailrace.values.json_text import schema_text
from tests.unit.postgres.test_values import both, plan

CLOCK = {"hour": 13, "minute": 51, "second": 30, "nanos": 123_000_000}
NO_CLOCK = dict.fromkeys(("hour", "minute", "second", "nanos"))
NO_DAY = dict.fromkeys(("year", "month", "day"))


@pytest.mark.parametrize(
    ("type_name", "modifier", "text", "parts"),
    [
        ("date", -1, "0044-03-15 BC", {"year": -43, "month": 3, "day": 15, "specialValue": None}),
        ("date", -1, "infinity", {**NO_DAY, "specialValue": "POSITIVE_INFINITY"}),
        ("time", 3, "13:51:30.123", {**CLOCK, "precision": 3}),
        ("time", -1, "24:00:00", {"hour": 24, "minute": 0, "second": 0, "nanos": 0, "precision": 6}),
        ("timetz", 3, "13:51:30.123-05:30", {**CLOCK, "offsetSeconds": -19800, "precision": 3}),
        ("timetz", 3, "13:51:30.123+00:00:01", {**CLOCK, "offsetSeconds": 1, "precision": 3}),
        (
            "timestamp",
            -1,
            "294276-12-31 13:51:30.123",
            {"year": 294276, "month": 12, "day": 31, **CLOCK, "specialValue": None, "precision": 6},
        ),
        ("timestamp", 0, "-infinity", {**NO_DAY, **NO_CLOCK, "specialValue": "NEGATIVE_INFINITY", "precision": 0}),
        (
            "timestamptz",
            -1,
            "2016-11-05 00:51:30.123+11",
            {
                **{"year": 2016, "month": 11, "day": 4},
                **CLOCK,
                **{"offsetSeconds": 0, "zoneId": "Z", "specialValue": None, "precision": 6},
            },
        ),
        (
            "interval",
            -1,
            "-1 years -2 mons +3 days -04:05:06.789",
            {
                **{"years": -1, "months": -2, "days": 3, "hours": -4, "minutes": -5},
                **{"seconds": -6, "nanos": -789_000_000, "precision": 6},
            },
        ),
    ],
)
def test_structured_times_are_their_parts(type_name: str, modifier: int, text: str, parts: dict[str, Any]) -> None:
    shown = plan(Column("c", type_name, 0, modifier), time_precision_mode="structured")
    assert list(json.loads(both(shown, text)).items()) == list(parts.items())
    assert [field.name for field in shown.schema.fields] == list(parts)


def test_structured_intervals_keep_to_their_fields() -> None:
    shown = plan(Column("c", "interval", 0), time_precision_mode="structured")
    assert both(shown, "2562047788:00:54.775807") == "null"
    zero = Column("c", "interval", 0, 0x7FFF0003, nullable=False)
    assert json.loads(plan(zero, time_precision_mode="structured").null)["precision"] == 3


def test_a_missing_structured_moment_is_the_epoch_of_no_zone() -> None:
    shown = plan(Column("c", "timestamptz", 0, nullable=False), time_precision_mode="structured")
    missing = json.loads(shown.null)
    assert (missing["year"], missing["zoneId"], missing["offsetSeconds"]) == (1970, None, 0)


@pytest.mark.parametrize(
    ("text", "json_text"),
    [
        ("{1:1,3:2.5,5:-3}/10", '{"dimensions":10,"vector":[[1,1.0],[3,2.5],[5,-3.0]]}'),
        ("{}/32767", '{"dimensions":32767,"vector":[]}'),
        ("{1:1}/32768", "null"),
    ],
)
def test_a_sparse_vector_is_its_dimensions_and_pairs(text: str, json_text: str) -> None:
    shown = plan(Column("c", "sparsevec", 0))
    assert both(shown, text) == json_text
    assert '"keys":{"type":"int16","optional":false},"values":{"type":"double"' in schema_text(shown.schema)


@pytest.mark.parametrize(
    ("element", "text", "json_text"),
    [
        (Column("c", "tsvector", 0), "{\"'a':1\"}", "[\"'a':1\"]"),
        (Column("c", "tsvector", 0), "{NULL}", "null"),
        (Column("c", "vector", 0), '{"[1,2]","[3]"}', "[[1.0,2.0],[3.0]]"),
        (Column("c", "bit", 0, 1), "{1,0,NULL}", "[true,false,null]"),
    ],
)
def test_arrays_of_rare_elements(element: Column, text: str, json_text: str) -> None:
    shown = plan(Column("c", "_e", 0, kind="array", element=element))
    assert both(shown, text) == json_text
    assert shown.schema.items is not None
    assert shown.schema.items.optional == (element.type_name == "bit")


def test_the_catalogs_vectors_are_arrays() -> None:
    oids = Column("c", "oidvector", 30, kind="array", element=Column("c", "oid", 26))
    assert both(plan(oids), "1 2 3") == "[1,2,3]"
    assert both(plan(oids), "") == "[]"


@pytest.mark.parametrize(
    "element",
    [
        Column("c", "pg_lsn", 3220),
        Column("c", "pair", 0, kind="composite"),
        Column("c", "d_int", 0, kind="domain", element=Column("c", "int4", 23)),
    ],
)
def test_arrays_of_unknown_elements_are_bytes_where_asked_for(element: Column) -> None:
    column = Column("c", "_e", 0, kind="array", element=element)
    with pytest.raises(IndexError):
        plan(column)
    shown = plan(column, include_unknown_datatypes=True)
    assert both(shown, '{"0/1",12}') == '["MC8x","MTI="]'
    assert both(shown, "{1,NULL}") == "null"


def test_arrays_without_a_mapping_stay_out_where_unknown_types_are_included() -> None:
    column = Column("c", "_money", 0, kind="array", element=Column("c", "money", 790))
    with pytest.raises(IndexError):
        plan(column, include_unknown_datatypes=True)


@pytest.mark.parametrize("type_name", ["uuid", "json", "jsonb"])
def test_a_value_that_is_missing_is_empty_and_a_computed_default_is_not(type_name: str) -> None:
    column = Column("c", type_name, 0, nullable=False)
    assert plan(column).null == b'""'
    computed = Column("c", type_name, 0, nullable=False, default="f()")
    assert json.loads(plan(computed).null) != ""


def test_domains_and_the_servers_own_char_have_no_default() -> None:
    domain = Column("c", "d", 0, default="'x'::d", kind="domain", element=Column("c", "text", 25))
    assert plan(domain).schema.default == ABSENT
    assert plan(Column("c", "char", 18, default="'c'::\"char\"")).schema.default == ABSENT
    assert plan(Column("c", "bpchar", 1042, 5, default="'c'::bpchar")).schema.default == "c"


@pytest.mark.parametrize("type_name", ["vector", "halfvec", "sparsevec", "tsvector"])
def test_the_older_form_does_not_know_vectors(type_name: str) -> None:
    with pytest.raises(IndexError):
        plan(Column("c", type_name, 0), event_format="1.7")


@pytest.mark.parametrize(
    ("form", "mode", "name", "json_text"),
    [
        ("1.7", "adaptive", "io.debezium.time.MicroTime", "[1000000]"),
        ("1.7", "connect", "io.debezium.time.MicroTime", "[1000000]"),
        ("3", "adaptive", "io.debezium.time.Time", "[1000]"),
        ("3", "connect", "org.apache.kafka.connect.data.Time", "[1000]"),
    ],
)
def test_the_older_form_has_times_in_arrays_in_microseconds(form: str, mode: str, name: str, json_text: str) -> None:
    element = Column("c", "time", 1083, 3)
    shown = plan(Column("c", "_time", 0, 3, kind="array", element=element), event_format=form, time_precision_mode=mode)
    assert shown.schema.items is not None
    assert shown.schema.items.name == name
    assert both(shown, "{00:00:01}") == json_text
