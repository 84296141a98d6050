"""Conditions in Groovy and JavaScript have the right meaning and effect, or are refused."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.columns import Column
from tailrace.errors import TransformError
from tests.unit.events.changes import Change, table
from tests.unit.transforms.chains import CONNECT, faults, rows

UNWRAP = {"type": "ExtractNewRecordState", "delete.tombstone.handling.mode": "drop"}
GROOVY, JS = "jsr223.groovy", "jsr223.graal.js"
DATA = table(
    "data",
    [
        Column("id", "int4", 23, nullable=False),
        Column("big", "int8", 20),
        Column("part", "float8", 701),
        Column("price", "numeric", 1700, 524_294),
        Column("name", "text", 25),
        Column("live", "bool", 16),
    ],
    "id",
)
ROWS: tuple[Change, ...] = (
    ("c", None, ["1", "10", "1.5", "12.34", "north-1", "t"]),
    ("c", None, ["2", "-7", "-0.5", "0.00", "", "f"]),
    ("c", None, ["3", None, None, None, None, None]),
)


def of(condition: str, language: str = GROOVY, **options: str) -> dict[str, str]:
    more = {name.replace("_", "."): text for name, text in options.items()}
    return {"type": "io.debezium.transforms.Filter", "language": language, "condition": condition, **more}


def kept(condition: str, language: str = GROOVY) -> list[int]:
    """Return the ids of the rows that a condition over rows keeps."""
    found = rows(UNWRAP, of(condition, language), schema=DATA, changes=ROWS)
    return [row["value"]["id"] for row in found]


def refusal(condition: str, language: str = GROOVY) -> str:
    """Return the error with which a condition ends the query; it names the table."""
    with pytest.raises(TransformError) as error:
        kept(condition, language)
    assert "public.data" in str(error.value)
    return str(error.value)


BOTH = [
    ("value.id == 2", [2]),
    ("value.id != 2", [1, 3]),
    ("value.id > 1 && value.id < 3", [2]),
    ("value.id == 1 || value.id == 3", [1, 3]),
    ("!(value.id == 1)", [2, 3]),
    ("value.id % 2 == 1", [1, 3]),
    ("value.id * 2 - 1 + 0 == 3", [2]),
    ("-value.id == -3", [3]),
    ("value.big == null", [3]),
    ("null != value.big", [1, 2]),
    ("value.big != null && value.big < 0", [2]),
    ("value.big == null || value.big > 0", [1, 3]),
    ("value.big != null ? value.big > 0 : true", [1, 3]),
    ("value.part == 1.5", [1]),
    ("value.id > 1.5", [2, 3]),
    ("value.price == 12.34", [1]),
    ("value.price != null && value.price <= 0", [2]),
    ("value.name == 'north-1'", [1]),
    ('value.name == "north-1"', [1]),
    ("value.name == key.id + ''", []),
    ("value.name != null && value.name.startsWith('north')", [1]),
    ("value.name != null && value.name.toUpperCase() == 'NORTH-1'", [1]),
    ("value.name == 'north-' + value.id", [1]),
    ("value.live == true", [1]),
    ("value.live != null && value.live", [1]),
    ("value.get('id') == 1 && value.getInt32('id') == 1 && value['id'] == 1", [1]),
    ("key.id == 3", [3]),
    ("topic == 's.public.data'", [1, 2, 3]),
    ("topic.startsWith('other')", []),
    ("valueSchema.field('id') != null", [1, 2, 3]),
    ("valueSchema.field('op') == null && valueSchema.field('op') == null", [1, 2, 3]),
    ("keySchema.fields().size() == 1", [1, 2, 3]),
    ("valueSchema.name() == 's.public.data.Value'", [1, 2, 3]),
    ("header.nothing == null", [1, 2, 3]),
    ("header.containsKey('nothing')", []),
]


@pytest.mark.parametrize(("condition", "ids"), BOTH)
@pytest.mark.parametrize("language", [GROOVY, JS])
def test_a_condition_keeps_what_it_is_true_of(condition: str, ids: list[int], language: str) -> None:
    assert kept(condition, language) == ids


@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        ("value.name in ['north-1', 'south']", [1]),
        ("value.name != null && value.name.endsWith('1') && value.name.contains('th-')", [1]),
        ("value.name != null && value.name.isEmpty()", [2]),
        ("value.name != null && value.name.replace('-', '').substring(0) == 'north1'", [1]),
        ("value.id in [2, 3]", [2, 3]),
        ("['north-1'].contains(value.name)", [1]),
        ("value.big in [10L, 300L]", [1]),
        ("value.part in [1.5d]", [1]),
        ("value.name?.startsWith('north') ? true : false", [1]),
        ("value.name ==~ 'north-[0-9]'", [1]),
        ("(value.name ?: 'none') == 'none'", [2, 3]),
        ("value.big < 0", [2, 3]),
        ("value.big <= null", [3]),
        ("value.big > 0L", [1]),
        ("value.name && value.big", [1]),
        ("!value.name", [2, 3]),
        ('"${value.id}-x" == "2-x"', [2]),
        ("return value.id == 1;", [1]),
        ("value.part != null && value.part.equals(1) == true || value.id == 3", None),
    ],
)
def test_groovy(condition: str, ids: list[int] | None) -> None:
    if ids is None:
        with pytest.raises(TransformError, match="does not understand equals"):
            kept(condition)
    else:
        assert kept(condition) == ids


@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        ("value.id === 2", [2]),
        ("value.id !== 2", [1, 3]),
        ("['north-1'].includes(value.name)", [1]),
        ("value.name != null && value.name.length === 7", [1]),
        ("value.name != null && value.name.includes('-')", [1]),
        ("value.big < 1", [2, 3]),
        ("value.big + 1 == 1", [3]),
    ],
)
def test_javascript(condition: str, ids: list[int]) -> None:
    assert kept(condition, JS) == ids


@pytest.mark.parametrize(
    ("condition", "groovy", "javascript"),
    [
        ("2147483647 + value.id > 0", [], [1, 2, 3]),
        ("'a.b.c'.replace('.', '') + value.id == 'abc1'", [1], []),
        ("'a.b.c'.replace('.', '') + value.id == 'ab.c1'", [], [1]),
        ("'abc'.substring(2, 1) + value.id == 'b1'", "takes more of a text", [1]),
        ("'\\101' + value.id == 'A1'", [1], [1]),
        ("value.name < 'a'", [2, 3], [2]),
        ("null < 'a'", [1, 2, 3], []),
        ("value.part != null && value.part % 1 == 0.5", [1], [1]),
        ("'ß'.toUpperCase() + value.id == 'SS1'", [1], [1]),
        ("'' + value.part == '1.5'", [1], [1]),
    ],
)
def test_each_language_has_its_own_result(condition: str, groovy: Any, javascript: Any) -> None:
    for language, wanted in ((GROOVY, groovy), (JS, javascript)):
        if isinstance(wanted, str):
            assert wanted in refusal(condition, language)
        else:
            assert kept(condition, language) == wanted


@pytest.mark.parametrize(
    ("condition", "language", "words"),
    [
        ("value.name.contains('a')", JS, "javascript has no method contains at character 12"),
        ("value.name.includes('a')", GROOVY, "groovy has no method includes at character 12"),
        ("value.id == 010", GROOVY, "a number that begins with 0 is not understood at character 13"),
        ("value.id == 1L", JS, "1L is not understood at character 13"),
        ("value.name == '\\q'", GROOVY, "\\q in a text is not understood at character 15"),
        ("value.id == 99999999999999999999", GROOVY, "has more than 64 bits at character 13"),
        ("return value.id == 1", JS, "return is not understood at character 1"),
    ],
)
def test_what_a_language_does_not_have_is_refused_when_it_is_read(condition: str, language: str, words: str) -> None:
    assert words in faults(UNWRAP, of(condition, language))[0]


def test_what_the_layout_decides_is_never_computed() -> None:
    """A missing field of a row is an error only in records whose condition reaches it."""
    condition = "value.op == 'c' || (value.op == 'd' && value.before.id == 1)"
    assert [row["op"] for row in rows(of(condition))] == ["c", "d", "tombstone"]
    with pytest.raises(TransformError) as error:
        rows(of("value.after.id == 1"))
    assert "Filter's condition takes id of null at character 12, in a record of public.t, at 0/139C" in str(error.value)


def test_the_field_of_a_schema_counts_as_true_where_it_is_there() -> None:
    assert [row["op"] for row in rows(of("!(valueSchema.field('op') && value.op == 'c')"))] == ["u", "d", "tombstone"]


def test_records_without_a_value_are_kept_dropped_or_asked() -> None:
    always = "value == null || value.op == 'u'"
    assert [row["op"] for row in rows(of(always))] == ["u", "tombstone"]
    assert [row["op"] for row in rows(of(always, null_handling_mode="drop"))] == ["u"]
    assert [row["op"] for row in rows(of(always, null_handling_mode="evaluate"))] == ["u", "tombstone"]
    nulls = {"type": f"{CONNECT}ExtractField$Value", "field": "name"}
    found = rows(UNWRAP, nulls, of("value == ''", null_handling_mode="drop"), schema=DATA, changes=ROWS)
    assert [row["value"] for row in found] == [""]


def test_topics_are_limited_by_an_expression() -> None:
    assert [row["op"] for row in rows(of("false", topic_regex="other"))] == ["c", "u", "d", "tombstone"]
    assert [row["op"] for row in rows(of("false", topic_regex=r"s[.]public[.]\w"))] == ["tombstone"]


def routed(expression: str, changes: Any = ROWS, **options: str) -> list[str]:
    step = {"type": "ContentBasedRouter", "language": GROOVY, "topic.expression": expression, **options}
    return [row["topic"] for row in rows(UNWRAP, step, schema=DATA, changes=changes)]


def test_a_topic_is_what_an_expression_gives() -> None:
    here = "s.public.data"
    assert routed("value.name") == ["north-1", "", here]
    assert routed("value.id == 1 ? 'one' : null") == ["one", here, here]
    assert routed("'all'") == ["all"] * 3
    assert routed("null") == [here] * 3
    assert routed("topic + '-' + value.id") == [f"{here}-{number}" for number in (1, 2, 3)]
    with pytest.raises(TransformError, match=r"ContentBasedRouter's topic.expression gives no text"):
        routed("value.id")


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("value.nothing == 1", "finds no field nothing at character 6"),
        ("value.id == '1'", "compares values of two kinds at character 10"),
        ("value.id", "gives no boolean"),
        ("value.live", "uses the result of null at character 6"),
        ("value.name.startsWith('n')", "uses startsWith of null at character 11"),
        ("value.id % (value.id - 1) == 0", "divides by zero at character 10"),
        ("value.big + 1 == 1", "uses + of null at character 11"),
        ("value.name != null && value.name.substring(3) == 'x'", "takes more of a text than it has"),
        ("value.name - 1 == 1", "counts with what is no number by - at character 12"),
        ("header.nothing.value == 1", "takes value of null at character 15"),
        ("value == 'x'", "uses a whole part of the record as a value"),
        ("value.name in value.id", "understands in before a list alone"),
        ("value.name in [1]", "looks for a value in a list of others"),
        ("value.name.matches('(')", "has no regular expression"),
    ],
)
def test_what_a_record_does_not_allow_ends_the_query(condition: str, said: str) -> None:
    assert said in refusal(condition)


@pytest.mark.parametrize(
    ("condition", "language", "said"),
    [
        ("value.op = 'c'", GROOVY, "= is not understood at character 10"),
        ("value.op == 'c", GROOVY, "' is not understood at character 13"),
        ("valu.op == 'c'", GROOVY, "valu is not understood at character 1"),
        ("value.op == 'c' &&", GROOVY, "the end is not understood at character 19"),
        ("(value.op == 'c'", GROOVY, ") is missing at character 17"),
        ("value.op.foo()", GROOVY, "the method foo is not understood at character 10"),
        ("value.op.matches()", GROOVY, "the method matches takes another number of arguments"),
        ("value.id / 2 == 1", GROOVY, "/ is not understood at character 10"),
        ("value.id === 1", GROOVY, "=== is not understood in groovy at character 10"),
        ("value.name ==~ 'x'", JS, "==~ is not understood in javascript"),
        ("'op' in value", JS, "in is not understood in javascript"),
        ("def x = 1; x == 1", GROOVY, "= is not understood at character 7"),
        ('"$value.id" == "1"', GROOVY, "$ in a text is understood only"),
        ("true", "wasm.chicory", "language = wasm.chicory is not supported"),
    ],
)
def test_what_is_not_understood_is_refused_with_its_place(condition: str, language: str, said: str) -> None:
    (fault,) = faults(of(condition, language))
    assert said in fault


def test_a_topic_and_a_condition_are_needed() -> None:
    assert "It needs the option condition" in faults({"type": "io.debezium.transforms.Filter", "language": GROOVY})[0]
    assert "It needs the option language" in faults({"type": "ContentBasedRouter", "topic.expression": "null"})[0]
