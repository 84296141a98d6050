"""Execution of batches: statement by statement, with variables, conditions and loops."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from tdsserver.arguments import Arguments
from tdsserver.bound import convert_value
from tdsserver.ddl import Definer
from tdsserver.dml import Writer
from tdsserver.errors import SqlError, unsupported
from tdsserver.parser import Parser
from tdsserver.procedures import PROCEDURES
from tdsserver.resolve import Resolver, binder_of, evaluated, parts_of
from tdsserver.scope import Scope
from tdsserver.session import Count, DatabaseChanged, Info, Result, Rows, Session, TableVariable
from tdsserver.sqltype import MAX, SqlType, make, nvarchar
from tdsserver.statements import parse
from tdsserver.syntax import (
    AlterDatabase,
    AlterRole,
    AlterTable,
    Assign,
    Binary,
    Block,
    Create,
    CreateIndex,
    CreateTable,
    Declare,
    DeclareTable,
    Delete,
    Drop,
    Exec,
    ExecText,
    Expr,
    If,
    Insert,
    Jump,
    Literal,
    Permission,
    Print,
    Query,
    Select,
    SelectStatement,
    SetOption,
    Statement,
    Throw,
    Transaction,
    Truncate,
    Update,
    Use,
    Variable,
    WaitFor,
    While,
)

FETCH = 512
"""Rows read from DuckDB at once."""


class _Jumped(Exception):
    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


class Executor:
    """Runs the batches of one session. `run` yields results as they come; an error ends it."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.writer = Writer(session)
        self.definer = Definer(session)

    def run(self, sql: str, variables: Mapping[str, tuple[SqlType, object]] | None = None) -> Iterator[Result]:
        """Yield the results of a batch with these variables (name with @: type and storage value)."""
        session = self.session
        kept, session.variables = session.variables, dict(variables or {})
        try:
            self._text = sql
            for statement in parse(sql):
                yield from self.statement(statement)
        except _Jumped:
            return
        finally:
            session.variables = kept

    def statement(self, node: Statement) -> Iterator[Result]:
        """Yield the results of one statement, then the changes of the transaction."""
        session = self.session
        try:
            yield from self._statement(node)
            if not isinstance(node, If | While | Block):
                session.last_error = 0
        except SqlError as error:
            session.last_error = error.number
            raise
        finally:
            events, session.events = session.events, []
        yield from events

    def _statement(self, node: Statement) -> Iterator[Result]:
        session = self.session
        if isinstance(node, SelectStatement):
            yield from self._select(node.query)
        elif isinstance(node, Insert) and node.call is not None:
            count = sum(
                self.writer.insert_results(node, result)
                for result in self._execute(node.call)
                if isinstance(result, Rows)
            )
            yield Count(count)
        elif isinstance(node, DeclareTable):
            session.table_variables[node.name] = TableVariable(self.definer.columns(node.columns))
        elif isinstance(node, Insert | Update | Delete):
            count, output = (
                self.writer.insert(node)
                if isinstance(node, Insert)
                else self.writer.update(node)
                if isinstance(node, Update)
                else self.writer.delete(node)
            )
            yield output or Count(count)
        elif isinstance(node, Truncate):
            self.writer.truncate(node)
            yield Count(None)
        elif isinstance(node, If):
            if self._holds(node.condition):
                yield from self.statement(node.then)
            elif node.otherwise is not None:
                yield from self.statement(node.otherwise)
        elif isinstance(node, While):
            yield from self._while(node)
        elif isinstance(node, Block):
            for inner in node.statements:
                yield from self.statement(inner)
        elif isinstance(node, Declare):
            for name, written, initial in node.variables:
                declared = make(written.name, list(written.parameters))
                session.variables[name] = (
                    declared,
                    None if initial is None else self._value(initial, declared),
                )
        elif isinstance(node, Assign):
            kind = self._declared(node.variable)
            value = node.value
            if node.operator:
                value = Binary(node.operator, Variable(node.variable), value)
            session.variables[node.variable] = (kind, self._value(value, kind))
        elif isinstance(node, SetOption):
            self._set(node.words)
            yield Count(None)
        elif isinstance(node, Transaction):
            self._transaction(node)
            yield Count(None)
        elif isinstance(node, Use):
            yield self.use(node.database)
            yield Count(None)
        elif isinstance(node, Exec):
            yield from self._execute(node)
        elif isinstance(node, ExecText):
            text = self._value(node.text, nvarchar(MAX))
            yield from Executor(session).run(str(text))
        elif isinstance(node, Print):
            yield Info(0, str(self._value(node.text, nvarchar(4000)) or " "))
        elif isinstance(node, WaitFor):
            self._wait(node.seconds)
            yield Count(None)
        elif isinstance(node, Throw):
            raise self._thrown(node)
        elif isinstance(node, Jump):
            raise _Jumped(node.kind)
        else:
            self._define(node)
            yield Count(None)

    def _transaction(self, node: Transaction) -> None:
        session = self.session
        if node.action == "begin":
            # Under IMPLICIT_TRANSACTIONS, BEGIN TRANSACTION first begins an implicit transaction.
            if session.implicit and session.depth == 0:
                session.begin()
            session.begin()
        elif node.action == "commit":
            session.commit()
        elif node.action == "save":
            session.save(str(node.name))
        elif node.name is not None and node.name.casefold() in session.savepoints:
            session.rollback_to(node.name)
        else:
            session.rollback()

    def _define(self, node: Statement) -> None:
        if isinstance(node, CreateTable):
            self.definer.create_table(node)
        elif isinstance(node, CreateIndex):
            self.definer.create_index(node)
        elif isinstance(node, AlterTable):
            self.definer.alter_table(node, self._text.strip())
        elif isinstance(node, Drop):
            self.definer.drop(node)
        elif isinstance(node, Create):
            self.definer.create(node)
        elif isinstance(node, AlterDatabase):
            self.definer.alter_database(node)
        elif isinstance(node, AlterRole):
            self.definer.alter_role(node)
        elif isinstance(node, Permission):
            self.definer.permission(node)
        else:
            raise unsupported(type(node).__name__)

    def _select(self, query: Query) -> Iterator[Result]:
        session = self.session
        first = query.selects[0]
        if isinstance(first, Select) and first.into is not None:
            raise unsupported("SELECT … INTO")
        assigned = [item.variable for item in first.items] if isinstance(first, Select) else []
        bound = binder_of(session).query(query, top_level=True)
        session.reading()
        if any(assigned):
            rows = session.run(bound.sql).fetchall()
            if rows:
                for name, (_, kind), value in zip(assigned, bound.columns, rows[-1], strict=True):
                    if name is None:
                        raise SqlError(
                            141,
                            "A SELECT statement that assigns a value to a variable must not be combined with"
                            " data-retrieval operations.",
                            15,
                        )
                    target = self._declared(name)
                    session.variables[name] = (target, convert_value(value, kind, target, explicit=False))
            session.row_count = len(rows)
            return
        yield Rows(bound.columns, self._rows(bound.sql))

    def _rows(self, sql: str) -> Iterator[tuple[object, ...]]:
        cursor = self.session.run(sql)
        count = 0
        while rows := cursor.fetchmany(FETCH):
            count += len(rows)
            yield from rows
        self.session.row_count = count

    def _holds(self, condition: Expr) -> bool:
        self.session.reading()
        text = binder_of(self.session).condition(condition, Scope())
        return self.session.evaluate(text) is True

    def _while(self, node: While) -> Iterator[Result]:
        while self._holds(node.condition):
            if self.session.stopped():
                return
            try:
                yield from self.statement(node.body)
            except _Jumped as jump:
                if jump.kind == "break":
                    return
                if jump.kind == "return":
                    raise

    def _declared(self, name: str) -> SqlType:
        if name not in self.session.variables:
            raise SqlError(137, f'Must declare the scalar variable "{name}".', 15, 1)
        return self.session.variables[name][0]

    def _value(self, node: Expr, kind: SqlType) -> object:
        bound = binder_of(self.session).scalar(node, Scope())
        _, value = evaluated(self.session, node)
        source = bound.type or kind
        return convert_value(value, source, kind, explicit=False)

    def _set(self, words: list[str]) -> None:
        session = self.session
        option = words[0]
        if option == "implicit_transactions":
            session.implicit = words[1] == "on"
        elif option == "xact_abort":
            session.xact_abort = words[1] == "on"
        elif option == "transaction":
            level = " ".join(words[3:])
            if level not in ("read uncommitted", "read committed", "repeatable read", "snapshot", "serializable"):
                raise SqlError(102, f"Incorrect syntax near '{words[-1]}'.", 15)
            session.isolation = level
        elif option == "lock_timeout":
            session.lock_timeout = int(words[1])
        elif option == "identity_insert":
            _, table = Resolver(session).find(parts_of(words[1]))
            session.identity_insert = table.object_id if words[2] == "on" else 0

    def use(self, name: str) -> DatabaseChanged:
        """USE: return the change of database; raises SqlError 911 or 916."""
        session = self.session
        found = session.instance.database(name)
        if found is None:
            raise SqlError(911, f"Database '{name}' does not exist. Make sure that the name is entered correctly.")
        if not session.may_use(found):
            raise SqlError(
                916,
                f'The server principal "{session.login}" is not able to access the database "{found.name}" under the'
                " current security context.",
                14,
            )
        old, session.database = session.database, found
        return DatabaseChanged(old.name, found.name)

    def _wait(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self.session.stopped():
            time.sleep(min(0.05, max(0.0, end - time.monotonic())))

    def _thrown(self, node: Throw) -> SqlError:
        found = [evaluated(self.session, arg) for arg in node.args]
        texts = [value for kind, value in found if kind.is_text]
        numbers = [value for kind, value in found if not kind.is_text]
        number = int(str(numbers[0])) if isinstance(node.args[0], Literal) and node.args[0].kind == "number" else 50000
        return SqlError(number, str(texts[0]) if texts else "")

    def _execute(self, node: Exec) -> Iterator[Result]:
        name = node.procedure[-1].casefold()
        args = Arguments({}, [])
        bound: list[tuple[str | None, SqlType, object]] = []
        for key, value, _ in node.args:
            if value is None:
                continue
            kind, found = evaluated(self.session, value)
            bound.append((key, kind, found))
            if key is None:
                args.placed.append(found)
            else:
                args.named[key] = found
        if name == "sp_executesql":
            yield from self._dynamic(bound)
            return
        yield from self.call(node.procedure, args)

    def _dynamic(self, args: list[tuple[str | None, SqlType, object]]) -> Iterator[Result]:
        text = str(args[0][2])
        declared = parameters(str(args[1][2]) if len(args) > 1 and args[1][2] else "")
        given: dict[str, tuple[SqlType, object]] = {}
        for place, (key, kind, value) in enumerate(args[2:]):
            name, wanted = declared[place] if key is None else (f"@{key}", dict(declared)[f"@{key}"])
            given[name] = (wanted, convert_value(value, kind, wanted, explicit=False))
        yield from Executor(self.session).run(text, given)

    def call(self, name: tuple[str, ...], args: Arguments) -> Iterator[Result]:
        """Yield the results of a stored procedure; raises SqlError 2812."""
        procedure = PROCEDURES.get(name[-1].casefold())
        if procedure is None:
            raise SqlError(2812, f"Could not find stored procedure '{'.'.join(name)}'.", 16, 62)
        session = self.session
        kept = session.database
        if len(name) == 3 and name[0]:
            # A system procedure called through a database runs there.
            self.use(name[0])
        try:
            self.session.reading()
            yield from procedure(session, args)
        finally:
            session.database = kept


def parameters(text: str) -> list[tuple[str, SqlType]]:
    """Return the names and types that sp_executesql declares: `@a int, @b nvarchar(10) OUTPUT`."""
    parser = Parser(text)
    found: list[tuple[str, SqlType]] = []
    while parser.token.kind == "variable":
        name = parser.next().text.lower()
        parser.take("AS")
        kind = parser.type_name()
        found.append((name, make(kind.name, list(kind.parameters))))
        if parser.take("="):
            parser.expression()
        _ = parser.take("OUTPUT") or parser.take("OUT")
        if not parser.take(","):
            break
    return found
