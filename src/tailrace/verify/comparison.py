"""Two frames of rows compared: chunks by their hashes, and the rows of those that differ by their keys. Driver."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tailrace.verify.hashing import SUMMARY, chunk_of, row_hash

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tailrace.verify.rows import Shape

Key = tuple[Any, ...]

MISSING, EXTRA, DIFFERENT, DUPLICATE = "missing", "extra", "different", "duplicate"
"""What is wrong with a key: the table has no row of it, the source has none, the rows differ, the table has several."""


@dataclass(frozen=True, slots=True)
class Compared:
    """What differs: each key with what is wrong with it; and how many rows the source has."""

    rows: int
    keys: dict[Key, str]


def compare(source: DataFrame, table: DataFrame, shape: Shape) -> Compared:
    """Compare two frames with the columns of `shape`, whose names are those of its columns.

    Both are read at the same time; a second time only where chunks differ.
    """
    hashed = [_hashed(frame, shape) for frame in (source, table)]
    ours, theirs = _both(lambda frame: {row[0]: tuple(row)[1:] for row in _summary(frame).collect()}, hashed)
    rows = sum(found[0] for found in ours.values())
    differing = [chunk for chunk in ours.keys() | theirs.keys() if ours.get(chunk) != theirs.get(chunk)]
    if not differing:
        return Compared(rows, {})
    return Compared(rows, _keys(hashed[0], hashed[1], shape, sorted(differing)))


def _hashed(frame: DataFrame, shape: Shape) -> DataFrame:
    columns = [(field.name, field.dataType) for field in frame.schema.fields]
    return frame.selectExpr(*shape.keys, f"{chunk_of(shape.keys)} as chunk", f"{row_hash(columns)} as h")


def _summary(hashed: DataFrame) -> DataFrame:
    from pyspark.sql.functions import expr

    named = [expr(part.strip()) for part in SUMMARY.split(", ")]
    return hashed.groupBy("chunk").agg(*named)


def _keys(source: DataFrame, table: DataFrame, shape: Shape, chunks: Sequence[int]) -> dict[Key, str]:
    """The keys whose rows differ, of these chunks."""
    from pyspark.sql.functions import broadcast, expr

    spark = source.sparkSession
    wanted = broadcast(spark.createDataFrame([(chunk,) for chunk in chunks], "chunk bigint"))
    found = []
    for frame, name in ((source, "s"), (table, "t")):
        rows = frame.join(wanted, "chunk", "left_semi").groupBy(*shape.keys)
        # two rows that are alike have no hash together
        found.append(rows.agg(expr("count(*) as n"), expr("min(h) as h"), expr("max(h) as m")).alias(name))
    on = expr(" and ".join(f"s.{key} <=> t.{key}" for key in shape.keys))
    keys = [f"if(s.n is null, t.{key}, s.{key}) as {key}" for key in shape.keys]
    kind = (
        f"case when t.n is null then '{MISSING}' when s.n is null then '{EXTRA}' when t.n > s.n then '{DUPLICATE}' "
        f"when s.n <> t.n or s.h <> t.h or s.m <> t.m then '{DIFFERENT}' end as kind"
    )
    joined = found[0].join(found[1], on, "full_outer").selectExpr(*keys, kind).where("kind is not null")
    table_ = joined.toArrow()
    columns = [table_[name].to_pylist() for name in table_.schema.names]
    return {comparable(row[:-1]): row[-1] for row in zip(*columns, strict=True)}


def comparable(key: Sequence[Any]) -> Key:
    """A key whose equality is that of its rows': NaN equals itself, and lists can be looked for."""
    return tuple(map(_comparable, key))


def _comparable(value: Any) -> Any:
    if isinstance(value, float) and value != value:
        return "NaN"
    return repr(value) if isinstance(value, list | dict) else value


def _both(call: Callable[[DataFrame], Any], frames: Sequence[DataFrame]) -> tuple[Any, Any]:
    """What `call` gives of two frames, at the same time."""
    with ThreadPoolExecutor(2) as pool:
        ours, theirs = pool.map(call, frames)
    return ours, theirs
