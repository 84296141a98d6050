"""Arrays, vectors, maps, points and geometries: values of several parts."""

from __future__ import annotations

import base64
import json
import math
import struct
from typing import Any

import pytest

from tailrace.columns.logical import INT32, STRING, array
from tailrace.values import dates, decimals, geometry, integers, lists, maps, strings
from tailrace.values.conversion import Conversion
from tests.unit.values.shown_values import NOTHING, converted, held, shown

OPTIONAL = STRING.with_optional(True)
TEXTS = lists.list_of(array(OPTIONAL), strings.text(), ",", True)


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("{}", []),
        ("{a}", ["a"]),
        ("{a,b c,é😀}", ["a", "b c", "é😀"]),
        ('{NULL,null,"NULL",""}', [None, None, "NULL", ""]),
        (r'{"a\"b","c\\","d,e","{}"," "}', ['a"b', "c\\", "d,e", "{}", " "]),
        ("[0:1]={a,b}", ["a", "b"]),
        ("[-3:-1]={a,NULL,b}", ["a", None, "b"]),
        ("{{a},{b}}", NOTHING),
        ("{a", NOTHING),
        ("{a,}", NOTHING),
        ("{,a}", NOTHING),
        ('{"a}', NOTHING),
        ("a", NOTHING),
        ("", NOTHING),
    ],
)
def test_an_array_is_read_as_the_server_writes_it(text: str, items: Any) -> None:
    assert shown(TEXTS, "{z}", text, "{}") == held(TEXTS, "{z}", text, "{}") == [["z"], items, []]


def test_an_array_whose_elements_may_not_be_null_holds_none() -> None:
    conversion = lists.list_of(array(INT32), integers.integer(32), ",", False)
    texts = ("{1,-2}", "{1,NULL}", "{}", "{3}")
    assert shown(conversion, *texts) == held(conversion, *texts) == [[1, -2], NOTHING, [], [3]]


@pytest.mark.parametrize(
    ("of", "text", "wanted"),
    [
        (integers.integer(32), "{1,x,3}", NOTHING),
        (integers.integer(32), "{2147483647,NULL,-2147483648}", [2**31 - 1, None, -(2**31)]),
        (dates.date("adaptive", False), "{1970-01-02,NULL,9999-12-31}", [1, None, 2_932_896]),
        (decimals.fixed(2, 5), "{1.5,NULL}", ["AJY=", None]),
        (decimals.fixed(2, 5), "{1.5,NULL,NaN}", NOTHING),
    ],
)
def test_elements_are_converted_as_columns_are(of: Conversion, text: str, wanted: Any) -> None:
    conversion = lists.list_of(array(of.logical.with_optional(True)), of, ",", True)
    assert shown(conversion, text, "{}") == [wanted, []]
    assert (held(conversion, text, "{}")[0] == NOTHING) is (wanted == NOTHING)


def test_boxes_have_a_delimiter_of_their_own() -> None:
    conversion = lists.list_of(array(STRING), strings.text(), ";", False)
    assert shown(conversion, "{(1,2),(0,0);(3,4),(1,1)}") == [["(1,2),(0,0)", "(3,4),(1,1)"]]


def test_vectors_are_lists_of_numbers_in_square_brackets() -> None:
    for single, name in ((True, "FloatVector"), (False, "DoubleVector")):
        conversion = lists.vector(single)
        assert conversion.logical.name == f"io.debezium.data.{name}"
        texts = ("[1,2.5,-0]", "[]", "[65504,-0.00006]", "1,2", "[x]", "[1,]", "{1}")
        wanted = ["[1.0,2.5,-0.0]", "[]", "[65504.0,-6.0E-5]", *[NOTHING] * 4]
        assert converted(conversion, *texts).shown == wanted
        assert held(conversion, "[1,2.5]", "[x]", "[]") == [[1.0, 2.5], NOTHING, []]


def test_sparse_vectors_are_dimensions_and_pairs() -> None:
    conversion = maps.sparse()
    assert conversion.logical.name == "io.debezium.data.SparseDoubleVector"
    texts = ("{}/3", "{1:1,3:-0.5}/3", "{32767:1e300}/32767", "{1:1}/32768", "{1:x}/3", "{1:1}", "x", "{1:1,}/3")
    vectors: list[Any] = [
        {"dimensions": 3, "vector": []},
        {"dimensions": 3, "vector": [[1, 1.0], [3, -0.5]]},
        {"dimensions": 32_767, "vector": [[32_767, 1e300]]},
    ]
    assert shown(conversion, *texts) == [*vectors, *[NOTHING] * 5]
    pairs = [one | {"vector": list(map(tuple, one["vector"]))} for one in vectors]
    assert held(conversion, *texts) == [*pairs, *[NOTHING] * 5]


HSTORES: dict[str, Any] = {
    "": {},
    '"k"=>"v"': {"k": "v"},
    '"k"=>"v", "two words"=>NULL, ""=>""': {"k": "v", "two words": None, "": ""},
    r'"a\"b"=>"c\\", "=>"=>", "': {'a"b': "c\\", "=>": ", "},
    '"é😀\n"=>"東"': {"é😀\n": "東"},
    "k=>v": NOTHING,
    '"k"=>v': NOTHING,
    '"k"': NOTHING,
}


def test_an_hstore_is_a_map_or_its_text() -> None:
    found = list(HSTORES.values())
    assert shown(maps.hstore_map({}), *HSTORES) == found
    assert held(maps.hstore_map({}), *HSTORES) == [one if one == NOTHING else list(one.items()) for one in found]
    texts = shown(maps.hstore_text("u"), *HSTORES)
    assert [one if one == NOTHING else json.loads(one) for one in texts] == found
    assert maps.hstore_text("u").logical.name == "io.debezium.data.Json"


@pytest.mark.parametrize(
    ("x", "y"), [("1", "2"), ("-0", "1e300"), ("0.1", "-1e-07"), ("NaN", "Infinity"), ("5e-324", "-Infinity")]
)
def test_a_point_has_its_numbers_and_its_binary_form(x: str, y: str) -> None:
    (found,) = shown(geometry.point_type(), f"({x},{y})")
    assert [float(found["x"]), float(found["y"]), found["srid"]] == pytest.approx(
        [float(x), float(y), None], nan_ok=True
    )
    order, kind, *parts = struct.unpack("<BIdd", base64.b64decode(found["wkb"]))
    assert (order, kind) == (1, 1)
    for part, text in zip(parts, (x, y), strict=True):
        assert part == float(text) or (math.isnan(part) and text == "NaN")
        assert math.copysign(1, part) == math.copysign(1, float(text))
    assert held(geometry.point_type(), f"({x},{y})")[0]["wkb"] == base64.b64decode(found["wkb"])


@pytest.mark.parametrize("text", ["", "(1)", "(1,2,3)", "1,2", "(1,x)", "(,)", "(1,2", "((1,2))"])
def test_what_is_no_point_is_lost(text: str) -> None:
    found = shown(geometry.point_type(), "(1,2)", text)
    assert (found[0]["x"], found[1]) == (1.0, NOTHING)


@pytest.mark.parametrize("logical", [geometry.GEOMETRY, geometry.GEOGRAPHY])
def test_a_geometry_is_its_bytes_and_its_spatial_reference(logical: Any) -> None:
    conversion = geometry.geometry_type(logical)
    place = struct.pack("<dd", 1.0, 2.0)
    plain = b"\x01\x01\x00\x00\x00" + place
    little = b"\x01\x01\x00\x00\x20\xe6\x10\x00\x00" + place
    big = b"\x00\x20\x00\x00\x01\x00\x00\x10\xe6" + struct.pack(">dd", 1.0, 2.0)
    cases = {plain: None, little: 4326, big: 4326}
    found = shown(conversion, *(data.hex().upper() for data in cases))
    assert [(base64.b64decode(one["wkb"]), one["srid"]) for one in found] == list(cases.items())
    assert shown(conversion, "zz", "01", "", plain.hex())[:3] == [NOTHING] * 3
