"""Table schemas from PostgreSQL's catalog. Planner and driver; queries take their values as parameters.

pgoutput's Relation message carries names, type oids and modifiers of the published columns. Keys, nullability,
defaults, enum labels and the structure of types come from the catalog (PostgreSQL documentation, "System Catalogs").
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tailrace.columns.table import Column, TableId, TableSchema
from tailrace.config import TableFilter
from tailrace.connectors.postgres.schema.evolution import (
    FIRST_USER_OID,
    CatalogState,
    PresentColumn,
    PresentIndex,
    PresentType,
)
from tailrace.connectors.postgres.schema.history import Attributes, ColumnFacts, IndexFacts, TypeFacts
from tailrace.connectors.postgres.server.connection import has_no_encoding

if TYPE_CHECKING:
    import psycopg

    from tailrace.connectors.postgres.protocol.pgoutput import Relation

_TABLES = """
select c.oid::int8, n.nspname, c.relname, c.relreplident::text,
       case when c.relkind = 'r' and exists (select from pg_catalog.pg_inherits i where i.inhparent = c.oid)
            then 'i' else c.relkind::text end
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

NOT_NULL = """(a.attnotnull and not exists (
  select from pg_catalog.pg_constraint k
  where k.conrelid = a.attrelid and k.contype = 'n' and not k.convalidated and a.attnum = any(k.conkey)))"""
"""SQL expression: no row has a null in the column `a` of pg_attribute.

PostgreSQL 18 has NOT NULL … NOT VALID, for which existing rows are not checked.
"""

# Dropped columns are left out. Generated columns stay: snapshots read them, though the log does not carry them.
_COLUMNS = f"""
select a.attrelid::int8, a.attname, a.atttypid::int8, a.atttypmod, not {NOT_NULL}, a.attgenerated::text,
       pg_catalog.pg_get_expr(d.adbin, d.adrelid),
       case when %s then pg_catalog.col_description(a.attrelid, a.attnum::int4) end, a.attnum::int4
from pg_catalog.pg_attribute a
left join pg_catalog.pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
where a.attrelid = any(%s::oid[]) and a.attnum > 0 and not a.attisdropped
order by a.attrelid, a.attnum
"""

# The primary key, else a unique index without expressions that covers every row: the one on which the table is
# clustered, else the first by name. As in Debezium, its columns may be nullable, and included columns count.
_KEYS = """
select i.indrelid::int8, i.indisprimary,
       array(select a.attname from unnest(i.indkey::int2[]) with ordinality k(attnum, place)
             join pg_catalog.pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum
             where k.place <= i.indnkeyatts or not i.indisprimary order by k.place)::text[]
from pg_catalog.pg_index i join pg_catalog.pg_class c on c.oid = i.indexrelid
where i.indrelid = any(%s::oid[]) and i.indisunique and i.indpred is null and i.indexprs is null and i.indisvalid
order by i.indrelid, i.indisprimary desc, i.indisclustered desc, c.relname
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
       t.typtypmod, t.typnotnull, quote_ident(s.nspname) || '.' || quote_ident(p.proname), t.xmin::text::int8,
       (select json_agg(json_build_array(e.oid::int8, e.enumlabel, e.xmin::text::int8) order by e.enumsortorder)
        from pg_catalog.pg_enum e where e.enumtypid = t.oid)
from needed join pg_catalog.pg_type t on t.oid = needed.oid
join pg_catalog.pg_proc p on p.oid = t.typoutput join pg_catalog.pg_namespace s on s.oid = p.pronamespace
"""

# The attributes of composite types.
_ATTRIBUTES = """
select t.oid::int8, a.attname, a.atttypid::int8, a.atttypmod
from pg_catalog.pg_type t join pg_catalog.pg_attribute a on a.attrelid = t.typrelid
where t.oid = any(%s::oid[]) and a.attnum > 0 and not a.attisdropped
order by t.oid, a.attnum
"""

# One statement, so that all results are of one moment: the LSN is taken after the statement's snapshot.
_PRESENT = f"""
select wanted.oid::int8, pg_catalog.txid_snapshot_xmax(pg_catalog.txid_current_snapshot()),
  array(select pg_catalog.txid_snapshot_xip(pg_catalog.txid_current_snapshot())),
  (pg_catalog.pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::int8,
  (select json_agg(json_build_array(
            a.attnum, a.attname, {NOT_NULL}, a.attgenerated <> '', pg_catalog.pg_get_expr(d.adbin, d.adrelid),
            case when %s then pg_catalog.col_description(a.attrelid, a.attnum::int4) end,
            a.atttypid::int8, a.atttypmod, a.xmin::text::int8, d.xmin::text::int8,
            a.atthasmissing or a.attnotnull or a.attidentity <> '' or t.typdefault is not null,
            case when a.atthasmissing then (a.attmissingval::text::text[])[1] end) order by a.attnum)
   from pg_catalog.pg_attribute a join pg_catalog.pg_type t on t.oid = a.atttypid
   left join pg_catalog.pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
   where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped),
  (select json_agg(json_build_array(
            i.indexrelid::int8, i.indisprimary, i.indisclustered, n.relname, i.xmin::text::int8,
            array(select k.attnum from unnest(i.indkey::int2[]) with ordinality k(attnum, place)
                  where k.place <= i.indnkeyatts or not i.indisprimary order by k.place)) order by i.indexrelid)
   from pg_catalog.pg_index i join pg_catalog.pg_class n on n.oid = i.indexrelid
   where i.indrelid = c.oid and i.indisunique and i.indpred is null and i.indexprs is null and i.indisvalid),
  (select json_agg(json_build_array(a.attnum, a.xmin::text::int8) order by a.attnum)
   from pg_catalog.pg_attribute a where a.attrelid = c.oid and a.attnum > 0 and a.attisdropped),
  case when c.relkind = 'p' then 0 else c.relfilenode::int8 end, c.xmin::text::int8
from unnest(%s::oid[]) wanted(oid) left join pg_catalog.pg_class c on c.oid = wanted.oid
"""

# A statement that alters a table, its indexes or its comments takes a stronger lock than statements that read or write
# rows. It holds the lock until the transaction's end. A prepared transaction has no process.
_ALTERS = """
select from pg_catalog.pg_locks own join pg_catalog.pg_locks held on held.virtualtransaction = own.virtualtransaction
join pg_catalog.pg_database d on d.oid = held.database
where own.locktype = 'transactionid' and own.transactionid = %s::text::xid and own.mode = 'ExclusiveLock'
  and held.locktype = 'relation' and held.relation = %s::oid and held.granted
  and held.mode not in ('AccessShareLock', 'RowShareLock', 'RowExclusiveLock')
  and d.datname = pg_catalog.current_database()
"""

_LABELS = """
select e.enumtypid::int8, json_agg(json_build_array(e.oid::int8, e.enumlabel)),
       (array_agg(e.xmin::text::int8 order by pg_catalog.age(e.xmin)))[1]
from pg_catalog.pg_enum e where e.enumtypid = any(%s::oid[]) group by e.enumtypid
"""

_KINDS = {"b": "base", "e": "enum", "d": "domain", "c": "composite", "r": "range", "m": "range", "p": "unknown"}

CapturedTable = tuple[int, TableId, str]
"""A table's oid, name and kind, as `Catalog.tables` lists it."""


def captured_tables(tables: Sequence[CapturedTable], lists: TableFilter) -> list[CapturedTable]:
    """Return the tables that the include and exclude lists let through, in their given order."""
    return [entry for entry in tables if lists.includes(entry[1].schema, entry[1].table)]


class Catalog:
    """Table schemas by query; types are cached as long as the object lives.

    `connection` is a psycopg connection in autocommit mode; with `comments` columns include their comments. Not
    thread-safe.
    """

    def __init__(self, connection: psycopg.Connection[Any], database: str, comments: bool = False) -> None:
        self._connection = connection
        self._database = database
        self._comments = comments
        self._types: dict[int, tuple[Any, ...]] = {}
        self._attributes: dict[int, list[tuple[str, int, int]]] = {}
        self._any_bytes = has_no_encoding(connection)

    def tables(self) -> list[tuple[int, TableId, str]]:
        """Return all tables that can be captured, `(oid, name, kind)`, ordered by name.

        The kind is the catalog's relkind, or `i` for a table from which others inherit.
        """
        rows = self._connection.execute(_TABLES).fetchall()
        return [(oid, TableId(self._database, schema, name), kind) for oid, schema, name, _, kind in rows]

    def schemas(self, oids: Sequence[int]) -> dict[int, TableSchema]:
        """Return the present schemas of the tables `oids`, with generated columns; missing tables are left out."""
        if not oids:
            return {}
        wanted = list(oids)
        heads = self._connection.execute(_TABLE, (wanted,)).fetchall()
        columns = self._connection.execute(_COLUMNS, (self._comments, wanted)).fetchall()
        keys: dict[int, tuple[str, ...]] = {}
        for oid, _, names in self._connection.execute(_KEYS, (wanted,)).fetchall():
            keys.setdefault(oid, tuple(names))
        self._load_types(row[2] for row in columns)
        listed: dict[int, list[Column]] = {}
        for attrelid, name, type_oid, modifier, nullable, generated, default, comment, number in columns:
            column = self._column(name, type_oid, modifier, nullable, default, generated != "", comment, number=number)
            listed.setdefault(attrelid, []).append(column)
        found: dict[int, TableSchema] = {}
        for oid, schema, name, identity in heads:
            found[oid] = TableSchema(
                id=TableId(self._database, schema, name),
                columns=tuple(listed.get(oid, ())),
                key=keys.get(oid, ()),
                replica_identity=identity,
                oid=oid,
                any_bytes=self._any_bytes,
            )
        return found

    def attributes(self, tables: Sequence[TableSchema]) -> dict[int, Attributes]:
        """Return by oid the attributes that Relation messages do not carry, for `tables` returned by `schemas`."""
        shown = self.present([table.oid for table in tables])
        types = CatalogState(0, 0)
        self.add_types(types, (column.type_oid for table in tables for column in table.columns))
        found = {}
        for table in tables:
            needed: set[int] = set()
            wanted = [column.type_oid for column in table.columns]
            while wanted:
                oid = wanted.pop()
                if oid in types.types and oid not in needed:
                    needed.add(oid)
                    wanted += [types.types[oid].facts.element, types.types[oid].facts.base]
            present = shown[table.oid]
            found[table.oid] = Attributes(
                tuple(column.facts for column in present.columns),
                tuple(index.facts for index in present.indexes),
                tuple(types.types[oid].facts for oid in sorted(needed)),
                present.file,
                max([column.facts.number for column in present.columns], default=0),
                tuple(column.type_oid for column in present.columns),
            )
        return found

    def present(self, oids: Iterable[int]) -> dict[int, CatalogState]:
        """Return the catalog's state of each table, without its types; a dropped table has no columns."""
        rows = self._connection.execute(_PRESENT, (self._comments, list(oids))).fetchall()
        return {
            oid: CatalogState(
                next_xid,
                lsn,
                tuple(
                    PresentColumn(
                        ColumnFacts(
                            number, name, not notnull, None if generated else default, generated, comment, filled,
                            missing,
                        ),
                        type_oid, modifier, xmin, default_xmin,
                    )
                    for number, name, notnull, generated, default, comment, type_oid, modifier, xmin, default_xmin,
                        filled, missing
                    in columns or ()
                ),
                tuple(
                    PresentIndex(IndexFacts(index, primary, tuple(numbers), clustered, index_name), xmin)
                    for index, primary, clustered, index_name, xmin, numbers in indexes or ()
                ),
                {},
                frozenset(in_progress),
                tuple((number, xmin) for number, xmin in dropped or ()),
                file or 0,
                xmin or 0,
            )
            for oid, next_xid, in_progress, lsn, columns, indexes, dropped, file, xmin in rows
        }  # fmt: skip

    def alters(self, oid: int, xid: int) -> bool:
        """Return True if the transaction with the 32-bit id `xid` may have altered the table.

        The result is only valid for a transaction that is in progress before and after the call.
        """
        return self._connection.execute(_ALTERS, (str(xid), oid)).fetchone() is not None

    def add_types(self, present: CatalogState, oids: Iterable[int]) -> None:
        """Query the user-defined types among `oids` and their element and base types, and add them to `present`."""
        wanted = {oid for oid in oids if oid >= FIRST_USER_OID}
        if not wanted:
            return
        for row in self._read_types(wanted):
            oid, xmin, labels = row[0], row[9], row[10]
            if oid >= FIRST_USER_OID:
                facts = _type_facts(row)
                present.types[oid] = PresentType(facts, xmin, tuple(found for _, _, found in labels or ()))

    def labels(self, oids: Sequence[int]) -> dict[int, tuple[frozenset[tuple[int, str]], int]]:
        """Return for each enum type its present labels with their oids, and the newest xmin of their rows."""
        rows = self._connection.execute(_LABELS, (list(oids),)).fetchall()
        return {oid: (frozenset((found, label) for found, label in labels), xmin) for oid, labels, xmin in rows}

    def streamed(self, relation: Relation, attributes: Attributes, version: int) -> TableSchema:
        """Return the schema of changes in the log, from a Relation message and the `attributes` that it does not
        carry."""
        self._load_types(column.type_oid for column in relation.columns)
        types = {kind.oid: kind for kind in attributes.types}
        return TableSchema(
            id=TableId(self._database, relation.namespace, relation.name),
            columns=tuple(
                replace(
                    self._column(
                        sent.name,
                        sent.type_oid,
                        sent.type_modifier,
                        facts.nullable,
                        facts.default,
                        facts.generated,
                        facts.comment,
                        types,
                        max(facts.number, 0),
                    ),
                    filled=facts.filled,
                    missing=facts.missing,
                )
                for sent, facts in zip(relation.columns, attributes.columns, strict=True)
            ),
            key=attributes.key(),
            replica_identity=relation.replica_identity,
            oid=relation.relation_id,
            version=version,
            any_bytes=self._any_bytes,
        )

    def output_functions(self, columns: Iterable[Column]) -> dict[str, str]:
        """Return by column name the qualified output function of the column's type, which gives exactly the log's text.

        A cast to text differs: it drops the blanks of `char(n)` and adds the netmask to `inet`.
        """
        columns = list(columns)
        self._load_types(column.type_oid for column in columns)
        return {column.name: self._types[column.type_oid][8] for column in columns}

    def type_names(self, columns: Sequence[Column]) -> dict[str, str]:
        """Return by column name the column's type in SQL, qualified if necessary, with its modifier."""
        if not columns:
            return {}
        rows = self._connection.execute(
            "select pg_catalog.format_type(t, m) from unnest(%s::oid[], %s::int4[]) with ordinality u(t, m, place) "
            "order by place",
            ([column.type_oid for column in columns], [column.modifier for column in columns]),
        ).fetchall()
        return {column.name: text for column, (text,) in zip(columns, rows, strict=True)}

    def _load_types(self, oids: Iterable[int]) -> None:
        missing = {oid for oid in oids if oid not in self._types}
        if missing:
            self._read_types(missing)

    def _read_types(self, oids: Iterable[int]) -> list[tuple[Any, ...]]:
        rows = self._connection.execute(_TYPES, (sorted(oids),)).fetchall()
        self._types.update((row[0], row) for row in rows)
        composites = [row[0] for row in rows if row[2] == "c"]
        if composites:
            self._read_attributes(composites)
        return rows

    def _read_attributes(self, composites: list[int]) -> None:
        found: dict[int, list[tuple[str, int, int]]] = {oid: [] for oid in composites}
        for oid, name, type_oid, modifier in self._connection.execute(_ATTRIBUTES, (composites,)).fetchall():
            found[oid].append((name, type_oid, modifier))
        self._attributes.update(found)
        self._load_types(type_oid for listed in found.values() for _, type_oid, _ in listed)

    def _type(self, oid: int, versioned: Mapping[int, TypeFacts]) -> TypeFacts | None:
        """Return the type `oid` from `versioned`, else from the cached catalog; None if neither has it."""
        row = self._types.get(oid)
        if oid in versioned or row is None:
            return versioned.get(oid)
        return _type_facts(row)

    def _column(
        self,
        name: str,
        type_oid: int,
        modifier: int,
        nullable: bool,
        default: str | None,
        generated: bool,
        comment: str | None = None,
        types: Mapping[int, TypeFacts] = MappingProxyType({}),
        number: int = 0,
    ) -> Column:
        known = self._type(type_oid, types)
        if known is None:
            return Column(
                name, "unknown", type_oid, modifier, nullable, default, "unknown", (), None, generated, comment,
                number=number,
            )  # fmt: skip
        kind = _KINDS.get(known.kind, "unknown")
        labels = tuple(label for _, label in known.labels)
        element: Column | None = None
        if known.kind == "d":
            nullable = nullable and not known.refuses_null
            element = self._column(name, known.base, known.base_modifier, nullable, None, False, None, types)
            nullable = element.nullable
            while element.kind == "domain" and element.element is not None:
                element = element.element
        elif known.category == "A" and known.element:
            kind = "array"
            element = self._column(name, known.element, modifier, True, None, False, None, types)
        attributes = self._attributes.get(type_oid, ()) if known.kind == "c" else ()
        return Column(
            name, known.name, type_oid, modifier, nullable, default, kind, labels, element, generated, comment,
            fields=tuple(self._column(one, oid, own, True, None, False, None, types) for one, oid, own in attributes),
            number=number,
        )  # fmt: skip


def _type_facts(row: tuple[Any, ...]) -> TypeFacts:
    """Convert a row of `_TYPES` to the facts that the history keeps."""
    oid, name, kind, category, element, base, modifier, refuses_null, _, _, labels = row
    listed = tuple((label_oid, label) for label_oid, label, _ in labels or ())
    return TypeFacts(oid, name, kind, category, element, base, modifier, refuses_null, listed)
