"""The session that exports a snapshot and plans its chunks, and the chunks' queries. Planner.

A chunk is a range of heap pages (`ctid`). PostgreSQL 14 and later read it without touching other pages; on older
servers each table is one chunk. Values are read as the text of their output functions. The log has the same text, so
both use the same converters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tailrace.columns.table import TableId, TableSchema
from tailrace.connectors.postgres.log.visibility import VisibleTransactions
from tailrace.connectors.postgres.schema.catalog import Catalog
from tailrace.connectors.postgres.server.connection import hold_open, own_path
from tailrace.connectors.postgres.snapshot import conditions
from tailrace.connectors.postgres.values.texts import selected
from tailrace.errors import ConfigError, ConnectionFailed
from tailrace.snapshot.plan import Chunk, PlannedTable, SnapshotPlan

if TYPE_CHECKING:
    import psycopg

# 16 MB of heap: a few hundred thousand narrow rows at most. Chunks are smaller, down to 1 MB, if otherwise there were
# fewer than BATCHES batches: a crash costs one batch.
CHUNK_PAGES, LEAST_CHUNK_PAGES = 2048, 128
BATCHES = 12

# The most tables that one statement reads: it locks each table and each of its indexes.
_AT_ONCE = 200


@dataclass(frozen=True, slots=True)
class SnapshotOrigin:
    """The source of every row of a snapshot: one LSN, transaction id and time (µs since 1970).

    `previous_end` is the end LSN of the last commit before it, -1 if none has been seen; for a blocking snapshot, which
    follows the log, it is the snapshot's own position. `xmin`, of 64 bits, is the oldest transaction that the
    snapshot's first session may not show; 0 in offsets of earlier versions.
    """

    lsn: int
    xid: int
    at_us: int
    previous_end: int = -1
    xmin: int = 0


@dataclass(frozen=True, slots=True)
class SnapshotProgress:
    """A snapshot of which `done` chunks have been read."""

    plan: SnapshotPlan
    origin: SnapshotOrigin
    done: int

    @property
    def is_complete(self) -> bool:
        return self.done >= len(self.plan)


# The form of each table and of its partitions: heap file, and columns by number and name.
_PARTS = """
with recursive part(root, oid) as (
  select o, o from unnest(%s::oid[]) o
  union
  select part.root, i.inhrelid from part
  join pg_catalog.pg_inherits i on i.inhparent = part.oid
)
"""
# Both queries run under the snapshot. It applies to the tables that they read, while functions show the present
# catalog.
_SHOWN_FORM = f"""{_PARTS}
select part.root::int8, string_agg(concat_ws(' ', c.oid, nullif(c.relfilenode, 0), (
    select string_agg(concat_ws(' ', a.attnum, n.nspname, c.relname, a.attname), ',' order by a.attnum)
    from pg_catalog.pg_attribute a where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
  )), ';' order by c.oid)
from part
join pg_catalog.pg_class c on c.oid = part.oid join pg_catalog.pg_namespace n on n.oid = c.relnamespace
group by part.root
"""
PRESENT_FORM = f"""{_PARTS}
select part.root::int8, string_agg(concat_ws(' ', part.oid, pg_catalog.pg_relation_filenode(part.oid), (
    select string_agg(concat_ws(' ', a.attnum, array_to_string(
        (pg_catalog.pg_identify_object_as_address('pg_catalog.pg_class'::regclass, part.oid, a.attnum)).object_names,
        ' ')), ',' order by a.attnum)
    from pg_catalog.pg_attribute a where a.attrelid = part.oid and a.attnum > 0 and not a.attisdropped
  )), ';' order by part.oid)
from part
group by part.root
"""


class SnapshotSession:
    """A transaction of the planner that keeps a snapshot exported while tasks read under it."""

    def __init__(
        self, connection: psycopg.Connection[Any], slot_snapshot: str | None, other: psycopg.Connection[Any]
    ) -> None:
        """Take a snapshot, or take over `slot_snapshot`, which the creation of a slot exported.

        `connection` is in autocommit mode and belongs to this session alone; `other` is a second one in that mode.
        """
        self.connection = self._connection = connection
        hold_open(connection)
        connection.execute("begin isolation level repeatable read read only")
        if slot_snapshot is not None:
            take_over(connection, slot_snapshot)
        row = connection.execute(
            "select pg_export_snapshot(), pg_current_snapshot()::text, "
            "(pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::int8, "
            "(extract(epoch from clock_timestamp()) * 1000000)::int8"
        ).fetchone()
        assert row is not None
        self.name: str = row[0]
        self.visible = VisibleTransactions.parse(row[1], row[2])
        # A transaction id that no change in the log has. A separate short transaction gets it, because this long
        # transaction with an id would delay the creation of other slots. The end of the short transaction also puts a
        # record between the snapshot's LSN and the LSN of the next change.
        found = other.execute("select case when pg_is_in_recovery() then null else txid_current() end").fetchone()
        assert found is not None
        xid = (found[0] or self.visible.xmax) & 0xFFFFFFFF
        self.origin = SnapshotOrigin(row[2], xid, row[3], xmin=self.visible.xmin)

    def catalog(self, database: str, comments: bool) -> Catalog:
        """Return the catalog as the snapshot shows it."""
        return Catalog(self._connection, database, comments)

    def hold(self, tables: Sequence[tuple[int, TableId, str]]) -> list[str]:
        """Keep `tables` from being altered until `release`; return the names of tables altered since the snapshot.

        A table's form is not part of a snapshot: a table altered after the snapshot is read in its new version, and a
        rewritten table appears empty. Each table is therefore locked (`access share`, as by every query), and then its
        form in the snapshot is compared with its present form. A dropped table counts as altered.
        """
        import psycopg

        gone = (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName, psycopg.errors.WrongObjectType)
        self._connection.execute("savepoint held")
        try:
            self._lock(tables)
        except gone:
            self._connection.execute("rollback to savepoint held")
            for table in tables:
                try:
                    self._lock([table])
                except gone:
                    self._connection.execute("rollback to savepoint held")
                    return [str(table[1])]
        oids = [oid for oid, _, _ in tables]
        shown = dict(self._connection.execute(_SHOWN_FORM.encode(), (oids,)).fetchall())
        present = self.forms(oids)
        return [str(name) for oid, name, _ in tables if oid not in shown or shown[oid] != present.get(oid)]

    def _lock(self, tables: Sequence[tuple[int, TableId, str]]) -> None:
        import psycopg

        if not tables:
            return
        # in one statement: a database may have thousands of tables
        sources = [only(relkind) + qualified(name) for _, name, relkind in tables]
        try:
            self._connection.execute(f"lock table {', '.join(sources)} in access share mode".encode())
        except psycopg.errors.InsufficientPrivilege:
            self._connection.execute("rollback to savepoint held")
            for source in sources:
                self._connection.execute(locking(source).encode())

    def release(self) -> None:
        """Release the locks of `hold`; the snapshot stays.

        Otherwise a statement that alters a table would wait for this session, and tasks would wait for that statement.
        """
        self._connection.execute("rollback to savepoint held")

    @contextmanager
    def _passing(self) -> Iterator[None]:
        """Release the locks that are taken inside the block, at its end, if nothing fails."""
        self._connection.execute("savepoint passing")
        yield
        self._connection.execute("rollback to savepoint passing")
        self._connection.execute("release savepoint passing")

    def forms(self, oids: Sequence[int]) -> dict[int, str]:
        """Return the present form of each table as text; {} if a column was dropped and the server is older than 14."""
        import psycopg

        self._connection.execute("savepoint forms")
        try:
            found = dict(self._connection.execute(PRESENT_FORM.encode(), (list(oids),)).fetchall())
        except psycopg.errors.InternalError:
            self._connection.execute("rollback to savepoint forms")
            found = {}
        # this runs before every batch, and unreleased savepoints would nest
        self._connection.execute("release savepoint forms")
        return found

    def storage(self, oids: Sequence[int]) -> dict[int, int]:
        """Return the number of each table's heap file, which changes when the table is rewritten; 0 for a partitioned
        table."""
        return dict(
            self._connection.execute(
                "select oid::int8, relfilenode::int8 from pg_catalog.pg_class where oid = any(%s::oid[])", (list(oids),)
            ).fetchall()
        )

    def row_counts(self, tables: Sequence[tuple[int, TableId, str]]) -> dict[str, int]:
        """Return the number of rows of each table: the server's estimate, or the exact number if it has none."""
        found = {}
        for oid, name, relkind in tables:
            query = "select reltuples::int8 from pg_catalog.pg_class where oid = %s::oid"
            row = self._connection.execute(query, (oid,)).fetchone()
            if row is None or row[0] <= 0:
                with self._passing():
                    row = self._row(f"select count(*) from {only(relkind)}{qualified(name)}")
            found[str(name)] = int(row[0])
        return found

    def count(self, table: TableId, relkind: str, statement: str | None) -> int:
        """Return the number of rows of a table, or of the statement that replaces it."""
        source = f"{only(relkind)}{qualified(table)}" if statement is None else f"({statement}\n) as rows"
        with self._passing(), own_path(self._connection):
            return int(self._row(f"select pg_catalog.count(*) from {source}")[0])

    def statement_fault(self, table: TableSchema, statement: str) -> str:
        """Return why `statement` cannot replace the rows of `table`, as the rest of a sentence; "" if it can.

        Raises the driver's error for failures that are not the statement's own.
        """
        import psycopg

        self._connection.execute("savepoint checked")
        try:
            # binary, because its protocol refuses a second statement in the same text
            query = f"select * from ({statement}\n) as rows limit 0"
            with own_path(self._connection):
                described = self._connection.execute(query.encode(), binary=True).description
        except psycopg.DatabaseError as error:
            if not conditions.is_own_fault(error.sqlstate):
                raise
            self._connection.execute("rollback to savepoint checked")
            return f"fails with SQLSTATE {error.sqlstate}"
        names = [column.name for column in described or ()]
        wrong = [column.name for column in table.columns if names.count(column.name) != 1]
        listed = ", ".join(f"{name} ({names.count(name)} times)" if name in names else name for name in wrong)
        return f"does not give the column {listed} once" if wrong else ""

    def try_query(self, query: str) -> tuple[int, str]:
        """Return the number of rows of `query`, which holds a signal's SQL, and the SQLSTATE if it fails, else "".

        Computes every value of every row. Raises the driver's error for failures that are not the query's own.
        """
        import psycopg

        self._connection.execute("savepoint tried")
        try:
            with own_path(self._connection):
                row = self._connection.execute(conditions.counted(query).encode(), binary=True).fetchone()
        except psycopg.DatabaseError as error:
            if not conditions.is_own_fault(error.sqlstate):
                raise
            self._connection.execute("rollback to savepoint tried")
            return 0, str(error.sqlstate)
        assert row is not None
        return int(row[0]), ""

    def plan(
        self,
        tables: Sequence[tuple[int, TableId, str]],
        parallelism: int,
        statements: Mapping[str, str],
        counts: Mapping[str, int],
    ) -> SnapshotPlan:
        """Return the plan for `tables`, `(oid, name, relkind)` in order; tables without a visible row are left out.

        `counts` has the row counts of tables that were counted, by `schema.table`. A table with a statement of its own
        in `statements` is one chunk. The chunks' size is chosen for BATCHES batches of `parallelism` chunks, within
        limits.
        """
        planned: list[PlannedTable] = []
        first = True
        by_pages = self._connection.info.server_version >= 140000
        storage = self.storage([oid for oid, _, _ in tables])
        sizes = self._sizes([oid for oid, _, relkind in tables if relkind == "r"] if by_pages else [])
        filled = self._filled([one for one in tables if not any(str(one[1]) in of for of in (statements, counts))])
        for place, (oid, name, _) in enumerate(tables):
            statement, known = statements.get(str(name)), counts.get(str(name))
            if known is not None:
                has_rows = known > 0
            else:
                has_rows = oid in filled if statement is None else self._gives_rows(statement)
            if not has_rows:
                first = first and place > 0
                continue
            pages = self._pages(name, sizes[oid]) if statement is None and oid in sizes else 1
            planned.append(PlannedTable(name.schema, name.table, pages, storage.get(oid, 0)))
        wanted = -(-sum(table.pages for table in planned) // (BATCHES * parallelism))
        return SnapshotPlan(tuple(planned), min(max(wanted, LEAST_CHUNK_PAGES), CHUNK_PAGES), first)

    def _filled(self, tables: Sequence[tuple[int, TableId, str]]) -> set[int]:
        """Return the oids of the tables that have a visible row; one statement checks many tables."""
        found: set[int] = set()
        for start in range(0, len(tables), _AT_ONCE):
            part = tables[start : start + _AT_ONCE]
            asked = ", ".join(f"exists (select from {only(relkind)}{qualified(name)})" for _, name, relkind in part)
            with self._passing() if len(tables) > _AT_ONCE else nullcontext():
                answers = self._row(f"select {asked}")
            found |= {oid for (oid, _, _), has_rows in zip(part, answers, strict=True) if has_rows}
        return found

    def _gives_rows(self, statement: str) -> bool:
        """Return True if a statement of the user returns a row."""
        with own_path(self._connection):
            return bool(self._row(f"select exists (select from ({statement}\n) as rows)")[0])

    def _row(self, query: str) -> tuple[Any, ...]:
        row: tuple[Any, ...] | None = self._connection.execute(query.encode()).fetchone()
        assert row is not None
        return row

    def _sizes(self, oids: Sequence[int]) -> dict[int, int]:
        """Return by oid the heap pages of the tables that the role may read as a whole."""
        return dict(
            self._connection.execute(
                "select oid::int8, pg_catalog.pg_relation_size(oid) / current_setting('block_size')::int8 "
                "from pg_catalog.pg_class where oid = any(%s::oid[]) "
                # a right to columns alone does not cover ctid
                "and pg_catalog.has_table_privilege(oid, 'select')",
                (list(oids),),
            ).fetchall()
        )

    def _pages(self, table: TableId, size: int) -> int:
        """Return the number of heap pages up to the last visible row, searched backwards from page `size` in growing
        steps."""
        high, step = size, 64
        while high > 1:
            low = max(0, high - step)
            (last,) = self._row(
                f"select max((ctid::text::point)[0])::int8 from only {qualified(table)} "
                f"where ctid >= '({low},0)' and ctid < '({high},0)'"
            )
            if last is not None:
                return int(last) + 1
            high, step = low, step * 4
        return 1

    def close(self) -> None:
        self._connection.close()


def takes_over(connection: psycopg.Connection[Any], snapshot: str) -> bool:
    """Let the transaction read under the exported `snapshot`; return False if that snapshot's session has ended."""
    import psycopg

    try:
        connection.execute(f"set transaction snapshot '{snapshot}'".encode())
    except (psycopg.errors.InvalidParameterValue, psycopg.errors.UndefinedObject):
        return False
    return True


def take_over(connection: psycopg.Connection[Any], snapshot: str) -> None:
    """Let the transaction read under the snapshot of a slot's creation. Raises ConnectionFailed if it is gone."""
    if not takes_over(connection, snapshot):
        raise ConnectionFailed(
            "The session that has created the replication slot has ended, and its snapshot with it.",
            "Start again with the same checkpoint when the server is back.",
        )


def only(relkind: str) -> str:
    """Return `only ` for a table that is read without the tables below it, else "".

    Partitioned and inherited tables are read with all tables below them, as Debezium does.
    """
    return "" if relkind in "pi" else "only "


def locking(source: str) -> str:
    """Return a query that locks a table like LOCK TABLE in mode ACCESS SHARE, but needs a right to only one column.

    It also takes the transaction's snapshot.
    """
    return f"select from {source} limit 0"


def override_statement(table: TableSchema, outputs: dict[str, str], types: Mapping[str, str], statement: str) -> str:
    """Return the query of a table that `statement` replaces: the columns by name, cast to their types, as text.

    Run the query with the user's own search_path.
    """
    columns = []
    for column in table.columns:
        name = quoted(column.name)
        columns.append(f"pg_catalog.textin({outputs[column.name]}(({name})::{types[column.name]})) as {name}")
    return f"select {', '.join(columns) or '1'} from ({statement}\n) as rows"


def override_error(table: TableId, what: str) -> ConfigError:
    return ConfigError(
        f"The statement of snapshot.select.statement.overrides for {table} {what}.",
        "Correct it: it has to give every captured column of the table by its name.",
    )


def select_statement(
    table: TableSchema, outputs: dict[str, str], chunk: Chunk, relkind: str, since: int | None = None,
    condition: str | None = None,
) -> str:  # fmt: skip
    """Return the query of one chunk: columns in the forms that `texts` takes, of rows that meet `condition`.

    With `since`, a transaction id of 64 bits, the query returns only rows that this or a later transaction has written.
    It may also return rows older than half of all ids. Subtransactions have later ids than their transaction.
    """
    columns = ", ".join(selected(column, quoted(column.name), outputs) for column in table.columns)
    conditions = [] if condition is None else [f"({condition})"]
    if chunk.first_page:
        conditions.append(f"ctid >= '({chunk.first_page},0)'")
    if chunk.last_page is not None:
        conditions.append(f"ctid < '({chunk.last_page},0)'")
    if since is not None:
        # Ids of 32 bits wrap around. Rows with ids below 3 are in every snapshot; a frozen row keeps its id.
        conditions.append(
            f"xmin::text::int8 > 2 and ((xmin::text::int8 - {since & 0xFFFFFFFF}) & 4294967295) < 2147483648"
        )
    where = f" where {' and '.join(conditions)}" if conditions else ""
    return f"select {columns or '1'} from {only(relkind)}{quoted(table.id.schema)}.{quoted(table.id.table)}{where}"


def qualified(name: TableId) -> str:
    return f"{quoted(name.schema)}.{quoted(name.table)}"


def quoted(name: str) -> str:
    """Return the name as a quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'
