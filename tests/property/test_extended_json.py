"""The compiled writer of BSON equals the plain one, on documents and on bytes that are none."""

from __future__ import annotations

import random
import struct

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.connectors.mongodb.values import fields
from tailrace.connectors.mongodb.values import json_forms as forms
from tailrace.connectors.mongodb.values.extended_json import json_texts
from tailrace.connectors.mongodb.values.plain_json import double_text, plain_text
from tailrace.errors import TailraceError
from tailrace.values.json_text import quoted
from tests.extent import examples
from tests.unit.mongodb.bson_bytes import array, binary, document, scoped, text


def _long(value: int) -> bytes:
    return struct.pack("<q", value)


_INT64 = st.one_of(st.integers(-(2**63), 2**63 - 1), st.sampled_from([0, -1, 253402300799999, 253402300800000]))
_ODD = st.text(st.sampled_from('"\\\x00\b\f\n\r\t\x7fe\u0301\u2028\U0001f600'), max_size=6)
_TEXT = st.one_of(st.text(max_size=12), _ODD)
_NAME = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=4)
_BYTES = st.one_of(_TEXT.map(lambda value: value.encode("utf-8", "surrogatepass")), st.binary(max_size=8))
_OBJECT_ID = st.binary(min_size=12, max_size=12)
_CONTENT = st.one_of(st.binary(max_size=6), st.binary(min_size=16, max_size=16))
_DOUBLES = st.one_of(
    st.floats(allow_subnormal=True),
    st.integers(-(2**63), 2**63).map(float),
    st.integers(0, 2**64 - 1).map(lambda bits: struct.unpack("<d", struct.pack("<Q", bits))[0]),
    st.builds(lambda whole, power: float(f"{whole}e{power}"), st.integers(1, 9999), st.integers(-330, 304)),
)

_SCALARS: st.SearchStrategy[tuple[int, bytes]] = st.one_of(
    st.tuples(st.just(fields.DOUBLE), _DOUBLES.map(lambda value: struct.pack("<d", value))),
    st.tuples(st.sampled_from([fields.STRING, fields.CODE, fields.SYMBOL]), _BYTES.map(text)),
    st.tuples(st.just(fields.BINARY), st.builds(binary, _CONTENT, st.integers(0, 255))),
    st.tuples(st.just(fields.OBJECT_ID), _OBJECT_ID),
    st.tuples(st.just(fields.BOOLEAN), st.sampled_from([b"\0", b"\1"])),
    st.tuples(st.sampled_from([fields.DATE, fields.INT64, fields.TIMESTAMP]), _INT64.map(_long)),
    st.tuples(st.just(fields.DATE), st.integers(0, 253402300799999).map(_long)),
    st.tuples(st.just(fields.INT32), st.integers(-(2**31), 2**31 - 1).map(lambda value: struct.pack("<i", value))),
    st.tuples(st.just(fields.DECIMAL), st.binary(min_size=16, max_size=16)),
    st.tuples(st.just(fields.REGEX), st.builds(lambda p, o: p.encode() + b"\0" + o.encode() + b"\0", _NAME, _NAME)),
    st.tuples(st.just(fields.DB_POINTER), st.builds(lambda name, number: text(name) + number, _NAME, _OBJECT_ID)),
    st.tuples(st.sampled_from([fields.NULL, fields.UNDEFINED, fields.MIN_KEY, fields.MAX_KEY]), st.just(b"")),
)


def _documents(values: st.SearchStrategy[tuple[int, bytes]]) -> st.SearchStrategy[bytes]:
    named = st.tuples(_NAME, values).map(lambda pair: (pair[0], *pair[1]))
    return st.lists(named, max_size=5).map(document)


_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(
        st.tuples(st.just(fields.DOCUMENT), _documents(inner)),
        st.tuples(st.just(fields.ARRAY), st.lists(inner, max_size=4).map(array)),
        st.tuples(st.just(fields.SCOPED_CODE), st.builds(scoped, _NAME, _documents(inner))),
    ),
    max_leaves=8,
)


def _wanted(data: bytes, kind: int, form: forms.JsonForm) -> str | None:
    try:
        return plain_text(data, kind, 0, form)
    except TailraceError:
        return None


def _got(data: bytes, kind: int, form: forms.JsonForm, within_string: bool) -> str | None:
    try:
        found = json_texts(np.frombuffer(data, np.uint8), np.zeros(1), np.array([kind]), form, within_string)
    except TailraceError:
        return None
    return found.data.tobytes().decode()


@settings(max_examples=examples(1200), deadline=None)
@given(_VALUES, st.sampled_from(forms.FORMS))
def test_compiled_texts_are_the_plain_ones(value: tuple[int, bytes], form: forms.JsonForm) -> None:
    kind, data = value
    wanted = _wanted(data + b"\0", kind, form)
    assert _got(data + b"\0", kind, form, False) == wanted
    assert _got(data + b"\0", kind, form, True) == (None if wanted is None else quoted(wanted))


@settings(max_examples=examples(800), deadline=None)
@given(_VALUES, st.integers(0, 2**32), st.integers(1, 4))
def test_damaged_bytes_give_the_same_text_or_an_error(value: tuple[int, bytes], seed: int, changes: int) -> None:
    kind, content = value
    chosen = random.Random(seed)
    data = bytearray(content)
    for _ in range(changes):
        if data:
            data[chosen.randrange(len(data))] = chosen.choice([0, 1, 2, 3, 4, 5, 15, 127, 255, chosen.randrange(256)])
    if chosen.random() < 0.3:
        del data[chosen.randrange(len(data) + 1) :]
    damaged = bytes(data) or b"\0"
    assert _got(damaged, kind, forms.STRICT, False) == _wanted(damaged, kind, forms.STRICT)


@settings(max_examples=examples(2000), deadline=None)
@given(_DOUBLES.filter(lambda value: value - value == 0))
def test_compiled_doubles_are_the_plain_ones(value: float) -> None:
    assert _got(struct.pack("<d", value), fields.DOUBLE, forms.STRICT, False) == double_text(value)
    assert float(double_text(value)) == value
