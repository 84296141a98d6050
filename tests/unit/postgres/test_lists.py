"""Arrays, vectors, points and bits, a column at a time: null, lost and unavailable values beside good ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tailrace.columns import Column, TableId, TableSchema
from tailrace.connectors.postgres.values.conversions import plan_columns
from tailrace.values.conversion import ColumnPlan
from tailrace.values.fragments import column_fragment, json_array, plain_json
from tests.event_settings import event_settings


def plan(column: Column, **more: Any) -> ColumnPlan:
    table = TableSchema(TableId("d", "s", "t"), (column,), ())
    return plan_columns(table, event_settings("server", "d", **more))[0][0]


def array(element: str, **more: Any) -> Column:
    return Column("v", f"_{element}", 0, kind="array", element=Column("v", element, 0, **more))


def shown(plan: ColumnPlan, *texts: bytes | None, unavailable: Any = None) -> tuple[list[str], int]:
    """Return the JSON of each text, and the number of lost values; the plain conversion must give the same."""
    assert not plan.conversion.by_value
    fragment, lost = column_fragment(plan, pa.array(texts, pa.binary()), unavailable)
    found: list[str] = json_array(fragment).to_pylist()
    for row, text in enumerate(texts):
        if text is not None:
            assert found[row].encode() == (plain_json(plan, text) or plan.null)
    return found, lost


def test_an_element_that_cannot_be_converted_makes_its_array_lost_and_no_other() -> None:
    texts = (b"{2024-01-01 00:00:00}", b"{2024-01-01 00:00:00,294276-12-31 23:59:59}", None, b"{NULL}", b"{}")
    found = shown(plan(array("timestamp"), time_precision_mode="nanoseconds"), *texts)
    assert found == (["[1704067200000000000]", "null", "null", "[null]", "[]"], 1)


def test_a_number_without_a_form_makes_its_array_lost() -> None:
    texts = (b"{1.50,NaN,NULL}", b"{1.50,NULL}")
    assert shown(plan(array("numeric", modifier=655366)), *texts) == (["null", '["AJY=",null]'], 1)


def test_elements_without_a_kernel_are_converted_plainly() -> None:
    texts = (b"{infinity,NULL}", b"{2024-02-30}", b"{nonsense}")
    found, lost = shown(plan(array("date"), time_precision_mode="structured"), *texts)
    assert '"specialValue":"POSITIVE_INFINITY"' in found[0]
    assert found[0].endswith(",null]")
    assert (found[2], lost) == ("null", 1)


@pytest.mark.parametrize(
    "text", [b"", b"{", b"}", b"[1:2]", b"{{1},{2}}", b"{1,}", b"{,}", b'{"1}', b'{"1\\"}', b"{NULL}"]
)
def test_what_is_no_such_array_is_lost(text: bytes) -> None:
    labels = plan(Column("v", "_m", 0, kind="array", element=Column("v", "m", 0, kind="enum", enum_labels=("1",))))
    found, lost = shown(labels, b"{1}", text, b"[0:1]={1,1}")
    assert found[::2] == ['["1"]', '["1","1"]']
    assert (found[1], lost) == ("null", 1)


def test_an_unchanged_array_is_shown_by_its_placeholder() -> None:
    found, _ = shown(plan(array("text")), b"{a}", None, None, unavailable=np.array([False, True, False]))
    assert found == ['["a"]', '["__debezium_unavailable_value"]', "null"]


def test_an_array_in_no_encoding_is_lost_alone() -> None:
    assert shown(plan(array("text")), b"{a}", b"{\xff}", b'{"\xf0\x9f\x98\x80"}') == (
        ['["a"]', "null", '["\\uD83D\\uDE00"]'],
        1,
    )


def test_boxes_are_parted_by_semicolons() -> None:
    boxes = plan(array("box"), include_unknown_datatypes=True, binary_handling_mode="hex")
    found, lost = shown(boxes, b"{(2,2),(0,0);(1,1),(0,0)}")
    assert (found[0].count(","), lost) == (1, 0)


def test_slices_of_a_column_keep_to_their_rows() -> None:
    column = pa.array([b"{9}", b"{1,2}", None, b"{3}", b"{8}"], pa.binary()).slice(1, 3)
    fragment, lost = column_fragment(plan(array("int4")), column, None)
    assert (json_array(fragment).to_pylist(), lost) == (["[1,2]", "null", "[3]"], 0)


def test_points_are_two_doubles() -> None:
    found, lost = shown(plan(Column("v", "point", 600)), b"(1.5,-2)", b"(Infinity,NaN)", b"(1)", None)
    wkb = "AQEAAAAAAAAAAAD4PwAAAAAAAADA"
    assert found[0] == f'{{"x":1.5,"y":-2.0,"wkb":"{wkb}","srid":null}}'
    assert found[1].startswith('{"x":"Infinity","y":"NaN","wkb":')
    assert (found[2:], lost) == (["null", "null"], 1)


def test_a_point_of_no_numbers_is_lost_alone() -> None:
    found, lost = shown(plan(Column("v", "point", 600)), b"(1,2)", b"(a,b)")
    assert (found[1], lost) == ("null", 1)


def test_vectors_are_numbers_in_brackets() -> None:
    assert shown(plan(Column("v", "vector", 0)), b"[1,-2.5e-07]", b"[]", b"{1}") == (["[1.0,-2.5E-7]", "[]", "null"], 1)


def test_bits_are_little_endian_bytes() -> None:
    texts = (b"", b"0000", b"1", b"100000000", b"0000000011111111", b"2")
    found = shown(plan(Column("v", "varbit", 0)), *texts)
    assert found == (['""', '""', '"AQ=="', '"AAE="', '"/w=="', "null"], 1)
    assert shown(plan(Column("v", "bit", 0, 1)), b"1", b"0", b"", None) == (["true", "false", "null", "null"], 1)
