"""Composite values as the server writes them, and as structs."""

from __future__ import annotations

import pytest

from tailrace.columns.logical import STRING
from tailrace.connectors.postgres.values.composites import composite, composite_items
from tailrace.values.integers import integer
from tailrace.values.strings import text


@pytest.mark.parametrize(
    ("written", "items"),
    [
        ("()", []),
        ("(1)", ["1"]),
        ("(,)", [None, None]),
        ('("",1)', ["", "1"]),
        ('(1,"a ""b"", (c\\\\d)",)', ["1", 'a "b", (c\\d)', None]),
        ('("(1.5,""x """"y"""""")",{})', ['(1.5,"x ""y""")', "{}"]),
        ('("{1,2}",a b)', ["{1,2}", "a b"]),
    ],
)
def test_items(written: str, items: list[str | None]) -> None:
    assert composite_items(written) == items


@pytest.mark.parametrize("written", ["", "1", "(", "(1", '("a)', "(a\\)"])
def test_another_form_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match=r"composite|quote|escape"):
        composite_items(written)


def test_a_struct_of_the_attributes() -> None:
    made = composite([("n", integer(32)), ("gone", None), ("t", text(STRING, "", ""))])
    assert [field.name for field in made.logical.fields] == ["n", "t"]
    assert made.plain("(5,x,y)") == {"n": "5", "t": "y"}
    # a value that is older than the type's last attributes
    assert made.plain("(5)") == {"n": "5", "t": None}
    with pytest.raises(ValueError, match="more attributes"):
        made.plain("(5,x,y,z)")
