"""The SQL that keeps a table: names, types and the statement that merges a batch. Pure, driver."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tailrace.columns.blocks import Form

_SPECIAL = re.compile(r"[ ,;{}()\n\t=]")
_ESCAPED = re.compile(r'[\x00-\x1f\x7f/\\:*?"<>|%`\'$#\[\]{}^~&]|^[._]')

DELETED, OP, SOURCE_TS = "__deleted", "__op", "__source_ts_ns"
"""The columns of soft deletes, called as debezium-server-iceberg calls them."""

KEPT = ((DELETED, "string"), (OP, "string"), (SOURCE_TS, "bigint"))
_KEPT_VALUES = ("if(s.op = 'd', 'true', 'false')", "s.op", "unix_micros(s.at) * 1000")


def quoted(name: str) -> str:
    """A name in SQL."""
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    """A text in SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def at_path(path: str) -> str:
    """The table of Delta Lake at a path, in SQL."""
    return f"delta.{quoted(path)}"


def folder(name: str) -> str:
    """A table's name as the name of a directory; what file systems or Spark read otherwise is escaped."""
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", name)


def type_of(kind: pa.DataType) -> str:
    """Spark's type for a column."""
    from pyspark.sql.pandas.types import from_arrow_type

    return str(from_arrow_type(kind, prefer_timestamp_ntz=True).simpleString())


def needs_mapping(names: Sequence[str]) -> bool:
    """Whether a column is called as Parquet cannot call one."""
    return any(_SPECIAL.search(name) for name in names)


def create(path: str, columns: Sequence[tuple[str, str]], properties: Mapping[str, str]) -> str:
    """The statement that makes a table."""
    listed = ", ".join(f"{quoted(name)} {kind}" for name, kind in columns)
    told = ", ".join(f"{literal(name)} = {literal(text)}" for name, text in properties.items())
    return f"create table {at_path(path)} ({listed}) using delta tblproperties ({told})"


def add_columns(path: str, columns: Sequence[tuple[str, str]]) -> str:
    """The statement that adds columns."""
    listed = ", ".join(f"{quoted(name)} {kind}" for name, kind in columns)
    return f"alter table {at_path(path)} add columns ({listed})"


def set_properties(path: str, properties: Mapping[str, str]) -> str:
    """The statement that sets properties."""
    told = ", ".join(f"{literal(name)} = {literal(text)}" for name, text in properties.items())
    return f"alter table {at_path(path)} set tblproperties ({told})"


@dataclass(frozen=True, slots=True)
class Merge:
    """The statement that brings a table to the state after a batch, whose reduced rows are the view `view`.

    `missing` says that some row misses values, which the table keeps; `keeps_deletes` that deleted rows stay, marked;
    `emptied` that the table was truncated before these rows. `unknown` is what a value becomes that neither the batch
    nor the table has: `stop` or `null`.
    """

    path: str
    form: Form
    view: str
    missing: bool = False
    keeps_deletes: bool = False
    emptied: bool = False
    unknown: str = "stop"

    def text(self) -> str:
        """The statement."""
        keys = " and ".join(f"t.{quoted(self.form.names[place])} = s.c{place}" for place in self.form.key)
        parts = [f"merge into {at_path(self.path)} t using {self.view} s on {keys}"]
        if self.keeps_deletes:
            parts.append(f"when matched and s.op = 'd' then update set {self._marks()}")
        else:
            parts.append("when matched and s.op = 'd' then delete")
        updated = ", ".join(f"t.{quoted(name)} = {self._kept(place)}" for place, name in enumerate(self.form.names))
        marks = f", {self._marks()}" if self.keeps_deletes else ""
        parts.append(f"when matched then update set {updated}{marks}")
        names, values = list(self.form.names), [self._new(place) for place in range(len(self.form.names))]
        if self.keeps_deletes:
            names += [name for name, _ in KEPT]
            values += _KEPT_VALUES
            parts.append(self._insert(names, values))
            if self.emptied:
                parts.append(f"when not matched by source then update set t.{DELETED} = 'true', t.{OP} = 't'")
        else:
            parts.append(self._insert(names, values, " and s.op <> 'd'"))
            if self.emptied:
                parts.append("when not matched by source then delete")
        return " ".join(parts)

    def _insert(self, names: Sequence[str], values: Sequence[str], condition: str = "") -> str:
        return f"when not matched{condition} then insert ({', '.join(map(quoted, names))}) values ({', '.join(values)})"

    def _marks(self) -> str:
        return ", ".join(f"t.{name} = {value}" for (name, _), value in zip(KEPT, _KEPT_VALUES, strict=True))

    def _kept(self, place: int) -> str:
        if not self.missing or place in self.form.key:
            return f"s.c{place}"
        if self.emptied:
            return self._new(place)
        return f"if(array_contains(s.missing, {place}), t.{quoted(self.form.names[place])}, s.c{place})"

    def _new(self, place: int) -> str:
        if not self.missing or self.unknown == "null" or place in self.form.key:
            return f"s.c{place}"
        kind = type_of(self.form.types[place])
        told = literal(f"{UNKNOWN} {json.dumps(self.form.names[place])}")
        return f"if(array_contains(s.missing, {place}), cast(raise_error({told}) as {kind}), s.c{place})"


UNKNOWN = "tailrace: neither the log nor the table has the value of column"
"""The beginning of what the statement raises for a value that nobody has."""


def moved(path: str, form: Form, view: str, unknown: str = "null", doubtful: bool = False) -> str:
    """The query that gives rows that had another key before the batch the values that the table has under that key.

    Unless `unknown` is `null` it raises where the table has none. With `doubtful` those of the table
    may be of later rows, and none is taken over.
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
            # what the table has under the new key is another row's
            told, kind = literal(f"{UNKNOWN} {json.dumps(name)}"), type_of(form.types[place])
            strange = f"s.origin is not null and array_contains(s.missing, {place})"
            own = f"if({strange}, cast(raise_error({told}) as {kind}), {own})"
        parts.append(f"if({held}, o.{quoted(name)}, {own}) c{place}")
    return f"select {', '.join(parts)} from {view} s left join {at_path(path)} o on {joined}"
