"""Conversions of the server's texts, into JSON for events and into Arrow."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pyarrow as pa

from tailrace import values
from tailrace.values.conversion import Conversion
from tailrace.values.fragments import column_fragment, json_array, plain_json
from tailrace.values.json_text import dumps
from tests.layout_blocks import plan_of, text_column

NOTHING = "nothing"
"""Stands for the value of a text that the type does not have."""


class Converted(NamedTuple):
    """The results of a conversion: `shown` in JSON, `held` in Arrow. NOTHING stands for a lost text."""

    shown: list[str]
    held: list[Any]


def converted(conversion: Conversion, *texts: str | bytes | None) -> Converted:
    """Return the results for texts.

    A conversion has two ways to JSON, by columns and by single values, which must agree on every text. A column may be
    a slice of a longer one, and a lost text must not move the others.
    """
    plan = plan_of(conversion)
    column = text_column(*texts)
    longer = pa.concat_arrays([text_column("before", None), column, text_column(b"\xff")])
    fragment, lost = column_fragment(plan, column, None)
    shown = json_array(fragment).to_pylist()
    if fragment.quoted:
        shown = [f'"{text}"' for text in shown]
    sliced, _ = column_fragment(plan, longer.slice(2, len(column)), None)
    assert json_array(sliced).to_pylist() == json_array(fragment).to_pylist()
    known = [b"null" if text is None else plain_json(plan, text) for text in column.to_pylist()]
    assert lost == sum(text is None for text in known)
    assert shown == [_text(text) for text in known]
    held, missing = values.typed(plan, column)
    held.validate(full=True)
    assert held.type == values.arrow_type(plan)
    again, _ = values.typed(plan, longer.slice(2, len(column)))
    assert repr(python_values(again)) == repr(python_values(held))
    return Converted(
        [NOTHING if text is None else one for text, one in zip(known, shown, strict=True)],
        [NOTHING if gone else one for one, gone in zip(python_values(held), missing.tolist(), strict=True)],
    )


def _text(data: bytes | None) -> str:
    return "null" if data is None else data.decode()


def python_values(array: pa.Array) -> list[Any]:
    """Return the values of an array; dates, times, timestamps and durations as numbers."""
    if pa.types.is_temporal(array.type):
        array = array.cast(pa.int32() if array.type.bit_width == 32 else pa.int64())
    found: list[Any] = array.to_pylist()
    return found


def shown(conversion: Conversion, *texts: str | bytes | None) -> list[Any]:
    """Return the JSON of texts in events, parsed."""
    return [one if one == NOTHING else json.loads(one) for one in converted(conversion, *texts).shown]


def held(conversion: Conversion, *texts: str | bytes | None) -> list[Any]:
    """Return the values of texts in Arrow."""
    return converted(conversion, *texts).held


def zero_of(conversion: Conversion) -> str:
    """Return the JSON of a default that only the server could compute."""
    return dumps(conversion.zero)
