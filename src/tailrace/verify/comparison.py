"""The comparison of two sides: chunks by hashes, then the rows of differing chunks by keys. Driver."""

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
"""The differences of a key: no row in the table, no row in the source, the rows differ, several rows in the table."""


class ComparedSide(Protocol):
    """The rows of the source or of a table, as hashes."""

    def summary(self) -> Summary:
        """Return counts and hashes of all chunks."""
        ...

    def rows(self, chunks: Sequence[int]) -> DataFrame:
        """Return key columns and hash (`h`) of each row of these chunks."""
        ...


@dataclass(frozen=True, slots=True)
class FrameSide:
    """The rows of a DataFrame, hashed in the JVM. `frame` makes the DataFrame in a session, `keys` are its key columns.

    `counting` is a session like `spark` for shuffles of few rows: see `counting_session`.
    """

    frame: Callable[[SparkSession], DataFrame]
    keys: Sequence[str]
    spark: SparkSession
    counting: SparkSession

    def summary(self) -> Summary:
        import numpy as np
        from pyspark.sql.functions import expr

        from tailrace.verify.hashes import Summary

        chunks = self._hashed(self.counting).groupBy("chunk").agg(*map(expr, SUMMARY)).toArrow()
        found = Summary()
        found.counts[:, np.asarray(chunks["chunk"])] = [np.asarray(chunks[name]) for name in ("n", "x", "s")]
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
    """Return a session whose shuffles have one partition, for a few thousand numbers per task.

    With Spark's default of 200 partitions, a shuffle would take longer than reading the rows.
    """
    found = spark.newSession()
    found.conf.set("spark.sql.shuffle.partitions", "1")
    found.conf.set("spark.sql.adaptive.enabled", "false")
    return found


def compare(source: ComparedSide, table: Callable[[], ComparedSide], keys: Sequence[str]) -> tuple[int, dict[Key, str]]:
    """Return the number of the source's rows, and the differing keys with what is wrong.

    Reads both sides at the same time, the source while `table` is called. Reads them again only if chunks differ.
    """
    with ThreadPoolExecutor(1) as pool:
        summary = pool.submit(source.summary)
        theirs = table()
        has = theirs.summary()
        wanted = summary.result()
    differing = wanted.differing(has)
    rows = int(wanted.counts[0].sum())
    return rows, _differing(source, theirs, keys, differing) if differing else {}


def _differing(source: ComparedSide, table: ComparedSide, keys: Sequence[str], chunks: Sequence[int]) -> dict[Key, str]:
    """Return the keys whose rows differ, in these chunks, with what is wrong."""
    from pyspark.sql.functions import expr

    found = []
    for side, name in ((source, "s"), (table, "t")):
        # min and max, so that a difference in either of two rows with the same key is found
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
    """Return the key in a form that can be compared and hashed: NaN as "NaN", lists and objects as their repr."""
    return tuple(map(_comparable, key))


def _comparable(value: Any) -> Any:
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    return repr(value) if isinstance(value, list | dict) else value
