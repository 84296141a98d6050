"""PartitionRouting selects partitions by hashes of fields, as Java hashes them and as Infinispan's murmur hash does."""

from __future__ import annotations

import struct as binary
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
    Field,
    LogicalType,
    array,
    mapping,
    semantic,
    struct,
)
from tailrace.records.layout import Constant, Node
from tests.layout_blocks import LayoutBlock, change_event, struct_of
from tests.unit.transforms.rewritten_layouts import debezium, record_of, refused, seen

MOST = 2**31 - 1
"""With this many partitions, the partition is the hash itself without its sign bit."""
CONNECT = "org.apache.kafka.connect.data."
DECIMAL = semantic(BYTES, CONNECT + "Decimal", scale="2", connect__decimal__precision="5")


def routed(
    leaf: Node, block: LayoutBlock, *fields: str, number: int = MOST, op: str = "c", **options: str
) -> list[Any]:
    """Return the partitions of records whose row has the column `v`."""
    row = struct_of("s.t.Value", v=leaf)
    event = change_event(op, row, None) if op == "d" else change_event(op, None, row)
    step = debezium("partitions.PartitionRouting", partition_payload_fields=",".join(fields or ("change.v",)),
                    partition_topic_num=str(number), **options)  # fmt: skip
    return [record and record.partition for record in seen(step, record_of(event), block)]


def hashes(kind: LogicalType, *values: Any, **options: str) -> list[Any]:
    """Return the partitions for single values; `None` if the record asks for none."""
    block = LayoutBlock(len(values))
    return routed(block.column("v", kind.with_optional(True), *values), block, **options)


def cleared(number: int) -> int:
    """Return a hash without its sign; 2**31 - 1 becomes 0, as in Debezium."""
    found = number & 0x7FFFFFFF
    return 0 if found == 0x7FFFFFFF else found


def signed(number: int) -> int:
    return (number + 2**31) % 2**32 - 2**31


def java_text(text: str) -> int:
    """Return the sum of UTF-16 units times powers of 31, in 32 bits."""
    found = 0
    for unit in memoryview(text.encode("utf-16-le")).cast("H"):
        found = (31 * found + unit) & 0xFFFFFFFF
    return signed(found)


def java_long(bits: int) -> int:
    bits &= 2**64 - 1
    return signed((bits ^ bits >> 32) & 0xFFFFFFFF)


TEXTS = ["", "a", "ab", "hello world, hello world", "é", "東京", "😀a", "polygenelubricants", "z" * 100]


def test_texts_are_hashed_by_their_utf_16_units() -> None:
    assert java_text("ab") == 3105
    # A text with the smallest hash, so that its absolute value is below 0.
    assert java_text("polygenelubricants") == -(2**31)
    assert hashes(STRING, *TEXTS, None) == [*(cleared(java_text(text)) % MOST for text in TEXTS), None]


@pytest.mark.parametrize(
    ("kind", "values", "wanted"),
    [
        (BOOLEAN, [True, False], [1231, 1237]),
        (INT8, [-128, 127], [-128, 127]),
        (INT16, [-32_768, 5], [-32_768, 5]),
        (INT32, [-(2**31), -1, 0, 7], [-(2**31), -1, 0, 7]),
        (INT64, [-(2**63), -1, 12_345_678_901], [java_long(-(2**63)), 0, java_long(12_345_678_901)]),
        (FLOAT, [1.5, 0.0], [0x3FC00000, 0]),
        (DOUBLE, [1.5, -0.0, "NaN"], [0x3FF80000, -(2**31), 0x7FF80000]),
        # Arrays.hashCode of signed bytes, last first, as in java.nio.ByteBuffer.
        (BYTES, ["", "AQ==", "AQI=", "/w=="], [1, 32, 31 * (31 + 2) + 1, 30]),
        # 31 times the unscaled number, and the scale.
        (DECIMAL, ["APo=", "/w=="], [7752, -29]),
        (array(INT32), [[], [1], [1, 2]], [1, 32, 994]),
        (mapping(INT32), [{}, {"a": 1}, {"a": 1, "b": 2}], [0, 97 ^ 1, (97 ^ 1) + (98 ^ 2)]),
        # java.util.Date by its milliseconds.
        (semantic(INT32, CONNECT + "Date"), [1, 0], [86_400_000, 0]),
        (semantic(INT64, CONNECT + "Timestamp"), [5, 2**32], [5, 1]),
        (semantic(INT64, "io.debezium.time.MicroTimestamp"), [5, 2**32], [5, 1]),
    ],
)  # fmt: skip
def test_values_are_hashed_as_java_hashes_them(kind: LogicalType, values: list[Any], wanted: list[int]) -> None:
    assert hashes(kind, *values, None) == [*(cleared(number) % MOST for number in wanted), None]


def test_numbers_are_hashed_by_their_bits() -> None:
    numbers = [0.1, 1e300, -2.5]
    bits = [int.from_bytes(binary.pack(">d", number), "big") for number in numbers]
    assert hashes(DOUBLE, *numbers) == [cleared(java_long(number)) % MOST for number in bits]


@pytest.mark.parametrize(
    ("kind", "value", "wanted"),
    [
        (STRING, "", 89_125_410),
        (STRING, "a", -1_119_243_492),
        (STRING, "ab", -2_035_972_426),
        (STRING, "r", -45_493_807),
        (STRING, "customers", 275_871_734),
        (STRING, "orders", 110_124_605),
        (STRING, "東", -400_117_077),
        (STRING, "hello world, hello world", -1_159_976_391),
        (INT32, 1, -1_931_162_451),
        (INT32, 2, -351_805_952),
        (INT32, -1, 171_705_313),
        (INT64, 12_345_678_901, 1_650_017_643),
        (BOOLEAN, True, -1_891_831_265),
        (DOUBLE, 1.5, -1_122_085_266),
    ],
)
def test_murmur_hashes_are_those_that_debezium_has_given(kind: LogicalType, value: Any, wanted: int) -> None:
    """The hashes were recorded from Debezium 3.6.1."""
    assert hashes(kind, value, partition_hash_function="murmur") == [cleared(wanted) % MOST]


def test_the_hashes_of_fields_are_summed_in_32_bits() -> None:
    block = LayoutBlock(3)
    number = block.column("n", INT32.with_optional(True), 2**31 - 1, None, None)
    row = struct_of("s.t.Value", v=block.column("v", STRING.with_optional(True), "b", "b", None), n=number)
    step = debezium("partitions.PartitionRouting", partition_payload_fields="change.v, after.n,source.none",
                    partition_topic_num="1000")  # fmt: skip
    found = seen(step, record_of(change_event("c", None, row)), block)
    # Nulls do not count, and neither do missing fields.
    wrapped = cleared(signed((2**31 - 1 + 98) & 0xFFFFFFFF))
    assert [record and record.partition for record in found] == [wrapped % 1000, 98, None]


def test_a_hash_of_all_ones_is_partition_0() -> None:
    assert hashes(INT32, 2**31 - 1, -1) == [0, 0]


@pytest.mark.parametrize(
    ("op", "field", "partition"),
    [
        ("d", "change.v", 97),
        ("d", "before.v", 97),
        ("d", "after.v", None),
        ("u", "before.v", None),
        ("r", "after.v", 97),
    ],
)
def test_a_change_is_the_row_before_a_delete_and_after_all_else(op: str, field: str, partition: int | None) -> None:
    block = LayoutBlock(1)
    assert routed(block.column("v", STRING, "a"), block, field, op=op) == [partition]


def test_fields_of_the_envelope_and_its_source_may_be_named() -> None:
    block = LayoutBlock(1)
    leaf = block.column("v", STRING, "a")
    assert routed(leaf, block, "op") == [ord("c")]
    assert routed(leaf, block, "source.table") == [ord("t")]
    assert routed(leaf, block, "source.none") == [None]


def test_what_is_no_change_passes() -> None:
    step = debezium("partitions.PartitionRouting", partition_payload_fields="op", partition_topic_num="5")
    row = struct_of("s.t.Value", v=Constant("a", STRING))
    for value in (None, row, change_event("t", None, row), change_event("m", None, row), Constant("x", STRING)):
        (found,) = seen(step, record_of(value))
        assert found is not None
        assert found.partition is None


def test_a_struct_has_another_hash_in_each_process() -> None:
    kind = struct(Field("x", INT32), name="s.Place")
    for of in (kind, array(kind)):
        block = LayoutBlock(1)
        row = struct_of("r", v=block.column("v", of.with_optional(True), None))
        step = debezium("partitions.PartitionRouting", partition_payload_fields="after.v", partition_topic_num="5")
        said = refused(step, record_of(change_event("c", None, row)), block)
        assert said == "PartitionRouting cannot place records by after.v, whose hash differs in each process"
