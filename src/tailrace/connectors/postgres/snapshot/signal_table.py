"""The signal table `signal.data.collection`: its faults, and inserts of signals. Driver.

Its first three columns are a signal's id, type and data, whatever their names.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tailrace.config import Config, TableFilter
from tailrace.config.filters import table_name
from tailrace.connectors.postgres.server.connection import connect, own_path
from tailrace.connectors.postgres.snapshot.session import quoted
from tailrace.errors import PrerequisiteError
from tailrace.snapshot.signals import Signal

if TYPE_CHECKING:
    import psycopg

# Watermark ids have at most 42 characters; the data of watermarks, and of signals for a few tables, fit in 2048.
_LENGTHS = {"id": 42, "type": 32, "data": 2048}

_COLUMNS = """
select a.attname, t.typcategory = 'S', case when a.atttypmod > 4 then a.atttypmod - 4 end,
       a.attnotnull and not a.atthasdef and a.attidentity = '' and a.attgenerated = ''
from pg_catalog.pg_attribute a join pg_catalog.pg_type t on t.oid = a.atttypid
where a.attrelid = %s and a.attnum > 0 and not a.attisdropped order by a.attnum
"""

_TABLE = """
select c.oid::int8, has_table_privilege(c.oid, 'select'), has_table_privilege(c.oid, 'insert'),
       has_table_privilege(c.oid, 'delete'), has_schema_privilege(n.oid, 'usage'),
       c.relreplident = 'n' or c.relreplident = 'd' and not exists
         (select from pg_catalog.pg_index i where i.indrelid = c.oid and i.indisprimary)
from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where n.nspname = %s and c.relname = %s and c.relkind in ('r', 'p')
"""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of the table: its level, a text, and the remedy."""

    level: Literal["warning", "error"]
    text: str
    remedy: str


class SignalTable:
    """The signal table of a configuration that names one."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self.schema, self.table = table_name(config["signal.data.collection"])

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"

    @property
    def quoted(self) -> str:
        return f"{quoted(self.schema)}.{quoted(self.table)}"

    def faults(self, connection: psycopg.Connection[Any]) -> Iterator[Fault]:
        """Yield the faults of the table. Only reads."""
        config = self._config
        reads, writes = "source" in config["signal.enabled.channels"], not config["read.only"]
        found = connection.execute(_TABLE, (self.schema, self.table)).fetchone()
        if found is None:
            yield Fault(
                "error",
                f"There is no signal table {self}.",
                f"create table {self.quoted} (id varchar(42) primary key, type varchar(32) not null, data text);",
            )
            return
        oid, may_select, may_insert, may_delete, may_use, unidentified = found
        yield from self._columns(connection.execute(_COLUMNS, (oid,)).fetchall(), writes)
        deletes = config["incremental.snapshot.watermarking.strategy"] == "insert_delete"
        lacking = [
            right
            for right, given, needed in (
                ("insert", may_insert, True),
                # a delete reads the row that it looks for
                ("select", may_select, deletes),
                ("delete", may_delete, deletes),
            )
            if needed and not given
        ]
        if writes and (lacking or not may_use):
            user = quoted(config["database.user"])
            usage = "" if may_use else f"grant usage on schema {quoted(self.schema)} to {user}; "
            rights = f"grant {', '.join(lacking)} on {self.quoted} to {user};" if lacking else ""
            yield Fault(
                "error",
                f"The user {config['database.user']} may not write watermarks to the signal table {self}.",
                f"{usage}{rights} Or set read.only=true.",
            )
        if writes and deletes and unidentified:
            yield Fault(
                "error",
                f"The signal table {self} has neither a primary key nor a replica identity, so the server refuses to "
                "delete watermarks.",
                "Give it a primary key, or use incremental.snapshot.watermarking.strategy=insert_insert.",
            )
        if reads:
            yield from self._published(connection)

    def _columns(self, columns: list[Any], writes: bool) -> Iterator[Fault]:
        if len(columns) < 3 or not all(is_text for _, is_text, _, _ in columns[:3]):
            yield Fault(
                "error",
                f"The first three columns of the signal table {self} must be texts: id, type and data.",
                f"create table {self.quoted} (id varchar(42) primary key, type varchar(32) not null, data text);",
            )
            return
        for (name, _, length, _), (what, least) in zip(columns[:3], _LENGTHS.items(), strict=True):
            if length is not None and length < least:
                yield Fault(
                    "warning",
                    f"The column {name} of the signal table {self} holds only {length} characters; {what} may need "
                    f"{least}.",
                    f"alter table {self.quoted} alter {quoted(name)} type text;",
                )
        for name, _, _, needed in columns[3:]:
            if needed and writes:
                yield Fault(
                    "error",
                    f"The column {name} of the signal table {self} may not be null and has no default, so no watermark "
                    "can be written.",
                    f"alter table {self.quoted} alter {quoted(name)} drop not null;",
                )

    def _published(self, connection: psycopg.Connection[Any]) -> Iterator[Fault]:
        if not TableFilter(self._config).includes(self.schema, self.table):
            yield Fault(
                "error",
                f"The signal table {self} is not captured, so no signal is seen.",
                "Add it to table.include.list and schema.include.list, or remove it from the exclude lists.",
            )
            return
        name, mode = self._config["publication.name"], self._config["publication.autocreate.mode"]
        row = connection.execute("select pubinsert from pg_publication where pubname = %s", (name,)).fetchone()
        listed = connection.execute(
            "select from pg_publication_tables where pubname = %s and schemaname = %s and tablename = %s",
            (name, self.schema, self.table),
        ).fetchone()
        if row is not None and not row[0]:
            yield Fault(
                "error",
                f"The publication {name} publishes no inserts, so no signal is seen.",
                f"alter publication {quoted(name)} set (publish = 'insert, update, delete, truncate');",
            )
        elif row is not None and listed is None and mode != "filtered":
            yield Fault(
                "error",
                f"The signal table {self} is not in the publication {name}, so no signal is seen.",
                f"alter publication {quoted(name)} add table {self.quoted};",
            )

    def insert(self, signal: Signal) -> None:
        """Write the row of `signal`.

        Raises ConnectionFailed, and PrerequisiteError when the server refuses the row.
        """
        import psycopg

        with closing(connect(self._config)) as connection:
            try:
                # by place, not by name: users name the columns
                with own_path(connection):  # triggers may rely on the user's search_path
                    connection.execute(
                        f"insert into {self.quoted} values (%s, %s, %s)".encode(), (signal.id, signal.type, signal.data)
                    )
            except psycopg.errors.UniqueViolation:
                raise PrerequisiteError(
                    f"The signal table {self} has a signal of this id already.", "Give another --id."
                ) from None
            except psycopg.Error as error:
                remedies = [fault.remedy for fault in self.faults(connection)]
                raise PrerequisiteError(
                    f"The server refuses the signal's row in the signal table {self} (SQLSTATE {error.sqlstate}).",
                    remedies[0] if remedies else "tailrace check names what it lacks.",
                ) from None


def send(config: Config, signal: Signal) -> str:
    """Write the row of `signal`, and return the table's name. Raises the errors of `SignalTable.insert`."""
    table = SignalTable(config)
    table.insert(signal)
    return str(table)
