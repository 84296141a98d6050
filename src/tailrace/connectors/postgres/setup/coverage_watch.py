"""The captured tables at a start and while a query runs: warnings of everything that the log lacks. Planner.

Each start reads everything from the catalog. Later a single query checks periodically whether any of it has changed.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tailrace.config import Config, TableFilter
from tailrace.connectors.findings import Finding, demanded, listed
from tailrace.connectors.postgres.schema import coverage, inventory
from tailrace.connectors.postgres.schema.catalog import CapturedTable, Catalog, captured_tables
from tailrace.connectors.postgres.schema.coverage import Coverage
from tailrace.connectors.postgres.schema.inventory import Inventory
from tailrace.connectors.postgres.setup import publications
from tailrace.connectors.postgres.snapshot.session import only, qualified
from tailrace.errors import ConnectionFailed, PositionLost, SchemaChanged
from tailrace.snapshot.mode import snapshot_mode
from tailrace.snapshot.signal_handler import DISCOVERED, GAP

if TYPE_CHECKING:
    import psycopg

log = logging.getLogger("tailrace")

# Names and kinds of tables, files of partitions, labels of enums, the publication, its lists, and the tables that it
# publishes. Temporary tables are never captured.
_LOOK = """
select pg_catalog.md5(pg_catalog.string_agg(line, ';' order by line)) from (
  select pg_catalog.concat_ws(' ', 'p', oid, xmin) as line from pg_catalog.pg_publication where pubname = %s
  union all
  select pg_catalog.concat_ws(' ', 'r', r.oid, r.xmin) from pg_catalog.pg_publication_rel r
  join pg_catalog.pg_publication p on p.oid = r.prpubid where p.pubname = %s
  union all
  select pg_catalog.concat_ws(' ', 'l', pg_catalog.to_jsonb(l)) from pg_catalog.pg_publication_tables l
  where l.pubname = %s
  union all {schemas}
  select pg_catalog.concat_ws(' ', 't', c.oid, n.nspname, c.relname, c.relpersistence, c.relispartition,
    c.relrowsecurity, c.relreplident, case when c.relispartition then c.relfilenode end,
    c.reltoastrelid, (select i.indexrelid from pg_catalog.pg_index i where i.indrelid = c.oid and i.indisreplident))
  from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
  where c.relkind in ('r', 'p') and c.relpersistence <> 't' and n.nspname not in ('pg_catalog', 'information_schema')
  union all
  select pg_catalog.concat_ws(' ', 'e', e.oid, e.xmin) from pg_catalog.pg_enum e
  union all
  select 'n ' || pg_catalog.pg_stat_get_tuples_updated('pg_catalog.pg_enum'::pg_catalog.regclass)
) seen
"""
_SCHEMAS = """
  select pg_catalog.concat_ws(' ', 's', s.oid, s.xmin) from pg_catalog.pg_publication_namespace s
  join pg_catalog.pg_publication p on p.oid = s.pnpubid where p.pubname = %s
  union all"""


def look(*, schemas: bool) -> str:
    """Return a query for a hash of everything in the catalog on which `CoverageWatch` depends.

    Each parameter of the query is the publication's name. `schemas` is True if the server's publications can list
    schemas.
    """
    return _LOOK.format(schemas=_SCHEMAS if schemas else "")


class CoverageWatch:
    """The captured tables as last found: those that `tables` lets through.

    With `copies` a table is kept equal to its source; with `typed` rows have the columns of captured tables.
    """

    def __init__(self, config: Config, tables: TableFilter, copies: bool, typed: bool = False) -> None:
        self._config = config
        self._tables = tables
        # the tables that commands have added or removed
        self._expected: Collection[str] = ()
        self._copies, self._typed = copies, typed
        self._name: str = config["publication.name"]
        self._on_loss: str = config["on.data.loss"]
        self._ids: dict[int, tuple[str, str]] = {}
        self._inventory: Inventory | None = None
        # oids and names of tables with changes in the log; the reader's thread adds to them
        self._seen: set[tuple[int, str]] = set()
        self._told: set[str] = set()
        # the inventory and the number of seen tables of the latest count, and the count
        self._counted: tuple[Inventory | None, int, int] = (None, 0, 0)
        self._looked = ""
        # tables that have lost changes, before they are in the inventory
        self._gaps: set[int] = set()

    def seen(self, oid: int, name: str) -> None:
        """Record a table with changes in the log. Any thread."""
        self._seen.add((oid, name))

    @property
    def inventory(self) -> Inventory | None:
        """The captured tables, with those that have appeared in the log since; None before the first start."""
        return None if self._inventory is None else self._inventory.with_seen(self._seen.copy())

    @property
    def count(self) -> int | None:
        """The number of tables in `inventory`; None before the first start. Any thread."""
        found, seen = self._inventory, self._seen
        if found is None:
            return None
        if self._counted[0] is not found or self._counted[1] != len(seen):
            self._counted = found, len(seen), len({oid for oid, *_ in (*found.tables, *seen.copy())})
        return self._counted[2]

    @property
    def late(self) -> frozenset[str]:
        """The names of the tables with rows or changes that the log lacks, and that no snapshot has read since."""
        found = self._inventory
        if found is None or not (found.partial or found.gaps):
            return frozenset()
        oids = {*found.partial, *found.gaps}
        return frozenset(name for oid, name, _ in found.tables if oid in oids)

    def unread(self) -> list[tuple[tuple[str, str], str]]:
        """Return the tables to read because the log lacks rows of them, as ((schema, table), notification)."""
        found = self._inventory
        if found is None:
            return []
        new = found.partial if self._config["table.discovery"] == "on" else ()
        kinds = dict.fromkeys(new, DISCOVERED) | dict.fromkeys(found.gaps, GAP)
        return [(self._ids[oid], kind) for oid, kind in kinds.items() if oid in self._ids]

    def demand_name(self, oid: int, name: str) -> None:
        """Raise SchemaChanged if rows are typed and the table was captured under another name. Any thread.

        `name` is the table's name in the log, which the lists leave out. Lists that also leave out the earlier name
        give the table up.
        """
        if not self._typed or self._inventory is None:
            return
        for known, before, _ in self._inventory.tables:
            if known == oid and before != name and self._includes(before):
                raise SchemaChanged(
                    f"{before} is called {name} now, which the lists leave out.",
                    f"Let the lists capture {name}, rename it back, or take {before} out of the lists, and start the "
                    "query again with the same checkpoint.",
                )

    def _includes(self, name: str) -> bool:
        """Return True if the lists capture a table that is shown as `name`; its schema's name may have dots."""
        parts = name.split(".")
        return any(
            self._tables.includes(".".join(parts[:place]), ".".join(parts[place:])) for place in range(1, len(parts))
        )

    def note_read(self, names: Collection[str] | None) -> None:
        """Record that a snapshot has read the tables `names`, or all tables if None."""
        if self._inventory is not None:
            self._inventory = self._inventory.without_partial(names)

    # --- the start -----------------------------------------------------------------------------------------------

    def is_republished(self, connection: psycopg.Connection[Any], since: Inventory) -> bool:
        """Return True if the publication through which the log was read was dropped, recreated or replaced by another.

        Servers before 18 cannot read a slot by a publication that is younger than the log. Later servers leave out
        changes that were written while there was no publication.
        """
        return bool(since.publication) and since.publication != inventory.publication_of(connection, self._config)

    def republished(self) -> PositionLost:
        """Return the error for a publication other than the one through which the log was read."""
        slot = self._config["slot.name"]
        return PositionLost(
            f"The publication {self._name} is not the one that the log was read by: it is gone, was dropped and made "
            "again, or publication.name has changed. Changes written meanwhile are lost.",
            f"Name the earlier publication, or select pg_drop_replication_slot('{slot}'); then delete the "
            "checkpoint for a new snapshot.",
        )

    def warn_of_publication(
        self, connection: psycopg.Connection[Any], captured: Sequence[CapturedTable], since: Inventory
    ) -> None:
        """Warn if another session has altered the publication, before the start corrects it."""
        if not since.tables:
            return
        for text, _ in self._missed(connection, captured, since):
            log.warning("%s", text)

    def _missed(
        self, connection: psycopg.Connection[Any], captured: Sequence[CapturedTable], since: Inventory
    ) -> list[tuple[str, set[int]]]:
        """Return a sentence for each reason why changes have not arrived, with the oids of the tables.

        Raises PositionLost with `on.data.loss=stop`.
        """
        found = [*self._lists(connection, captured, since), *self._altered(connection, since)]
        for text, oids in found if self._on_loss != "warn" else ():
            self._lose(text, oids)
        return found

    def _lose(self, text: str, oids: set[int]) -> None:
        """Record tables that have lost changes. Raises PositionLost with `on.data.loss=stop`."""
        if self._on_loss == "stop":
            reason, _, remedy = text.partition("; remedy: ")
            raise PositionLost(
                f"{reason[0].upper()}{reason[1:]} (on.data.loss=stop).",
                f"Start once with on.data.loss=resnapshot, or with warn: {remedy}.",
            )
        self._gaps |= oids

    def take(
        self,
        connection: psycopg.Connection[Any],
        catalog: Catalog,
        captured: Sequence[CapturedTable],
        since: Inventory,
        expected: Collection[str] = (),
    ) -> None:
        """Warn of everything that the log lacks of the captured tables, and of events since the checkpoint that it
        lacks.

        There is no warning that a table of `expected` is captured late, or is no longer captured. Raises
        PrerequisiteError if a copy cannot follow a table.
        """
        self._expected = expected
        self._looked = self._look(connection)
        covered = coverage.read(connection, self._config, captured)
        for one in demanded(self._findings(connection, covered)):
            self._told.add(one.text)
            log.warning("%s %s", one.text, one.remedy)
        self._keep(connection, catalog, since, inventory.read(connection, self._config, captured, covered))

    # --- later ---------------------------------------------------------------------------------------------------

    def look_again(self, connection: psycopg.Connection[Any]) -> None:
        """Warn of changes in the catalog since the last call.

        If the publication was replaced, raises PositionLost, or ConnectionFailed if the snapshot mode allows a new
        start. Raises PrerequisiteError if a copy cannot follow a table any more.
        """
        before, looked = self.inventory, self._look(connection)
        if before is None or looked == self._looked:
            return
        if self.is_republished(connection, before):
            lost = self.republished()
            raise ConnectionFailed(lost.message, lost.remedy) if snapshot_mode(self._config).mends else lost
        catalog = Catalog(connection, self._config["database.dbname"])
        captured = captured_tables(catalog.tables(), self._tables)
        known = {oid for oid, _, _ in before.tables}
        covered = coverage.read(connection, self._config, captured, as_it_is=True)
        for text, _ in self._missed(connection, captured, before):
            log.warning("%s", text)
        publications.warn_of_settings(connection, self._config)
        self._keep(connection, catalog, before, inventory.read(connection, self._config, captured, covered))
        if self._config["publication.autocreate.mode"] != "filtered":
            # findings about new tables are left to the next start
            of = {oid: one for oid, one in covered.items() if oid in known}
            new = [one for one in self._findings(connection, of) if one.text not in self._told]
            for one in demanded(new):
                self._told.add(one.text)
                log.warning("%s %s", one.text, one.remedy)
        self._looked = looked

    def _findings(self, connection: psycopg.Connection[Any], covered: Mapping[int, Coverage]) -> list[Finding]:
        lacking = coverage.unidentified(connection, self._config, covered)
        return coverage.findings(covered, copies=self._copies, lacking=lacking, typed=self._typed)

    def _look(self, connection: psycopg.Connection[Any]) -> str:
        query = look(schemas=inventory.lists_schemas(connection))
        row = connection.execute(query.encode(), (self._name,) * query.count("%s")).fetchone()
        return "" if row is None else str(row[0])

    def _keep(self, connection: psycopg.Connection[Any], catalog: Catalog, before: Inventory, now: Inventory) -> None:
        """Store the inventory `now`, and warn of differences from `before` that the log does not show."""
        every = catalog.tables()
        has_rows = functools.cache(lambda oid: _has_rows(connection, next(one for one in every if one[0] == oid)))
        for_all = publications.is_for_all_tables(connection, self._name)
        names = {oid: str(name) for oid, name, _ in every}
        captured = {oid for oid, _, _ in now.tables}
        for oid, name, _ in before.tables if self._typed else ():
            # a partition in the lists is not captured beside its root
            if oid not in captured and names.get(oid, name) != name and not self._includes(names[oid]):
                self._inventory = before
                self.demand_name(oid, names[oid])
        still_covered = replace(before, tables=tuple(one for one in before.tables if one[1] not in self._expected))
        found = replace(now, tables=tuple(one for one in now.tables if one[1] not in self._expected))
        for text in inventory.differences(still_covered, found, names, has_rows, for_all):
            log.warning("%s", text)
        relabelled = inventory.relabelled(connection, before) & captured
        for name in sorted(names[oid] for oid in relabelled):
            log.warning(
                "labels of an enum of %s were renamed: rows that were not written since have the old ones in copies; "
                "remedy: read %s by a snapshot (signal execute-snapshot), or tailrace verify --repair, also if its key "
                "has the enum",
                name,
                name,
            )
        perhaps = inventory.perhaps_relabelled(connection, before) & captured
        for name in sorted(names[oid] for oid in perhaps):
            log.warning(
                "labels of an enum, perhaps of %s, had other names for a while: rows that were written meanwhile have "
                "these in copies; remedy: read %s by a snapshot (signal execute-snapshot), or tailrace verify --repair",
                name,
                name,
            )
        relabelled |= perhaps
        if self._on_loss != "warn" and (changed := inventory.incomplete(still_covered, found, names) | relabelled):
            several = listed(sorted(names[oid] for oid in changed))
            self._lose(
                f"the log does not say what became of rows of {several}; remedy: tailrace verify --repair", changed
            )
        # a table that a command has added may have uncommitted rows of a transaction that began before
        is_read = self._config["table.discovery"] == "on"
        added = {oid for oid, name, _ in now.tables if is_read or name in self._expected}
        added -= {oid for oid, _, _ in before.tables}
        added = {oid for oid in added if not (for_all and oid > before.highest)}
        late = inventory.late(before, now, has_rows, for_all)
        partial = captured.intersection((*before.partial, *late, *(added if before.tables else ())))
        gaps = captured.intersection((*before.gaps, *self._gaps))
        self._gaps = set()
        self._ids = {oid: (table.schema, table.table) for oid, table, _ in every}
        self._inventory = replace(now, partial=tuple(sorted(partial)), gaps=tuple(sorted(gaps)))

    def _lists(
        self, connection: psycopg.Connection[Any], captured: Sequence[CapturedTable], since: Inventory
    ) -> Iterator[tuple[str, set[int]]]:
        """Yield a sentence for each table that the publication has only in part, although a start would list it
        whole."""
        if self._config["publication.autocreate.mode"] != "filtered":
            return
        known = {oid for oid, _, _ in since.tables}
        for one in coverage.read(connection, self._config, captured, as_it_is=True).values():
            if one.oid in known and not one.is_published_whole:
                others = f", or under other names ({listed(one.arrives_as)})" if one.arrives_as else ""
                text = (
                    f"the publication did not have all of {one.name} for a while: changes of that time have not arrived"
                    f"{'' if one.arrives else others}; remedy: read {one.name} by a snapshot (signal "
                    "execute-snapshot)"
                )
                yield text, {one.oid}

    def _altered(self, connection: psycopg.Connection[Any], since: Inventory) -> Iterator[tuple[str, set[int]]]:
        """Yield a sentence if the publication was altered, or lists tables anew, even if it is the same as before."""
        if not since.altered:
            return
        remedy = "remedy: read these tables by a snapshot (signal execute-snapshot), or tailrace verify --repair"
        known = {oid: name for oid, name, _ in since.tables}
        altered, newest = inventory.alterations_of(connection, self._config)
        if altered != since.altered:
            text = (
                f"the publication {self._name} was altered: for a while it may not have published some operations or "
                f"partitions of {listed(sorted(set(known.values())))}; {remedy}"
            )
            yield text, set(known)
        if newest > since.newest:
            again = inventory.listed_since(connection, self._config, since.newest)
            names = sorted(known[oid] for oid in again & known.keys())
            if names:
                text = (
                    f"the publication {self._name} lists {listed(names)} anew: changes written while it did not "
                    f"list all of them have not arrived; {remedy}"
                )
                yield text, again & known.keys()


def _has_rows(connection: psycopg.Connection[Any], table: CapturedTable) -> bool:
    row = connection.execute(f"select exists (select from {only(table[2])}{qualified(table[1])})".encode()).fetchone()
    return row is not None and bool(row[0])
