"""T-SQL's statements, parsed: a batch becomes a list of trees."""

from __future__ import annotations

from tdsserver.errors import SqlError, unsupported
from tdsserver.keywords import RESERVED, STATEMENTS
from tdsserver.parser import Parser
from tdsserver.syntax import (
    AlterDatabase,
    AlterRole,
    AlterTable,
    Assign,
    Block,
    ColumnDef,
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
    Item,
    Jump,
    KeyDef,
    Literal,
    Permission,
    Print,
    SelectStatement,
    SetOption,
    Statement,
    Throw,
    Transaction,
    Truncate,
    TypeName,
    Update,
    Use,
    WaitFor,
    While,
)

_OPERATORS = ("+=", "-=", "*=", "/=", "%=")
_KEY_OPTIONS = frozenset({"CLUSTERED", "NONCLUSTERED"})


def parse(sql: str) -> list[Statement]:
    """Return the statements of a batch; raises SqlError 102 at the first statement that is not understood."""
    parser = StatementParser(sql)
    found: list[Statement] = []
    while parser.token.kind != "end":
        if not parser.take(";"):
            found.append(parser.statement(not found))
    return found


class StatementParser(Parser):
    """Reads statements. Each begins with its keyword; a semicolon between them is optional, as in T-SQL."""

    def statement(self, first: bool = False) -> Statement:
        """Read the next statement. Only the `first` of a batch may call a procedure without EXEC."""
        word = self.token.upper
        method = getattr(self, "_" + word.lower(), None) if word in STATEMENTS else None
        if word in ("SELECT", "WITH") or word == "(":
            return self._select_statement()
        if method is not None:
            self.next()
            found = method()
            assert isinstance(found, Statement)
            return found
        if first and self.token.kind in ("word", "quoted") and self.token.upper not in RESERVED:
            return self._execute()
        raise self.fail()

    def _select_statement(self) -> Statement:
        return SelectStatement(self.query())

    def _insert(self) -> Statement:
        self.take("INTO")
        table = self.target()
        self._hints()
        columns = self.names() if self.at("(") and self.ahead().upper != "SELECT" else []
        output = self._output()
        if self.take("DEFAULT", "VALUES"):
            return Insert(table, columns, None, None, output)
        if self.take("VALUES"):
            rows = [self._insert_row()]
            while self.take(","):
                rows.append(self._insert_row())
            return Insert(table, columns, rows, None, output)
        if self.at("EXEC") or self.at("EXECUTE"):
            self.next()
            call = self._execute()
            if not isinstance(call, Exec):
                raise unsupported("INSERT … EXEC of a text")
            return Insert(table, columns, None, None, output, call)
        return Insert(table, columns, None, self.query(), output)

    def _insert_row(self) -> list[Expr | None]:
        self.need("(")
        found: list[Expr | None] = []
        while True:
            found.append(None if self.take("DEFAULT") else self.expression())
            if not self.take(","):
                break
        self.need(")")
        return found

    def _output(self) -> list[Item]:
        if not self.take("OUTPUT"):
            return []
        found = self.items()
        if self.at("INTO"):
            raise unsupported("OUTPUT … INTO")
        return found

    def _update(self) -> Statement:
        top = self.top()
        target = self.name()
        self._hints()
        self.need("SET")
        sets: list[tuple[str, str | None, Expr | None]] = []
        while True:
            column = self.name()[-1]
            operator = None
            if self.token.text in _OPERATORS:
                operator = self.next().text[0]
            else:
                self.need("=")
            sets.append((column, operator, None if self.take("DEFAULT") else self.expression()))
            if not self.take(","):
                break
        output = self._output()
        source = self.sources() if self.take("FROM") else None
        where = self.expression() if self.take("WHERE") else None
        return Update(target, sets, source, where, top, output)

    def _delete(self) -> Statement:
        top = self.top()
        self.take("FROM")
        target = self.name()
        self._hints()
        output = self._output()
        source = self.sources() if self.take("FROM") else None
        where = self.expression() if self.take("WHERE") else None
        return Delete(target, source, where, top, output)

    def _truncate(self) -> Statement:
        self.need("TABLE")
        return Truncate(self.name())

    def _create(self) -> Statement:
        if self.take("TABLE"):
            return self._create_table()
        if self.take("SCHEMA"):
            name = self.identifier()
            return Create("schema", name, self.identifier() if self.take("AUTHORIZATION") else None)
        if self.take("DATABASE"):
            name = self.identifier()
            return Create("database", name, self.identifier() if self.take("COLLATE") else None)
        if self.take("LOGIN"):
            name = self.identifier()
            self.need("WITH", "PASSWORD", "=")
            password = self.next().text
            while self.take(","):
                self.next()
                self.need("=")
                self.next()
            return Create("login", name, password)
        if self.take("USER"):
            name = self.identifier()
            login = name
            if self.take("FOR", "LOGIN") or self.take("FROM", "LOGIN"):
                login = self.identifier()
            return Create("user", name, login)
        if self.take("ROLE"):
            return Create("role", self.identifier())
        unique = self.take("UNIQUE")
        clustered = self._clustered()
        if self.take("INDEX"):
            name = self.identifier()
            self.need("ON")
            table = self.name()
            columns = self._key_columns()
            if self.take("INCLUDE"):
                self.names()
            if self.take("WHERE"):
                self.expression()
            self._index_options()
            return CreateIndex(table, KeyDef(name, columns, False, unique, clustered, False))
        raise self.fail()

    def _clustered(self) -> bool | None:
        word = self.token.upper
        if word in _KEY_OPTIONS:
            self.next()
            return word == "CLUSTERED"
        return None

    def _key_columns(self) -> list[tuple[str, bool]]:
        self.need("(")
        found = []
        while True:
            name = self.identifier()
            descending = self.take("DESC")
            self.take("ASC")
            found.append((name, descending))
            if not self.take(","):
                break
        self.need(")")
        return found

    def _index_options(self) -> None:
        if self.take("WITH"):
            self._skip_parentheses()
        if self.take("ON"):
            self.identifier()
        if self.take("TEXTIMAGE_ON"):
            self.identifier()

    def _create_table(self) -> Statement:
        name = self.name()
        columns: list[ColumnDef] = []
        keys: list[KeyDef] = []
        self.need("(")
        while not self.at(")"):
            self._table_element(columns, keys)
            if not self.take(","):
                break
        self.need(")")
        self._index_options()
        return CreateTable(name, columns, keys)

    def _table_element(self, columns: list[ColumnDef], keys: list[KeyDef]) -> None:
        if any(self.at(word) for word in ("CONSTRAINT", "PRIMARY", "UNIQUE", "CHECK", "FOREIGN")):
            key = self._table_constraint()
            if key:
                keys.append(key)
        else:
            columns.append(self._column(keys))

    def _table_constraint(self) -> KeyDef | None:
        name = self.identifier() if self.take("CONSTRAINT") else None
        if self.take("CHECK"):
            self._skip_parentheses()
            return None
        if self.take("FOREIGN", "KEY"):
            self.names()
            self._references()
            return None
        primary = self.take("PRIMARY", "KEY")
        if not primary:
            self.need("UNIQUE")
        clustered = self._clustered()
        found = KeyDef(name, self._key_columns(), primary, True, clustered)
        self._index_options()
        return found

    def _references(self) -> None:
        self.need("REFERENCES")
        self.name()
        if self.at("("):
            self.names()
        while self.take("ON"):
            self.next()
            if self.take("NO", "ACTION") or self.take("SET", "NULL") or self.take("SET", "DEFAULT"):
                continue
            self.need("CASCADE")

    def _column(self, keys: list[KeyDef]) -> ColumnDef:
        name = self.identifier()
        if self.take("AS"):
            found = ColumnDef(name, None, computed=self._text_of_expression())
            self.take("PERSISTED")
            if self.take("NOT", "NULL"):
                found.nullable = False
            return found
        found = ColumnDef(name, self.type_name())
        constraint: str | None = None
        while True:
            if self.take("CONSTRAINT"):
                constraint = self.identifier()
                continue
            if self.take("COLLATE"):
                found.collation = self.identifier()
            elif self.take("NOT", "NULL"):
                found.nullable = False
            elif self.take("NULL"):
                found.nullable = True
            elif self.take("SPARSE"):
                found.sparse = True
            elif self.take("ROWGUIDCOL"):
                pass
            elif self.take("IDENTITY"):
                found.identity = (1, 1)
                if self.take("("):
                    seed = self.integer()
                    self.need(",")
                    found.identity = (seed, self.integer())
                    self.need(")")
                self.take("NOT", "FOR", "REPLICATION")
            elif self.take("DEFAULT"):
                found.default = (constraint, self._text_of_expression())
            elif self.take("PRIMARY", "KEY"):
                keys.append(KeyDef(constraint, [(name, False)], True, True, self._clustered()))
                self._index_options()
            elif self.take("UNIQUE"):
                keys.append(KeyDef(constraint, [(name, False)], False, True, self._clustered()))
            elif self.take("CHECK"):
                self._skip_parentheses()
            elif self.take("FOREIGN", "KEY") or self.at("REFERENCES"):
                self._references()
            else:
                return found
            constraint = None

    def _text_of_expression(self) -> str:
        start = self.token.start
        self._arithmetic(0) if not self.at("(") else self.expression()
        return self.sql[start : self._tokens[self._at - 1].end]

    def _alter(self) -> Statement:
        if self.take("TABLE"):
            return self._alter_table()
        if self.take("DATABASE"):
            name = None if self.take("CURRENT") else self.identifier()
            self.need("SET")
            option = self.next().upper
            value = self.next().upper
            if self.take("WITH"):
                self.next()
                self.take("IMMEDIATE")
            return AlterDatabase(name, option, value)
        if self.take("ROLE") or self.take("SERVER", "ROLE"):
            role = self.identifier()
            action = self.next().upper
            self.need("MEMBER")
            return AlterRole(role, action, self.identifier())
        raise self.fail()

    def _alter_table(self) -> Statement:
        table = self.name()
        if self.take("WITH"):
            self.next()
        if self.take("ALTER", "COLUMN"):
            column = ColumnDef(self.identifier(), self.type_name())
            if self.take("COLLATE"):
                column.collation = self.identifier()
            column.nullable = not self.take("NOT", "NULL")
            self.take("NULL")
            return AlterTable(table, "alter column", [column])
        if self.take("DROP", "COLUMN"):
            lenient = self.take("IF", "EXISTS")
            names = [self.identifier()]
            while self.take(","):
                self.take("COLUMN")
                names.append(self.identifier())
            return AlterTable(table, "drop column" + (" if exists" if lenient else ""), names=names)
        if self.take("DROP"):
            self.take("CONSTRAINT")
            self.take("IF", "EXISTS")
            return AlterTable(table, "drop constraint", names=[self.identifier()])
        self.need("ADD")
        if (self.at("CONSTRAINT") and self.ahead(2).upper == "DEFAULT") or self.at("DEFAULT"):
            name = self.identifier() if self.take("CONSTRAINT") else None
            self.need("DEFAULT")
            text = self._text_of_expression()
            self.need("FOR")
            return AlterTable(table, "add default", [ColumnDef(self.identifier(), None, default=(name, text))])
        found = AlterTable(table, "add")
        while True:
            self._table_element(found.columns, found.keys)
            if not self.take(","):
                return found

    def _drop(self) -> Statement:
        kind = self.next().upper.lower()
        if kind not in ("table", "schema", "database", "index", "user", "login", "role"):
            raise self.fail()
        lenient = self.take("IF", "EXISTS")
        names = [self.name()]
        while self.take(","):
            names.append(self.name())
        return Drop(kind, names, lenient, self.name() if self.take("ON") else None)

    def _grant(self, action: str = "grant") -> Statement:
        permissions = []
        while True:
            words = [self.next().upper]
            while self.token.kind == "word" and not self.at("ON") and not self.at("TO") and not self.at("FROM"):
                words.append(self.next().upper)
            permissions.append(" ".join(words))
            if not self.take(","):
                break
        kind = None
        target: tuple[str, ...] = ()
        if self.take("ON"):
            if self.ahead().text == ":":
                kind = self.next().upper
                self.need(":", ":")
            target = self.name()
        if not self.take("TO"):
            self.need("FROM")
        principals = [self.identifier()]
        while self.take(","):
            principals.append(self.identifier())
        return Permission(action, permissions, kind, target, principals)

    def _deny(self) -> Statement:
        return self._grant("deny")

    def _revoke(self) -> Statement:
        return self._grant("revoke")

    def _exec(self) -> Statement:
        return self._execute()

    def _execute(self) -> Statement:
        if self.take("("):
            text = self.expression()
            self.need(")")
            return ExecText(text)
        result = None
        if self.token.kind == "variable" and self.ahead().text == "=":
            result = self.next().text.lower()
            self.next()
        procedure = self.name()
        found = Exec(procedure, [], result)
        if self._argument_ahead():
            while True:
                found.args.append(self._argument())
                if not self.take(","):
                    break
        return found

    def _argument_ahead(self) -> bool:
        token = self.token
        if token.kind in ("text", "national", "number", "hex", "variable", "quoted") or token.text == "-":
            return True
        return token.upper in ("NULL", "DEFAULT") or (token.kind == "word" and token.upper not in RESERVED | STATEMENTS)

    def _argument(self) -> tuple[str | None, Expr | None, bool]:
        name = None
        if self.token.kind == "variable" and self.ahead().text == "=":
            name = self.next().text.lower().lstrip("@")
            self.next()
        if self.take("DEFAULT"):
            return name, None, False
        if self.token.kind == "word" and self.token.upper not in RESERVED:
            # EXEC sp_help customers: a bare word is text.
            return name, Literal("national", self.next().text), False
        if self.token.kind == "quoted":
            return name, Literal("national", self.next().text), False
        value = self._unary()
        return name, value, self.take("OUTPUT") or self.take("OUT")

    def _declare(self) -> Statement:
        found: list[tuple[str, TypeName, Expr | None]] = []
        while True:
            if self.token.kind != "variable":
                raise self.fail()
            name = self.next().text.lower()
            self.take("AS")
            if self.take("TABLE") and not found:
                return self._declare_table(name)
            kind = self.type_name()
            found.append((name, kind, self.expression() if self.take("=") else None))
            if not self.take(","):
                return Declare(found)

    def _declare_table(self, name: str) -> Statement:
        columns: list[ColumnDef] = []
        self.need("(")
        while not self.at(")"):
            columns.append(self._column([]))
            if not self.take(","):
                break
        self.need(")")
        return DeclareTable(name, columns)

    def _set(self) -> Statement:
        if self.token.kind == "variable":
            name = self.next().text.lower()
            operator = None
            if self.token.text in _OPERATORS:
                operator = self.next().text[0]
            else:
                self.need("=")
            return Assign(name, operator, self.expression())
        words = [self.next().text.lower()]
        if words[0] == "transaction":
            for _ in range(2):
                words.append(self.next().text.lower())
            words.append(self.next().text.lower())
            if words[-1] not in ("snapshot", "serializable"):
                words.append(self.next().text.lower())
            return SetOption(words)
        if words[0] == "identity_insert":
            words += [".".join(self.name()), self.next().text.lower()]
            return SetOption(words)
        while self.take(","):
            words[0] += "," + self.next().text.lower()
        if words[0] == "statistics":
            words.append(self.next().text.lower())
        words.append(("-" if self.take("-") else "") + self.next().text.lower())
        return SetOption(words)

    def _if(self) -> Statement:
        condition = self.expression()
        then = self.statement()
        if self.at(";") and self.ahead().upper == "ELSE":
            self.next()
        return If(condition, then, self.statement() if self.take("ELSE") else None)

    def _while(self) -> Statement:
        condition = self.expression()
        return While(condition, self.statement())

    def _begin(self) -> Statement:
        if self.take("TRAN") or self.take("TRANSACTION"):
            if self.token.kind == "word" and self.token.upper not in RESERVED | STATEMENTS:
                self.next()
            return Transaction("begin")
        if self.at("TRY") or self.at("CATCH"):
            raise unsupported("TRY … CATCH")
        found: list[Statement] = []
        while not self.take("END"):
            if self.token.kind == "end":
                raise self.fail()
            if not self.take(";"):
                found.append(self.statement())
        return Block(found)

    def _end_transaction(self, action: str) -> Statement:
        if (self.take("TRAN") or self.take("TRANSACTION")) and self.token.kind in ("word", "quoted"):
            if self.token.upper not in RESERVED | STATEMENTS:
                return Transaction(action, self.next().text)
        else:
            self.take("WORK")
        return Transaction(action)

    def _save(self) -> Statement:
        if not self.take("TRAN"):
            self.need("TRANSACTION")
        return Transaction("save", self.identifier())

    def _commit(self) -> Statement:
        return self._end_transaction("commit")

    def _rollback(self) -> Statement:
        return self._end_transaction("rollback")

    def _use(self) -> Statement:
        return Use(self.identifier())

    def _print(self) -> Statement:
        return Print(self.expression())

    def _waitfor(self) -> Statement:
        self.need("DELAY")
        hours, minutes, seconds = self.next().text.split(":")
        return WaitFor(int(hours) * 3600 + int(minutes) * 60 + float(seconds))

    def _raiserror(self) -> Statement:
        args = self.row()
        return Throw(args)

    def _throw(self) -> Statement:
        return Throw(self.expressions())

    def _break(self) -> Statement:
        return Jump("break")

    def _continue(self) -> Statement:
        return Jump("continue")

    def _return(self) -> Statement:
        return Jump("return")


def expression(sql: str) -> Expr:
    """Return a single expression, such as the text of a default; raises SqlError 102."""
    parser = Parser(sql)
    found = parser.expression()
    if parser.token.kind != "end":
        raise SqlError(102, f"Incorrect syntax near '{parser.token.text}'.", 15)
    return found
