"""INSERT, UPDATE, DELETE and TRUNCATE: the rows in DuckDB, their changes in the log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tdsserver import values
from tdsserver.binder import Binder
from tdsserver.bound import Bound, convert, convert_value, implicit, normal
from tdsserver.errors import SqlError, unsupported
from tdsserver.log import AFTER, BEFORE, DELETE, INSERT, Change
from tdsserver.model import ColumnInfo, Database, Table
from tdsserver.resolve import Resolver, binder_of, collated
from tdsserver.scope import Field, Relation, Scope
from tdsserver.session import Rows, Session
from tdsserver.sqltype import BINARIES, MAX, TEXTS, SqlType
from tdsserver.statements import expression
from tdsserver.syntax import Delete, Expr, Insert, Item, Join, Source, TableRef, Truncate, Update

Row = tuple[object, ...]


class Writer:
    """Runs the statements that write, for one session."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.resolver = Resolver(session)

    # INSERT.

    def insert(self, node: Insert) -> tuple[int, Rows | None]:
        """Return the number of rows, and the rows of OUTPUT."""
        if node.table[0].startswith("@"):
            return self._into_variable(node), None
        database, table = self._writable(node.table, "INSERT")
        binder = binder_of(self.session)
        columns = self._insert_columns(database, table, node.columns)
        output: list[Row] = []

        def work() -> int:
            rows = self._insert_rows(binder, node, table, columns)
            found = self.store(database, table, rows, columns)
            output.extend(found)
            return len(found)

        count = self.session.atomically(database, work)
        return count, self._output(node.output, table, database, after=output)

    def _into_variable(self, node: Insert) -> int:
        variable = self.session.table_variables.get(node.table[0])
        if variable is None:
            raise SqlError(1087, f'Must declare the table variable "{node.table[0]}".', 15, 2)
        if node.columns:
            raise unsupported("INSERT into some columns of a table variable")
        table = Table(0, "", node.table[0], variable.columns, 0)
        rows = self._insert_rows(binder_of(self.session), node, table, variable.columns)
        variable.rows += [tuple(row) for row in rows]
        return len(rows)

    def insert_results(self, node: Insert, results: Rows) -> int:
        """INSERT … EXEC: insert the rows that a procedure returned, and return their number."""
        variable = self.session.table_variables.get(node.table[0])
        if variable is None:
            raise unsupported("INSERT … EXEC into anything but a table variable")
        if len(results.columns) != len(variable.columns):
            raise SqlError(213, "Column name or number of supplied values does not match table definition.")
        found = [
            tuple(
                fitted(constant_value(Bound("", kind, value), column.type), column)
                for value, (_, kind), column in zip(row, results.columns, variable.columns, strict=True)
            )
            for row in results.rows
        ]
        variable.rows += found
        return len(found)

    def _insert_columns(self, database: Database, table: Table, names: list[str]) -> list[ColumnInfo]:
        explicit = self.session.identity_insert == table.object_id
        if not names:
            return [
                c
                for c in table.columns
                if c.computed is None and c.type.name != "timestamp" and (explicit or c.identity is None)
            ]
        found = [column_named(database, table, name) for name in names]
        for column in found:
            if column.identity and not explicit:
                raise SqlError(
                    544,
                    f"Cannot insert explicit value for identity column in table '{table.name}' when IDENTITY_INSERT is"
                    " set to OFF.",
                )
            if column.computed is not None:
                raise SqlError(
                    271,
                    f'The column "{column.name}" cannot be modified because it is either a computed column or is the'
                    " result of a UNION operator.",
                )
            if column.type.name == "timestamp":
                raise SqlError(273, "Cannot insert an explicit value into a timestamp column.")
        return found

    def _insert_rows(self, binder: Binder, node: Insert, table: Table, columns: list[ColumnInfo]) -> list[list[object]]:
        if node.rows is not None:
            return self._value_rows(binder, node.rows, columns)
        if node.query is None:
            return [[]]
        query = binder.query(node.query)
        if len(query.columns) != len(columns):
            raise mismatch(len(query.columns) > len(columns))
        cells = [
            implicit(Bound(f"q.o{n}", kind), stretched(column.type))
            for n, ((_, kind), column) in enumerate(zip(query.columns, columns, strict=True), 1)
        ]
        found = self.session.run(f"SELECT {', '.join(cells)} FROM ({query.sql}) AS q").fetchall()
        return [[fitted(v, c, table) for v, c in zip(row, columns, strict=True)] for row in found]

    def _value_rows(
        self, binder: Binder, rows: list[list[Expr | None]], columns: list[ColumnInfo]
    ) -> list[list[object]]:
        scope = Scope()
        found: list[list[object]] = []
        pending: list[tuple[list[object], int, str]] = []
        for row in rows:
            if len(row) != len(columns):
                raise mismatch(len(row) > len(columns))
            cells: list[object] = []
            for node, column in zip(row, columns, strict=True):
                bound = self._default(binder, column) if node is None else binder.scalar(node, scope)
                if bound.is_constant or bound.type is None:
                    cells.append(constant_value(bound, column.type))
                else:
                    pending.append((cells, len(cells), implicit(bound, stretched(column.type))))
                    cells.append(None)
            found.append(cells)
        if pending:
            answers = self.session.run(f"SELECT {', '.join(sql for _, _, sql in pending)}").fetchone()
            assert answers is not None
            for (cells, at, _), answer in zip(pending, answers, strict=True):
                cells[at] = answer
        return [[fitted(v, c) for v, c in zip(cells, columns, strict=True)] for cells in found]

    def _default(self, binder: Binder, column: ColumnInfo) -> Bound:
        if column.default is None:
            return Bound("NULL", None, None)
        return binder.scalar(expression(column.default[1]), Scope())

    def store(
        self, database: Database, table: Table, rows: Sequence[Sequence[object]], columns: list[ColumnInfo]
    ) -> list[Row]:
        """Store rows with values of `columns` and the defaults of other columns; return the whole rows."""
        binder = binder_of(self.session)
        given = {column.id: at for at, column in enumerate(columns)}
        whole: list[list[object]] = []
        for row in rows:
            cells: list[object] = []
            for column in table.columns:
                if column.id in given:
                    cells.append(row[given[column.id]])
                    if column.identity:
                        assert isinstance(cells[-1], int)
                        table.identity = max(table.identity or 0, cells[-1])
                elif column.identity:
                    cells.append(self._next_identity(table, column))
                elif column.type.name == "timestamp":
                    cells.append(self._row_version(database))
                elif column.default is not None:
                    bound = self._default(binder, column)
                    value = bound.constant if bound.is_constant else self.session.evaluate(bound.sql)
                    cells.append(fitted(constant_value(Bound("", bound.type, value), column.type), column))
                else:
                    cells.append(None)
            whole.append(cells)
        self._compute(binder, database, table, whole)
        found = [tuple(cells) for cells in whole]
        self._not_null(table, found, "INSERT")
        if found:
            self._append(database, table, found)
        self._unique(database, table, {column.id for column in table.columns})
        self._log(database, table, INSERT, found)
        return found

    def _append(self, database: Database, table: Table, rows: list[Row]) -> None:
        for start in range(0, len(rows), 500):
            lines = ["(" + ", ".join(map(values.literal, row)) + ")" for row in rows[start : start + 500]]
            names = ", ".join(f"c{n}" for n in range(len(table.columns)))
            cells = ", ".join(f"CAST(c{n} AS {c.type.storage})" for n, c in enumerate(table.columns))
            target = ", ".join(column.storage for column in table.columns)
            self.session.run(
                f"INSERT INTO {database.storage}.{table.storage} ({target})"
                f" SELECT {cells} FROM (VALUES {', '.join(lines)}) AS v({names})"
            )

    def _next_identity(self, table: Table, column: ColumnInfo) -> int:
        assert column.identity is not None
        seed, step = column.identity
        with self.session.instance.lock:
            table.identity = seed if table.identity is None else table.identity + step
        self.session.identity = table.identity
        return table.identity

    def _row_version(self, database: Database) -> bytes:
        with self.session.instance.lock:
            database.row_version += 1
            return database.row_version.to_bytes(8, "big")

    def _compute(self, binder: Binder, database: Database, table: Table, rows: list[list[object]]) -> None:
        computed = [(at, column) for at, column in enumerate(table.columns) if column.computed is not None]
        for row in rows if computed else ():
            fields = [
                Field(c.name, collated(c.type, database), values.literal_as(v, c.type))
                for c, v in zip(table.columns, row, strict=True)
            ]
            scope = Scope([Relation("", (table.name,), fields)])
            for at, column in computed:
                bound = binder.scalar(expression(str(column.computed)), scope)
                row[at] = self.session.evaluate(convert(bound, column.type))

    # UPDATE.

    def update(self, node: Update) -> tuple[int, Rows | None]:
        """Return the number of rows, and the rows of OUTPUT."""
        source, alias = self._target(node.target, node.source)
        database, table = self._writable(self._named(node.target, node.source), "UPDATE")
        befores: list[Row] = []
        afters: list[Row] = []

        def work() -> int:
            pairs = self._update_rows(node, source, alias, database, table)
            befores.extend(before for before, _ in pairs)
            afters.extend(after for _, after in pairs)
            return len(pairs)

        count = self.session.atomically(database, work)
        return count, self._output(node.output, table, database, befores, afters)

    def _update_rows(
        self, node: Update, source: Source, alias: str, database: Database, table: Table
    ) -> list[tuple[Row, Row]]:
        binder = binder_of(self.session)
        scope = Scope()
        origin = binder.source(source, scope)
        target = next(r for r in scope.relations if self.resolver.same(r.names[-1], alias))
        cells = [f"{target.alias}.rowid", *(f"{target.alias}.{c.storage}" for c in table.columns)]
        changed: dict[int, str] = {}
        for name, operator, value in node.sets:
            column = column_named(database, table, name)
            if column.identity:
                raise SqlError(8102, f"Cannot update identity column '{column.name}'.")
            if column.computed is not None:
                raise SqlError(
                    271,
                    f'The column "{column.name}" cannot be modified because it is either a computed column or is the'
                    " result of a UNION operator.",
                )
            if column.type.name == "timestamp":
                raise SqlError(272, "Cannot update a timestamp column.")
            bound = self._default(binder, column) if value is None else binder.scalar(value, scope)
            if operator:
                old = next(f for f in target.fields if self.resolver.same(f.name, name))
                bound = binder._binary(operator, Bound(old.sql, old.type), bound)
            changed[column.id] = (
                values.literal_as(constant_value(bound, column.type), stretched(column.type))
                if bound.is_constant
                else implicit(bound, stretched(column.type))
            )
        order = list(changed)
        sql = f"SELECT {', '.join([*cells, *changed.values()])} FROM {origin}"
        if node.where is not None:
            sql += f" WHERE {binder.condition(node.where, scope)}"
        if node.top is not None:
            sql += f" LIMIT ({binder.scalar(node.top, Scope()).sql})"
        width = len(table.columns)
        at = {column.id: number for number, column in enumerate(table.columns)}
        found: dict[int, tuple[Row, Row]] = {}
        wholes: list[list[object]] = []
        for rowid, *rest in self.session.run(sql).fetchall():
            before = tuple(rest[:width])
            after = list(before)
            for column_id, value in zip(order, rest[width:], strict=True):
                after[at[column_id]] = fitted(value, table.columns[at[column_id]], table)
            for number, column in enumerate(table.columns):
                if column.type.name == "timestamp":
                    after[number] = self._row_version(database)
            if rowid not in found:
                wholes.append(after)
                found[rowid] = (before, ())
        self._compute(binder, database, table, wholes)
        pairs = {
            rowid: (before, tuple(after)) for (rowid, (before, _)), after in zip(found.items(), wholes, strict=True)
        }
        self._not_null(table, [after for _, after in pairs.values()], "UPDATE")
        self._rewrite(database, table, pairs)
        ids = set(order)
        self._unique(database, table, ids)
        self._log_updates(database, table, list(pairs.values()))
        return list(pairs.values())

    def _rewrite(self, database: Database, table: Table, pairs: dict[int, tuple[Row, Row]]) -> None:
        items = list(pairs.items())
        for start in range(0, len(items), 500):
            chunk = items[start : start + 500]
            lines = [f"({rowid}, {', '.join(map(values.literal, after))})" for rowid, (_, after) in chunk]
            names = ", ".join(f"c{n}" for n in range(len(table.columns)))
            sets = ", ".join(f"{c.storage} = CAST(v.c{n} AS {c.type.storage})" for n, c in enumerate(table.columns))
            self.session.run(
                f"UPDATE {database.storage}.{table.storage} AS t SET {sets}"
                f" FROM (VALUES {', '.join(lines)}) AS v(r, {names}) WHERE t.rowid = v.r"
            )

    # DELETE.

    def delete(self, node: Delete) -> tuple[int, Rows | None]:
        """Return the number of rows, and the rows of OUTPUT."""
        source, alias = self._target(node.target, node.source)
        database, table = self._writable(self._named(node.target, node.source), "DELETE")
        befores: list[Row] = []

        def work() -> int:
            binder = binder_of(self.session)
            scope = Scope()
            origin = binder.source(source, scope)
            target = next(r for r in scope.relations if self.resolver.same(r.names[-1], alias))
            cells = [f"{target.alias}.rowid", *(f"{target.alias}.{c.storage}" for c in table.columns)]
            sql = f"SELECT {', '.join(cells)} FROM {origin}"
            if node.where is not None:
                sql += f" WHERE {binder.condition(node.where, scope)}"
            if node.top is not None:
                sql += f" LIMIT ({binder.scalar(node.top, Scope()).sql})"
            found = {row[0]: tuple(row[1:]) for row in self.session.run(sql).fetchall()}
            numbers = list(found)
            for start in range(0, len(numbers), 1000):
                some = ", ".join(map(str, numbers[start : start + 1000]))
                self.session.run(f"DELETE FROM {database.storage}.{table.storage} WHERE rowid IN ({some})")
            befores.extend(found.values())
            self._log(database, table, DELETE, befores)
            return len(befores)

        count = self.session.atomically(database, work)
        return count, self._output(node.output, table, database, befores)

    def truncate(self, node: Truncate) -> None:
        """TRUNCATE TABLE; raises SqlError 4711 on a table whose changes are captured."""
        database, table = self._writable(node.table, "DELETE")
        if instances_of(database, table):
            raise SqlError(
                4711,
                f"Cannot truncate table '{table.name}' because it is published for replication or enabled for"
                " Change Data"
                " Capture.",
            )

        def work() -> int:
            self.session.run(f"DELETE FROM {database.storage}.{table.storage}")
            table.identity = None
            return 0

        self.session.atomically(database, work)

    # Shared by the statements.

    def _writable(self, name: tuple[str, ...], permission: str) -> tuple[Database, Table]:
        database, table = self.resolver.find(name)
        self.session.demand(permission, database, table.schema, table.name)
        return database, table

    def _target(self, name: tuple[str, ...], source: Source | None) -> tuple[Source, str]:
        if source is None:
            return TableRef(name, None, None, [], []), name[-1]
        return source, name[-1]

    def _named(self, name: tuple[str, ...], source: Source | None) -> tuple[str, ...]:
        """Return the table behind the target's name, which may be an alias of FROM."""
        for one in _references(source):
            if one.alias is not None and len(name) == 1 and self.resolver.same(one.alias, name[0]):
                return one.name
        return name

    def _output(
        self,
        items: list[Item],
        table: Table,
        database: Database,
        before: Sequence[Row | None] = (),
        after: Sequence[Row | None] = (),
    ) -> Rows | None:
        if not items:
            return None
        binder = binder_of(self.session)
        rows: list[Row] = []
        columns: list[tuple[str, SqlType]] = []
        pairs: Iterator[tuple[Row | None, Row | None]] = zip(
            before or _none(len(after or [])), after or _none(len(before or [])), strict=True
        )
        for old, new in pairs:
            relations = []
            for name, row in (("deleted", old), ("inserted", new)):
                if row is not None:
                    fields = [
                        Field(c.name, collated(c.type, database), values.literal_as(v, c.type))
                        for c, v in zip(table.columns, row, strict=True)
                    ]
                    relations.append(Relation("", (name,), fields))
            found = binder.items(items, Scope(relations))
            columns = [(name, bound.kind) for name, bound in found]
            answer = self.session.run("SELECT " + ", ".join(bound.sql for _, bound in found)).fetchone()
            assert answer is not None
            rows.append(answer)
        return Rows(columns, iter(rows))

    def _not_null(self, table: Table, rows: list[Row], what: str) -> None:
        for at, column in enumerate(table.columns):
            if not column.nullable and any(row[at] is None for row in rows):
                raise SqlError(
                    515,
                    f"Cannot insert the value NULL into column '{column.name}', table"
                    f" '{table.schema}.{table.name}'; column"
                    f" does not allow nulls. {what} fails.",
                    16,
                    2,
                )

    def _unique(self, database: Database, table: Table, changed: set[int]) -> None:
        for index in table.indexes:
            if index.unique and changed & {column for column, _ in index.columns}:
                self.check_unique(
                    database, table, [column for column, _ in index.columns], index.name, index.constraint
                )

    def check_unique(self, database: Database, table: Table, columns: list[int], name: str, constraint: bool) -> None:
        """Raise SqlError 2627 (a constraint's) or 2601 (an index's) if two rows have the same key."""
        keys = [normal(Bound(table.by_id(c).storage, table.by_id(c).type), database.collation) for c in columns]
        sql = f"SELECT 1 FROM {database.storage}.{table.storage} GROUP BY {', '.join(keys)} HAVING count(*) > 1 LIMIT 1"
        if self.session.run(sql).fetchone() is not None:
            if constraint:
                kind = "PRIMARY KEY" if table.primary_key and table.primary_key.name == name else "UNIQUE KEY"
                text = f"Violation of {kind} constraint '{name}'. Cannot insert duplicate key in object"
                raise SqlError(2627, f"{text} '{table.schema}.{table.name}'.", 14)
            raise SqlError(
                2601,
                f"Cannot insert duplicate key row in object '{table.schema}.{table.name}' with unique index '{name}'.",
                14,
            )

    # The log.

    def _log(self, database: Database, table: Table, operation: int, rows: Sequence[Row]) -> None:
        if not instances_of(database, table):
            return
        ids = tuple(column.id for column in table.columns)
        full = frozenset(ids)
        for row in rows:
            self.session.command += 1
            change = Change(
                table.object_id, operation, database.log.lsn(), self.session.command, ids, stored(table, row), full
            )
            self.session.changed(database, change)

    def _log_updates(self, database: Database, table: Table, pairs: list[tuple[Row, Row]]) -> None:
        instances = instances_of(database, table)
        if not instances:
            return
        ids = tuple(column.id for column in table.columns)
        full = frozenset(ids)
        unique = {c for index in table.indexes if index.unique for c, _ in index.columns}
        for before, after in pairs:
            different = frozenset(column for column, old, new in zip(ids, before, after, strict=True) if old != new)
            if not different:
                continue
            lsn = database.log.lsn()
            operations = (BEFORE, AFTER)
            mask = different
            if different & unique:
                # A change of a unique key is a deferred update: the log has a delete and an insert.
                operations, mask = (DELETE, INSERT), full
            for operation, row in zip(operations, (before, after), strict=True):
                self.session.command += operation != AFTER
                change = Change(table.object_id, operation, lsn, self.session.command, ids, stored(table, row), mask)
                self.session.changed(database, change)


def _none(count: int) -> list[Row | None]:
    return [None] * count


def stored(table: Table, row: Row) -> Row:
    """Return the row as capture sees it: the log has no values of computed columns."""
    if all(column.computed is None for column in table.columns):
        return row
    return tuple(None if c.computed is not None else v for c, v in zip(table.columns, row, strict=True))


def instances_of(database: Database, table: Table) -> bool:
    """Return True if the table has a capture instance."""
    cdc = database.log.cdc
    return cdc is not None and any(one.source_id == table.object_id for one in cdc.instances)


def column_named(database: Database, table: Table, name: str) -> ColumnInfo:
    """Return a column by its name; raises SqlError 207."""
    for column in table.columns:
        if database.same(column.name, name):
            return column
    raise SqlError(207, f"Invalid column name '{name}'.")


def mismatch(more: bool) -> SqlError:
    """Return error 213, or its two forms that name the sides."""
    if more:
        return SqlError(
            110, "There are fewer columns in the INSERT statement than values specified in the VALUES clause.", 15
        )
    return SqlError(
        109, "There are more columns in the INSERT statement than values specified in the VALUES clause.", 15
    )


def stretched(kind: SqlType) -> SqlType:
    """Return the type without a limit of length, so that a value that is too long is an error and not cut."""
    if kind.name in ("char", "varchar"):
        return SqlType("varchar", MAX, collation=kind.collation)
    if kind.name in ("nchar", "nvarchar", "sysname"):
        return SqlType("nvarchar", MAX, collation=kind.collation)
    if kind.name in ("binary", "varbinary"):
        return SqlType("varbinary", MAX)
    return kind


def constant_value(bound: Bound, kind: SqlType) -> object:
    """Return a constant in a column's type, of whatever length."""
    if bound.constant is None or bound.type is None:
        return None
    return convert_value(bound.constant, bound.type, stretched(kind), explicit=False)


def fitted(value: object, column: ColumnInfo, table: Table | None = None) -> object:
    """Return a value padded for its column; raises SqlError 2628 if it is too long."""
    kind = column.type
    if value is None:
        return None
    if kind.name in TEXTS:
        assert isinstance(value, str)
        text = value
        if kind.length not in (0, MAX) and len(text) > kind.length:
            if text[kind.length :].strip(" "):
                raise truncated(column, table)
            text = text[: kind.length]
        return values.fit_text(text, kind)
    if kind.name in BINARIES and isinstance(value, bytes):
        if kind.length not in (0, MAX) and len(value) > kind.length:
            raise truncated(column, table)
        return value.ljust(kind.length, b"\0") if kind.name == "binary" else value
    return value


def truncated(column: ColumnInfo, table: Table | None) -> SqlError:
    """Return error 2628."""
    where = f"table '{table.schema}.{table.name}', " if table else ""
    return SqlError(2628, f"String or binary data would be truncated in {where}column '{column.name}'.")


def _references(source: Source | None) -> Iterator[TableRef]:
    if isinstance(source, TableRef):
        yield source
    elif isinstance(source, Join):
        yield from _references(source.left)
        yield from _references(source.right)
