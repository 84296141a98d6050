"""Inventory of the captured tables as a query last found them, and its differences from the catalog. Planner.

The log does not show that a table was dropped, renamed or captured late, nor that a partition was attached or detached.
The offset therefore has the tables by oid, and each start compares them with the catalog.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tailrace.config import Config
from tailrace.connectors.findings import listed
from tailrace.connectors.postgres.schema.catalog import CapturedTable
from tailrace.connectors.postgres.schema.coverage import Coverage

if TYPE_CHECKING:
    import psycopg

_PUBLICATION = "select oid::int8 from pg_catalog.pg_publication where pubname = %s"
# The last transaction that altered the publication, and the newest entry of its list of tables.
_ALTERATIONS = """
select p.xmin::text::int8,
  coalesce((select pg_catalog.max(r.oid::int8) from pg_catalog.pg_publication_rel r where r.prpubid = p.oid), 0)
from pg_catalog.pg_publication p where p.pubname = %s
"""
_LISTED_SINCE = """
select r.prrelid::int8 from pg_catalog.pg_publication_rel r join pg_catalog.pg_publication p on p.oid = r.prpubid
where p.pubname = %s and r.oid::int8 > %s
"""
_SCHEMAS_SINCE = 150000
"""The first version of the server whose publications list schemas."""
_NEWEST_SCHEMA = """
select coalesce(pg_catalog.max(s.oid::int8), 0)
from pg_catalog.pg_publication_namespace s join pg_catalog.pg_publication p on p.oid = s.pnpubid where p.pubname = %s
"""
_OF_SCHEMAS_SINCE = """
select c.oid::int8 from pg_catalog.pg_publication_namespace s
join pg_catalog.pg_publication p on p.oid = s.pnpubid join pg_catalog.pg_class c on c.relnamespace = s.pnnspid
where p.pubname = %s and s.oid::int8 > %s and c.relkind in ('r', 'p')
"""
_HIGHEST = "select pg_catalog.max(oid::int8) from pg_catalog.pg_class"
_LEAVES = """
with recursive part(root, oid) as (
  select oid, oid from pg_catalog.unnest(%s::oid[]) r(oid)
  union all
  select part.root, i.inhrelid from part join pg_catalog.pg_inherits i on i.inhparent = part.oid
)
select part.root::int8, n.nspname || '.' || c.relname, c.relfilenode::int8
from part join pg_catalog.pg_class c on c.oid = part.oid join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where c.relkind <> 'p' order by 1, 2
"""
# ALTER TABLE that rewrites a table gives it another TOAST table; VACUUM FULL, CLUSTER and TRUNCATE keep it. If no
# column was altered, the statement was SET UNLOGGED or SET LOGGED. The server refuses these for a table that a
# publication lists.
_STORES = """
select c.oid::int8, '#' || pg_catalog.substr(pg_catalog.md5(
         pg_catalog.string_agg(a.xmin::text, ' ' order by a.attnum)), 1, 6), c.reltoastrelid::int8
from pg_catalog.pg_class c join pg_catalog.pg_attribute a on a.attrelid = c.oid and a.attnum > 0
where c.oid = any(%s::oid[]) and c.relkind = 'r' and c.reltoastrelid <> 0
  and not exists (select from pg_catalog.pg_publication_rel r join pg_catalog.pg_publication p on p.oid = r.prpubid
                  where r.prrelid = c.oid and p.pubname = %s)
group by c.oid, c.reltoastrelid
"""
# The enums of columns, also inside of domains, arrays and composites: for each the tables that use it, and a digest of
# its labels up to an oid. A label keeps its oid when it is renamed.
_ENUMS = """
with recursive used(tab, kind) as (
  select a.attrelid, a.atttypid from pg_catalog.pg_attribute a
  where a.attrelid = any(%s::oid[]) and a.attnum > 0 and not a.attisdropped
  union
  select used.tab, part.kind from used join pg_catalog.pg_type t on t.oid = used.kind cross join lateral (
    select case when t.typtype = 'd' then t.typbasetype else t.typelem end as kind
    union all
    select a.atttypid from pg_catalog.pg_attribute a
    where t.typtype = 'c' and a.attrelid = t.typrelid and a.attnum > 0 and not a.attisdropped
  ) part where part.kind <> 0
)
select e.enumtypid::int8, array(select distinct used.tab::int8 from used where used.kind = e.enumtypid),
  pg_catalog.md5(pg_catalog.string_agg(pg_catalog.concat_ws(' ', e.oid, e.enumlabel), ',' order by e.oid)),
  pg_catalog.max(e.oid::int8)
from pg_catalog.pg_enum e where e.enumtypid in (select used.kind from used) and e.oid::int8 <= %s group by e.enumtypid
"""
# The number of updates of enum labels, which renames cause; the highest oid; and a digest of all labels up to an oid.
_LABELS = """
select coalesce(pg_catalog.pg_stat_get_tuples_updated('pg_catalog.pg_enum'::pg_catalog.regclass), 0)::int8,
  coalesce(pg_catalog.max(e.oid::int8), 0),
  coalesce(pg_catalog.md5(pg_catalog.string_agg(pg_catalog.concat_ws(' ', e.oid, e.enumlabel), ',' order by e.oid)), '')
from pg_catalog.pg_enum e where e.oid::int8 <= %s
"""
_ANY_OID = (1 << 32) - 1

Files = tuple[tuple[str, int], ...]
"""The names of a table's partitions, each with its file's number. For a table without partitions, in place of a name a
digest of its columns' versions, which begins with #, with the number of its TOAST table."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """The captured tables as a query last found them.

    `publication` is the publication's oid, `highest` the highest oid of a relation; 0: unknown. `tables` are the
    captured tables under whose names changes arrive: oid, name, and partitions if there are any. `altered` is the last
    transaction that altered the publication, `newest` the highest oid of an entry of its lists; both are 0 in offsets
    of earlier versions.

    `partial` are the oids of tables that were captured late, with rows that no snapshot has read since. `gaps` are the
    oids of tables that have lost changes since their last snapshot; they are recorded only with
    `on.data.loss=resnapshot`. `enums` are the enums of the captured tables, each with a digest of its labels up to the
    oid `labels`. `renames` has the number of updates of labels in the database, the highest oid of a label, and a
    digest of all labels.
    """

    publication: int = 0
    highest: int = 0
    tables: tuple[tuple[int, str, Files], ...] = ()
    altered: int = 0
    newest: int = 0
    partial: tuple[int, ...] = ()
    gaps: tuple[int, ...] = ()
    labels: int = 0
    enums: tuple[tuple[int, str], ...] = ()
    renames: tuple[int, int, str] = (0, 0, "")

    def without_partial(self, names: Collection[str] | None = None) -> Inventory:
        """Return the inventory after a snapshot has read the tables `names`, or all tables."""
        read = {oid for oid, name, _ in self.tables if names is None or name in names}
        partial, gaps = (tuple(oid for oid in oids if oid not in read) for oids in (self.partial, self.gaps))
        return replace(self, partial=partial, gaps=gaps)

    def with_seen(self, names: Collection[tuple[int, str]]) -> Inventory:
        """Return the inventory with the oids and names of further tables whose changes the log contains.

        These tables may have been dropped or renamed since.
        """
        known = {(oid, name) for oid, name, _ in self.tables}
        new: list[tuple[int, str, Files]] = [(oid, name, ()) for oid, name in names if (oid, name) not in known]
        return replace(self, tables=tuple(sorted((*self.tables, *new)))) if new else self

    def to_json(self) -> list[Any]:
        tables = [[oid, name, *[list(file) for file in files]] for oid, name, files in self.tables]
        found = [self.publication, self.highest, tables, self.altered, self.newest, list(self.partial)]
        if self.enums:
            return [*found, list(self.gaps), self.labels, [list(one) for one in self.enums], list(self.renames)]
        return [*found, list(self.gaps)] if self.gaps else found

    @classmethod
    def from_json(cls, fields: Sequence[Any]) -> Inventory:
        publication, highest, tables, altered, newest, partial, gaps, labels, enums, (updates, label, digest) = (
            *fields,
            *_LATER[len(fields) :],
        )
        return cls(
            publication,
            highest,
            tuple((oid, name, tuple((leaf, file) for leaf, file in files)) for oid, name, *files in tables),
            altered,
            newest,
            tuple(partial),
            tuple(gaps),
            labels,
            tuple((kind, labelled) for kind, labelled in enums),
            (updates, label, digest),
        )


# Values for the fields that offsets of earlier versions lack.
_LATER: tuple[Any, ...] = (0, 0, (), 0, 0, (), (), 0, (), (0, 0, ""))
UNKNOWN = Inventory()


def publication_of(connection: psycopg.Connection[Any], config: Config) -> int:
    """Return the oid of the publication, 0 if there is none."""
    row = connection.execute(_PUBLICATION, (config["publication.name"],)).fetchone()
    return 0 if row is None else int(row[0])


def lists_schemas(connection: psycopg.Connection[Any]) -> bool:
    """Return True if the server's publications can list schemas."""
    return connection.info.server_version >= _SCHEMAS_SINCE


def alterations_of(connection: psycopg.Connection[Any], config: Config) -> tuple[int, int]:
    """Return `altered` and `newest` of the publication, 0 if there is none."""
    name = config["publication.name"]
    row = connection.execute(_ALTERATIONS, (name,)).fetchone()
    if row is None:
        return 0, 0
    altered, newest = map(int, row)
    schema = connection.execute(_NEWEST_SCHEMA, (name,)).fetchone() if lists_schemas(connection) else None
    return altered, newest if schema is None else max(newest, int(schema[0]))


def listed_since(connection: psycopg.Connection[Any], config: Config, newest: int) -> set[int]:
    """Return the oids of the tables that the publication lists, also by schema, in entries newer than `newest`."""
    given = config["publication.name"], newest
    queries = (_LISTED_SINCE, _OF_SCHEMAS_SINCE) if lists_schemas(connection) else (_LISTED_SINCE,)
    return {oid for query in queries for (oid,) in connection.execute(query, given).fetchall()}


def read(
    connection: psycopg.Connection[Any],
    config: Config,
    captured: Sequence[CapturedTable],
    coverages: Mapping[int, Coverage],
) -> Inventory:
    """Return the inventory of the present catalog. `connection` is a connection of this package."""
    roots = [one.oid for one in coverages.values() if one.is_root and one.arrives]
    files: dict[int, list[tuple[str, int]]] = {}
    for oid, leaf, file in connection.execute(_LEAVES, (roots,)).fetchall() if roots else ():
        files.setdefault(oid, []).append((leaf, file))
    arriving = [(oid, name) for oid, name, _ in captured if oid in coverages and coverages[oid].arrives]
    given = [oid for oid, _ in arriving], config["publication.name"]
    for oid, columns, store in connection.execute(_STORES, given).fetchall():
        files.setdefault(oid, []).append((columns, store))
    (highest,) = connection.execute(_HIGHEST).fetchone() or (0,)
    tables = tuple(sorted((oid, str(name), tuple(files.get(oid, ()))) for oid, name in arriving))
    alterations = alterations_of(connection, config)
    found = Inventory(publication_of(connection, config), int(highest), tables, *alterations)
    enums = connection.execute(_ENUMS, ([oid for oid, _ in arriving], _ANY_OID)).fetchall()
    newest = max((label for *_, label in enums), default=0)
    kinds = tuple(sorted((kind, digest) for kind, _, digest, _ in enums))
    return replace(found, labels=newest, enums=kinds, renames=_renames(connection) if kinds else UNKNOWN.renames)


def _renames(connection: psycopg.Connection[Any], upto: int = _ANY_OID) -> tuple[int, int, str]:
    updates, newest, digest = connection.execute(_LABELS, (upto,)).fetchone() or UNKNOWN.renames
    return int(updates), int(newest), str(digest)


def relabelled(connection: psycopg.Connection[Any], before: Inventory) -> set[int]:
    """Return the oids of tables with an enum whose labels were renamed since `before`."""
    known = dict(before.enums)
    if not known:
        return set()
    found = connection.execute(_ENUMS, ([oid for oid, _, _ in before.tables], before.labels)).fetchall()
    return {table for kind, tables, digest, _ in found if known.get(kind, digest) != digest for table in tables}


def perhaps_relabelled(connection: psycopg.Connection[Any], before: Inventory) -> set[int]:
    """Return the oids of tables with an enum if labels were renamed since `before`, although all known labels have
    their names.

    A label was added and then renamed, or renamed and then renamed back, and rows may have its intermediate name. The
    server counts the updates of labels, including rolled-back ones, until its statistics are reset.
    """
    updates, newest, digest = before.renames
    if not newest:
        return set()
    now, _, labelled = _renames(connection, newest)
    if now in (updates, 0) or labelled != digest:
        return set()
    found = connection.execute(_ENUMS, ([oid for oid, _, _ in before.tables], _ANY_OID)).fetchall()
    return {table for _, tables, _, _ in found for table in tables}


def differences(
    before: Inventory,
    now: Inventory,
    names: Mapping[int, str],
    has_rows: Callable[[int], bool],
    for_all_tables: bool,
) -> Iterator[str]:
    """Yield a sentence for each event of a table since `before` that the log does not show.

    `names` are the names of all tables by oid; `has_rows` returns True for a table that has rows now. With
    `for_all_tables` every new table is published from its creation on.
    """
    if not before.tables:
        return
    present = {oid: (name, files) for oid, name, files in now.tables}
    for oid, name, files in before.tables:
        called = names.get(oid)
        if called is None:
            yield f"{name} was dropped: copies of it stay as they are; remedy: remove the copies"
        elif called != name:
            yield (
                f"{name} is called {called} now: the copy of the old name gets no further changes; remedy: "
                + (
                    f"remove that copy, and read {called} by a snapshot (signal execute-snapshot)"
                    if oid in present
                    else f"rename it back, or let the lists capture {called}"
                )
            )
        elif oid in present:
            yield from _partitions(name, files, present[oid][1])
        else:
            yield (
                f"no change of {name} arrives any more, so copies of it stay as they are; remedy: make "
                "it logged, published and captured again, then read it by a snapshot (signal execute-snapshot)"
            )
    for oid in late(before, now, has_rows, for_all_tables):
        yield (
            f"{present[oid][0]} is captured from now on, but the log does not bring the rows that it already has; "
            "remedy: read it by a snapshot (signal execute-snapshot)"
        )


def incomplete(before: Inventory, now: Inventory, names: Mapping[int, str]) -> set[int]:
    """Return the oids of captured tables whose names, files or partitions differ from `before`.

    The log does not show what became of rows of these tables.
    """
    present = {oid: files for oid, _, files in now.tables}
    found = set()
    for oid, name, files in before.tables:
        if oid in present:
            was, is_now = _leaves(files), _leaves(present[oid])
            kept = was.items() <= is_now.items() and (not was or was.keys() == is_now.keys())
            if not kept or names.get(oid) != name or _was_unlogged(files, present[oid]):
                found.add(oid)
    return found


def late(before: Inventory, now: Inventory, has_rows: Callable[[int], bool], for_all_tables: bool) -> list[int]:
    """Return the oids of tables captured since `before` that have rows which the log lacks."""
    known = {oid for oid, _, _ in before.tables}
    new = [oid for oid, _, _ in now.tables if oid not in known and not (for_all_tables and oid > before.highest)]
    return [oid for oid in new if has_rows(oid)] if known else []


def _leaves(files: Files) -> dict[str, int]:
    return {name: file for name, file in files if not name.startswith("#")}


def _was_unlogged(before: Files, now: Files) -> bool:
    """Return True if a table without partitions was rewritten, and none of its columns altered."""
    stores = {name: store for name, store in now if name.startswith("#")}
    return any(stores.get(name, store) != store for name, store in before)


def _partitions(name: str, before: Files, now: Files) -> Iterator[str]:
    was, is_now = _leaves(before), _leaves(now)
    remedy = f"remedy: read {name} by a snapshot (signal execute-snapshot), or tailrace verify --repair"
    if _was_unlogged(before, now):
        yield (
            f"{name} was rewritten, as by set unlogged and set logged: the log has nothing of what was written while "
            f"it was unlogged; {remedy}"
        )
    came = [leaf for leaf in is_now if leaf not in was]
    gone = [leaf for leaf in was if leaf not in is_now]
    anew = [leaf for leaf in was if leaf in is_now and was[leaf] != is_now[leaf]]
    if came and was:
        yield f"{name} has the new partitions {listed(came)}: the log does not bring the rows that they had; {remedy}"
    if gone:
        yield f"{name} has lost the partitions {listed(gone)}, whose rows the log does not remove; {remedy}"
    if anew:
        yield (
            f"the partitions {listed(anew)} of {name} were emptied or rewritten, and the log does not say "
            f"which; {remedy}"
        )
