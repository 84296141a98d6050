"""The reduction finds the last change of each key, and the source of values that the log did not carry."""

from __future__ import annotations

import decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tailrace.columns.reduction import NONE, before, flagged, groups, lasts, listed, roots, running, sources

ONE = np.array([0, 1, 0, 2, 1, 0], np.int64)


def same(columns: list[pa.Array]) -> list[int]:
    """Return for each row the index of the first row that it equals."""
    found = groups(columns)
    return [int(np.flatnonzero(found == number)[0]) for number in found]


@pytest.mark.parametrize(
    ("values", "kind", "first"),
    [
        ([1, 2, 1, None, None], pa.int64(), [0, 1, 0, 3, 3]),
        (["a", "A", "a", "", None], pa.string(), [0, 1, 0, 3, 4]),
        ([b"\0", b"", b"\0", None], pa.binary(), [0, 1, 0, 3]),
        # As in Spark, the two zeros are equal, and so are all NaN.
        ([0.0, -0.0, float("nan"), float("nan"), 1.5], pa.float64(), [0, 0, 2, 2, 4]),
        ([decimal.Decimal("1.00"), decimal.Decimal("1.01"), decimal.Decimal("1.00")], pa.decimal128(5, 2), [0, 1, 0]),
        ([[1, 2], [1], [], None, [1, 2], [None]], pa.list_(pa.int64()), [0, 1, 2, 3, 0, 5]),
        ([{"a": 1}, {"a": None}, None, {"a": 1}], pa.struct([pa.field("a", pa.int32())]), [0, 1, 2, 0]),
        ([[("k", 1)], [("k", 2)], [("k", 1)]], pa.map_(pa.string(), pa.int32()), [0, 1, 0]),
        ([[[1], []], [[], [1]], [[1], []]], pa.list_(pa.list_(pa.int8())), [0, 1, 0]),
    ],
)
def test_rows_of_equal_values_are_of_one_group(values: list[Any], kind: pa.DataType, first: list[int]) -> None:
    assert same([pa.array(values, kind)]) == first


def test_of_several_columns_all_have_to_be_equal() -> None:
    assert same([pa.array([1, 1, 2, 1]), pa.array(["x", "y", "x", "x"])]) == [0, 1, 2, 0]
    # Adjacent texts are not joined.
    assert same([pa.array(["a", "ab"]), pa.array(["bc", "c"])]) == [0, 1]


def test_the_last_row_of_each_group_and_the_one_before_each_row() -> None:
    assert lasts(ONE).tolist() == [3, 4, 5]
    assert before(ONE).tolist() == [NONE, NONE, 0, NONE, 1, 2]
    assert lasts(ONE[:0]).tolist() == before(ONE[:0]).tolist() == []


def test_a_value_comes_from_the_nearest_row_that_has_it() -> None:
    previous = before(ONE)
    has = np.array([True, False, False, False, True, False])
    assert sources(previous, has).tolist() == [0, NONE, 0, NONE, 4, 0]
    assert sources(previous, np.ones(6, np.bool_)).tolist() == list(range(6))
    assert sources(previous, np.zeros(6, np.bool_)).tolist() == [NONE] * 6


def test_long_chains_are_followed_to_their_end() -> None:
    count = 1000
    previous = np.arange(-1, count - 1, dtype=np.int64)
    has = np.zeros(count, np.bool_)
    has[3] = True
    assert sources(previous, has).tolist() == [NONE] * 3 + [3] * (count - 3)
    assert roots(previous).tolist() == [0] * count
    assert roots(before(ONE)).tolist() == [0, 1, 0, 3, 1, 0]


def test_weights_are_counted_within_their_group() -> None:
    assert running(np.array([1, 1, 2, 1, 1, 1]), ONE).tolist() == [1, 1, 2, 1, 2, 4]
    assert running(np.ones(0, np.int64), ONE[:0]).tolist() == []


def test_flags_of_columns_are_lists_of_their_indexes_and_again_flags() -> None:
    flags = np.array([[True, False, True], [True, False, False]])
    lists = listed(flags)
    assert lists.to_pylist() == [[0, 1], None, [0]]
    assert flagged(lists, 2).tolist() == flags.tolist()
    assert flagged(lists.slice(1), 3).tolist() == [[False, True], [False, False], [False, False]]
