"""Kernels equal plain Python where whole batches seldom reach: numbers of any length, long texts, instants in UTC."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.columns import Column, TableId, TableSchema
from tailrace.connectors.postgres.values.conversions import plan_columns
from tailrace.values.fragments import column_fragment, integers_fragment, json_array, plain_json
from tests.event_settings import event_settings

_TWO = st.integers(0, 99).map("{:02d}".format)


def _same(column: Column, texts: list[str | None]) -> None:
    """Assert that the column's kernel equals its plain conversion and counts the same texts as lost."""
    table = TableSchema(TableId("d", "s", "t"), (column,), ())
    (plan,), _ = plan_columns(table, event_settings("server", "d"))
    array = pa.array([None if text is None else text.encode() for text in texts], pa.binary())
    fragment, lost = column_fragment(plan, array, None)
    found = json_array(fragment).to_pylist()
    if fragment.quoted:
        found = [f'"{text}"' for text in found]
    wanted = [plan.null if text is None else plain_json(plan, text.encode()) for text in texts]
    assert found == [(plan.null if text is None else text).decode() for text in wanted]
    assert lost == wanted.count(None)


@given(st.lists(st.integers(0, 63).flatmap(lambda bits: st.integers(-(2**bits), 2**bits - 1)), max_size=40))
def test_integers_of_every_length(values: list[int]) -> None:
    found = json_array(integers_fragment(np.array(values, np.int64))).to_pylist()
    assert found == [str(value) for value in values]


def test_integers_where_their_length_changes() -> None:
    values = [sign * (10**power + more) for power in range(19) for more in (-1, 0, 1) for sign in (-1, 1)]
    values += [2**63 - 1, -(2**63)]
    assert json_array(integers_fragment(np.array(values, np.int64))).to_pylist() == [str(value) for value in values]


@given(st.lists(st.none() | st.text('abcdefgh"\\\n\x01é😀', max_size=400), max_size=12))
def test_texts_longer_than_what_is_looked_at_in_one_step(texts: list[str | None]) -> None:
    _same(Column("v", "text", 25), texts)


@pytest.mark.parametrize("modifier", [-1, 0, 1, 3, 6])
@given(
    st.lists(
        st.builds(
            "{}{}-{:02d}-{:02d} {}:{}:{}{}+00".format,
            _TWO,
            _TWO,
            st.integers(1, 12),
            st.integers(1, 31),
            *[_TWO] * 3,
            st.just("") | st.text("0123456789", min_size=1, max_size=6).map(".{}".format),
        ),
        max_size=12,
    )
)
def test_instants_in_utc(modifier: int, texts: list[str]) -> None:
    _same(Column("v", "timestamptz", 1184, modifier), [text for text in texts if not text.startswith("0000")])
