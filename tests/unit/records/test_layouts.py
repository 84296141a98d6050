"""Layouts of records: trees of named parts, whose schema follows from them."""

from __future__ import annotations

import pickle

import pytest

from tailrace.columns.logical import BYTES, INT32, INT64, STRING, Field, struct
from tailrace.records.layout import (
    AFTER,
    BlockColumn,
    Constant,
    Header,
    ImageColumn,
    Member,
    RecordLayout,
    ServerTexts,
    ShownTexts,
    Struct,
    Text,
    constants,
)
from tests.unit.records.plans import NAME

ROW = Struct(
    (
        Member("id", Constant(1, INT32)),
        Member("name", ImageColumn(AFTER, NAME)),
        Member("at", BlockColumn("at", INT64)),
    ),
    "Row",
    2,
    optional=True,
)


def test_the_schema_of_a_struct_is_that_of_its_parts_in_order() -> None:
    schema = struct(
        Field("id", INT32), Field("name", STRING.with_optional(True)), Field("at", INT64), name="Row", version=2
    )
    assert ROW.type == schema.with_optional(True)
    assert Struct((Member("row", ROW),)).type == struct(Field("row", schema.with_optional(True)))
    assert Struct(()).type == struct()


def test_a_part_is_found_by_its_name() -> None:
    assert ROW.part("id") == Constant(1, INT32)
    assert ROW.part("ID") is ROW.part("gone") is None


def test_a_part_is_replaced_in_its_place_or_put_behind_all_others() -> None:
    changed = ROW.with_part("name", Constant("x", STRING))
    assert [member.name for member in changed.members] == ["id", "name", "at"]
    assert changed.part("name") == Constant("x", STRING)
    wider = ROW.with_part("more", Constant(None, STRING))
    assert [member.name for member in wider.members] == ["id", "name", "at", "more"]
    # The existing layout stays unchanged.
    assert len(ROW.members) == 3
    assert (wider.name, wider.version, wider.optional) == ("Row", 2, True)


@pytest.mark.parametrize(
    ("names", "left"),
    [
        (("id",), ["name", "at"]),
        (("at", "id"), ["name"]),
        (("gone",), ["id", "name", "at"]),
        ((), ["id", "name", "at"]),
    ],
)
def test_parts_are_left_out_by_name(names: tuple[str, ...], left: list[str]) -> None:
    assert [member.name for member in ROW.without(*names).members] == left


def test_texts_are_strings_and_what_is_written_is_bytes() -> None:
    name = ImageColumn(AFTER, NAME)
    assert Text(("a", BlockColumn("n", INT64))).type == STRING
    assert ServerTexts(name).type == BYTES.with_optional(True)
    assert ShownTexts(name).type == name.type == NAME.schema


def test_constants_have_the_fields_of_their_schema_in_its_order() -> None:
    schema = struct(Field("b", STRING), Field("a", INT32.with_optional(True)), name="n", version=3)
    found = constants({"a": None, "b": "x", "c": "beyond"}, schema)
    assert [member.name for member in found.members] == ["b", "a"]
    assert found.part("a") == Constant(None, INT32.with_optional(True))
    assert found.type == schema
    with pytest.raises(KeyError):
        constants({"a": 1}, schema)


def test_a_layout_survives_being_pickled() -> None:
    record = RecordLayout(
        "c", "t", None, Struct((Member("id", Constant(1, INT32)),)), (Header("h", Constant("x", STRING)),)
    )
    assert pickle.loads(pickle.dumps(record)) == record
    assert hash(record) == hash(pickle.loads(pickle.dumps(record)))
