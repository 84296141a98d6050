"""Logical types: the schemas of values in the terms of Kafka Connect."""

from __future__ import annotations

import pickle

from tailrace.columns.logical import ABSENT, BYTES, INT64, STRING, Field, LogicalType, array, mapping, semantic, struct


def test_no_default_is_another_thing_than_a_default_of_null() -> None:
    assert STRING.default == ABSENT
    assert STRING.default is not None
    assert STRING.with_default(None) != STRING
    assert STRING.with_default("") != STRING.with_default(None)
    assert pickle.loads(pickle.dumps(ABSENT)) == ABSENT
    assert hash(pickle.loads(pickle.dumps(STRING))) == hash(STRING)
    assert repr(ABSENT) == "ABSENT"


def test_a_semantic_type_has_its_parameters_in_order_with_dots_in_their_names() -> None:
    found = semantic(BYTES, "org.apache.kafka.connect.data.Decimal", scale="2", connect__decimal__precision="10")
    assert (found.connect, found.name, found.version) == ("bytes", "org.apache.kafka.connect.data.Decimal", 1)
    assert found.parameters == (("scale", "2"), ("connect.decimal.precision", "10"))


def test_types_are_values() -> None:
    assert STRING.with_optional(True).with_optional(False) == STRING
    assert array(STRING) == LogicalType("array", items=STRING)
    assert mapping(INT64).items == INT64
    assert mapping(INT64).keys is None
    one, other = (struct(Field("a", STRING), Field("b", kind), name="n", version=1) for kind in (INT64, INT64))
    assert one == other
    assert hash(one) == hash(other)
    assert one != struct(Field("b", INT64), Field("a", STRING), name="n", version=1)
    assert [field.name for field in one.fields] == ["a", "b"]
