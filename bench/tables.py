"""The measured tables and their rows, which are the same in every run."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Table:
    """A table. `columns` are pairs of name and declaration; `row` are the expressions of row number i."""

    name: str
    columns: tuple[tuple[str, str], ...]
    row: tuple[str, ...]

    @property
    def declaration(self) -> str:
        """The list of columns in CREATE TABLE."""
        return ", ".join(f"{name} {text}" for name, text in self.columns)

    @property
    def select(self) -> str:
        """A SELECT of row number `i`, without its FROM clause."""
        return f"select {', '.join(self.row)}"


def plain(name: str) -> Table:
    """Return a table of eight columns of the usual types."""
    return Table(
        name,
        (
            ("id", "bigint primary key"),
            ("n", "int not null"),
            ("amount", "numeric(12,2) not null"),
            ("note", "text not null"),
            ("at", "timestamptz not null"),
            ("flag", "boolean not null"),
            ("code", "varchar(20)"),
            ("doc", "jsonb"),
        ),
        (
            "i",
            "(i % 100000)::int",
            "(i % 9999999) / 100.0",
            "rpad('note of row ' || i || ' ', 60, 'abcdefghij')",
            "'2024-01-01 00:00:00+00'::timestamptz + i * interval '1.000001 second'",
            "i % 2 = 0",
            "'code-' || i % 1000",
            "jsonb_build_object('a', i, 'b', 'text', 'c', i % 2 = 0)",
        ),
    )


# Types of the columns of wide tables, with an expression of the row i and the column c.
_WIDE = (
    ("int", "(i + {c}) % 1000000"),
    ("bigint", "i::bigint * 1000003 + {c}"),
    ("numeric(12,2)", "((i + {c}) % 9999999) / 100.0"),
    ("varchar(40)", "'value ' || i % 5000 || ' of ' || {c}"),
    ("text", "case when (i + {c}) % 3 > 0 then rpad('text ' || i, 30, 'abcdefghij') else null end"),
    ("boolean", "(i + {c}) % 2 = 0"),
    ("timestamptz", "'2024-01-01 00:00:00+00'::timestamptz + (i + {c}) * interval '1.000001 second'"),
    ("date", "'2000-01-01'::date + (i + {c}) % 20000"),
    ("float8", "(i + {c}) / 7.0"),
    ("timestamp(3)", "'2024-01-01'::timestamp + (i + {c}) * interval '1.001 second'"),
    ("uuid", "md5((i + {c})::text)::uuid"),
)


def wide(name: str, count: int = 100) -> Table:
    """Return a table of `count` columns of eleven types in turn, the key among them."""
    kinds = [_WIDE[number % len(_WIDE)] for number in range(1, count)]
    columns = tuple((f"c{number}", kind) for number, (kind, _) in enumerate(kinds, 1))
    row = tuple(text.format(c=number) for number, (_, text) in enumerate(kinds, 1))
    return Table(name, (("id", "bigint primary key"), *columns), ("i", *row))


_TYPES = (
    ("smallint", "(i % 32768)::smallint"),
    ("int", "i"),
    ("bigint", "i::bigint << 20"),
    ("oid", "(i % 100000)::oid"),
    ("real", "(i / 3.0)::real"),
    ("double precision", "i / 3.0"),
    ("numeric", "i / 1000.0"),
    ("numeric(20,4)", "i * 1.2345"),
    ("money", "(i % 100000)::money"),
    ("boolean", "i % 2 = 0"),
    ("bit(1)", "(i % 2)::bit(1)"),
    ("bit(12)", "(i % 4096)::bit(12)"),
    ("varbit", "(i % 4096)::bit(12)::varbit"),
    ("char(10)", "'c' || i % 1000"),
    ("varchar(20)", "'v' || i"),
    ("text", "'text of row ' || i"),
    ("name", "'name' || i % 1000"),
    ('"char"', 'chr(97 + i % 26)::"char"'),
    ("bytea", "decode(md5(i::text), 'hex')"),
    ("date", "'2000-01-01'::date + i % 20000"),
    ("time", "'00:00'::time + i * interval '1 microsecond'"),
    ("time(3)", "'00:00'::time + i * interval '1 millisecond'"),
    ("timetz", "('00:00'::time + i * interval '1 microsecond')::timetz"),
    ("timestamp", "'2024-01-01'::timestamp + i * interval '1.000001 second'"),
    ("timestamp(3)", "'2024-01-01'::timestamp + i * interval '1.001 second'"),
    ("timestamptz", "'2024-01-01 00:00:00+00'::timestamptz + i * interval '1.000001 second'"),
    ("interval", "i * interval '1 second'"),
    ("json", "json_build_object('a', i)"),
    ("jsonb", "jsonb_build_object('a', i, 'b', 'text')"),
    ("uuid", "md5(i::text)::uuid"),
    ("inet", "'10.0.0.0'::inet + i"),
    ("cidr", "set_masklen('10.0.0.0'::cidr + (i << 8), 24)"),
    ("macaddr", "('08002b' || lpad(to_hex(i % 16777216), 6, '0'))::macaddr"),
    ("macaddr8", "('08002b0102' || lpad(to_hex(i % 16777216), 6, '0'))::macaddr8"),
    ("point", "point(i, i / 2.0)"),
    ("int4range", "int4range(i, i + 10)"),
    ("int8range", "int8range(i, i + 10)"),
    ("numrange", "numrange(i, i + 0.5)"),
    ("daterange", "daterange('2000-01-01', '2000-01-02'::date + i % 20000)"),
    ("tsrange", "tsrange('2000-01-01', '2000-01-02'::timestamp + i * interval '1 second')"),
    ("tstzrange", "tstzrange('2000-01-01', '2000-01-02'::timestamptz + i * interval '1 second')"),
    ("tsvector", "to_tsvector('simple', 'row number ' || i)"),
    ("mood", "(array['sad', 'so so', 'happy'])[1 + i % 3]::mood"),
    ("cents", "(i % 1000)::cents"),
    ("int[]", "array[i, i + 1, null]"),
    ("bigint[]", "array[i, i * 2]::bigint[]"),
    ("numeric(10,2)[]", "array[i / 100.0, 1]"),
    ("text[]", "array['a' || i, 'b \"c\"', null]"),
    ("boolean[]", "array[i % 2 = 0, true]"),
    ("uuid[]", "array[md5(i::text)::uuid]"),
    ("date[]", "array['2000-01-01'::date + i % 20000]"),
    ("timestamptz[]", "array['2024-01-01 00:00:00+00'::timestamptz + i * interval '1 second']"),
)
"""The types of every server: their names, and an expression of row i. `mood` and `cents` are created before the table.
xml is left out, since a server may be built without it."""

_MORE_TYPES = {
    "hstore": (("hstore", "hstore('row', i::text)"),),
    "citext": (("citext", "('Row ' || i)::citext"),),
    "ltree": (("ltree", "('a.b' || i % 1000)::ltree"),),
    "isn": (("isbn", "'978-0-393-04002-9'::isbn"),),
    "vector": (("vector(3)", "array[i, i / 2.0, 1]::real[]::vector"), ("halfvec(2)", "array[i % 100, 1]::halfvec")),
}
"""The types of extensions."""

MADE = ("create type mood as enum ('sad', 'so so', 'happy')", "create domain cents as int check (value >= 0)")
"""Statements that create types for the table of all types."""


def extensions(available: Collection[str]) -> tuple[str, ...]:
    """Return the extensions among `available` whose types are measured."""
    return tuple(name for name in _MORE_TYPES if name in available)


def types(name: str, with_extensions: Collection[str] = ()) -> Table:
    """Return a table with a key and a column of every type that events carry, with the types of the extensions."""
    kinds = [*_TYPES, *(kind for extension in with_extensions for kind in _MORE_TYPES[extension])]
    columns = tuple((f"c{number}", kind) for number, (kind, _) in enumerate(kinds, 1))
    return Table(name, (("id", "bigint primary key"), *columns), ("i", *(text for _, text in kinds)))
