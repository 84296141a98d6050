"""CREATE, ALTER and DROP, and their effects on change data capture."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial

from tdsserver import values
from tdsserver.bound import Bound, convert
from tdsserver.capture import drop_instance, record_ddl
from tdsserver.dml import Writer, column_named, instances_of
from tdsserver.errors import SqlError, unsupported
from tdsserver.model import ColumnInfo, Database, Index, Table, system_name
from tdsserver.resolve import Resolver, binder_of, collated
from tdsserver.scope import Field, Relation, Scope
from tdsserver.session import Session
from tdsserver.sqltype import DATETIME2, SERVER_COLLATION, SqlType, make
from tdsserver.statements import expression
from tdsserver.syntax import (
    AlterDatabase,
    AlterRole,
    AlterTable,
    ColumnDef,
    Create,
    CreateIndex,
    CreateTable,
    Drop,
    KeyDef,
    Permission,
)


def moment(session: Session) -> int:
    """Return the present time as a datetime in storage form."""
    return values.convert_temporal(session.instance.now(), DATETIME2, SqlType("datetime"))


class Definer:
    """Runs the statements that define, for one session."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.resolver = Resolver(session)

    def create_table(self, node: CreateTable) -> Table:
        """CREATE TABLE: return the new table; raises SqlError 2714 if the name is taken."""
        name = node.name
        database = self.resolver.database(name)
        schema = database.schema(name[-2] if len(name) > 1 else "dbo")
        if schema is None:
            raise SqlError(
                2760,
                f'The specified schema name "{name[-2]}" either does not exist or you do not have permission'
                " to use it.",
            )
        temporary = name[-1].startswith("#")
        if not temporary and database.find(schema, name[-1]) is not None:
            raise SqlError(2714, f"There is already an object named '{name[-1]}' in the database.", 16, 6)
        if not temporary and not self.session.is_owner(database):
            raise SqlError(262, f"CREATE TABLE permission denied in database '{database.name}'.", 14)
        table = Table(database.object_id(), schema, name[-1], [], moment(self.session))
        table.changed = table.created
        for definition in node.columns:
            table.columns.append(self._column(database, table, definition))
        for key in node.keys:
            self._index(database, table, key)

        def work() -> int:
            columns = ", ".join(f"{c.storage} {c.type.storage}" for c in table.columns)
            self.session.run(f"CREATE TABLE {database.storage}.{table.storage} ({columns})")
            return 0

        self.session.atomically(database, work)
        if temporary:
            self.session.temporary[name[-1].casefold()] = (database, table)
        else:
            with self.session.instance.lock:
                database.tables[table.object_id] = table
            if self.session.depth:
                self.session.undo.append(partial(_forget, database, table))
        return table

    def columns(self, nodes: list[ColumnDef]) -> list[ColumnInfo]:
        """Return the columns of a table variable."""
        table = Table(0, "", "", [], 0)
        for node in nodes:
            table.columns.append(self._column(self.session.database, table, node))
        return table.columns

    def _column(self, database: Database, table: Table, node: ColumnDef) -> ColumnInfo:
        if any(database.same(column.name, node.name) for column in table.columns):
            raise SqlError(
                2705,
                f"Column names in each table must be unique. Column name '{node.name}' in table"
                f" '{table.name}' is specified more than once.",
            )
        number = table.next_column
        table.next_column += 1
        if node.type is None:
            assert node.computed is not None
            found = ColumnInfo(number, node.name, self._computed_type(database, table, node.computed))
            found.computed = node.computed if node.computed.startswith("(") else f"({node.computed})"
            return found
        kind = make(node.type.name, list(node.type.parameters), node.collation)
        if kind.is_text and kind.name != "xml" and kind.collation is None:
            kind = replace(kind, collation=database.collation)
        nullable = node.nullable if node.nullable is not None else node.identity is None
        if kind.name == "timestamp":
            nullable = bool(node.nullable)
        found = ColumnInfo(number, node.name, kind, nullable, node.identity, sparse=node.sparse)
        if node.default:
            self._set_default(database, table, found, node.default)
        return found

    def _set_default(
        self, database: Database, table: Table, column: ColumnInfo, default: tuple[str | None, str]
    ) -> None:
        name, text = default
        column.default_id = database.object_id()
        made = f"DF__{table.name[:9]}__{column.name[:5]}__{column.default_id & 0xFFFFFFFF:08X}"
        column.default = (name or made, definition(text))

    def _computed_type(self, database: Database, table: Table, text: str) -> SqlType:
        fields = [Field(c.name, collated(c.type, database), f"t.{c.storage}") for c in table.columns]
        return binder_of(self.session).scalar(expression(text), Scope([Relation("t", (table.name,), fields)])).kind

    def _index(self, database: Database, table: Table, key: KeyDef) -> Index:
        if key.primary and table.primary_key is not None:
            raise SqlError(1779, f"Table '{table.name}' already has a primary key defined on it.")
        columns = []
        for name, descending in key.columns:
            column = column_named(database, table, name)
            if key.primary:
                column.nullable = False
            columns.append((column.id, descending))
        clustered = key.clustered if key.clustered is not None else key.primary
        if clustered and table.clustered is not None:
            if key.clustered:
                raise SqlError(1902, f"Cannot create more than one clustered index on table '{table.name}'.", 16, 3)
            clustered = False
        number = 1 if clustered else table.next_index
        table.next_index += not clustered
        object_id = database.object_id() if key.constraint else 0
        name = key.name or system_name("PK" if key.primary else "UQ", table.name, object_id)
        found = Index(number, object_id, name, columns, key.primary, key.unique, clustered, key.constraint)
        table.indexes.append(found)
        return found

    def create_index(self, node: CreateIndex) -> None:
        """CREATE INDEX."""
        database, table = self.resolver.find(node.table)
        index = self._index(database, table, node.key)
        if index.unique:
            Writer(self.session).check_unique(database, table, [c for c, _ in index.columns], index.name, False)

    def alter_table(self, node: AlterTable, text: str) -> None:
        """ALTER TABLE; `text` is the statement, for cdc.ddl_history."""
        database, table = self.resolver.find(node.table)
        self.session.demand("ALTER", database, table.schema, table.name)
        action = {
            "add": self._add,
            "alter column": self._alter_column,
            "drop column": self._drop_columns,
            "drop column if exists": self._drop_columns,
            "drop constraint": self._drop_constraint,
            "add default": self._add_default,
        }[node.action]
        action(database, table, node)
        table.changed = moment(self.session)
        touched = {column.name for column in node.columns} | set(node.names)
        if node.action in ("add", "alter column", "drop column", "drop column if exists"):
            is_altered = node.action == "alter column"
            for change_table, column, kind in record_ddl(self.session, database, table, text, is_altered, touched):
                self.retype(database, change_table, column, kind)

    def _run(self, database: Database, sql: str) -> None:
        def work() -> int:
            self.session.run(sql)
            return 0

        self.session.atomically(database, work)

    def _add(self, database: Database, table: Table, node: AlterTable) -> None:
        name = f"{database.storage}.{table.storage}"
        for definition_ in node.columns:
            column = self._column(database, table, definition_)
            filled = column.default is not None and not column.nullable
            if not column.nullable and column.default is None and not column.identity and self._rows(database, table):
                raise SqlError(
                    4901,
                    "ALTER TABLE only allows columns to be added that can contain nulls, or have a DEFAULT definition"
                    f" specified. Column '{column.name}' cannot be added to non-empty table '{table.name}'.",
                )
            self._run(database, f"ALTER TABLE {name} ADD COLUMN {column.storage} {column.type.storage}")
            with self.session.instance.lock:
                table.columns = [*table.columns, column]
            if self.session.depth:
                self.session.undo.append(partial(setattr, table, "columns", table.columns[:-1]))
            if filled and column.default is not None:
                bound = binder_of(self.session).scalar(expression(column.default[1]), Scope())
                self._run(database, f"UPDATE {name} SET {column.storage} = {convert(bound, column.type)}")
        for key in node.keys:
            self._index(database, table, key)

    def _rows(self, database: Database, table: Table) -> bool:
        return self.session.run(f"SELECT 1 FROM {database.storage}.{table.storage} LIMIT 1").fetchone() is not None

    def _alter_column(self, database: Database, table: Table, node: AlterTable) -> None:
        change = node.columns[0]
        assert change.type is not None
        column = column_named(database, table, change.name)
        kind = make(change.type.name, list(change.type.parameters), change.collation)
        if kind.is_text and kind.name != "xml" and kind.collation is None:
            kind = replace(kind, collation=column.type.collation or database.collation)
        if any(column.id == c for index in table.indexes if index.primary for c, _ in index.columns):
            raise SqlError(
                5074,
                f"The object '{table.primary_key.name if table.primary_key else ''}' is dependent on column"
                f" '{column.name}'.",
            )
        nullable = change.nullable is not False
        if (
            not nullable
            and self.session.run(
                f"SELECT 1 FROM {database.storage}.{table.storage} WHERE {column.storage} IS NULL LIMIT 1"
            ).fetchone()
        ):
            raise SqlError(
                515,
                f"Cannot insert the value NULL into column '{column.name}', table"
                f" '{table.schema}.{table.name}'; column does not allow nulls. UPDATE fails.",
                16,
                2,
            )
        self.retype(database, table, column, kind)
        column.nullable = nullable

    def retype(self, database: Database, table: Table, column: ColumnInfo, kind: SqlType) -> None:
        """Give a column another type and convert its values."""
        name = f"{database.storage}.{table.storage}"
        using = convert(Bound(column.storage, column.type), kind)
        old = column.type
        self._run(
            database, f"ALTER TABLE {name} ALTER COLUMN {column.storage} SET DATA TYPE {kind.storage} USING {using}"
        )
        column.type = kind
        if self.session.depth:
            self.session.undo.append(lambda: setattr(column, "type", old))

    def _drop_columns(self, database: Database, table: Table, node: AlterTable) -> None:
        for name in node.names:
            if node.action.endswith("exists") and not any(database.same(c.name, name) for c in table.columns):
                continue
            column = column_named(database, table, name)
            if column.default is not None or any(column.id == c for i in table.indexes for c, _ in i.columns):
                raise SqlError(
                    4922,
                    f"ALTER TABLE DROP COLUMN {name} failed because one or more objects access this column.",
                    16,
                    9,
                )
            self._run(database, f"ALTER TABLE {database.storage}.{table.storage} DROP COLUMN {column.storage}")
            old = table.columns
            with self.session.instance.lock:
                table.columns = [c for c in table.columns if c is not column]
            if self.session.depth:
                self.session.undo.append(partial(setattr, table, "columns", old))

    def _drop_constraint(self, database: Database, table: Table, node: AlterTable) -> None:
        name = node.names[0]
        for column in table.columns:
            if column.default is not None and database.same(column.default[0], name):
                column.default, column.default_id = None, 0
                return
        for index in table.indexes:
            if index.constraint and database.same(index.name, name):
                table.indexes.remove(index)
                return
        raise SqlError(3728, f"'{name}' is not a constraint.")

    def _add_default(self, database: Database, table: Table, node: AlterTable) -> None:
        change = node.columns[0]
        assert change.default is not None
        column = column_named(database, table, change.name)
        if column.default is not None:
            raise SqlError(1781, "Column already has a DEFAULT bound to it.")
        self._set_default(database, table, column, change.default)

    def drop(self, node: Drop) -> None:
        """DROP of an object of any kind."""
        for name in node.names:
            if node.kind == "table":
                self._drop_table(name, node.lenient)
            elif node.kind == "database":
                if not (node.lenient and self.session.instance.database(name[-1]) is None):
                    self.session.instance.drop_database(name[-1])
            elif node.kind == "schema":
                self.session.database.schemas.pop(str(self.session.database.schema(name[-1])), None)
            elif node.kind == "login":
                self.session.instance.logins.pop(name[-1], None)
            elif node.kind == "user":
                users = self.session.database.users
                for login in [login for login, user in users.items() if user == name[-1]]:
                    del users[login]
            elif node.kind == "role":
                self.session.database.roles.pop(name[-1], None)
            elif node.kind == "index" and node.on is not None:
                _, table = self.resolver.find(node.on)
                table.indexes = [index for index in table.indexes if index.name != name[-1]]
            else:
                raise unsupported(f"DROP {node.kind.upper()}")

    def _drop_table(self, name: tuple[str, ...], lenient: bool) -> None:
        try:
            database, table = self.resolver.find(name)
        except SqlError as error:
            if lenient and error.number == 208:
                return
            raise SqlError(
                3701,
                f"Cannot drop the table '{'.'.join(name)}', because it does not exist or you do not have permission.",
                11,
                5,
            ) from error
        if name[-1].startswith("#"):
            del self.session.temporary[name[-1].casefold()]
        self._run(database, f"DROP TABLE {database.storage}.{table.storage}")
        if instances_of(database, table):
            for one in [i for i in database.log.cdc.instances if i.source_id == table.object_id]:  # type: ignore[union-attr]
                drop_instance(self.session, database, one)
        with self.session.instance.lock:
            database.tables.pop(table.object_id, None)
        if self.session.depth:
            self.session.undo.append(lambda: database.tables.update({table.object_id: table}))

    def create(self, node: Create) -> None:
        """CREATE SCHEMA, DATABASE, LOGIN, USER or ROLE."""
        session, database = self.session, self.session.database
        if node.kind == "database":
            session.instance.create_database(node.name, node.argument or SERVER_COLLATION)
        elif node.kind == "schema":
            if database.schema(node.name) is not None:
                raise SqlError(2714, f"There is already an object named '{node.name}' in the database.", 16, 6)
            database.schemas[node.name] = max(database.schemas.values()) + 1
        elif node.kind == "login":
            session.instance.logins[node.name] = node.argument or ""
        elif node.kind == "user":
            if node.argument not in session.instance.logins:
                raise SqlError(15007, f"'{node.argument}' is not a valid login or you do not have permission.")
            database.users[str(node.argument)] = node.name
        else:
            database.roles[node.name] = set()

    def alter_role(self, node: AlterRole) -> None:
        """ALTER ROLE … ADD or DROP MEMBER."""
        roles = self.session.database.roles
        found = next((name for name in roles if self.resolver.same(name, node.role)), None)
        if found is None:
            raise SqlError(
                15151, f"Cannot alter the role '{node.role}', because it does not exist or you do not have permission."
            )
        if node.action == "ADD":
            roles[found].add(node.member)
        else:
            roles[found].discard(node.member)

    def permission(self, node: Permission) -> None:
        """GRANT, DENY or REVOKE."""
        database = self.session.database
        if node.kind == "SCHEMA":
            where = node.target[-1].casefold()
        elif node.target:
            where = ".".join(node.target if len(node.target) > 1 else ("dbo", *node.target))[-500:].casefold()
        else:
            return
        entries = {(what, where, who) for who in node.principals for what in node.permissions}
        if node.action == "grant":
            database.granted |= entries
            database.denied -= entries
        elif node.action == "deny":
            database.denied |= entries
        else:
            database.granted -= entries
            database.denied -= entries

    def alter_database(self, node: AlterDatabase) -> None:
        """ALTER DATABASE … SET."""
        name = node.name or self.session.database.name
        database = self.session.instance.database(name)
        if database is None:
            raise SqlError(
                5011, f"User does not have permission to alter database '{name}', the database does not exist.", 14, 7
            )
        if node.option == "ALLOW_SNAPSHOT_ISOLATION":
            database.snapshot_isolation = node.value == "ON"
        elif node.option == "READ_COMMITTED_SNAPSHOT":
            database.read_committed_snapshot = node.value == "ON"
        elif node.option in ("OFFLINE", "ONLINE"):
            database.offline = node.option == "OFFLINE"
        elif node.option not in ("RECOVERY", "SINGLE_USER", "MULTI_USER", "AUTO_CLOSE"):
            raise unsupported(f"ALTER DATABASE … SET {node.option}")


def _forget(database: Database, table: Table) -> None:
    database.tables.pop(table.object_id, None)


def definition(text: str) -> str:
    """Return a default in the form of sys.default_constraints.

    The text is in brackets, a number in two pairs of them; functions are in small letters.
    """
    text = text.strip()
    while text.startswith("(") and text.endswith(")") and _one_pair(text):
        text = text[1:-1].strip()
    if re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", text):
        return f"(({text}))"
    if re.fullmatch(r"\w+\(.*\)", text, re.S):
        name, _, rest = text.partition("(")
        return f"({name.lower()}({rest})"
    if text.upper() == "CURRENT_TIMESTAMP":
        return "(getdate())"
    return f"({text})"


def _one_pair(text: str) -> bool:
    depth, quoted = 0, False
    for at, character in enumerate(text):
        if character == "'":
            quoted = not quoted
        elif not quoted:
            depth += (character == "(") - (character == ")")
            if depth == 0 and at < len(text) - 1:
                return False
    return True
