"""Conditions in Spark SQL have the right effect on records, or are refused."""

from __future__ import annotations

import pytest

from tailrace.errors import TransformError
from tests.unit.transforms.chains import CONNECT, faults, rows
from tests.unit.transforms.test_scripting import DATA, ROWS, UNWRAP, kept, of, refusal, routed

SQL = "spark.sql"


@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        ("value.id = 2", [2]),
        ("id = 2 -- the row", [2]),
        ("`value`.ID <> 2", [1, 3]),
        ("big > 0", [1]),
        ("NOT big > 0", [2]),
        ("big IS NULL OR big > 0", [1, 3]),
        ("big <=> NULL", [3]),
        ("big NOT IN (10, NULL)", []),
        ("big IN (10, -7)", [1, 2]),
        ("price BETWEEN 0 AND 12.34", [1, 2]),
        ("part = 1.5", [1]),
        ("id > 1.5 AND id < 3e0", [2]),
        ("name LIKE 'north-_'", [1]),
        ("name RLIKE '[0-9]'", [1]),
        ("upper(name) = 'NORTH-1' AND length(name) = 7", [1]),
        ("coalesce(name, 'none') = 'none'", [3]),
        ("name || '!' = 'north-1!'", [1]),
        ("CASE WHEN live THEN 1 WHEN name = '' THEN 2 ELSE 3 END >= 2", [2, 3]),
        ("CASE id WHEN 1 THEN true END", [1]),
        ("live", [1]),
        ("live IS NOT TRUE", [2, 3]),
        ("NULL", []),
        ("true", [1, 2, 3]),
        ("key.id = 3", [3]),
        ("topic = 's.public.data' AND headers['x'] IS NULL AND header.x IS NULL", [1, 2, 3]),
        ("value IS NOT NULL AND headers IS NOT NULL", [1, 2, 3]),
        ("id IN (" + ", ".join(f"{number}.0" for number in range(2, 2000)) + ")", [2, 3]),
        (" AND ".join(["id >= 2"] * 200), [2, 3]),
    ],
)
def test_a_condition_keeps_what_it_is_true_of(condition: str, ids: list[int]) -> None:
    assert kept(condition, SQL) == ids


def test_a_row_that_is_not_there_has_fields_that_are_null() -> None:
    kinds = [row["op"] for row in rows(of("value.op = 'c' OR value.after.id IS NULL", SQL))]
    assert kinds == ["c", "d", "tombstone"]
    assert [row["op"] for row in rows(of("value.after IS NULL", SQL))] == ["d", "tombstone"]
    evaluated = of("value.after.id = 1", SQL, null_handling_mode="evaluate")
    assert [row["op"] for row in rows(evaluated)] == ["c", "u"]


def test_structs_of_values_may_be_null() -> None:
    nulls = {"type": f"{CONNECT}ExtractField$Value", "field": "name"}
    found = rows(UNWRAP, nulls, of("value IS NULL", SQL, null_handling_mode="evaluate"), schema=DATA, changes=ROWS)
    assert [row["value"] for row in found] == [None]


def test_a_topic_is_what_an_expression_gives() -> None:
    here = "s.public.data"
    assert routed("if(name = '', NULL, name)", language=SQL) == ["north-1", here, here]
    assert routed("concat('all-', topic)", language=SQL) == [f"all-{here}"] * 3
    with pytest.raises(TransformError, match=r"ContentBasedRouter's topic\.expression gives no text"):
        routed("value.id", language=SQL)


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("value.nothing = 1", "finds no field nothing at character 6"),
        ("nothing = 1", "finds no field nothing at character 1"),
        ("value.id = '1'", "compares values of two kinds at character 10"),
        ("value.id", "gives no boolean"),
        ("live AND id", "needs a boolean at character 10"),
        ("value = 'x'", "uses a whole part of the record as a value"),
        ("live > false", "compares what has no order by > at character 6"),
        ("name LIKE name", "needs a constant pattern at character 6"),
        ("name LIKE 'a\\\\b'", "escapes what is no sign of a pattern at character 6"),
        ("name RLIKE '('", "has no regular expression that is understood at character 6"),
        ("lower(id) = 'x'", "uses lower of what is no text at character 1"),
        ("id.x = 1", "takes x of what has no fields at character 3"),
        ("startswith(name, other.x)", "finds no field other"),
    ],
)
def test_what_a_record_does_not_allow_ends_the_query(condition: str, said: str) -> None:
    assert said in refusal(condition, SQL)


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("value.op == 'c' && true", "& is not understood at character 17"),
        ("id + 1 = 2", "+ is not understood at character 4"),
        ("- id = 2", "- is understood before a number alone at character 1"),
        ("id = 1 AND", "the end is not understood at character 11"),
        ("(id = 1", ") is missing at character 8"),
        ("id BETWEEN 1 OR 2", "AND is missing at character 14"),
        ("sqrt(id) = 2", "the function sqrt is not understood at character 1"),
        ("lower(name, 1) = 2", "lower takes another number of arguments at character 1"),
        ("CAST(id AS string) = '1'", "CAST is not understood at character 1"),
        ("id = 'x", "' is not understood at character 6"),
        ("name LIKE ANY ('a')", "ANY is not understood at character 11"),
        ("id IN (SELECT 1)", "SELECT is not understood at character 8"),
        ("id IS 1", "NULL is missing at character 7"),
        ("CASE id END", "WHEN is missing at character 9"),
        ("id = 3 x", "x is not understood at character 8"),
        ("id = 99999S", "99999S has more than 16 bits at character 6"),
        ("headers[0] = 1", "a name in quotes is missing at character 9"),
        ("value. = 1", "a name is missing at character 8"),
        ("id = 12ab", "1 is not understood at character 6"),
    ],
)
def test_what_is_not_understood_is_refused_with_its_place(condition: str, said: str) -> None:
    (fault,) = faults(of(condition, SQL))
    assert said in fault
