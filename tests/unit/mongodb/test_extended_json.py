"""Values as JSON text, against what the Java driver's writers and Debezium's own functions give for the same bytes.

`extended_json.jsonl` holds, for each form, the text that Debezium 1.1.2 and 3.6.1 (Java 17) write for a document, or
null where they end with an error; of the document with all characters the hash of the text. `doubles.txt` holds
doubles and their texts.
"""

from __future__ import annotations

import hashlib
import json
import struct
import unicodedata
from base64 import b64decode
from pathlib import Path

import numpy as np
import pytest

from tailrace.connectors.mongodb.values import fields
from tailrace.connectors.mongodb.values import json_forms as forms
from tailrace.connectors.mongodb.values.extended_json import json_texts
from tailrace.connectors.mongodb.values.json_forms import escaped_units
from tailrace.connectors.mongodb.values.plain_json import double_text, items, plain_text
from tailrace.errors import ConversionError, TailraceError
from tailrace.values.json_text import quoted
from tests.unit.mongodb.bson_bytes import array, document, text

HERE = Path(__file__).parent
VECTORS = [json.loads(line) for line in (HERE / "extended_json.jsonl").read_text("utf-8").splitlines()]
BY_NAME = {form.name: form for form in forms.FORMS}


def compiled(data: bytes, kind: int, place: int, form: forms.JsonForm, within_string: bool = False) -> str:
    buffer = np.frombuffer(data, np.uint8)
    found = json_texts(buffer, np.array([place]), np.array([kind], np.uint8), form, within_string)
    assert found.offsets.tolist() == [0, len(found.data)]
    return found.data.tobytes().decode()


def every_character() -> str:
    """Return the basic plane without 0 and surrogates, and some characters beyond it."""
    return "".join(chr(code) for code in range(1, 0x10000) if not 0xD800 <= code < 0xE000)


def bytes_of(vector: dict[str, str]) -> bytes:
    if "bson" in vector:
        return b64decode(vector["bson"])
    if vector["characters"] == "all":
        return document([("_id", fields.STRING, text(every_character() + "\U0001f600\U00010348\U0010ffff"))])
    one = ("_id", fields.INT32, bytes(4))
    return document([one, (every_character(), fields.INT32, struct.pack("<i", 1))])


@pytest.mark.parametrize("vector", VECTORS, ids=[vector["name"] for vector in VECTORS])
def test_texts_are_those_of_debezium(vector: dict[str, dict[str, str | None]]) -> None:
    data = bytes_of(vector)  # type: ignore[arg-type]
    for name, wanted in vector["texts"].items():
        form, kind, place = BY_NAME[name], fields.DOCUMENT, 0
        for write in (compiled, plain_text):
            try:
                if name.startswith("key"):
                    found = {field: (kind, place) for field, kind, place in items(data, 0)}
                    kind, place = found.get("_id", (fields.NULL, 0))
                got: str | None = write(data, kind, place, form)
            except TailraceError:
                got = None
            if got is not None and "bson" not in vector:
                got = hashlib.sha256(got.encode()).hexdigest()
            assert got == wanted, (name, write)


def test_texts_within_strings_are_quoted_texts() -> None:
    for vector in VECTORS:
        data = bytes_of(vector)
        for name, wanted in vector["texts"].items():
            if wanted is not None and not name.startswith("key"):
                bare = compiled(data, fields.DOCUMENT, 0, BY_NAME[name])
                assert compiled(data, fields.DOCUMENT, 0, BY_NAME[name], True) == quoted(bare)


def test_doubles_have_the_text_of_java() -> None:
    for line in (HERE / "doubles.txt").read_text().splitlines():
        given, wanted = line.split()
        value = float.fromhex(given)
        data = struct.pack("<d", value)
        assert compiled(data, fields.DOUBLE, 0, forms.STRICT) == wanted
        assert double_text(value) == wanted


def test_characters_are_escaped_by_their_category() -> None:
    """The categories are those of Unicode 13; a newer Python knows more characters, which Java 17
    took for unassigned."""
    flags = np.unpackbits(escaped_units(), bitorder="little")
    escaped = {"Cc", "Cf", "Cn", "Co", "Cs", "Lm", "Mn", "Mc", "Me", "Zl", "Zp"}
    by_rule = np.array([unicodedata.category(chr(code)) in escaped for code in range(0x10000)])
    differing = np.flatnonzero(by_rule != (flags == 1))
    # Later characters were not assigned, so they were escaped; the count is that of Unicode 14.
    assert flags[differing].all()
    if unicodedata.unidata_version == "14.0.0":
        assert len(differing) == 88


def test_a_column_has_texts_of_all_rows_and_null_for_those_without_a_value() -> None:
    one, other = document([("a", fields.INT32, struct.pack("<i", 1))]), document([])
    bad = document([("a", fields.STRING, text(b"\xff"))])
    data = np.frombuffer(one + other + bad, np.uint8)
    places = np.array([0, -1, len(one), len(one) + len(other), 0])
    kinds = np.array([fields.DOCUMENT, fields.ABSENT, *[fields.DOCUMENT] * 3], np.uint8)
    found = json_texts(data, places, kinds, forms.STRICT)
    texts = [found.data[a:b].tobytes().decode() for a, b in zip(found.offsets[:-1], found.offsets[1:], strict=True)]
    assert texts == ['"{\\"a\\": 1}"', "null", '"{}"', '"{\\"a\\": \\"\ufffd\\"}"', '"{\\"a\\": 1}"']


def test_texts_grow_beyond_the_first_guess() -> None:
    content = "\x01" * 100_000
    data = document([("a", fields.STRING, text(content)), ("b", fields.STRING, text("x"))])
    wanted = '{"a": "' + "\\u0001" * 100_000 + '","b": "x"}'
    buffer = np.frombuffer(data * 3, np.uint8)
    places = np.arange(3) * len(data)
    found = json_texts(buffer, places, np.full(3, fields.DOCUMENT, np.uint8), forms.STRICT, False)
    assert found.data.tobytes().decode() == wanted * 3


def nested(levels: int, kind: int) -> bytes:
    data = document([])
    for _ in range(levels - 1):
        data = array([(kind, data)]) if kind == fields.ARRAY else document([("a", kind, data)])
    return data


@pytest.mark.parametrize("kind", [fields.DOCUMENT, fields.ARRAY])
def test_nesting_ends_where_java_ends_it(kind: int) -> None:
    data = nested(forms.MOST_LEVELS, kind)
    assert compiled(data, kind, 0, forms.STRICT) == plain_text(data, kind, 0, forms.STRICT)
    with pytest.raises(ConversionError):
        compiled(nested(forms.MOST_LEVELS + 1, kind), kind, 0, forms.STRICT)


def test_a_document_may_have_very_many_fields() -> None:
    count = 10_000
    data = document((f"f{number}", fields.INT32, struct.pack("<i", number)) for number in range(count))
    wanted = "{" + ",".join(f'"f{number}": {number}' for number in range(count)) + "}"
    assert compiled(data, fields.DOCUMENT, 0, forms.STRICT) == wanted
    data = document((f"f{number % 9000}", fields.INT32, struct.pack("<i", number)) for number in range(count))
    assert compiled(data, fields.DOCUMENT, 0, forms.STRICT).startswith('{"f0": 9000,"f1": 9001,')
