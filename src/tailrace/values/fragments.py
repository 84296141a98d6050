"""Fragments: the JSON of a text column's values."""

from __future__ import annotations

import pyarrow as pa

from tailrace.kernels.buffers import text_buffers
from tailrace.kernels.programs import Fragment
from tailrace.values.conversion import ColumnPlan, fragment_of, plain_text
from tailrace.values.integers import integers_fragment
from tailrace.values.lsns import lsn_texts
from tailrace.values.texts import Flags, ShownValues, strings_fragment, without_bad_text

__all__ = [
    "column_fragment",
    "constant",
    "integers_fragment",
    "json_array",
    "lsn_texts",
    "plain_json",
    "strings_fragment",
    "text_fragment",
]


def constant(text: bytes) -> Fragment:
    """Return a fragment of one value."""
    return strings_fragment([text])


def text_fragment(texts: pa.Array) -> Fragment:
    """Return a fragment of JSON texts, an Arrow array without nulls."""
    return Fragment(*text_buffers(texts))


def json_array(fragment: Fragment) -> pa.Array:
    """Return the fragment as an Arrow array of text."""
    return pa.Array.from_buffers(
        pa.string(), len(fragment.offsets) - 1, [None, pa.py_buffer(fragment.offsets), pa.py_buffer(fragment.data)]
    )


def column_fragment(plan: ColumnPlan, column: pa.Array, unavailable: Flags | None) -> tuple[Fragment, int]:
    """Return the JSON of a column's values, and how many of them could not be converted and are shown as null."""
    texts, bad = without_bad_text(column, unavailable)
    shown = ShownValues(plan.source_name, plan.null, plan.unavailable, plan.null)
    fragment, lost = fragment_of(plan.conversion, texts, shown)
    return fragment, lost if bad is None else lost + int(bad.sum())


def plain_json(plan: ColumnPlan, text: bytes) -> bytes | None:
    """Return the JSON of one value by the plain conversion; None if it cannot be converted."""
    return plain_text(plan.conversion, text, plan.null)
