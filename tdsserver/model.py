"""The server's own state: logins, databases, tables; what sys.* shows."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import duckdb

from tdsserver import udf, values
from tdsserver.errors import SqlError
from tdsserver.log import Log
from tdsserver.sqltype import SERVER_COLLATION, SqlType, case_sensitive


@dataclass(slots=True)
class ColumnInfo:
    """A column. `id` is sys.columns.column_id, which a table never uses twice; in DuckDB the column is called c<id>."""

    id: int
    name: str
    type: SqlType
    nullable: bool = True
    identity: tuple[int, int] | None = None
    default: tuple[str, str] | None = None
    default_id: int = 0
    computed: str | None = None
    sparse: bool = False

    @property
    def storage(self) -> str:
        """DuckDB's name for the column."""
        return f"c{self.id}"


@dataclass(slots=True)
class Index:
    """A primary key, unique constraint or index. `columns` are ids, each with True for descending order."""

    id: int
    object_id: int
    name: str
    columns: list[tuple[int, bool]]
    primary: bool
    unique: bool
    clustered: bool
    constraint: bool


@dataclass(slots=True)
class Table:
    """A table, in DuckDB called t<object id>. `shipped` marks the server's own tables, as in the schema cdc."""

    object_id: int
    schema: str
    name: str
    columns: list[ColumnInfo]
    created: int
    indexes: list[Index] = field(default_factory=list)
    shipped: bool = False
    identity: int | None = None
    next_column: int = 1
    next_index: int = 2
    changed: int = 0

    @property
    def storage(self) -> str:
        """DuckDB's name for the table, within its database."""
        return f"t{self.object_id}"

    @property
    def primary_key(self) -> Index | None:
        return next((index for index in self.indexes if index.primary), None)

    @property
    def clustered(self) -> Index | None:
        return next((index for index in self.indexes if index.clustered), None)

    def by_id(self, column_id: int) -> ColumnInfo:
        """Return a column by its id."""
        return next(column for column in self.columns if column.id == column_id)


@dataclass(slots=True)
class Database:
    """A database. Its tables live in DuckDB's attached database d<id>."""

    id: int
    name: str
    collation: str
    created: int
    schemas: dict[str, int] = field(default_factory=dict)
    tables: dict[int, Table] = field(default_factory=dict)
    users: dict[str, str] = field(default_factory=dict)
    roles: dict[str, set[str]] = field(default_factory=dict)
    granted: set[tuple[str, str, str]] = field(default_factory=set)
    denied: set[tuple[str, str, str]] = field(default_factory=set)
    """Permissions: what, on what (schema or schema.object, in small letters), to whom."""
    snapshot_isolation: bool = False
    read_committed_snapshot: bool = False
    offline: bool = False
    log: Log = field(default_factory=Log)
    next_object: int = 901578250
    row_version: int = 0x7D0

    @property
    def storage(self) -> str:
        """DuckDB's name for the database."""
        return f"d{self.id}"

    def same(self, left: str, right: str) -> bool:
        """Return True if two identifiers are equal under the database's collation."""
        return left == right or (not case_sensitive(self.collation) and left.casefold() == right.casefold())

    def object_id(self) -> int:
        """Return a fresh object id."""
        # The distance that SQL Server's own ids keep.
        self.next_object += 16_000_057
        if self.next_object > 2**31 - 1:
            self.next_object -= 2_000_000_011
        return self.next_object

    def schema(self, name: str) -> str | None:
        """Return a schema's name as it was created; None where there is none."""
        return next((known for known in self.schemas if self.same(known, name)), None)

    def find(self, schema: str, name: str) -> Table | None:
        """Return a table by name; None where there is none."""
        for table in self.tables.values():
            if self.same(table.name, name) and self.same(table.schema, schema):
                return table
        return None


class Instance:
    """The server: everything that its sessions share. `lock` guards commits, the catalog and the log."""

    def __init__(self, name: str = "TESTSERVER", zone_minutes: int = 0) -> None:
        self.name = name
        self.zone_minutes = zone_minutes
        self.clock_skew = dt.timedelta()
        self.lock = threading.RLock()
        self.duck = duckdb.connect(":memory:")
        self.duck.execute("SET threads = 2")
        udf.install(self.duck)
        self.logins: dict[str, str] = {}
        self.databases: dict[str, Database] = {}
        self.agent_running = True
        self.agent_resumed = threading.Condition(self.lock)
        self.started = self.now()
        self._next_database = 1
        for system in ("master", "tempdb", "model", "msdb"):
            self.create_database(system, SERVER_COLLATION)

    def now(self) -> int:
        """Return SYSDATETIME() in storage form: the server's clock, in its own zone."""
        zone = dt.timezone(dt.timedelta(minutes=self.zone_minutes))
        return values.units((dt.datetime.now(zone) + self.clock_skew).replace(tzinfo=None))

    def create_database(self, name: str, collation: str) -> Database:
        """Create and return a database; raises SqlError 1801."""
        with self.lock:
            if self.database(name) is not None:
                raise SqlError(1801, f"Database '{name}' already exists. Choose a different database name.", 16, 3)
            found = Database(self._next_database, name, collation, self.now())
            self._next_database += 1
            for number, schema in enumerate(("dbo", "guest", "INFORMATION_SCHEMA", "sys"), 1):
                found.schemas[schema] = number
            found.roles = {"db_owner": set(), "db_datareader": set(), "db_datawriter": set(), "public": set()}
            self.duck.execute(f"ATTACH ':memory:' AS {found.storage}")
            self.databases[name] = found
            return found

    def drop_database(self, name: str) -> None:
        """Drop a database with everything in it; raises SqlError 3701."""
        with self.lock:
            found = self.database(name)
            if found is None:
                raise SqlError(
                    3701,
                    f"Cannot drop the database '{name}', because it does not exist or you do not have permission.",
                    11,
                )
            self.duck.execute(f"DETACH {found.storage}")
            del self.databases[found.name]

    def database(self, name: str) -> Database | None:
        """Return a database by its name, by the server's collation; None where there is none."""
        for known, database in self.databases.items():
            if known.casefold() == name.casefold():
                return database
        return None

    def captured_databases(self) -> Iterator[Database]:
        """Yield the databases that change data capture is enabled for."""
        return (database for database in list(self.databases.values()) if database.log.cdc is not None)


def system_name(prefix: str, table: str, number: int) -> str:
    """Return a constraint's name as the server makes one up, PK__customer__3213E83F1A2B3C4D."""
    return f"{prefix}__{table[:8]}__{number & 0xFFFFFFFF:08X}{(number * 2654435761) & 0xFFFFFFFF:08X}"
