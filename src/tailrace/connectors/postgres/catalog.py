"""What PostgreSQL's catalog says of the captured tables. Planner only; every query is bound and schema-qualified.

pgoutput's Relation message carries names, type oids and modifiers of the published columns. Keys, nullability,
defaults, enum labels and the structure of types come from here (PostgreSQL documentation, "System Catalogs").
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tailrace.columns.table import Column, TableId, TableSchema

if TYPE_CHECKING:
    import psycopg

    from tailrace.connectors.postgres.pgoutput import Relation

_TABLES = """
select c.oid::int8, n.nspname, c.relname, c.relreplident::text, c.relkind::text
from pg_catalog.pg_class c
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where c.relkind in ('r', 'p') and c.relpersistence <> 't'
  and n.nspname not in ('pg_catalog', 'information_schema', 'pg_toast')
  and n.nspname not like 'pg\\_temp\\_%%' and n.nspname not like 'pg\\_toast\\_temp\\_%%'
order by n.nspname, c.relname
"""

_TABLE = """
select c.oid::int8, n.nspname, c.relname, c.relreplident::text
from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where c.oid = any(%s::oid[])
"""

# Dropped columns are left out; generated columns stay: snapshots read them, the log does not carry them.
_COLUMNS = """
select a.attrelid::int8, a.attname, a.atttypid::int8, a.atttypmod, not a.attnotnull, a.attgenerated::text,
       pg_catalog.pg_get_expr(d.adbin, d.adrelid)
from pg_catalog.pg_attribute a
left join pg_catalog.pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
where a.attrelid = any(%s::oid[]) and a.attnum > 0 and not a.attisdropped
order by a.attrelid, a.attnum
"""

# The primary key, else the first unique index whose columns are all NOT NULL and which covers every row.
_KEYS = """
select i.indrelid::int8, i.indisprimary,
       array(select a.attname from unnest(i.indkey::int2[]) with ordinality k(attnum, place)
             join pg_catalog.pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum
             where k.place <= i.indnkeyatts order by k.place)::text[]
from pg_catalog.pg_index i
where i.indrelid = any(%s::oid[]) and i.indisunique and i.indpred is null and i.indexprs is null and i.indisvalid
  and (i.indisprimary or not exists (
       select from unnest(i.indkey::int2[]) with ordinality k(attnum, place)
       join pg_catalog.pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum
       where k.place <= i.indnkeyatts and not a.attnotnull))
order by i.indrelid, i.indisprimary desc, i.indexrelid
"""

_TYPES = """
with recursive needed(oid) as (
  select unnest(%s::oid[])
  union
  select case when t.typtype = 'd' then t.typbasetype else t.typelem end
  from needed join pg_catalog.pg_type t on t.oid = needed.oid
  where t.typtype = 'd' or (t.typelem <> 0 and t.typcategory = 'A')
)
select t.oid::int8, t.typname, t.typtype::text, t.typcategory::text, t.typelem::int8, t.typbasetype::int8,
       t.typtypmod, t.typoutput::regproc::text, t.typnotnull,
       array(select e.enumlabel from pg_catalog.pg_enum e where e.enumtypid = t.oid order by e.enumsortorder)::text[]
from needed join pg_catalog.pg_type t on t.oid = needed.oid
"""

_KINDS = {"b": "base", "e": "enum", "d": "domain", "c": "composite", "r": "range", "m": "range", "p": "unknown"}


class Catalog:
    """Table schemas by query, with the types they need cached for the life of the connection's database.

    `connection` is an autocommit psycopg connection of the planner. Not thread-safe.
    """

    def __init__(self, connection: psycopg.Connection[Any], database: str) -> None:
        self._connection = connection
        self._database = database
        self._types: dict[int, tuple[Any, ...]] = {}

    def tables(self) -> list[tuple[int, TableId, str]]:
        """All tables that can be captured, `(oid, name, relkind)`, ordered by name."""
        rows = self._connection.execute(_TABLES).fetchall()
        return [(oid, TableId(self._database, schema, name), kind) for oid, schema, name, _, kind in rows]

    def schemas(self, oids: Sequence[int]) -> dict[int, TableSchema]:
        """The present schemas of the tables `oids`, generated columns included; an oid that is gone is left out."""
        if not oids:
            return {}
        wanted = list(oids)
        heads = self._connection.execute(_TABLE, (wanted,)).fetchall()
        columns = self._connection.execute(_COLUMNS, (wanted,)).fetchall()
        keys: dict[int, tuple[str, ...]] = {}
        for oid, _, names in self._connection.execute(_KEYS, (wanted,)).fetchall():
            keys.setdefault(oid, tuple(names))
        self._load_types(row[2] for row in columns)
        found: dict[int, TableSchema] = {}
        for oid, schema, name, identity in heads:
            found[oid] = TableSchema(
                id=TableId(self._database, schema, name),
                columns=tuple(
                    self._column(name, type_oid, modifier, nullable, default, generated != "")
                    for attrelid, name, type_oid, modifier, nullable, generated, default in columns
                    if attrelid == oid
                ),
                key=keys.get(oid, ()),
                replica_identity=identity,
                oid=oid,
            )
        return found

    def streamed(self, relation: Relation, version: int) -> TableSchema:
        """The schema under which the log sends `relation`: its columns, completed from the catalog.

        A column that the catalog no longer has (the reader is behind a DDL statement) keeps what the Relation
        message says of it and counts as nullable without default.
        """
        present = self.schemas([relation.relation_id]).get(relation.relation_id)
        by_name = {column.name: column for column in present.columns} if present else {}
        self._load_types(column.type_oid for column in relation.columns)
        columns = []
        for sent in relation.columns:
            known = by_name.get(sent.name)
            if known is not None and known.type_oid == sent.type_oid:
                columns.append(
                    known
                    if known.modifier == sent.type_modifier
                    else self._column(
                        sent.name, sent.type_oid, sent.type_modifier, known.nullable, known.default, known.generated
                    )
                )
            else:
                columns.append(self._column(sent.name, sent.type_oid, sent.type_modifier, True, None, False))
        names = {column.name for column in columns}
        key = present.key if present and all(name in names for name in present.key) else ()
        return TableSchema(
            id=TableId(self._database, relation.namespace, relation.name),
            columns=tuple(columns),
            key=key,
            replica_identity=relation.replica_identity,
            oid=relation.relation_id,
            version=version,
        )

    def output_functions(self, columns: Iterable[Column]) -> dict[str, str]:
        """Column name -> the qualified output function of its type, which renders exactly the text that the log has.

        A cast to text is not the same: it drops the blanks of `char(n)` and adds the netmask to `inet`.
        """
        columns = list(columns)
        self._load_types(column.type_oid for column in columns)
        return {column.name: self._types[column.type_oid][7] for column in columns}

    def _load_types(self, oids: Iterable[int]) -> None:
        missing = sorted({oid for oid in oids if oid not in self._types})
        if missing:
            for row in self._connection.execute(_TYPES, (missing,)).fetchall():
                self._types[row[0]] = row

    def _column(
        self, name: str, type_oid: int, modifier: int, nullable: bool, default: str | None, generated: bool
    ) -> Column:
        row = self._types.get(type_oid)
        if row is None:
            return Column(name, "unknown", type_oid, modifier, nullable, default, "unknown", (), None, generated)
        _, type_name, typtype, category, element_oid, base_oid, base_modifier, _, refuses_null, labels = row
        kind = _KINDS.get(typtype, "unknown")
        element: Column | None = None
        if typtype == "d":
            nullable = nullable and not refuses_null
            element = self._column(name, base_oid, base_modifier, nullable, None, False)
            nullable = element.nullable
            while element.kind == "domain" and element.element is not None:
                element = element.element
        elif category == "A" and element_oid:
            kind = "array"
            element = self._column(name, element_oid, modifier, True, None, False)
        return Column(name, type_name, type_oid, modifier, nullable, default, kind, tuple(labels), element, generated)
