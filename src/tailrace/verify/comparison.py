"""Two sides compared: chunks by their hashes, and the rows of those that differ by their keys. Driver."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from tailrace.verify.hashing import SUMMARY, chunk_of, row_hash

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Key = tuple[Any, ...]

MISSING, EXTRA, DIFFERENT, DUPLICATE = "missing", "extra", "different", "duplicate"
"""What is wrong with a key: the table has no row of it, the source has none, the rows differ, the table has several."""


class Side(Protocol):
    """The rows of one side, by their hashes."""

    def summary(self) -> DataFrame:
        """Of each chunk that has rows `chunk`, `n`, `x` and `s`."""
        ...

    def rows(self, chunks: Sequence[int]) -> DataFrame:
        """The columns of the key and the hash `h` of each row of these chunks."""
        ...


@dataclass(frozen=True, slots=True)
class FrameSide:
    """A frame's rows, hashed in the JVM. `keys` are the columns of the key."""

    frame: DataFrame
    keys: Sequence[str]

    def summary(self) -> DataFrame:
        from pyspark.sql.functions import expr

        return self._hashed().groupBy("chunk").agg(*map(expr, SUMMARY))

    def rows(self, chunks: Sequence[int]) -> DataFrame:
        from pyspark.sql.functions import broadcast

        wanted = self.frame.sparkSession.createDataFrame([(chunk,) for chunk in chunks], "chunk bigint")
        return self._hashed().join(broadcast(wanted), "chunk", "left_semi").select(*self.keys, "h")

    def _hashed(self) -> DataFrame:
        columns = [(field.name, field.dataType) for field in self.frame.schema.fields]
        return self.frame.selectExpr(*self.keys, f"{chunk_of(self.keys)} as chunk", f"{row_hash(columns)} as h")


def compare(source: Side, table: Callable[[], Side], keys: Sequence[str]) -> tuple[int, dict[Key, str]]:
    """How many rows the source has, and the keys that differ between two sides, by the columns of their key.

    Both are read at the same time, the source while `table` is made; a second time only where chunks differ.
    """
    with ThreadPoolExecutor(1) as pool:
        told = pool.submit(lambda: _summary(source))
        theirs = table()
        has = _summary(theirs)
        wanted = told.result()
    differing = sorted(chunk for chunk in wanted.keys() | has.keys() if wanted.get(chunk) != has.get(chunk))
    rows = sum(count for count, *_ in wanted.values())
    return rows, _differing(source, theirs, keys, differing) if differing else {}


def _summary(side: Side) -> dict[int, tuple[int, ...]]:
    """What is compared of each chunk."""
    return {row[0]: tuple(row)[1:] for row in side.summary().collect()}


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
    columns = [joined[name].to_pylist() for name in joined.schema.names]
    return {comparable(row[:-1]): row[-1] for row in zip(*columns, strict=True)}


def comparable(key: Sequence[Any]) -> Key:
    """A key whose equality is that of its rows': NaN equals itself, and lists can be looked for."""
    return tuple(map(_comparable, key))


def _comparable(value: Any) -> Any:
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    return repr(value) if isinstance(value, list | dict) else value
