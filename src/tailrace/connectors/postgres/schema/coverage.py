"""Coverage: the part of each captured table that the log carries, and the reasons why the rest is left out.

Planner and driver. A SELECT returns all that a role may see of a table. The log carries what the publication, the kind
of the table and its replica identity let through (PostgreSQL documentation, "Logical Replication": "Publication", "Row
Filters", "Column Lists"). `cover` is a pure function of catalog rows; `read` asks the catalog for them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tailrace.columns.table import TableId, TableSchema
from tailrace.config import Config, TableFilter
from tailrace.config.rows import keeps_copies
from tailrace.connectors.findings import Finding, Level, demanded, listed
from tailrace.connectors.postgres.schema.catalog import CapturedTable, Catalog
from tailrace.connectors.postgres.server.causes import HIDES, SHOW
from tailrace.connectors.postgres.values.plain import MONEY_EXAMPLE, money_fault
from tailrace.errors import ConfigError, PrerequisiteError
from tailrace.events.event_settings import EventSettings
from tailrace.snapshot.mode import snapshot_mode

if TYPE_CHECKING:
    import psycopg

# Partitions by pg_inherits: pg_partition_tree would lock each of them until the transaction's end.
_RELATIONS = """
select c.oid::int8, n.nspname, c.relname, c.relkind::text, c.relpersistence::text, c.relispartition,
  c.relreplident::text, pg_catalog.row_security_active(c.oid),
  case when c.relispartition
       then array(select a.relid::oid::int8 from pg_catalog.pg_partition_ancestors(c.oid) a where a.relid <> c.oid)
       else '{}' end,
  case when c.relkind = 'p'
       then array(with recursive part(oid) as (
                    select i.inhrelid from pg_catalog.pg_inherits i where i.inhparent = c.oid
                    union all
                    select i.inhrelid from part join pg_catalog.pg_inherits i on i.inhparent = part.oid)
                  select l.oid::int8 from part join pg_catalog.pg_class l on l.oid = part.oid where l.relkind <> 'p')
       else '{}' end,
  not c.relispartition and c.relkind = 'r'
  and exists (select from pg_catalog.pg_inherits i where i.inhparent = c.oid),
  array(select a.attname::text from pg_catalog.pg_attribute a
        where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped order by a.attnum),
  array(select a.attname::text from pg_catalog.pg_attribute a
        where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped and a.attgenerated <> ''),
  array(select a.attname::text from pg_catalog.pg_attribute a
        where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped and a.attgenerated = 's'),
  (select array(select a.attname::text from pg_catalog.unnest(i.indkey::int2[]) with ordinality k(number, place)
                join pg_catalog.pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.number
                where k.place <= i.indnkeyatts order by k.place)
   from pg_catalog.pg_index i
   where i.indrelid = c.oid and i.indisvalid and i.indimmediate
     and case c.relreplident when 'd' then i.indisprimary when 'i' then i.indisreplident else false end limit 1),
  exists (select from pg_catalog.pg_index i where i.indrelid = c.oid and i.indisprimary and not i.indimmediate)
from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where c.oid = any(%s::oid[])
"""
# The leaves of captured roots and the ancestors of captured leaves, which the lists may leave out.
_RELATED = """
with recursive wanted(oid) as (select oid from pg_catalog.unnest(%s::oid[]) w(oid)), part(oid) as (
  select c.oid from wanted join pg_catalog.pg_class c on c.oid = wanted.oid where c.relkind = 'p'
  union
  select i.inhrelid from part join pg_catalog.pg_inherits i on i.inhparent = part.oid
)
select part.oid::int8 from part
union
select a.relid::oid::int8 from wanted join pg_catalog.pg_class c on c.oid = wanted.oid
cross join lateral pg_catalog.pg_partition_ancestors(c.oid) a where c.relispartition
"""
# Servers before PostgreSQL 15 have neither attribute: both are null. Before PostgreSQL 18 attnames also lists generated
# columns, which no change carries.
_PUBLISHED = """
select c.oid::int8, p.attributes -> 'attnames', p.attributes ->> 'rowfilter'
from (select schemaname, tablename, to_jsonb(t) as attributes
      from pg_catalog.pg_publication_tables t where pubname = %s) p
join pg_catalog.pg_namespace n on n.nspname = p.schemaname
join pg_catalog.pg_class c on c.relnamespace = n.oid and c.relname = p.tablename
"""
# Servers before PostgreSQL 18 have no pubgencols.
_PUBLICATION = """
select puballtables, pubviaroot, to_jsonb(p) ->> 'pubgencols' = 's'
from pg_catalog.pg_publication p where pubname = %s
"""


_GENERATED = "generated and not published"


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """A table in the catalog.

    `kind` is pg_class.relkind. `has_children` is True if tables inherit from it, `hides_rows` if row-level security
    applies to this role, `has_deferrable_key` if its primary key is deferrable. `identity` is the replica identity's
    letter, and `identity_columns` are the columns of its index, None without a usable index. `ancestors` are the
    partitioned tables of which it is a partition, `leaves` the partitions that hold the rows of a partitioned table.
    `generated` are the generated columns, `stored` the ones among them whose values are stored.
    """

    oid: int
    name: TableId
    kind: str = "r"
    is_logged: bool = True
    has_children: bool = False
    hides_rows: bool = False
    identity: str = "d"
    identity_columns: tuple[str, ...] | None = None
    has_deferrable_key: bool = False
    ancestors: tuple[int, ...] = ()
    leaves: tuple[int, ...] = ()
    columns: tuple[str, ...] = ()
    generated: frozenset[str] = frozenset()
    stored: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Published:
    """A table as a publication sends it under the table's own name.

    `columns` are its published columns, None for all that are not generated. `rows` is the SQL condition on its rows,
    None for all rows.
    """

    columns: frozenset[str] | None = None
    rows: str | None = None


@dataclass(frozen=True, slots=True)
class Coverage:
    """The rows, columns and old values of one captured table that the log carries, and the names under which it does.

    `arrives_as` are the tables under whose names its changes arrive: the table itself, the partitioned table above it,
    or its partitions; empty if no change arrives. `is_root` is True for a partitioned table. `uncarried` are the
    columns that only a SELECT returns, each with the reason. `rows` is the SQL condition on the published rows.
    `has_children` is True if other tables inherit from it, `hides_rows` if row-level security applies to this role.
    `refuses` is the reason why the server refuses its updates and deletes, "" if it accepts them. `without_log` are its
    unlogged partitions, `foreign` those that are foreign tables. `identity` are the columns that the log has of every
    old row, None for all of them, or if there is no such row; `by_index` is True if an index other than the primary key
    says so. `is_within` is True if changes arrive under the name of the partitioned table above it.
    """

    oid: int
    name: TableId
    arrives_as: tuple[TableId, ...]
    is_root: bool = False
    is_unlogged: bool = False
    uncarried: tuple[tuple[str, str], ...] = ()
    rows: str | None = None
    has_children: bool = False
    hides_rows: bool = False
    refuses: str = ""
    without_log: tuple[TableId, ...] = ()
    foreign: tuple[TableId, ...] = ()
    identity: frozenset[str] | None = None
    by_index: bool = False
    is_within: bool = False

    @property
    def is_published_whole(self) -> bool:
        """True if the publication publishes all rows and all columns of the table except generated ones.

        Only `setup.coverage_watch` asks, to see that a publication was changed meanwhile; `tailrace check` and each
        start report what the log leaves out by `findings`.
        """
        return self.arrives and self.rows is None and all(why == _GENERATED for _, why in self.uncarried)

    @property
    def arrives(self) -> bool:
        """True if changes arrive under the table's own name."""
        return self.name in self.arrives_as

    def schema(self, table: TableSchema) -> TableSchema:
        """Return the table without the columns that the log does not carry."""
        left_out = {name for name, _ in self.uncarried}
        if not left_out:
            return table
        return replace(table, columns=tuple(one for one in table.columns if one.name not in left_out))


def cover(
    captured: Collection[int], relations: Mapping[int, CatalogTable], published: Mapping[int, Published]
) -> dict[int, Coverage]:
    """Return the coverage of each captured table by oid. `relations` also has their partitions and ancestors."""
    return {oid: _covered(relations[oid], relations, published) for oid in captured if oid in relations}


def _covered(
    relation: CatalogTable, relations: Mapping[int, CatalogTable], published: Mapping[int, Published]
) -> Coverage:
    own = published.get(relation.oid)
    above = [relations[oid].name for oid in relation.ancestors if oid in published and oid in relations]
    below = [relations[oid].name for oid in relation.leaves if oid in published and oid in relations]
    if own is not None:
        names: tuple[TableId, ...] = (relation.name,)
    else:
        names = tuple(above[-1:] or sorted(below))
    uncarried = () if own is None else tuple(_uncarried(relation, own))
    leaves = [relations[oid] for oid in relation.leaves if oid in relations]
    return Coverage(
        relation.oid,
        relation.name,
        names,
        relation.kind == "p",
        not relation.is_logged,
        uncarried,
        None if own is None else own.rows,
        relation.has_children,
        relation.hides_rows,
        "" if own is None else _refusal(relation, own, leaves),
        tuple(leaf.name for leaf in leaves if not leaf.is_logged and leaf.kind != "f") if own is not None else (),
        tuple(leaf.name for leaf in leaves if leaf.kind == "f") if own is not None else (),
        *_identity(leaves or [relation]),
        is_within=own is None and bool(above),
    )


def _identity(tables: Sequence[CatalogTable]) -> tuple[frozenset[str] | None, bool]:
    """Return the columns that old rows of all these tables have, None for no limit, and whether an index says so."""
    found = [one for one in tables if one.identity in ("d", "i") and one.identity_columns is not None]
    if not found:
        return None, False
    common = frozenset.intersection(*(frozenset(one.identity_columns or ()) for one in found))
    return common, any(one.identity == "i" for one in found)


def _uncarried(relation: CatalogTable, own: Published) -> Iterator[tuple[str, str]]:
    for name in relation.columns:
        if name in relation.generated and (own.columns is None or name not in own.columns):
            yield name, _GENERATED
        elif own.columns is not None and name not in own.columns:
            yield name, "not among the columns that the publication has"


def _refusal(relation: CatalogTable, own: Published, leaves: Sequence[CatalogTable]) -> str:
    """Return why the server refuses updates and deletes of the table or of one of its partitions; "" if it does not."""
    for one in leaves or [relation]:
        of = "" if one is relation else f" of its partition {one.name}"
        if one.identity == "n":
            return f"the replica identity{of} is NOTHING"
        if one.identity == "f":
            lacking = {name for name, _ in _uncarried(one, own)}
            if lacking:
                return f"the replica identity{of} is FULL, and {', '.join(sorted(lacking))} is not published"
            continue
        if one.identity_columns is None:
            key = "the primary key is deferrable" if one.has_deferrable_key else "there is no primary key"
            return f"{key}{of}, and no other replica identity"
        lacking = set() if own.columns is None else set(one.identity_columns) - own.columns
        if lacking:
            return f"the column {', '.join(sorted(lacking))} of the replica identity{of} is not published"
    return ""


# --- the catalog -----------------------------------------------------------------------------------------------------


def read(
    connection: psycopg.Connection[Any], config: Config, captured: Sequence[CapturedTable], *, as_it_is: bool = False
) -> dict[int, Coverage]:
    """Return the coverage of each captured table by oid, by the present catalog.

    The result is for the publication as `publication.autocreate.mode` would leave it at a start; with `as_it_is`, for
    an existing publication in its present state. `connection` is a connection of this package, with a pinned
    search_path.
    """
    oids = [oid for oid, _, _ in captured]
    if not oids:
        return {}
    related = {oid for (oid,) in connection.execute(_RELATED, (oids,)).fetchall()}
    relations = {
        row[0]: _relation(config["database.dbname"], row)
        for row in connection.execute(_RELATIONS, (sorted(related.union(oids)),)).fetchall()
    }
    return cover(oids, relations, _published(connection, config, oids, relations, as_it_is))


def _relation(database: str, row: tuple[Any, ...]) -> CatalogTable:
    (
        oid, schema, name, kind, persistence, _, identity, hides, ancestors, leaves, has_children, columns, generated,
        stored, index, deferrable,
    ) = row  # fmt: skip
    return CatalogTable(
        oid,
        TableId(database, schema, name),
        kind,
        persistence == "p" and kind != "f",
        has_children,
        hides,
        identity,
        None if index is None else tuple(index),
        deferrable,
        tuple(ancestors),
        tuple(leaves),
        tuple(columns),
        frozenset(generated),
        frozenset(stored),
    )


def _published(
    connection: psycopg.Connection[Any],
    config: Config,
    captured: Sequence[int],
    relations: Mapping[int, CatalogTable],
    as_it_is: bool,
) -> dict[int, Published]:
    name, mode = config["publication.name"], config["publication.autocreate.mode"]
    row = connection.execute(_PUBLICATION, (name,)).fetchone()
    if row is not None and (as_it_is or row[0] or mode != "filtered"):
        found = connection.execute(_PUBLISHED, (name,)).fetchall()
        carries_generated = connection.info.server_version >= 180000
        return {
            oid: Published(None if columns is None else _named_in(columns, relations.get(oid), carries_generated), rows)
            for oid, columns, rows in found
        }
    if mode not in ("all_tables", "filtered"):
        return {}
    via_root = bool(config["publish.via.partition.root"]) or (row is not None and bool(row[1]))
    wanted = list(captured) if mode == "filtered" else list(relations)
    # a publication that exists keeps publish_generated_columns
    return _made(wanted, relations, via_root, sends_stored=row is not None and bool(row[2]))


def _named_in(columns: Sequence[str], relation: CatalogTable | None, carries_generated: bool) -> frozenset[str]:
    """Return the columns in a publication's column list that changes carry."""
    left_out = frozenset() if carries_generated or relation is None else relation.generated
    return frozenset(columns) - left_out


def _made(
    wanted: Sequence[int], relations: Mapping[int, CatalogTable], via_root: bool, *, sends_stored: bool
) -> dict[int, Published]:
    """Return the published tables of a publication of the tables `wanted`, without column lists and row filters."""

    def whole(one: CatalogTable) -> Published:
        return Published(frozenset(one.columns) - (one.generated - one.stored) if sends_stored else None)

    listed = [relations[oid] for oid in wanted if oid in relations and relations[oid].is_logged]
    named = {one.oid for one in listed}
    found: dict[int, Published] = {}
    for one in listed:
        if via_root:
            above = [oid for oid in one.ancestors if oid in named]
            oid = above[-1] if above else one.oid
            found[oid] = whole(relations[oid])
        elif one.kind == "p":
            found |= {oid: whole(relations[oid]) for oid in one.leaves if oid in relations and relations[oid].is_logged}
        else:
            found[one.oid] = whole(one)
    return found


_NO_TABLES = """
select n.nspname, c.relname, case c.relkind when 'v' then 'view' when 'm' then 'materialized view'
                             else 'foreign table' end
from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where c.relkind in ('v', 'm', 'f') and n.nspname not in ('pg_catalog', 'information_schema')
order by 1, 2
"""
_MONEY = f"""
select pg_catalog.current_setting('lc_monetary'), '{MONEY_EXAMPLE}'::pg_catalog.numeric::pg_catalog.money::text
where exists (select from pg_catalog.pg_attribute a
              where a.attrelid = any(%s::oid[]) and not a.attisdropped
                and a.atttypid = 'pg_catalog.money'::pg_catalog.regtype)
"""


def unfit(connection: psycopg.Connection[Any], config: Config, captured: Sequence[CapturedTable]) -> list[Finding]:
    """Return the findings about captured tables that the catalog alone shows.

    There is a finding for relations in `table.include.list` that have no log, such as views; for captured tables whose
    names are equal because of dots in them; and for money in a form of the server's locale that cannot be read.
    """
    found = []
    for locale, text in connection.execute(_MONEY, ([oid for oid, _, _ in captured],)).fetchall():
        why = money_fault(text, config["money.fraction.digits"])
        if why:
            level: Level = "error" if keeps_copies(config) else "warning"
            remedy = (
                "alter role … set lc_monetary = … to a locale of the same currency whose decimal sign is a point; or "
                "set money.fraction.digits, or column.exclude.list."
            )
            found.append(Finding(level, "coverage", f"lc_monetary = {locale} {why}.", remedy))
    if config["table.include.list"]:
        lists = TableFilter(config)
        rows = connection.execute(_NO_TABLES).fetchall()
        named = [f"{schema}.{name} ({kind})" for schema, name, kind in rows if lists.lists(schema, name)]
        if named:
            text = f"table.include.list matches what is no table, and no change of it arrives: {listed(named)}."
            found.append(Finding("warning", "coverage", text, "Capture the tables from which its rows come."))
    seen: dict[str, TableId] = {}
    for _, table, _ in captured:
        other = seen.setdefault(str(table), table)
        if other != table:
            text = f'"{other.schema}"."{other.table}" and "{table.schema}"."{table.table}" have one name: {table}.'
            found.append(Finding("error", "coverage", text, "Rename one of them, or leave both out."))
    return found


# --- findings and choices --------------------------------------------------------------------------------------------


def unidentified(
    connection: psycopg.Connection[Any], config: Config, coverages: Mapping[int, Coverage]
) -> dict[int, tuple[str, ...]]:
    """Return by oid the columns of a table's key in events that old rows of the log lack, for each table with any."""
    renamed = bool(config["message.key.columns"])
    doubtful = [
        one for one in coverages.values() if one.identity is not None and (renamed or one.by_index or one.is_root)
    ]
    if not doubtful:
        return {}
    shaping = EventSettings.from_options(config).shaping
    found = {}
    for oid, table in Catalog(connection, config["database.dbname"]).schemas([one.oid for one in doubtful]).items():
        # the start refuses a key of columns that the table does not have
        with suppress(ConfigError):
            known = coverages[oid].identity or frozenset()
            found[oid] = tuple(name for name in shaping.keyed(table).key if name not in known)
    return {oid: names for oid, names in found.items() if names}


def findings(
    coverages: Mapping[int, Coverage],
    *,
    copies: bool,
    lacking: Mapping[int, Sequence[str]] = MappingProxyType({}),
    typed: bool = False,
) -> list[Finding]:
    """Return a finding for each table whose log lacks anything that a SELECT returns, ordered by name.

    With `copies` tables are kept equal to their sources, and a table that no copy can follow is an error. Partitions
    whose changes arrive under the name of a captured table are part of that table's finding. `lacking` is the result of
    `unidentified`, which is no error for `typed` rows.
    """
    ordered = sorted(coverages.values(), key=lambda one: one.name)
    arriving = {one.name for one in ordered if one.arrives}
    silent: dict[TableId, list[TableId]] = {}
    for one in ordered:
        if one.is_within and one.arrives_as[0] in arriving:
            silent.setdefault(one.arrives_as[0], []).append(one.name)
    covered = {name for names in silent.values() for name in names}
    found = []
    for one in ordered:
        gaps = [] if one.name in covered else list(_told(one, arriving, silent.get(one.name, ()), copies))
        if one.oid in lacking and one.arrives and one.name not in covered:
            gaps.append(_unkeyed(lacking[one.oid], "error" if copies and not typed else "warning"))
        if gaps:
            level: Level = "error" if any(level == "error" for level, _, _ in gaps) else "warning"
            text = f"{one.name}: {'; '.join(text for _, text, _ in gaps)}."
            found.append(Finding(level, "coverage", text, " ".join(remedy for _, _, remedy in gaps)))
    return found


def _told(
    one: Coverage, arriving: Collection[TableId], silent: Sequence[TableId], copies: bool
) -> Iterator[tuple[Level, str, str]]:
    """Yield the parts of a table that the log does not carry: the level, a part of a sentence, and the remedy."""
    yield from _named(one, arriving, silent, copies)
    yield from _in_part(one, copies)


def _named(
    one: Coverage, arriving: Collection[TableId], silent: Sequence[TableId], copies: bool
) -> Iterator[tuple[Level, str, str]]:
    """Yield why changes do not arrive under the table's name, or why changes of other tables also do."""
    wrong: Level = "error" if copies else "warning"
    if not one.arrives and one.arrives_as:
        is_kept = any(name in arriving for name in one.arrives_as)
        yield (
            "warning" if is_kept else wrong,
            f"its changes arrive under the names of other tables ({listed(one.arrives_as)})"
            + ("" if is_kept else ", which are not captured"),
            "Set publish.via.partition.root=true, and if the publication exists: alter publication … set "
            "(publish_via_partition_root = true). The changes of all partitions then have the partitioned table's name."
            if one.is_root and not one.is_within
            else "Capture the partitioned table.",
        )
    elif one.is_unlogged:
        yield "warning", "it is unlogged, and no change of it arrives", "alter table … set logged; or leave it out."
    elif not one.arrives:
        yield (
            wrong,
            "the publication does not have it, and no change of it arrives",
            "alter publication … add table …; or set publication.autocreate.mode=filtered; or leave it out.",
        )
    if silent:
        yield "warning", f"changes of its partitions ({listed(silent)}) arrive under its name alone", "Leave them out."


def _in_part(one: Coverage, copies: bool) -> Iterator[tuple[Level, str, str]]:
    """Yield the rows, columns and changes of the table that the log leaves out."""
    wrong: Level = "error" if copies else "warning"
    if one.hides_rows:
        yield (
            wrong,
            HIDES,
            SHOW,
        )
    if one.uncarried:
        names = ", ".join(f"{name} ({why})" for name, why in one.uncarried)
        yield (
            "warning",
            f"changes do not carry {names}" + ("; its copy is without" if copies else ""),
            "Publish the columns (generated ones from PostgreSQL 18 on, by publish_generated_columns = stored), or "
            "leave them out with column.exclude.list.",
        )
    if one.rows is not None:
        yield (
            "warning",
            f"only rows with {one.rows} are published"
            + ("; its copy has no others" if copies else ", and a snapshot reads all"),
            "Publish the table without a filter if all of its rows are wanted.",
        )
    if one.has_children:
        yield (
            "warning",
            "other tables inherit from it: a SELECT shows their rows as well, and changes arrive for its own alone"
            + ("; its copy has its own rows" if copies else ""),
            "Capture the tables that inherit from it as well.",
        )
    if one.without_log:
        yield (
            wrong,
            f"changes of its partitions {listed(one.without_log)} do not arrive: they are unlogged",
            "alter table … set logged;",
        )
    if one.foreign:
        yield (
            wrong,
            f"changes of its partitions {listed(one.foreign)} do not arrive: they are foreign tables",
            "alter table … detach partition …; or leave the table out.",
        )
    if one.arrives and one.refuses:
        yield (
            "warning",
            f"the server refuses its updates and deletes while it is published: {one.refuses}",
            "alter table … replica identity full; or using an index over published NOT NULL columns.",
        )


def _unkeyed(names: Sequence[str], level: Level) -> tuple[Level, str, str]:
    return (
        level,
        f"its key has {', '.join(names)}, which the replica identity lacks: the log does not tell the key of a deleted "
        "row, nor that it has changed",
        "alter table … replica identity full; or name columns of the replica identity in message.key.columns.",
    )


def kept(coverages: Mapping[int, Coverage], captured: Sequence[CapturedTable]) -> list[CapturedTable]:
    """Return the captured tables that a copy can follow. A table with children is read without them.

    Tables whose changes arrive under other names, or not at all, are left out. Raises PrerequisiteError if `findings`
    has an error.
    """
    demanded([one for one in findings(coverages, copies=True) if one.level == "error"])
    found = []
    for oid, name, kind in captured:
        one = coverages.get(oid)
        if one is not None and one.arrives:
            found.append((oid, name, "r" if one.has_children else kind))
    return found


class CarriedTables:
    """The tables, columns and rows that a snapshot reads: all, or for a copy only those that changes carry.

    `coverages` has the coverage of each captured table by oid; None: everything is read.
    """

    def __init__(self, coverages: Mapping[int, Coverage] | None = None) -> None:
        self._coverages = coverages

    def tables(self, captured: Sequence[CapturedTable]) -> list[CapturedTable]:
        """Return the tables to read. Raises PrerequisiteError if a copy cannot follow one of them."""
        return list(captured) if self._coverages is None else kept(self._coverages, captured)

    def schema(self, table: TableSchema) -> TableSchema:
        """Return the table with the columns to read. Raises PrerequisiteError if its key is not among them."""
        one = None if self._coverages is None else self._coverages.get(table.oid)
        if one is None:
            return table
        left_out = {name for name, _ in one.uncarried}.intersection(table.key)
        if left_out:
            raise PrerequisiteError(
                f"{table.id}: changes do not carry {', '.join(sorted(left_out))}, which its key has.",
                "Publish the column, or give the table another key with message.key.columns.",
            )
        return one.schema(table)

    def takes(self, oid: int) -> bool:
        """Return True if the table is read: its changes arrive under its own name."""
        one = None if self._coverages is None else self._coverages.get(oid)
        return one is None or one.arrives

    def condition(self, oid: int) -> str | None:
        """Return the SQL condition on the rows to read; None for all rows."""
        one = None if self._coverages is None else self._coverages.get(oid)
        return None if one is None else one.rows


EVERYTHING = CarriedTables()


def carried(
    connection: psycopg.Connection[Any],
    config: Config,
    settings: EventSettings,
    captured: Sequence[CapturedTable],
    *,
    as_it_is: bool = False,
) -> CarriedTables:
    """Return the tables, columns and rows of `captured` that a snapshot reads, by the present catalog.

    These are all if no copy is kept, or if no changes follow the snapshot. `as_it_is` is as in `read`; without it
    `captured` must be all captured tables.
    """
    if not settings.copies or not snapshot_mode(config).streams:
        return EVERYTHING
    return CarriedTables(read(connection, config, captured, as_it_is=as_it_is))
