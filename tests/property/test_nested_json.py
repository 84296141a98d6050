"""JSON texts as columns have the same signatures, values and structs as in the plain way."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tailrace.formats.arrow import shown
from tailrace.formats.json.values import values_fragment
from tailrace.transforms.conversions.zones import _offset, _offsets, _zone
from tailrace.transforms.outbox.json_kernels import signatures
from tailrace.transforms.outbox.json_shapes import Shapes, UnclearJson, array_of_texts, value_of
from tailrace.values.arrow import arrow_type_of
from tailrace.values.doubles import double_text
from tailrace.values.fragments import json_array
from tailrace.values.json_text import dumps, java_number
from tailrace.values.timestamps import instant_texts, iso_instant

_TEXTS = st.text(st.sampled_from('a"\\/\n\x7fé€😀 ,:{}[]'), max_size=4)
_SCALARS = st.one_of(
    st.none(), st.booleans(), _TEXTS,
    st.sampled_from([0, -1, 1 << 31, -(1 << 31), (1 << 31) - 1, 1 << 62, 1 << 63, 10**17]),
    st.integers(-(10**20), 10**20), st.floats(allow_nan=False, allow_infinity=False),
)  # fmt: skip
_VALUES = st.recursive(
    _SCALARS,
    lambda parts: st.one_of(
        st.lists(parts, max_size=3), st.dictionaries(st.sampled_from(["a", "b", "é", 'q"', ""]), parts, max_size=3)
    ),
    max_leaves=8,
)
_OBJECTS = st.dictionaries(st.sampled_from(["a", "b", "c", "x.y"]), _VALUES, max_size=4)
_SEPARATORS = st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", "\t:\r ")])
_ODD = st.sampled_from([
    "", "{", "}", "[", "x", "1", "{}", "[]", "{} ", " {}", "{}x", '{"a":1,"a":"x"}', '{"a":01}', '{"a":-}', '{"a":1.}',
    '{"a":1e5}', '{"a":1E+400}', '{"a":-0}', '{"a":NaN}', '{"a":nul}', '{"a":"\\u00e9\\ud83d\\ude00"}', "{}\\",
    '{"a":"\\ud83d"}',
    '{"a":"\\x"}', '{"a":"\t"}', '{"\\u0061":1}', '{"a":[1,2,3]}', '{"a":[1,2.5]}', '{"a":[[1],[]]}',
    '{"a":[{"b":1},{}]}',
    '{"a" 1}', '{"a":1,}', '{"a":[1,]}', '{"a":[,]}', '{"a"}', '{"a":{}', '{"a":1]', '{"a":1}}', "[" * 70 + "]" * 70,
    '{"a":' * 70 + "1" + "}" * 70, '{"a":123456789012345678}', '{"a":1234567890123456789}', '{"a":"",}', '{"a":true}',
])  # fmt: skip


@st.composite
def texts(draw: st.DrawFn) -> str:
    """Draw a text that is JSON, or almost."""
    if draw(st.integers(0, 4)) == 0:
        return draw(_ODD)
    found = json.dumps(draw(_OBJECTS), separators=draw(_SEPARATORS), ensure_ascii=draw(st.booleans()))
    if draw(st.integers(0, 4)) == 0:
        place = draw(st.integers(0, len(found)))
        found = found[:place] + draw(st.sampled_from(["", '"', "}", ",", "\\", "0"])) + found[place + 1 :]
    return found


def _schema(text: str, nulls: bool) -> Any:
    try:
        return Shapes(nulls, "payload").of_text(text)
    except UnclearJson:
        return None


@given(st.lists(texts(), min_size=2, max_size=12), st.booleans())
@example(['{"a":[1,1]}', '{"a":[1]}', '{"a":[1,"x"]}', '{"a":[{"b":1},{"b":2}]}', '{"a":[{"b":1}]}'], False)
def test_texts_of_one_signature_have_one_schema(found: list[str], nulls: bool) -> None:
    known: dict[bytes, Any] = {}
    for text, signature in zip(found, signatures(pa.array(found)).to_pylist(), strict=True):
        schema = _schema(text, nulls)
        assert known.setdefault(signature, schema) == schema


def test_texts_that_differ_in_values_alone_have_one_signature() -> None:
    pairs = [
        ('{"a": 1, "b": ["x", "y"], "c": {"d": null}}', '{"a":-2147483648,"b":[""],"c":{"d":null}}'),
        ('{"f": 1.5, "t": true, "l": 4294967296}', '{"f":-0.25,"t":false,"l":-99999999999}'),
        ('{"a": [{"b": 1, "c": "x"}, {"b": 2, "c": "y"}]}', '{"a": [{"b": 3, "c": "z"}]}'),
        ("x", "no JSON"),
    ]
    for one, other in pairs:
        assert len(set(signatures(pa.array([one, other])).to_pylist())) == 1


def test_a_null_has_an_empty_signature() -> None:
    assert signatures(pa.array([None, "{}"])).to_pylist() == [b"", b"{}"]


@given(st.lists(texts(), min_size=1, max_size=6), st.booleans(), st.integers(0, 3))
@example(['{"a":1,"a":2}'], False, 0)
@example(['{"a":"\\ud83d"}'], False, 0)
@example(["{}"], False, 1)
@example(['{"a":[null],"b":null}'], True, 1)
def test_values_are_those_of_each_text(found: list[str], nulls: bool, missing: int) -> None:
    for text in found:
        kind = _schema(text, nulls)
        if kind is None:
            continue
        same = [one for one in found if _schema(one, nulls) == kind]
        given_texts = [*same, *[None] * missing]
        try:
            expected = pa.array(
                [None if one is None else value_of(one, kind) for one in given_texts], arrow_type_of(kind)
            )
        except UnicodeEncodeError:
            # Half of a character: there is no such text.
            continue
        made = array_of_texts(pa.array(given_texts, pa.string()), kind)
        made.validate(full=True)
        assert made.type == expected.type
        assert repr(made.to_pylist()) == repr(expected.to_pylist())


_NESTED = pa.struct([
    pa.field("i", pa.int32()), pa.field('t"', pa.string()), pa.field("b", pa.bool_()), pa.field("d", pa.float64()),
    pa.field("l", pa.list_(pa.struct([pa.field("s", pa.string()), pa.field("n", pa.int64())]))),
    pa.field("e", pa.struct([])), pa.field("y", pa.binary()), pa.field("ll", pa.list_(pa.list_(pa.string()))),
])  # fmt: skip
_INNER = st.fixed_dictionaries({"s": st.none() | _TEXTS, "n": st.none() | st.integers(-(1 << 63), (1 << 63) - 1)})
# The plain way writes the fewest digits; before version 19, Java wrote more for some numbers, such as whole numbers.
_DOUBLES = st.floats().filter(
    lambda number: not np.isfinite(number) or java_number(repr(number)) == double_text(number)
)
_ROWS = st.none() | st.fixed_dictionaries({
    "i": st.none() | st.integers(-9, 9), 't"': st.none() | _TEXTS, "b": st.none() | st.booleans(),
    "d": st.none() | _DOUBLES, "l": st.none() | st.lists(st.none() | _INNER, max_size=3),
    "e": st.none() | st.just({}), "y": st.none() | st.binary(max_size=4),
    "ll": st.none() | st.lists(st.none() | st.lists(st.none() | _TEXTS, max_size=2), max_size=2),
})  # fmt: skip


@given(st.lists(_ROWS, max_size=6), st.integers(0, 3))
def test_structs_and_lists_are_json_as_single_values_are(rows: list[Any], skipped: int) -> None:
    values = pa.array(rows, _NESTED).slice(skipped)
    written = values_fragment(values)
    assert json_array(written).to_pylist() == [dumps(shown(value)) for value in values.to_pylist()]


@given(st.lists(st.integers(-(1 << 61), 1 << 61), max_size=5))
def test_instants_are_iso_texts(moments: list[int]) -> None:
    us = np.array(moments, np.int64)
    assert instant_texts(us, np.zeros(len(us), np.int64)).to_pylist() == [iso_instant(one, None) for one in moments]


@pytest.mark.parametrize(
    ("offset", "text"),
    [
        (3600, "1970-01-01T01:00:00.5+01:00"),
        (-12_600, "1969-12-31T20:30:00.5-03:30"),
        (-1, "1969-12-31T23:59:59.5-00:00:01"),
    ],
)
def test_instants_have_the_offset_that_is_asked_for(offset: int, text: str) -> None:
    assert instant_texts(np.array([500_000]), np.array([offset])).to_pylist() == [text]


@given(st.lists(st.integers(-3_000_000_000, 3_000_000_000), max_size=6), st.booleans())
def test_offsets_of_a_zone_are_those_of_each_moment(moments: list[int], ordered: bool) -> None:
    zone = _zone("Europe/Berlin")
    seconds = np.array(sorted(moments) if ordered else moments, np.int64)
    assert _offsets(zone, seconds).tolist() == [_offset(zone, int(one) // 900 * 900) for one in seconds]
    plain = [dt.datetime.fromtimestamp(int(one) // 900 * 900, zone).utcoffset() for one in seconds]
    assert _offsets(zone, seconds).tolist() == [round(one.total_seconds()) for one in plain if one is not None]
