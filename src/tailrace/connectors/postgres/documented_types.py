"""The types of PostgreSQL in the reference of typed rows, each with a column of the type. No I/O."""

from __future__ import annotations

from tailrace.columns import Column
from tailrace.connectors.postgres.log.form import FORM

__all__ = ["FORM", "LISTED"]


def _base(name: str, modifier: int = -1) -> Column:
    return Column("v", name, 0, modifier)


def _array(name: str, modifier: int = -1) -> Column:
    return Column("v", f"_{name}", 0, modifier, kind="array", element=_base(name, modifier))


def _numeric(precision: int, scale: int) -> int:
    return (precision << 16 | scale) + 4


LISTED: tuple[tuple[str, Column], ...] = (
    ("boolean", _base("bool")),
    ("smallint", _base("int2")),
    ("integer", _base("int4")),
    ("bigint, oid", _base("int8")),
    ("real", _base("float4")),
    ("double precision", _base("float8")),
    ("numeric(12, 2); other precisions up to 38 alike", _base("numeric", _numeric(12, 2))),
    ("numeric(50, 3); other precisions above 38 alike", _base("numeric", _numeric(50, 3))),
    ("numeric", _base("numeric")),
    ("money", _base("money")),
    ("text, varchar, char, name, citext", _base("text")),
    ("json, jsonb", _base("jsonb")),
    ("xml", _base("xml")),
    ("uuid", _base("uuid")),
    ("ltree", _base("ltree")),
    ("inet, cidr, macaddr, macaddr8", _base("inet")),
    ("ranges", _base("int4range")),
    ("tsvector", _base("tsvector")),
    ("enums", Column("v", "mood", 0, kind="enum", enum_labels=("a",))),
    ("bytea", _base("bytea")),
    ("bit(1)", _base("bit", 1)),
    ("bit(n), bit varying", _base("varbit", 9)),
    ("date", _base("date")),
    ("time(0–3)", _base("time", 3)),
    ("time, time(4–6)", _base("time")),
    ("time with time zone", _base("timetz")),
    ("timestamp", _base("timestamp")),
    ("timestamp with time zone", _base("timestamptz")),
    ("interval", _base("interval")),
    ("hstore", _base("hstore")),
    ("point", _base("point")),
    ("geometry, geography (PostGIS)", _base("geometry")),
    ("vector", _base("vector")),
    ("halfvec", _base("halfvec")),
    ("sparsevec", _base("sparsevec")),
    ("integer[]; arrays of other types alike", _array("int4")),
    ("text[]", _array("text")),
)
"""The name of a type on the reference page, and a column of it; a domain is listed as its base type."""
