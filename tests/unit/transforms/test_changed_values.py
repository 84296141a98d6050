"""Kafka Connect's transforms of values: Cast, MaskField and TimestampConverter over columns of every type."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.columns.logical import (
    BOOLEAN,
    BYTES,
    DOUBLE,
    FLOAT,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    LogicalType,
    array,
    mapping,
    semantic,
)
from tailrace.records.layout import Constant
from tests.layout_blocks import LayoutBlock, struct_of
from tests.unit.transforms.rewritten_layouts import connect, record_of, refused, seen, values

CONNECT = "org.apache.kafka.connect.data."
DECIMAL = semantic(BYTES, CONNECT + "Decimal", scale="2", connect__decimal__precision="38")
DAY, TIME, MOMENT = (
    semantic(kind, CONNECT + name) for kind, name in ((INT32, "Date"), (INT32, "Time"), (INT64, "Timestamp"))
)


def changed(step: dict[str, str], kind: LogicalType, *given: Any) -> list[Any]:
    """Return the field `v` after the transform, as a column and as a single constant, which must agree."""
    kind = kind.with_optional(True)
    block = LayoutBlock(len(given) + 1)
    found = [value["v"] for value in values(step, struct_of("r", v=block.column("v", kind, *given, None)), block)]
    alone = [values(step, struct_of("r", v=Constant(value, kind)))[0]["v"] for value in given]
    assert found == [*alone, None]
    return found[:-1]


def schema(step: dict[str, str], kind: LogicalType) -> LogicalType:
    (found,) = seen(step, record_of(struct_of("r", v=Constant(None, kind.with_optional(True)))))
    assert found is not None
    assert found.value_schema is not None
    return found.value_schema.fields[0].type


# --- Cast -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "given", "to", "wanted"),
    [
        # Whole numbers lose their upper bits.
        (INT64, [300, -1, 2**40 + 5, -(2**63)], "int8", [44, -1, 5, 0]),
        (INT32, [2**31 - 1, -(2**31)], "int16", [-1, 0]),
        (INT8, [-128, 127], "int64", [-128, 127]),
        # Others lose their fraction, and are first clipped to int or long.
        (DOUBLE, [1.9, -1.9, 1e300, -1e300, "NaN"], "int32", [1, -1, 2**31 - 1, -(2**31), 0]),
        (DOUBLE, [1e300, -1e300, "Infinity"], "int64", [2**63 - 1, -(2**63), 2**63 - 1]),
        (DOUBLE, [300.7, 1e300], "int8", [44, -1]),
        (FLOAT, [1.5, -0.0], "float64", [1.5, -0.0]),
        (DOUBLE, [1e300, 0.5], "float32", ["Infinity", 0.5]),
        (INT64, [2**53 + 1], "float64", [9007199254740992.0]),
        (INT32, [0, 5, -1], "boolean", [False, True, True]),
        (DOUBLE, [0.0, 0.5, 1.0], "boolean", [False, False, True]),
        (BOOLEAN, [True, False], "int8", [1, 0]),
        (BOOLEAN, [True, False], "string", ["true", "false"]),
        (STRING, ["true", "TRUE", "yes", ""], "boolean", [True, True, False, False]),
        (STRING, ["-128", "+127"], "int8", [-128, 127]),
        (STRING, ["9223372036854775807"], "int64", [2**63 - 1]),
        (STRING, [" 1.5 ", "1e3f", "-Infinity", "NaN"], "float64", [1.5, 1000.0, "-Infinity", "NaN"]),
        (DOUBLE, [1.0, 1e7, 0.0001, "NaN"], "string", ["1.0", "1.0E7", "1.0E-4", "NaN"]),
        (FLOAT, [0.5, "Infinity"], "string", ["0.5", "Infinity"]),
        (BYTES, ["AP8=", ""], "string", ["AP8=", ""]),
        (DECIMAL, ["/w==", "AMg="], "string", ["-0.01", "2.00"]),
        (DECIMAL, ["APo=", "/w=="], "float64", [2.5, -0.01]),
        (DECIMAL, ["AMj=", "/gw="], "int32", [2, -5]),
        # Connect's own instants: a time before the second day of 1970, a day at midnight, else both.
        (DAY, [0, 1, -1], "string", ["00:00:00.000Z", "1970-01-02", "00:00:00.000Z"]),
        (MOMENT, [86_400_001, 1], "string", ["1970-01-02T00:00:00.001Z", "00:00:00.001Z"]),
        (TIME, [3_723_004], "string", ["01:02:03.004Z"]),
        (semantic(INT64, "io.debezium.time.MicroTimestamp"), [-1], "string", ["-1"]),
        (semantic(INT32, "io.debezium.time.Date"), [-1], "int64", [-1]),
    ],
)  # fmt: skip
def test_values_are_cast_as_java_casts_them(kind: LogicalType, given: list[Any], to: str, wanted: list[Any]) -> None:
    assert changed(connect("Cast$Value", spec=f"v:{to}"), kind, *given) == wanted


@pytest.mark.parametrize(
    ("kind", "given", "to", "said"),
    [
        (STRING, "1.5", "int32", "Cast finds no int32 in the text of the field v"),
        (STRING, "128", "int8", "Cast finds a number beyond int8 in the field v"),
        (STRING, "", "float64", "Cast finds no float64 in the text of the field v"),
        (BYTES, "AA==", "int32", "Cast cannot make int32 of the bytes of the field v"),
    ],
)
def test_what_cannot_be_cast_is_refused_with_the_field(kind: LogicalType, given: Any, to: str, said: str) -> None:
    block = LayoutBlock(3)
    good = {"string": "1", "bytes": None}[kind.connect]
    record = record_of(struct_of("r", v=block.column("v", kind.with_optional(True), good, given, None)))
    assert refused(connect("Cast$Value", spec=f"v:{to}"), record, block) == said


def test_a_cast_changes_the_schema_and_keeps_that_a_field_may_be_null() -> None:
    assert schema(connect("Cast$Value", spec="v:float32"), INT32) == FLOAT.with_optional(True)
    assert schema(connect("Cast$Value", spec="w:float32"), DAY) == DAY.with_optional(True)
    said = refused(
        connect("Cast$Value", spec="v:string"),
        record_of(struct_of("r", v=LayoutBlock(1).column("v", array(INT32), [1]))),
    )
    assert said == "Cast cannot make string of the field v, which is of the type array"


def test_a_whole_value_is_cast() -> None:
    block = LayoutBlock(3)
    leaf = block.column("v", INT16.with_optional(True), 1, -1, None)
    found = seen((connect("Cast$Value", spec="string"), connect("HoistField$Value", field="v")), record_of(leaf), block)
    assert [record and record.value for record in found] == [{"v": "1"}, {"v": "-1"}, {"v": None}]


# --- MaskField ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "given", "mask"),
    [
        (INT64, [1, -(2**63)], 0), (DOUBLE, [1.5, "NaN"], 0.0), (BOOLEAN, [True, False], False),
        (STRING, ["a", "é"], ""),
        (array(INT32), [[1], []], []), (mapping(INT32), [{"a": 1}], {}), (DECIMAL, ["APo="], "AA=="), (DAY, [5], 0),
    ],
)  # fmt: skip
def test_a_mask_is_the_zero_of_the_type_where_there_is_a_value(kind: LogicalType, given: list[Any], mask: Any) -> None:
    assert changed(connect("MaskField$Value", fields="v"), kind, *given) == [mask] * len(given)


def test_a_masked_instant_is_the_text_of_its_mask() -> None:
    block = LayoutBlock(2)
    kind = semantic(STRING, "io.debezium.time.ZonedTimestamp").with_optional(True)
    row = struct_of("r", v=block.column("v", kind, "1970-01-01T00:00:00Z", None))
    assert values(connect("MaskField$Value", fields="v"), row, block) == [{"v": ""}, {"v": None}]


@pytest.mark.parametrize(
    ("kind", "given", "text", "mask"),
    [
        (STRING, "secret", "***", "***"),
        (INT8, 5, "-128", -128),
        # As Java makes whole numbers: without a fraction and upper bits.
        (INT8, 5, "300", 44),
        (INT32, 5, "-1.9", -1),
        (INT64, 5, "9223372036854775807", 2**63 - 1),
        (FLOAT, 5.0, "-0.5", -0.5),
        (DOUBLE, 5.0, "1e7", 1e7),
        (DECIMAL, "AA==", "-0.01", "/w=="),
    ],
)
def test_a_mask_may_be_given(kind: LogicalType, given: Any, text: str, mask: Any) -> None:
    assert changed(connect("MaskField$Value", fields="v", replacement=text), kind, given) == [mask]


@pytest.mark.parametrize(
    ("kind", "value", "text", "said"),
    [
        (BYTES, "AA==", "", "MaskField cannot mask the field v, which is of the type bytes"),
        (INT8, 1, "x", "MaskField cannot make int8 of its replacement for the field v"),
        (INT32, 1, "x", "MaskField cannot make int32 of its replacement for the field v"),
        (DOUBLE, 1.0, "x", "MaskField cannot make a number of its replacement for the field v"),
        (DECIMAL, "AA==", "0.001", "MaskField has a replacement with more decimal places than the field v"),
        (BOOLEAN, True, "true", "MaskField cannot mask the field v with a text, for it is of the type boolean"),
        (DAY, 1, "5", "MaskField cannot mask the field v with a text, for it is of the type int32"),
    ],
)
def test_a_mask_that_the_type_does_not_have_is_refused(kind: LogicalType, value: Any, text: str, said: str) -> None:
    block = LayoutBlock(1)
    step = connect("MaskField$Value", fields="v", replacement=text)
    assert refused(step, record_of(struct_of("r", v=block.column("v", kind, value))), block) == said


# --- TimestampConverter ---------------------------------------------------------------------------------------------

NOON = 1_577_966_645_678
"""2020-01-02 12:04:05.678 in ms since 1970."""


@pytest.mark.parametrize(
    ("kind", "given", "options", "wanted"),
    [
        (MOMENT, [NOON, -1, 0], {"target_type": "unix"}, [NOON, -1, 0]),
        (MOMENT, [NOON, -1, -1999], {"target_type": "unix", "unix_precision": "seconds"}, [1_577_966_645, 0, -1]),
        (MOMENT, [NOON, -1], {"target_type": "unix", "unix_precision": "nanoseconds"}, [NOON * 10**6, -(10**6)]),
        (MOMENT, [NOON, -1], {"target_type": "Date"}, [18_263, -1]),
        (MOMENT, [NOON, -1], {"target_type": "Time"}, [43_445_678, 86_399_999]),
        (DAY, [18_263, -1], {"target_type": "Timestamp"}, [1_577_923_200_000, -86_400_000]),
        (TIME, [43_445_678], {"target_type": "Timestamp"}, [43_445_678]),
        (INT64, [1_577_966_645], {"target_type": "Timestamp", "unix_precision": "seconds"}, [1_577_966_645_000]),
        (INT64, [NOON * 1000, -1], {"target_type": "Timestamp", "unix_precision": "microseconds"}, [NOON, 0]),
        (STRING, ["2020-01-02 12:04:05.678"], {"target_type": "unix", "format": "yyyy-MM-dd HH:mm:ss.SSS"}, [NOON]),
        (STRING, ["1969-12-31"], {"target_type": "Date", "format": "yyyy-MM-dd"}, [-1]),
        (MOMENT, [NOON, -62_135_596_800_000], {"target_type": "string", "format": "yyyy-MM-dd'T'HH:mm"},
         ["2020-01-02T12:04", None]),
        (INT64, [0], {"target_type": "string", "format": "EEE dd MMM yyyy"}, ["Thu 01 Jan 1970"]),
    ],
)  # fmt: skip
def test_moments_change_their_form(
    kind: LogicalType, given: list[Any], options: dict[str, str], wanted: list[Any]
) -> None:
    found = changed(connect("TimestampConverter$Value", field="v", **options), kind, *given)
    assert [one for one, known in zip(found, wanted, strict=True) if known is not None] == [
        known for known in wanted if known is not None
    ]


def test_a_moment_has_the_schema_of_its_form() -> None:
    for target, kind in (("Date", DAY), ("Time", TIME), ("Timestamp", MOMENT), ("unix", INT64)):
        step = connect("TimestampConverter$Value", field="v", target_type=target)
        assert schema(step, MOMENT) == kind.with_optional(True)


def test_a_text_that_is_no_moment_is_refused() -> None:
    block = LayoutBlock(2)
    step = connect("TimestampConverter$Value", field="v", target_type="unix", format="yyyy-MM-dd")
    record = record_of(struct_of("r", v=block.column("v", STRING, "2020-01-02", "soon")))
    assert refused(step, record, block) == "TimestampConverter finds no moment of the format in the field v"
    bare = connect("TimestampConverter$Value", field="v", target_type="unix")
    assert refused(bare, record, block) == "TimestampConverter needs the option format to read the text of the field v"
    wrong = record_of(struct_of("r", v=block.column("w", DOUBLE, 1.5, 2.5)))
    assert (
        refused(bare, wrong, block) == "TimestampConverter finds no moment in the field v, which is of the type double"
    )


def test_a_whole_key_may_be_a_moment() -> None:
    block = LayoutBlock(2)
    record = record_of(struct_of("r"), block.column("k", MOMENT, NOON, -1))
    found = seen(connect("TimestampConverter$Key", target_type="unix", unix_precision="seconds"), record, block)
    assert [one and one.key for one in found] == [1_577_966_645, 0]
