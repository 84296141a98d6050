"""Db2's columns are declared in one way for all servers."""

from __future__ import annotations

import pytest

from tailrace.connectors.db2.values.declaration import TYPES, modifier, precision_and_scale, type_name


@pytest.mark.parametrize(
    ("named", "source", "name"),
    [
        ("VARCHAR", None, "VARCHAR"),
        ("VARCHAR () FOR BIT DATA", None, "VARCHAR () FOR BIT DATA"),
        ("CHAR() FOR BIT DATA", None, "CHAR () FOR BIT DATA"),
        ("timestmp", None, "TIMESTAMP"),
        ("MONEY_T", 3, "DECIMAL"),
        ("IMAGE_T", 2004, "BLOB"),
        ("SHAPE", None, "SHAPE"),
    ],
)
def test_types_have_one_name(named: str, source: int | None, name: str) -> None:
    assert type_name(named, source) == name


def test_the_modifier_tells_what_was_declared() -> None:
    assert precision_and_scale(modifier("DECIMAL", 9, 2)) == (9, 2)
    assert modifier("TIMESTAMP", 32, 12) == 12
    assert modifier("TIMESTAMP", 26, None) == 6
    assert modifier("VARCHAR", 50, None) == 50
    assert modifier("DECFLOAT", 34, None) == 34
    assert modifier("INTEGER", 10, 0) == -1


def test_every_distinct_type_becomes_a_known_one() -> None:
    for code in range(-20, 3000):
        assert type_name("SHAPE", code) in TYPES | {"SHAPE"}
