"""Two sides compared: chunks by their hashes, and the rows of those that differ by their keys. Driver."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from tailrace.verify.hashing import SUMMARY, chunk_of, row_hash
from tailrace.verify.keys import values_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tailrace.verify.hashes import Summary

Key = tuple[Any, ...]

MISSING, EXTRA, DIFFERENT, DUPLICATE = "missing", "extra", "different", "duplicate"
"""What is wrong with a key: the table has no row of it, the source has none, the rows differ, the table has several."""


class Side(Protocol):
    """The rows of one side, by their hashes."""

    def summary(self) -> Summary:
        """What is compared of the chunks."""
        ...

    def rows(self, chunks: Sequence[int]) -> DataFrame:
        """The columns of the key and the hash `h` of each row of these chunks."""
        ...


@dataclass(frozen=True, slots=True)
class FrameSide:
    """A frame's rows, hashed in the JVM. `keys` are the columns of the key, `frame` makes it in a session.

    `counting` is a session like `spark`, for what has few rows when it comes together: see `counting_session`.
    """

    frame: Callable[[SparkSession], DataFrame]
    keys: Sequence[str]
    spark: SparkSession
    counting: SparkSession

    def summary(self) -> Summary:
        import numpy as np
        from pyspark.sql.functions import expr

        from tailrace.verify.hashes import Summary

        told = self._hashed(self.counting).groupBy("chunk").agg(*map(expr, SUMMARY)).toArrow()
        found = Summary()
        found.counts[:, np.asarray(told["chunk"])] = [np.asarray(told[name]) for name in ("n", "x", "s")]
        return found

    def rows(self, chunks: Sequence[int]) -> DataFrame:
        from pyspark.sql.functions import broadcast

        wanted = self.spark.createDataFrame([(chunk,) for chunk in chunks], "chunk bigint")
        return self._hashed(self.spark).join(broadcast(wanted), "chunk", "left_semi").select(*self.keys, "h")

    def _hashed(self, session: SparkSession) -> DataFrame:
        frame = self.frame(session)
        columns = [(field.name, field.dataType) for field in frame.schema.fields]
        return frame.selectExpr(*self.keys, f"{chunk_of(self.keys)} as chunk", f"{row_hash(columns)} as h")


def counting_session(spark: SparkSession) -> SparkSession:
    """A session in which a few thousand numbers of each task come together in one: two hundred, Spark's default, would
    take longer than all the rows do."""
    found = spark.newSession()
    found.conf.set("spark.sql.shuffle.partitions", "1")
    found.conf.set("spark.sql.adaptive.enabled", "false")
    return found


def compare(source: Side, table: Callable[[], Side], keys: Sequence[str]) -> tuple[int, dict[Key, str]]:
    """How many rows the source has, and the keys that differ between two sides, by the columns of their key.

    Both are read at the same time, the source while `table` is made; a second time only where chunks differ.
    """
    with ThreadPoolExecutor(1) as pool:
        told = pool.submit(source.summary)
        theirs = table()
        has = theirs.summary()
        wanted = told.result()
    differing = wanted.differing(has)
    rows = int(wanted.counts[0].sum())
    return rows, _differing(source, theirs, keys, differing) if differing else {}


def _differing(source: Side, table: Side, keys: Sequence[str], chunks: Sequence[int]) -> dict[Key, str]:
    """The keys whose rows differ, of these chunks."""
    from pyspark.sql.functions import expr

    found = []
    for side, name in ((source, "s"), (table, "t")):
        # min and max: of several rows of a key each counts
        rows = side.rows(chunks).groupBy(*keys)
        found.append(rows.agg(expr("count(*) as n"), expr("min(h) as h"), expr("max(h) as m")).alias(name))
    on = expr(" and ".join(f"s.{key} <=> t.{key}" for key in keys))
    shown = [f"if(s.n is null, t.{key}, s.{key}) as {key}" for key in keys]
    kind = (
        f"case when t.n is null then '{MISSING}' when s.n is null then '{EXTRA}' when t.n > s.n then '{DUPLICATE}' "
        f"when s.n <> t.n or s.h <> t.h or s.m <> t.m then '{DIFFERENT}' end as kind"
    )
    joined = found[0].join(found[1], on, "full_outer").selectExpr(*shown, kind).where("kind is not null").toArrow()
    columns = [values_of(joined[name]) for name in joined.schema.names]
    return {comparable(row[:-1]): row[-1] for row in zip(*columns, strict=True)}


def comparable(key: Sequence[Any]) -> Key:
    """A key whose equality is that of its rows': NaN equals itself, and lists can be looked for."""
    return tuple(map(_comparable, key))


def _comparable(value: Any) -> Any:
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    return repr(value) if isinstance(value, list | dict) else value
