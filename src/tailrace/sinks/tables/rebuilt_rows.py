"""Rebuilt rows: the changes in a table of the mode `log` as the rows of the source, or every version of them. Driver.

Changes have the columns op, position, ordinal, part, at and missing as in blocks, but `missing` names columns; the
columns of the row are c0, c1, …. Changes are shuffled once, by the key; window functions of Spark do the rest. A *life*
of a key lasts from the change that creates its row to the change that ends the row. An *era* lasts from one truncate to
the next.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tailrace.errors import SinkError
from tailrace.sinks.tables.modes import CHANGE
from tailrace.sinks.tables.rows import is_value
from tailrace.sinks.tables.statements import KEPT, UNKNOWN, literal, quoted, told_apart
from tailrace.sinks.tables.versions import VALIDITY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_OWN = ("op", "position", "ordinal", "part", "at", "missing")
_ORDER = "order by position, ordinal, part"


@dataclass(frozen=True, slots=True)
class RebuiltForm:
    """The columns of a table's rows, and the indexes of its key's columns. `unknown` is the policy for values that no
    change has: `stop` or `null`. `renamed` is True if columns were renamed before, None if that is unknown."""

    names: tuple[str, ...]
    key: tuple[int, ...]
    unknown: str = "stop"
    renamed: bool | None = False

    @property
    def keys(self) -> str:
        """The columns of the key as SQL."""
        return ", ".join(f"c{place}" for place in self.key)

    @property
    def values(self) -> str:
        """All columns as SQL."""
        return ", ".join(f"c{place}" for place in range(len(self.names)))

    def named(self) -> list[str]:
        """Return the columns under their names in the table, as SQL."""
        return [f"c{place} as {quoted(name)}" for place, name in enumerate(self.names)]


def changes(log: DataFrame, shape: RebuiltForm) -> DataFrame:
    """Return the changes in a table of the mode `log`, under the columns' names here."""
    own = [f"{quoted(name)} as {column}" for (name, _), column in zip(CHANGE, _OWN, strict=True)]
    return log.selectExpr(*own, *(f"{quoted(name)} as c{place}" for place, name in enumerate(shape.names)))


def last_rows(found: DataFrame, shape: RebuiltForm, keeps_deletes: bool) -> DataFrame:
    """Return the row of each key after all changes, as in the mode `latest`."""
    emptied = _truncates(found)
    rows = found.where("op <> 't'")
    if emptied and not keeps_deletes:
        rows, emptied = rows.where(f"not ({_is_before(emptied[-1])})"), []
    rows, absent = _filled(_in_eras(rows, emptied), shape)
    if keeps_deletes:
        rows = _with_last_values(rows, shape)
    newest = f"row_number() over (partition by {shape.keys} order by position desc, ordinal desc, part desc)"
    rows = rows.selectExpr("*", f"{newest} as newest").where("newest = 1")
    if not keeps_deletes:
        return _known(rows.where("op <> 'd'"), shape, absent).selectExpr(*shape.named())
    gone = f"era < {len(emptied)}"
    marks = (f"if({gone} or op = 'd', 'true', 'false')", f"if({gone}, 't', op)", "unix_micros(at) * 1000")
    own = [f"{value} as {name}" for (name, _), value in zip(KEPT, marks, strict=True)]
    return _known(rows, shape, absent).selectExpr(*shape.named(), *own)


def every_version(found: DataFrame, shape: RebuiltForm) -> DataFrame:
    """Return every version of every row, as in the mode `history`."""
    emptied = _truncates(found)
    rows, absent = _filled(_in_eras(found.where("op <> 't'"), emptied), shape)
    within = f"over (partition by era, {shape.keys} {_ORDER})"
    before = (f"lag(op) {within} as op_before", f"lag(struct({shape.values})) {within} as row_before")
    # A row from a later snapshot is a new version only if it differs from the previous version.
    kinds = {field.name: field.dataType.simpleString() for field in rows.schema.fields}
    columns = [f"c{place}" for place in range(len(shape.names))]
    pairs = [(told_apart(c, kinds[c]), told_apart(f"row_before.{c}", kinds[c])) for c in columns]
    equal = [f"{now} <=> {then}" for pair in pairs for now, then in zip(*pair, strict=True)]
    same = " and ".join(("op = 'r'", "op_before <> 'd'", *equal))
    rows = rows.selectExpr("*", *before).where(f"not coalesce({same}, false)")
    ends = "null" if not emptied else f"get(array({', '.join(map(_as_place, emptied))}), era)"
    place = "struct(position, ordinal, at)"
    rows = rows.selectExpr("*", f"coalesce(lead({place}) {within}, {ends}) as ended").where("op <> 'd'")
    own = ("position", "ordinal", "at", "ended.position", "ended.ordinal", "ended.at")
    validity = [f"{value} as {name}" for (name, _), value in zip(VALIDITY, own, strict=True)]
    return _known(rows, shape, absent).selectExpr(*shape.named(), *validity)


def demand_keys(found: DataFrame, shape: RebuiltForm, table: str) -> None:
    """Raise SinkError if changes lack a column of the table's current key."""
    unkeyed = " or ".join(f"c{place} is null" for place in shape.key)
    if not found.where(f"op <> 't' and ({unkeyed})").isEmpty():
        raise SinkError(
            f"Changes of {table} lack columns of the key that it has now.",
            "Leave the table out by naming the others, or read the database anew.",
        )


def _truncates(found: DataFrame) -> list[Any]:
    """Return the places of all truncates in order."""
    rows = found.where("op = 't'").selectExpr("position", "ordinal", "unix_micros(at) as micros").distinct()
    return rows.orderBy("position", "ordinal").collect()


def _is_before(place: Any) -> str:
    position = literal(place["position"])
    return f"position < {position} or (position = {position} and ordinal < {place['ordinal']})"


def _as_place(place: Any) -> str:
    position, at = literal(place["position"]), f"timestamp_micros({place['micros']})"
    return f"named_struct('position', {position}, 'ordinal', {place['ordinal']}L, 'at', {at})"


def _in_eras(rows: DataFrame, emptied: Sequence[Any]) -> DataFrame:
    """Return rows with the column `era`: the number of truncates before each row."""

    def searched(low: int, high: int) -> str:
        if low == high:
            return str(low)
        middle = (low + high) // 2
        return f"if({_is_before(emptied[middle])}, {searched(low, middle)}, {searched(middle + 1, high)})"

    return rows.selectExpr("*", f"{searched(0, len(emptied))} as era")


def _filled(rows: DataFrame, shape: RebuiltForm) -> tuple[DataFrame, list[int]]:
    """Fill missing values from earlier changes of the same row. Return the rows and the columns that some row misses.

    The column `lacks` lists the columns of a row whose value no change has.
    """
    absent = _absent(rows, shape)
    if not absent:
        return rows.selectExpr("*", "cast(null as array<int>) as lacks"), []
    lives = _with_lives(rows, shape, absent)
    moved = _moved(lives, absent)
    if moved is not None:
        joined = lives.join(moved.withColumnRenamed("own", "head"), "head", "left")
        filled = [f"coalesce(k{place}, m{place}) as k{place}" for place in absent]
        lives = joined.selectExpr(*(name for name in lives.columns if name not in _given(absent)), *filled)
    lacks = ", ".join(f"if({_misses(shape, place)} and k{place} is null, {place}, null)" for place in absent)
    values = (
        f"if(k{place} is null, c{place}, k{place}.v) as c{place}" if place in absent else f"c{place}"
        for place in range(len(shape.names))
    )
    own = (*_OWN, "era", f"array_compact(array({lacks})) as lacks")
    return lives.selectExpr(*own, *values), absent


def _given(absent: Sequence[int]) -> set[str]:
    return {f"k{place}" for place in absent}


def _misses(shape: RebuiltForm, place: int) -> str:
    return f"coalesce(array_contains(missing, {literal(shape.names[place])}), false)"


def _absent(rows: DataFrame, shape: RebuiltForm) -> list[int]:
    """Return the columns that some row misses, without the key's. Raises SinkError if they may have been renamed."""
    found = {row["name"] for row in rows.selectExpr("explode(missing) as name").distinct().collect()}
    gone = sorted(found.difference(shape.names))
    if (found and shape.renamed) or (gone and shape.renamed is None):
        raise SinkError(
            f"Changes miss values of the column {(gone or sorted(found))[0]}, and columns may have been renamed since.",
            "Read the database anew.",
        )
    return [place for place, name in enumerate(shape.names) if name in found and place not in shape.key]


def _with_lives(rows: DataFrame, shape: RebuiltForm, absent: Sequence[int]) -> DataFrame:
    """Return rows with three kinds of columns about their life.

    `life` is its number. `head` is the place of its first change if that is the second half of a key change, else
    null. `k0`, … are structs with the column's last value in the life up to the row, null if there is none.
    """
    within = f"over (partition by era, {shape.keys} {_ORDER} rows between unbounded preceding and current row)"
    begins = f"(op in ('c', 'r') or coalesce(lag(op) over (partition by era, {shape.keys} {_ORDER}), 'd') = 'd')"
    rows = rows.selectExpr("*", f"{begins} as begins")
    moved = "if(op = 'c' and part = 1, struct(position, ordinal), named_struct('position', null, 'ordinal', null))"
    known = [
        f"last_value(if(op = 'd' or {_misses(shape, place)}, null, named_struct('life', life, 'v', c{place})), true) "
        f"{within} as k{place}"
        for place in absent
    ]
    heads = f"last_value(if(begins, {moved}, null), true) {within} as head"
    rows = rows.selectExpr("*", f"sum(int(begins)) {within} as life", heads).selectExpr("*", *known)
    own = (name for name in rows.columns if name not in _given(absent))
    return rows.selectExpr(
        *own, *(f"if(k{place}.life = life, named_struct('v', k{place}.v), null) as k{place}" for place in absent)
    )


def _moved(lives: DataFrame, absent: Sequence[int]) -> DataFrame | None:
    """Return the values that rows had under their previous key, by the place `own` of the key change.

    Return None if no row misses values at its key change.
    """
    own = "struct(position, ordinal) as own"
    moved = lives.where("op = 'c' and part = 1 and missing is not null").selectExpr(own).localCheckpoint()
    if moved.isEmpty():
        return None
    ended = lives.where("op = 'd' and part = 0").selectExpr(
        own, "if(head.position is null, null, head) as up", *(f"k{place} as m{place}" for place in absent)
    )
    found = ended.join(moved, "own").localCheckpoint()
    unknown = " or ".join(f"m{place} is null" for place in absent)
    # A row may have changed its key many times: each round follows twice as many key changes back.
    while not found.where(f"up is not null and ({unknown})").isEmpty():
        further = [f"coalesce(a.m{place}, b.m{place}) as m{place}" for place in absent]
        joined = found.alias("a").join(found.alias("b"), _expr("a.up = b.own"), "left")
        found = joined.selectExpr("a.own as own", "b.up as up", *further).localCheckpoint()
    return found.drop("up")


def _expr(text: str) -> Any:
    from pyspark.sql.functions import expr

    return expr(text)


def _with_last_values(rows: DataFrame, shape: RebuiltForm) -> DataFrame:
    """Return the rows, where deletes have the values of the deleted rows."""
    within = f"over (partition by era, {shape.keys} {_ORDER})"
    rows = rows.selectExpr("*", f"lag(struct(op, lacks, {shape.values})) {within} as row_before")
    kept = "op = 'd' and coalesce(row_before.op, 'd') <> 'd'"
    values = (f"if({kept}, row_before.c{place}, c{place}) as c{place}" for place in range(len(shape.names)))
    return rows.selectExpr(*_OWN, "era", f"if({kept}, row_before.lacks, lacks) as lacks", *values)


def _known(rows: DataFrame, shape: RebuiltForm, absent: Sequence[int]) -> DataFrame:
    """Return rows that raise an error for each lacking value, unless `unknown` is `null`."""
    if shape.unknown == "null" or not absent:
        return rows
    values = []
    for place, name in enumerate(shape.names):
        message = literal(f"{UNKNOWN} {json.dumps(name)}")
        kind = rows.schema[f"c{place}"].dataType.simpleString()
        raised = f"if(array_contains(lacks, {place}), cast(raise_error({message}) as {kind}), c{place}) as c{place}"
        values.append(raised if place in absent else f"c{place}")
    return rows.selectExpr(*(name for name in rows.columns if not is_value(name)), *values)
