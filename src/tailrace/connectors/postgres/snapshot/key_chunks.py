"""Chunks of a table by ranges of its key, for incremental snapshots: their bounds and their rows. Planner and worker.

The planner finds chunks under an exported snapshot, and tasks read them under the same snapshot. No session that waits
for a task holds a lock on the table, so a DDL statement in between cannot cause a deadlock. A task locks the table
first, and then checks that it is still the table that the snapshot shows. If it is not, the task reads nothing; the
planner notices the same, and has the chunk read again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tailrace.columns.batch import ChangeBatch, Marker
from tailrace.columns.table import TableSchema
from tailrace.connectors.postgres.schema.catalog import NOT_NULL
from tailrace.connectors.postgres.server.arrow import ArrowConnection
from tailrace.connectors.postgres.server.connection import OWN, own_path
from tailrace.connectors.postgres.snapshot import conditions
from tailrace.connectors.postgres.snapshot.reconcile import SupersededRows
from tailrace.connectors.postgres.snapshot.rights import is_forbidden
from tailrace.connectors.postgres.snapshot.rows import as_reads
from tailrace.connectors.postgres.snapshot.session import SnapshotOrigin, locking, only, qualified, quoted
from tailrace.connectors.postgres.values.texts import selected, texts
from tailrace.snapshot.incremental import Collection, Cursor, Key, UnusableTable

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa

OPERATORS = """coalesce((
         with recursive base(oid) as (
           select a.atttypid
           union
           select d.typbasetype from base join pg_catalog.pg_type d on d.oid = base.oid where d.typtype = 'd'
         )
         select quote_ident(s.nspname)
         from base join pg_catalog.pg_opclass k on k.opcintype = base.oid and k.opcdefault
         join pg_catalog.pg_am m on m.oid = k.opcmethod and m.amname = 'btree'
         join pg_catalog.pg_amop w on w.amopfamily = k.opcfamily and w.amoplefttype = k.opcintype
           and w.amoprighttype = k.opcintype and w.amopstrategy = 2
         join pg_catalog.pg_operator o on o.oid = w.amopopr and o.oprname = '<='
         join pg_catalog.pg_namespace s on s.oid = o.oprnamespace
         limit 1
       ), 'pg_catalog')"""
"""SQL expression: the schema of the operators that compare the column `a` of pg_attribute."""

# A table's columns as the transaction's snapshot shows them: number, type, whether they may be null, qualified name,
# and the schema of the operators that order them; operators of an extension's types are in the extension's schema.
_COLUMNS = f"""
select a.attname, a.attnum::int, pg_catalog.format_type(a.atttypid, a.atttypmod), not {NOT_NULL},
       concat_ws('.', quote_ident(n.nspname), quote_ident(c.relname), quote_ident(a.attname)),
       {OPERATORS}
from pg_catalog.pg_attribute a
join pg_catalog.pg_class c on c.oid = a.attrelid
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where a.attrelid = %s and a.attnum > 0 and not a.attisdropped
"""

# The catalog rows that any DDL statement on the table, or on one of its partitions, changes; they stay changed if
# another statement undoes the first, as for a table that was renamed twice.
_FINGERPRINT = """
with recursive tree(oid) as (
  select %s::oid union select i.inhrelid from pg_catalog.pg_inherits i join tree on i.inhparent = tree.oid
)
select md5(string_agg(line, ';' order by line)) from (
  select 'c' || c.oid || ':' || c.xmin || ':' || c.relfilenode || ':' || n.oid || ':' || n.xmin as line
  from pg_catalog.pg_class c join tree on c.oid = tree.oid join pg_catalog.pg_namespace n on n.oid = c.relnamespace
  union all
  select 'a' || a.attrelid || ':' || a.attnum || ':' || a.xmin
  from pg_catalog.pg_attribute a join tree on a.attrelid = tree.oid
  where a.attnum > 0
) found
"""

# The files of the table and its partitions. The condition `still` compares them with functions that read the server's
# caches, and therefore return the present files, not those of the transaction's snapshot.
_FILES = """
with recursive tree(oid) as (
  select %s::oid union select i.inhrelid from pg_catalog.pg_inherits i join tree on i.inhparent = tree.oid
)
select c.oid::int8, c.relfilenode::int8 from pg_catalog.pg_class c join tree on c.oid = tree.oid where c.relkind = 'r'
order by c.oid
"""


@dataclass(frozen=True, slots=True)
class KeyChunk:
    """Rows with keys after `after`, up to and including `upto`; with `nulls` also rows whose key has a null.

    If `after` is None, the chunk starts at the first row. If `upto` is None, it has only rows whose key has a null.
    `rows` is the number of its rows without nulls in the key.
    """

    number: int
    after: Key | None
    upto: Key | None
    rows: int
    nulls: bool = False


class ChangedTable(Exception):
    """A table is being altered, or was altered since the snapshot, which may show it empty.

    Also raised for a table that the server temporarily cannot read.
    """


@dataclass(frozen=True, slots=True)
class KeyedTable:
    """A table under a snapshot, ordered by the columns `key`; the columns `identity`, if any, identify its rows.

    `outputs` has each column's output function. For each key column `types` has the type to which its text is cast
    back, and `operators` the schema of the operators that compare it. `nullable` is True if a key column may be null.
    `still` is an SQL condition that is true while the table is unaltered since the snapshot. `fingerprint` changes with
    every DDL statement on the table. The rows to read meet the condition `rows` of a publication, and the condition
    `filter` of a signal.
    """

    table: TableSchema
    relkind: str
    key: tuple[str, ...]
    identity: tuple[str, ...]
    outputs: dict[str, str]
    types: tuple[str, ...]
    operators: tuple[str, ...]
    nullable: bool
    filter: str | None
    still: str
    fingerprint: str
    rows: str | None = None

    @classmethod
    def find(
        cls,
        connection: psycopg.Connection[Any],
        table: TableSchema,
        relkind: str,
        identity: tuple[str, ...],
        outputs: dict[str, str],
        collection: Collection,
        rows: str | None = None,
    ) -> KeyedTable:
        """Return the table as the transaction of `connection` sees it. Raises UnusableTable.

        `identity` is the table's own key.
        """
        columns = {found[0]: found[1:] for found in connection.execute(_COLUMNS, (table.oid,)).fetchall()}
        key = (collection.surrogate,) if collection.surrogate else identity or table.key
        if not key:
            raise UnusableTable("NO_PRIMARY_KEY")
        if any(name not in columns for name in (*key, *(column.name for column in table.columns))):
            raise UnusableTable("UNKNOWN_SCHEMA")
        files = connection.execute(_FILES, (table.oid,)).fetchall()
        conditions = [f"{literal(qualified(table.id))}::regclass::oid = {table.oid}"]
        conditions += [f"coalesce(pg_relation_filenode({oid}), 0) = {file}" for oid, file in files]
        conditions += [
            f"(select identity from pg_identify_object('pg_class'::regclass, {table.oid}, {columns[column.name][0]}))"
            f" = {literal(columns[column.name][3])}"
            for column in table.columns
        ]
        return cls(
            table,
            relkind,
            tuple(key),
            identity,
            outputs,
            tuple(columns[name][1] for name in key),
            tuple(columns[name][4] for name in key),
            any(columns[name][2] for name in key),
            collection.filter,
            " and ".join(conditions),
            fingerprint(connection, table.oid),
            rows,
        )

    def is_still(self, connection: psycopg.Connection[Any]) -> bool:
        """Return True if the table is unaltered since the transaction's snapshot.

        It stays unaltered while the transaction has a lock on it. Older snapshots show a rewritten table empty.
        """
        row = connection.execute(f"select coalesce({self.still}, false)".encode()).fetchone()
        return row is not None and bool(row[0])

    def has_gone(self, connection: psycopg.Connection[Any], sqlstate: str | None) -> bool:
        """Return True if a query failed because the table was altered or dropped since the snapshot."""
        import psycopg

        if sqlstate not in GONE:
            return False
        try:
            return not self.is_still(connection)
        except psycopg.DatabaseError:
            connection.execute("rollback to savepoint tailrace_table")
            return True

    # --- SQL -------------------------------------------------------------------------------------------------------

    @property
    def source(self) -> str:
        return f"{only(self.relkind)}{qualified(self.table.id)}"

    def _keys(self, direction: str = "") -> str:
        # qualified, because in `order by` a bare name would refer to the select list
        return ", ".join(f"{qualified(self.table.id)}.{quoted(name)}{direction}" for name in self.key)

    def _texts(self, names: Sequence[str]) -> str:
        """Return a select list of the key's values as text. `names` are the key's columns in the query."""
        return ", ".join(
            f"pg_catalog.textin({self.outputs[column]}({name}))" for column, name in zip(self.key, names, strict=True)
        )

    def _bound(self, operator: str, key: Key) -> str:
        """Return the condition that compares a row's key with `key` by `operator`, qualified with its schema.

        A row comparison needs operators of one schema. If the columns' operators belong to several schemas, the columns
        are compared in turn, and an index helps only with the first column.
        """
        names = [f"{qualified(self.table.id)}.{quoted(name)}" for name in self.key]
        values = [f"{literal(text)}::{kind}" for text, kind in zip(key, self.types, strict=True)]
        if len(set(self.operators)) == 1:
            compared = f"operator({self.operators[0]}.{operator})"
            return f"({', '.join(names)}) {compared} ({', '.join(values)})"
        found = ""
        for place in reversed(range(len(names))):
            schema, name, value = self.operators[place], names[place], values[place]
            if not found:
                found = f"{name} operator({schema}.{operator}) {value}"
                continue
            strict = f"{name} operator({schema}.{operator[0]}) {value}"
            found = f"({strict} or {name} operator({schema}.=) {value} and ({found}))"
        first = f"{names[0]} operator({self.operators[0]}.{operator[0]}=) {values[0]}"
        return f"({first} and {found})"

    def _where(self, parts: Sequence[str]) -> str:
        if self.rows:
            parts = [f"({self.rows})", *parts]
        if self.filter:
            # on lines of its own, so that a comment at its end does not hide the parenthesis
            parts = [*parts, f"(\n{self.filter}\n)"]
        return f" where {' and '.join(parts)}" if parts else ""

    def _whole(self) -> list[str]:
        return [f"{quoted(name)} is not null" for name in self.key] if self.nullable else []

    def _run(self, connection: psycopg.Connection[Any], query: str) -> psycopg.Cursor[Any]:
        """Run a query that may contain the signal's condition; with a condition, under the user's own search_path.

        Results are binary, because psycopg then uses the protocol that refuses a second statement in the same text.
        """
        with nullcontext() if self.filter is None else own_path(connection):
            return connection.execute(query.encode(), binary=True)

    def maximum(self, connection: psycopg.Connection[Any]) -> tuple[Key | None, bool]:
        """Return the largest key, None if every key has a null; and True if there are rows whose key has a null."""
        texts = self._texts([quoted(name) for name in self.key])
        row = self._run(
            connection,
            f"select {texts} from {self.source}{self._where(self._whole())} order by {self._keys(' desc')} limit 1",
        ).fetchone()
        others = False
        if self.nullable:
            broken = " or ".join(f"{quoted(name)} is null" for name in self.key)
            found = self._run(
                connection, f"select exists (select from {self.source}{self._where([f'({broken})'])})"
            ).fetchone()
            others = found is not None and found[0]
        return (None if row is None else tuple(row)), others

    def estimate(self, connection: psycopg.Connection[Any]) -> int | None:
        """Return the server's estimate of the number of rows; None if it has none, or if a signal's filter applies."""
        row = connection.execute(
            "select reltuples::int8 from pg_catalog.pg_class where oid = %s::oid", (self.table.oid,)
        ).fetchone()
        return row[0] if row is not None and row[0] > 0 and self.filter is None else None

    def chunks(
        self, connection: psycopg.Connection[Any], cursor: Cursor, sizes: Sequence[int], number: int, nulls: bool
    ) -> list[KeyChunk]:
        """Return the next chunks after `cursor.last`, of `sizes` rows each; fewer at the end of the table.

        All rows with the same key are in one chunk, even beyond its size. With `nulls` the first chunk also has the
        rows whose key has a null.
        """
        found: list[KeyChunk] = []
        after = cursor.last
        for wanted in sizes if cursor.maximum else ():
            if after == cursor.maximum:
                break
            assert cursor.maximum is not None
            conditions = [self._bound("<=", cursor.maximum)] + ([self._bound(">", after)] if after else [])
            # aliases for the key's columns, whose names may clash with others in the query
            names = [f"key_{place}" for place in range(len(self.key))]
            keys = f"select {self._keys()} from {self.source}{self._where(conditions)} order by {self._keys()}"
            row = self._run(
                connection,
                f"select {self._texts(names)} from ({keys} offset {wanted - 1} limit 1) k({', '.join(names)})",
            ).fetchone()
            if row is None:
                row = cursor.maximum
                left = self._run(
                    connection, f"select pg_catalog.count(*) from {self.source}{self._where(conditions)}"
                ).fetchone()
                rows = 0 if left is None else int(left[0])
            else:
                rows = wanted
            if rows:
                found.append(KeyChunk(number + len(found), after, tuple(row), rows, nulls and not found))
            after = tuple(row)
        if nulls and not found:
            found.append(KeyChunk(number, None, None, 0, True))
        return found

    def check(self, connection: psycopg.Connection[Any], chunk: KeyChunk) -> None:
        """Let the server compute the signal's condition for each row of the chunk. Raises the driver's error."""
        self._run(connection, f"select pg_catalog.count(*) from {self.source}{self._where([self._ranged(chunk)])}")

    def select(self, chunk: KeyChunk) -> str:
        """Return the query of a chunk's rows: columns in the forms that `texts` takes, ordered by the key."""
        columns = ", ".join(selected(column, quoted(column.name), self.outputs) for column in self.table.columns)
        return f"select {columns} from {self.source}{self._where([self._ranged(chunk)])} order by {self._keys()}"

    def _ranged(self, chunk: KeyChunk) -> str:
        """Return the condition on the key for the rows of a chunk."""
        if chunk.upto is None:
            ranged = ""
        else:
            bounds = [self._bound("<=", chunk.upto)] + ([self._bound(">", chunk.after)] if chunk.after else [])
            ranged = " and ".join(bounds)
        if not chunk.nulls:
            return ranged
        broken = " or ".join(f"{quoted(name)} is null" for name in self.key)
        return f"({ranged} or {broken})" if ranged else f"({broken})"


def fingerprint(connection: psycopg.Connection[Any], oid: int) -> str:
    """Return a text that differs after every DDL statement on the table; empty if the table is gone."""
    row = connection.execute(_FINGERPRINT, (oid,)).fetchone()
    return "" if row is None or row[0] is None else str(row[0])


@dataclass(frozen=True, slots=True)
class WindowOrigin:
    """The source of a window's rows: the closing watermark's event, or the snapshot if there is no watermark.

    `position` is the LSN at which the window ends, `at_us` its time in µs since 1970.
    """

    xid: int
    lsn: int
    previous_end: int
    position: int
    at_us: int


def read_rows(
    connection: ArrowConnection,
    snapshot: str,
    table: KeyedTable,
    chunk: KeyChunk,
    origin: WindowOrigin,
    superseded: SupersededRows,
) -> Iterator[ChangeBatch]:
    """Yield the rows of `chunk` under the exported `snapshot`, without those that are `superseded`. Worker.

    Yields nothing if the table was altered since the snapshot, and stops when a signal's condition fails. Raises the
    driver's error for every other failure, also if the snapshot is gone. `connection` is closed at the end.
    """
    try:
        if not _hold(connection, table.source, snapshot):
            return
        still: list[pa.RecordBatch] = []
        # read to its end: a connection with rows left to send is not kept
        query = f"select coalesce({table.still}, false)"
        if not _is_there(lambda: still.extend(connection.query(query))) or not still[0].column(0)[0].as_py():
            return
        if table.filter is not None:
            connection.execute(OWN)
        source = SnapshotOrigin(origin.lsn, origin.xid, origin.at_us, origin.previous_end)
        ordinal = (chunk.number + 1) << 40
        query = table.select(chunk)
        found = connection.query(query) if table.filter is None else conditions.rows(connection, query, table.table.id)
        for rows in found:
            columns = [texts(rows.column(place), column) for place, column in enumerate(table.table.columns)]
            columns = superseded.without(table.table, table.identity, columns)
            count = len(columns[0]) if columns else rows.num_rows
            if count:
                marker = np.full(count, Marker.INCREMENTAL, np.uint8)
                yield as_reads(table.table, columns, ordinal, marker, source, origin.position)
            ordinal += count
    finally:
        connection.close()


def _hold(connection: ArrowConnection, source: str, snapshot: str) -> bool:
    """Begin a transaction that reads under the exported `snapshot` and locks the table; False if the table is gone.

    The lock and the take-over are separate statements, because from PostgreSQL 17 on a missing table and a missing
    snapshot fail with the same SQLSTATE. A failure of the take-over means that the snapshot's session has ended.
    """
    import adbc_driver_manager

    begun, take_over = "begin isolation level repeatable read read only", f"set transaction snapshot '{snapshot}'"
    connection.begin(begun)
    try:
        if not _is_there(lambda: connection.execute(f"lock table {source} in access share mode")):
            return False
        connection.execute(take_over)
    except adbc_driver_manager.Error as error:
        if not is_forbidden(error):
            raise
        connection.execute("rollback")
        connection.begin(begun)
        connection.execute(take_over)
        return _is_there(lambda: connection.execute(locking(source)))
    return True


def _is_there(statement: Callable[[], None]) -> bool:
    """Run a statement about a table; return False if it fails because the table is gone or altered."""
    import adbc_driver_manager

    try:
        statement()
    except adbc_driver_manager.Error as error:
        if getattr(error, "sqlstate", None) in GONE:
            return False
        raise
    return True


# SQLSTATEs of queries of a table that was dropped or altered meanwhile: no such table, schema, column, object, or a
# wrong kind of object.
GONE = ("42P01", "3F000", "42703", "42704", "42809")


def literal(text: str) -> str:
    """Return the text as an SQL literal, valid under either setting of standard_conforming_strings."""
    escaped = text.replace("'", "''")
    return "E'" + escaped.replace("\\", "\\\\") + "'" if "\\" in text else f"'{escaped}'"
