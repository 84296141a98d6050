"""SQL for tables: names, types, and the statement that merges a batch. No I/O. Driver."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tailrace.columns.blocks import BlockForm

_SPECIAL = re.compile(r"[ ,;{}()\n\t=]")
_ESCAPED = re.compile(r'[\x00-\x1f\x7f/\\:*?"<>|%`\'$#\[\]{}^~&]|^[._]')

DELETED, OP, SOURCE_TS = "__deleted", "__op", "__source_ts_ns"
"""The columns of soft deletes, named as in debezium-server-iceberg."""

KEPT = ((DELETED, "string"), (OP, "string"), (SOURCE_TS, "bigint"))

GONE = "s.op in ('d', 't')"
"""SQL condition: a row of a batch no longer exists in the source."""

_KEPT_VALUES = (f"if({GONE}, 'true', 'false')", "s.op", "unix_micros(s.at) * 1000")


def quoted(name: str) -> str:
    """Return a name as an SQL identifier."""
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    """Return a text as an SQL literal, in which Spark does not substitute `${name}`."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("$", "\\u0024") + "'"


def constant(kind: str, text: str) -> str:
    """Return a value of an SQL type as SQL. `text` is its text in `BlockForm.values`."""
    if kind == "timestamp":
        return f"timestamp_micros({int(text)})"
    return f"cast({literal(text)} as {kind})"


def at_path(path: str) -> str:
    """Return the SQL name of the Delta Lake table at a path."""
    return f"delta.{quoted(path)}"


def folder(name: str) -> str:
    """Return a table's name as a directory name, with characters escaped that file systems or Spark misread."""
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", name)


def type_of(kind: pa.DataType) -> str:
    """Return Spark's SQL type for a column."""
    from pyspark.sql.pandas.types import from_arrow_type

    return str(from_arrow_type(kind, prefer_timestamp_ntz=True).simpleString())


def told_apart(value: str, kind: str) -> list[str]:
    """Return SQL expressions by which two values are identical if and only if all expressions agree; null equals null.

    `kind` is the value's SQL type. In JSON the two zeros differ and NaN equals NaN; the value itself has the digits
    beyond milliseconds, which JSON omits. Maps and variants are compared only as JSON.
    """
    parts = [f"to_json(struct({value} as v))"]
    if kind == "variant":
        return [*parts, f"schema_of_variant({value})"]
    return parts if re.search(r"\b(?:map<|variant\b)", kind) else [*parts, value]


def needs_mapping(names: Sequence[str]) -> bool:
    """Return True if a column's name is illegal in Parquet, so that the table needs column mapping."""
    return any(_SPECIAL.search(name) for name in names)


def create(path: str, columns: Sequence[tuple[str, str]], properties: Mapping[str, str]) -> str:
    """Return the statement that creates a table."""
    listed = ", ".join(f"{quoted(name)} {kind}" for name, kind in columns)
    listed_properties = ", ".join(f"{literal(name)} = {literal(text)}" for name, text in properties.items())
    return f"create table {at_path(path)} ({listed}) using delta tblproperties ({listed_properties})"


def add_columns(path: str, columns: Sequence[tuple[str, str]]) -> str:
    """Return the statement that adds columns."""
    listed = ", ".join(f"{quoted(name)} {kind}" for name, kind in columns)
    return f"alter table {at_path(path)} add columns ({listed})"


def drop_column(path: str, name: str) -> str:
    """Return the statement that drops a column."""
    return f"alter table {at_path(path)} drop column {quoted(name)}"


def rename_column(path: str, name: str, to: str) -> str:
    """Return the statement that renames a column."""
    return f"alter table {at_path(path)} rename column {quoted(name)} to {quoted(to)}"


def widen_column(path: str, name: str, kind: str) -> str:
    """Return the statement that widens a column's type."""
    return f"alter table {at_path(path)} alter column {quoted(name)} type {kind}"


_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
_WIDER = {
    "tinyint": ("smallint", "int", "bigint", "double"),
    "smallint": ("int", "bigint", "double"),
    "int": ("bigint", "double"),
    "float": ("double",),
    "date": ("timestamp_ntz",),
}
_FLOATS = {"float": ("tinyint", "smallint"), "double": ("tinyint", "smallint", "int", "float")}


def widens(old: str, new: str) -> bool:
    """Return True if Delta Lake can widen a column from `old` to `new` without rewriting files."""
    wanted = _DECIMAL.fullmatch(new)
    if wanted is None:
        return new in _WIDER.get(old, ())
    digits, scale = int(wanted[1]), int(wanted[2])
    if old in _DIGITS:
        return digits - scale >= (20 if old == "bigint" else 10)
    known = _DECIMAL.fullmatch(old)
    return known is not None and scale >= int(known[2]) and digits - scale >= int(known[1]) - int(known[2])


def holds(old: str, new: str) -> bool:
    """Return True if a column of the type `old` can hold every value of the type `new` unchanged."""
    if old == "string":
        return new in _DIGITS or new in ("boolean", "date") or _DECIMAL.fullmatch(new) is not None
    if old in _DIGITS:
        return _DIGITS.get(new, 99) <= _DIGITS[old]
    if old in _FLOATS:
        return new in _FLOATS[old]
    room = _DECIMAL.fullmatch(old)
    if room is None:
        return old == "timestamp_ntz" and new == "date"
    digits, scale = int(room[1]), int(room[2])
    if new in _DIGITS:
        return digits - scale >= _DIGITS[new]
    known = _DECIMAL.fullmatch(new)
    return known is not None and scale >= int(known[2]) and digits - scale >= int(known[1]) - int(known[2])


def doubled(table: str, key: Sequence[str], where: str) -> str:
    """Return the query for a row with a null in the key's columns, or with the same key as another row."""
    listed = ", ".join(map(quoted, key))
    empty = " or ".join(f"{quoted(name)} is null" for name in key)
    return f"select 1 from {table} where {where} group by {listed} having count(*) > 1 or {empty} limit 1"


def fill(path: str, values: Mapping[str, str], where: str) -> str:
    """Return the statement that sets columns to values, given as SQL."""
    assigned = ", ".join(f"{quoted(name)} = {value}" for name, value in values.items())
    return f"update {at_path(path)} set {assigned} where {where}"


def set_properties(path: str, properties: Mapping[str, str]) -> str:
    """Return the statement that sets properties."""
    listed = ", ".join(f"{literal(name)} = {literal(text)}" for name, text in properties.items())
    return f"alter table {at_path(path)} set tblproperties ({listed})"


@dataclass(frozen=True, slots=True)
class Clause:
    """A change of the rows that fulfil `condition`, or of all rows if it is "".

    The rows get `values`, SQL by column name. None deletes the rows.
    """

    condition: str = ""
    values: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Merge:
    """A merge of the rows of the view `view`, alias `s`, into a table, alias `t`.

    `on` is the condition of a match; at most one row of `s` may match a row of `t`. The first of the clauses `matched`
    whose condition holds applies to a matched row of the table. `inserted` applies to unmatched rows of the view; None
    inserts none. `beyond` applies to unmatched rows of the table; None keeps them.

    `small`: each task can hold all rows of the view, so that the table's rows need not be shuffled. `few`: each task
    can hold the columns that the rows are matched by. `whole`: no new value depends on the table. Then matched rows of
    the table can be deleted and all rows that `inserted` selects can be inserted, matched or not.
    """

    view: str
    on: str
    matched: tuple[Clause, ...]
    inserted: Clause | None
    beyond: Clause | None = None
    small: bool = False
    few: bool = False
    whole: bool = False

    def statement(self, table: str) -> str:
        """Return the SQL MERGE into `table`, a name in SQL."""
        rows = f"(select /*+ broadcast(v) */ * from {self.view} v)" if self.small else self.view
        parts = [f"merge into {table} t using {rows} s on {self.on}"]
        parts += [f"when matched{_and(clause)} then {_done(clause)}" for clause in self.matched]
        if self.inserted is not None:
            values = self.inserted.values or {}
            listed = f"({', '.join(map(quoted, values))}) values ({', '.join(values.values())})"
            parts.append(f"when not matched{_and(self.inserted)} then insert {listed}")
        if self.beyond is not None:
            parts.append(f"when not matched by source{_and(self.beyond)} then {_done(self.beyond)}")
        return " ".join(parts)


def _and(clause: Clause) -> str:
    return f" and {clause.condition}" if clause.condition else ""


def _done(clause: Clause) -> str:
    if clause.values is None:
        return "delete"
    return "update set " + ", ".join(f"t.{quoted(name)} = {value}" for name, value in clause.values.items())


@dataclass(frozen=True, slots=True)
class ReducedBatch:
    """The merge of a batch whose reduced rows are the view `view`.

    `missing`: some row misses values, which the table keeps. `keeps_deletes`: deleted rows are marked, not removed.
    `emptied`: the table was truncated before these rows. `unknown` is the policy for values that neither the batch nor
    the table has: `stop` or `null`.
    """

    form: BlockForm
    view: str
    missing: bool = False
    keeps_deletes: bool = False
    emptied: bool = False
    unknown: str = "stop"

    @property
    def whole(self) -> bool:
        """True if no value of a row depends on the table."""
        return not self.missing and not self.emptied

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the view that the merge reads; () if it may read all."""
        values = (f"c{place}" for place in range(len(self.form.names)))
        return ("op", *(["at"] if self.keeps_deletes else []), *values) if self.whole else ()

    def merge(self) -> Merge:
        """Return the merge."""
        names = self.form.names
        keys = " and ".join(f"t.{quoted(names[place])} = s.c{place}" for place in self.form.key)
        updated = {name: self._kept(place) for place, name in enumerate(names)}
        new = {name: self._new(place) for place, name in enumerate(names)}
        if not self.keeps_deletes:
            beyond = Clause() if self.emptied else None
            matched = (Clause("s.op = 'd'"), Clause("", updated))
            return Merge(self.view, keys, matched, Clause("s.op <> 'd'", new), beyond, whole=self.whole)
        marks = {name: value for (name, _), value in zip(KEPT, _KEPT_VALUES, strict=True)}
        beyond = Clause("", {DELETED: "'true'", OP: "'t'"}) if self.emptied else None
        return Merge(self.view, keys, (Clause("", updated | marks),), Clause("", new | marks), beyond, whole=self.whole)

    def _kept(self, place: int) -> str:
        if not self.missing or place in self.form.key:
            return f"s.c{place}"
        kept = f"if(array_contains(s.missing, {place}), t.{quoted(self.form.names[place])}, s.c{place})"
        if not self.emptied:
            return kept
        return f"if(s.op = 't', {kept}, {self._new(place)})" if self.keeps_deletes else self._new(place)

    def _new(self, place: int) -> str:
        if not self.missing or self.unknown == "null" or place in self.form.key:
            return f"s.c{place}"
        kind = type_of(self.form.types[place])
        message = literal(f"{UNKNOWN} {json.dumps(self.form.names[place])}")
        nobody = f"array_contains(s.missing, {place})" + (f" and not {GONE}" if self.keeps_deletes else "")
        return f"if({nobody}, cast(raise_error({message}) as {kind}), s.c{place})"


UNKNOWN = "tailrace: neither the log nor the table has the value of column"
"""Start of the error that a statement raises for a value that neither the log nor the table has."""

_UNKNOWN = re.compile(re.escape(UNKNOWN) + r' \\?"(?P<column>.*?)\\?"')


def unknown_column(text: str) -> str | None:
    """Return the column whose value is unknown according to a failure's text; None for other failures."""
    found = _UNKNOWN.search(text)
    return None if found is None else found["column"]


def moved(table: str, form: BlockForm, view: str, unknown: str = "null", doubtful: bool = False) -> str:
    """Return the query that fills missing values of rows whose key has changed from the table's row of the old key.

    Unless `unknown` is `null`, the query raises an error if the table has no such row. With `doubtful`, the table may
    already hold a later row under the old key, so that its values are not used.
    """
    first = quoted(form.names[form.key[0]])
    joined = " and ".join(f"o.{quoted(form.names[index])} = s.origin.k{place}" for place, index in enumerate(form.key))
    if doubtful:
        joined = "false"
    parts = ["s.op", "s.position", "s.ordinal", "s.part", "s.at", f"if(o.{first} is null, s.missing, null) missing"]
    for place, name in enumerate(form.names):
        held = f"o.{first} is not null and array_contains(s.missing, {place})"
        own = f"s.c{place}"
        if unknown != "null" and place not in form.key:
            # The table's row of the new key is another row, whose values must not be used.
            message, kind = literal(f"{UNKNOWN} {json.dumps(name)}"), type_of(form.types[place])
            strange = f"s.origin is not null and not {GONE} and array_contains(s.missing, {place})"
            own = f"if({strange}, cast(raise_error({message}) as {kind}), {own})"
        parts.append(f"if({held}, o.{quoted(name)}, {own}) c{place}")
    return f"select {', '.join(parts)} from {view} s left join {table} o on {joined}"
