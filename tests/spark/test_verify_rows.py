"""Rows are compared by hashes: kernels equal Spark in the JVM, and damage is found exactly."""

from __future__ import annotations

import datetime
import decimal
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from tailrace.verify.comparison import DIFFERENT, DUPLICATE, EXTRA, MISSING, FrameSide, compare, counting_session
from tailrace.verify.hashes import Summary, chunks_of, is_hashed, row_hashes
from tailrace.verify.hashing import CHUNKS, chunk_of, row_hash

ROWS = 400


def side(frame: DataFrame, keys: Sequence[str]) -> FrameSide:
    spark = frame.sparkSession
    return FrameSide(lambda session: frame, keys, spark, counting_session(spark))


def columns(random: random.Random) -> dict[str, pa.Array]:
    """Return a column of each type, with its limits, nulls and values that are often confused."""

    def of(kind: pa.DataType, *given: object, made: object = None) -> pa.Array:
        assert callable(made)
        values = [*given, *(made() for _ in range(ROWS - len(given)))]
        return pa.array([None if random.random() < 0.1 else value for value in values], kind)

    def integer(bits: int) -> pa.Array:
        least, most = -(1 << bits - 1), (1 << bits - 1) - 1
        kind = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[bits]
        return of(kind, 0, least, most, made=lambda: random.randint(least, most))

    def number(kind: pa.DataType) -> pa.Array:
        return of(kind, 0.0, -0.0, float("nan"), float("inf"), float("-inf"), 1e-40, made=lambda: random.gauss(0, 1e9))

    def exact(digits: int, scale: int) -> pa.Array:
        most = 10**digits - 1
        ends = [decimal.Decimal(n).scaleb(-scale, decimal.Context(60)) for n in (0, most, -most, 127, 128, -128, -129)]
        made = lambda: decimal.Decimal(random.randint(-most, most)).scaleb(-scale, decimal.Context(60))  # noqa: E731
        return of(pa.decimal128(digits, scale), *ends, made=made)

    texts = ["", "a", "ä" * 9, "x" * 31, "x" * 32, "x" * 33, "x" * 100]
    at = datetime.datetime(2024, 2, 3, 4, 5, 6, 789, tzinfo=datetime.UTC)
    return {
        "c0": integer(8), "c1": integer(16), "c2": integer(32), "c3": integer(64),
        "c4": of(pa.bool_(), made=lambda: random.random() < 0.5),
        "c5": number(pa.float32()), "c6": number(pa.float64()),
        "c7": exact(9, 2), "c8": exact(18, 0), "c9": exact(19, 3), "c10": exact(38, 10),
        "c11": of(pa.string(), *texts, made=lambda: "".join(random.choices("aé€😀", k=random.randint(0, 80)))),
        "c12": of(pa.binary(), b"", b"\0", b"\xff" * 40, made=lambda: random.randbytes(random.randint(0, 70))),
        "c13": of(pa.date32(), 0, -719162, 2932896, made=lambda: random.randint(-100000, 100000)),
        "c14": of(pa.timestamp("us", "UTC"), 0, -1, made=lambda: at + random.random() * datetime.timedelta(days=9)),
        "c15": of(pa.timestamp("us"), 0, -1, made=lambda: random.randint(-(10**15), 10**15)),
    }  # fmt: skip


def test_kernels_and_the_jvm_hash_alike(spark: SparkSession) -> None:
    made = columns(random.Random(7))
    assert all(is_hashed(column.type) for column in made.values())
    table = pa.table(made)
    frame = spark.createDataFrame(table, from_arrow_schema(table.schema, prefer_timestamp_ntz=True))
    for name, column in made.items():
        kinds = [(name, frame.schema[name].dataType)]
        told = frame.selectExpr(f"{row_hash(kinds)} as h", f"{chunk_of([name])} as chunk").toArrow()
        assert row_hashes([column]).view(np.int64).tolist() == told["h"].to_pylist(), column.type
        assert chunks_of([column]).tolist() == told["chunk"].to_pylist(), column.type
        # An array's slice begins in the middle of its buffers.
        part = column.slice(3, 77)
        assert row_hashes([part]).view(np.int64).tolist() == told["h"].to_pylist()[3:80], column.type
    summary = Summary()
    for low in range(0, ROWS, 90):
        part = table.slice(low, 90).combine_chunks().to_batches()[0]
        summary.add(chunks_of([part["c3"], part["c11"]]), row_hashes(part.columns))
    theirs = side(frame, ["c3", "c11"]).summary()
    assert theirs.counts.any()
    assert summary.counts.tolist() == theirs.counts.tolist()
    joined = Summary()
    for _ in range(2):
        joined.join(Summary.read(summary.written()))
    assert joined.counts.tolist() == [(2 * theirs.counts[0]).tolist(), [0] * CHUNKS, (2 * theirs.counts[2]).tolist()]
    assert joined.differing(summary) == np.flatnonzero(theirs.counts[0]).tolist()


def test_what_looks_alike_has_other_hashes(spark: SparkSession) -> None:
    """Nulls, zeros, lists and maps have other hashes than values that look alike."""
    pairs = [
        ("struct(1 as a, cast(null as int) as b)", "struct(cast(null as int) as a, 1 as b)"),
        ("array(1, null)", "array(null, 1)"),
        ("array(1, cast(null as int))", "array(1)"),
        ("array(array(1), array(2, 3))", "array(array(1, 2), array(3))"),
        ("cast(array() as array<int>)", "cast(null as array<int>)"),
        ("map('a', 1)", "map('a', cast(null as int))"),
        ("array(0d)", "array(-0d)"),
        ("''", "cast(null as string)"),
        ("0d", "-0d"),
        ("""parse_json('"1"')""", "parse_json('1')"),
        ("to_variant_object(array(timestamp'2024-01-01'))", "to_variant_object(array('2024-01-01 00:00:00+00:00'))"),
        ("cast(null as variant)", "parse_json('null')"),
    ]
    for one, other in pairs:
        frame = spark.sql(f"select {one} as c union all select {other}")
        hashes = frame.selectExpr(f"{row_hash([('c', frame.schema['c'].dataType)])} as h").collect()
        assert hashes[0] != hashes[1], (one, other)
    frame = spark.sql("select map('a', 1, 'b', 2) as c union all select map('b', 2, 'a', 1)")
    hashes = frame.selectExpr(f"{row_hash([('c', frame.schema['c'].dataType)])} as h").collect()
    assert hashes[0] == hashes[1]


@pytest.mark.parametrize("seed", [1, 2])
def test_random_damages_are_found_exactly(spark: SparkSession, seed: int) -> None:
    """Rows are removed, added, changed in one column and duplicated, in tables with keys of two columns."""
    draw = random.Random(seed)
    rows: list[tuple[Any, ...]] = [
        (number, f"k{number % 7}", draw.choice([None, 0.0, -0.0, 1.5]), draw.choice([None, "", "v"]), [number, None])
        for number in range(600)
    ]
    wanted: dict[tuple[Any, ...], str] = {}
    table: list[tuple[Any, ...]] = []
    for row in rows:
        fate = draw.choices(["kept", MISSING, DIFFERENT, DUPLICATE, "moved"], [90, 3, 3, 3, 1])[0]
        if fate == DIFFERENT:
            place = draw.choice([2, 3, 4])
            other = {2: -0.0 if str(row[2]) == "0.0" else 0.0, 3: "w", 4: [None, row[0]]}[place]
            if repr(other) == repr(row[place]):
                other = None
            table.append((*row[:place], other, *row[place + 1 :]))
        elif fate == "moved":
            # Another key with the same values.
            table.append((row[0] + 10_000, *row[1:]))
            wanted[row[0] + 10_000, row[1]] = EXTRA
            fate = MISSING
        elif fate != MISSING:
            table += [row] * (2 if fate == DUPLICATE else 1)
        if fate != "kept":
            wanted[row[:2]] = fate
    draw.shuffle(table)
    schema = "c0 bigint, c1 string, c2 double, c3 string, c4 array<bigint>"
    sides = [side(spark.createDataFrame(of, schema), ["c0", "c1"]) for of in (rows, table)]
    assert compare(sides[0], lambda: sides[1], ["c0", "c1"]) == (600, wanted)
    assert compare(sides[0], lambda: sides[0], ["c0", "c1"]) == (600, {})
