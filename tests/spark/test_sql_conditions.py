"""Conditions in Spark SQL have Spark's own results."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tailrace.columns.logical import BOOLEAN, DOUBLE, FLOAT, INT16, INT32, INT64, STRING, LogicalType, semantic
from tailrace.formats.arrow import array_of
from tailrace.records.layout import ComputedColumn, Member, RecordLayout, Struct
from tailrace.scripting.sql_syntax import parse_sql
from tailrace.scripting.sql_terms import SqlMeaning
from tailrace.values.arrow import arrow_type_of
from tests.extent import is_full, sized

NAN = float("nan")
DECIMAL = semantic(
    LogicalType("bytes"), "org.apache.kafka.connect.data.Decimal", scale="2", connect__decimal__precision="8"
)
COLUMNS: dict[str, tuple[LogicalType, str, list[Any]]] = {
    "small": (INT16, "smallint", [1, 2, None, -3, 0, 32767, 7, None]),
    "id": (INT32, "int", [1, 2, 3, None, -5, 6, 2147483647, 0]),
    "big": (INT64, "bigint", [10, None, -7, 9007199254740993, 1, 2, 9223372036854775807, -(1 << 63)]),
    "single": (FLOAT, "float", [1.5, NAN, None, -0.0, 0.25, 3.0, 16777217.0, 2.0]),
    "part": (DOUBLE, "double", [1.5, None, NAN, 0.0, -0.5, 2.0, 9007199254740993.0, NAN]),
    "price": (DECIMAL, "decimal(8,2)", ["12.34", None, "0.00", "-1.50", "2.00", "999999.99", "1.00", "10.00"]),
    "name": (STRING, "string", ["north-1", "", None, "ÄÖ ß", "100%", "a_b\\c", "  Two  ", "I"]),
    "other": (STRING, "string", ["north-1", None, "x", "äö SS", "a", "A", "two", "İ"]),
    "live": (BOOLEAN, "boolean", [True, False, None, True, None, False, True, False]),
}
ROWS = 8


def values(name: str) -> list[Any]:
    kind, _, found = COLUMNS[name]
    return [one if one is None or kind is not DECIMAL else Decimal(one) for one in found]


@dataclass(frozen=True)
class OptionReader:
    """A reader that yields the values of a column."""

    name: str

    def __call__(self) -> pa.Array:
        return pa.array(values(self.name), arrow_type_of(COLUMNS[self.name][0]))


RECORD = RecordLayout(
    "c",
    "a.topic",
    None,
    Struct(
        tuple(
            Member(name, ComputedColumn((), OptionReader(name), kind.with_optional(True)))
            for name, (kind, _, _) in COLUMNS.items()
        )
    ),
)
WHOLE = ("small", "id", "big", "value.id", "`big`", "VALUE.Small")
NUMBERS = st.sampled_from([*WHOLE, "price", "single", "part"])
NUMERALS = st.sampled_from(
    ["0", "1", "2", "-3", "2.0", "1.50", "12.34", "1.5D", "9007199254740993", "2147483648", "1L", "-0.5", "1e0", ".5",
     "2BD", "NULL", "7S"]
)  # fmt: skip
LETTERS = st.sampled_from(["'north-1'", "''", "'x'", '"two"', "'it''s'", "r'a_b\\c'", "'a_b\\\\c'", "'Ä' 'Ö'", "NULL"])
PATTERNS = st.sampled_from(["'%'", "'n%-_'", "'\\%'", "'100\\%'", "'a\\_b%'", "'__'", "''", "NULL", "'%ß'", "'  T%'"])
EXPRESSIONS = st.sampled_from(["'^n'", "'[0-9]+$'", "'a|x'", "''", "'(?i)NORTH'", "'\\\\d'", "NULL", "'^.$'", "'t.o'"])


def numbers() -> st.SearchStrategy[str]:
    return st.one_of(
        NUMBERS, NUMERALS, st.builds("length({})".format, st.one_of(texts(0))),
        st.builds("coalesce({}, {})".format, NUMBERS, NUMERALS), st.builds("nullif({}, {})".format, NUMBERS, NUMERALS),
    )  # fmt: skip


def texts(depth: int) -> st.SearchStrategy[str]:
    plain = st.one_of(st.sampled_from(["name", "other", "value.name", "topic"]), LETTERS)
    if not depth:
        return plain
    inner = texts(depth - 1)
    return st.one_of(
        plain,
        st.builds("{}({})".format, st.sampled_from(["lower", "UPPER", "trim", "ltrim", "rtrim", "lcase"]), inner),
        st.builds("concat({}, {})".format, inner, inner),
        st.builds("({} || {})".format, inner, inner),
        st.builds("coalesce({}, {})".format, inner, inner),
        st.builds("substring({}, {}, {})".format, inner, st.integers(-4, 4), st.integers(-1, 4)),
        st.builds("substr({}, {})".format, inner, st.integers(-4, 4)),
        st.builds("CASE WHEN {} THEN {} ELSE {} END".format, booleans(0), inner, inner),
        st.builds("if({}, {}, {})".format, booleans(0), inner, inner),
    )


def booleans(depth: int) -> st.SearchStrategy[str]:
    sign = st.sampled_from(["=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>"])
    word = st.sampled_from(["", "NOT "])
    text = texts(min(depth, 1))
    plain = st.one_of(
        st.builds("{} {} {}".format, numbers(), sign, numbers()),
        st.builds("{} {} {}".format, text, sign, text),
        st.builds("{} IS {}NULL".format, st.one_of(numbers(), text), word),
        st.builds("{} {}BETWEEN {} AND {}".format, numbers(), word, numbers(), numbers()),
        st.builds("{} {}IN ({})".format, numbers(), word, st.lists(numbers(), min_size=1, max_size=3).map(", ".join)),
        st.builds("{} {}IN ({})".format, text, word, st.lists(LETTERS, min_size=1, max_size=3).map(", ".join)),
        st.builds("{} {}LIKE {}".format, text, word, PATTERNS),
        st.builds("{} {}ILIKE {}".format, st.sampled_from(["name", "other"]), word, PATTERNS),
        st.builds("{} {}LIKE 'a!_b%' ESCAPE '!'".format, text, word),
        st.builds("{} {}RLIKE {}".format, text, word, EXPRESSIONS),
        st.builds("{}({}, {})".format, st.sampled_from(["startswith", "endswith", "contains"]), text, LETTERS),
        st.builds("{} IS {}DISTINCT FROM {}".format, numbers(), word, numbers()),
        st.sampled_from(["live", "NOT live", "live = true", "true", "FALSE", "NULL = 1", "live IS NOT TRUE", "! live"]),
    )
    if not depth:
        return plain
    inner = booleans(depth - 1)
    return st.one_of(
        plain,
        st.builds("{} AND {}".format, inner, inner),
        st.builds("{} OR {}".format, inner, inner),
        st.builds("NOT ({})".format, inner),
        st.builds("({}) IS {}{}".format, inner, word, st.sampled_from(["TRUE", "FALSE", "UNKNOWN", "NULL"])),
        st.builds("CASE WHEN {} THEN {} WHEN {} THEN {} END".format, inner, inner, inner, inner),
        st.builds("CASE {} WHEN {} THEN {} ELSE {} END".format, numbers(), NUMERALS, inner, inner),
        st.builds("nvl({}, {})".format, inner, inner),
        st.builds("({}) = ({})".format, inner, inner),
    )


def ours(condition: str) -> list[bool]:
    """Return the rows that fulfil a condition."""
    found = SqlMeaning(RECORD, "Filter's condition").boolean(parse_sql(condition))
    if isinstance(found, bool):
        return [found] * ROWS
    answer: list[bool] = array_of(found, None, np.arange(ROWS, dtype=np.int32)).to_pylist()
    return answer


# Shrinking to a smaller condition would tell more, but takes minutes.
@settings(max_examples=sized(3, 12), deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(drawn=st.lists(booleans(2), min_size=40, max_size=60))
def test_conditions_have_sparks_answers(spark: SparkSession, drawn: list[str]) -> None:
    types = ", ".join(f"{name} {kind}" for name, (_, kind, _) in COLUMNS.items())
    columns = {name: pa.array(values(name), arrow_type_of(kind)) for name, (kind, _, _) in COLUMNS.items()}
    rows = pa.table({**columns, "row": pa.array(range(ROWS), pa.int32())})
    frame = spark.createDataFrame(rows, f"{types}, row int")
    if is_full():
        # Otherwise Spark evaluates them within its plan, without generated Java.
        frame = frame.repartition(1)
    frame = frame.selectExpr("*", "struct(*) AS value", "'a.topic' AS topic")
    asked: list[str] = []
    for one in drawn:
        asked += [f"coalesce({one}, false)", f"({one}) IS NULL"]
    found = frame.selectExpr(*(f"{one} AS c{place}" for place, one in enumerate(asked)), "row").collect()
    found.sort(key=lambda row: row["row"])
    for place, one in enumerate(drawn):
        for offset, text in enumerate((one, f"({one}) IS NULL")):
            wanted = [row[2 * place + offset] for row in found]
            assert (text, ours(text)) == (text, wanted)
