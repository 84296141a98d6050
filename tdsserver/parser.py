"""T-SQL's expressions and queries, parsed; statements.py has the statements around them."""

from __future__ import annotations

from tdsserver.errors import SqlError, syntax, unsupported
from tdsserver.keywords import HINTS, NOT_ALIASES, RESERVED
from tdsserver.lexer import Token, tokens
from tdsserver.sqltype import MAX
from tdsserver.syntax import (
    Between,
    Binary,
    Call,
    Case,
    Cast,
    Collate,
    Column,
    Derived,
    Exists,
    Expr,
    In,
    IsNull,
    Item,
    Join,
    Like,
    Literal,
    Name,
    Order,
    Over,
    Query,
    Select,
    Source,
    Star,
    Subquery,
    TableRef,
    TypeName,
    Unary,
    ValuesSource,
    Variable,
)

_COMPARE = {"=": "=", "<>": "<>", "!=": "<>", "<": "<", ">": ">", "<=": "<=", ">=": ">=", "!<": ">=", "!>": "<="}
_NILADIC = frozenset({"CURRENT_TIMESTAMP", "CURRENT_USER", "SESSION_USER", "SYSTEM_USER", "USER"})
_COMPARING = 4
_LEVELS = {"+": 5, "-": 5, "&": 5, "|": 5, "^": 5, "*": 6, "/": 6, "%": 6}
_CONVERSIONS = {"CAST": False, "TRY_CAST": True, "CONVERT": False, "TRY_CONVERT": True}


class Parser:
    """A batch, read from left to right. Every method raises SqlError 102 on what it cannot read."""

    def __init__(self, sql: str) -> None:
        self.sql = sql
        self._tokens = tokens(sql)
        self._at = 0

    @property
    def token(self) -> Token:
        return self._tokens[self._at]

    def ahead(self, count: int = 1) -> Token:
        """Return the token `count` places ahead."""
        return self._tokens[min(self._at + count, len(self._tokens) - 1)]

    def next(self) -> Token:
        """Read and return the present token."""
        token = self.token
        self._at += token.kind != "end"
        return token

    def fail(self) -> SqlError:
        """Return error 102 at the present token."""
        return syntax(self.token.text)

    def at(self, *words: str) -> bool:
        """Return True if these words come next."""
        return all(self.ahead(number).upper == word for number, word in enumerate(words))

    def take(self, *words: str) -> bool:
        """Read these words if they come next; return True if they did."""
        if not self.at(*words):
            return False
        self._at += len(words)
        return True

    def need(self, *words: str) -> None:
        """Read these words."""
        for word in words:
            if not self.take(word):
                raise self.fail()

    def identifier(self) -> str:
        """Read a name. A reserved word is a name only in brackets."""
        token = self.token
        if token.kind == "quoted" or (token.kind == "word" and token.upper not in RESERVED):
            return self.next().text
        raise self.fail()

    def name(self) -> Name:
        """Read a name of one to four parts. `db..table` has an empty part."""
        parts = [self.identifier()]
        while self.take("."):
            parts.append("" if self.at(".") else self.identifier())
        return tuple(parts)

    def target(self) -> Name:
        """Read the name of a table or of a table variable."""
        return (self.next().text.lower(),) if self.token.kind == "variable" else self.name()

    def names(self) -> list[str]:
        """Read (a, b, …)."""
        self.need("(")
        found = [self.identifier()]
        while self.take(","):
            found.append(self.identifier())
        self.need(")")
        return found

    def integer(self) -> int:
        """Read a whole number, with or without a sign."""
        sign = -1 if self.take("-") else 1
        if self.token.kind != "number":
            raise self.fail()
        return sign * int(self.next().text)

    def type_name(self) -> TypeName:
        """Read a type with its parameters."""
        parts = self.name()
        name = parts[-1].lower()
        for more in ("PRECISION", "VARYING"):
            if self.take(more):
                name += " " + more.lower()
        parameters: list[int] = []
        if self.take("("):
            while True:
                parameters.append(MAX if self.take("MAX") else self.integer())
                if not self.take(","):
                    break
            self.need(")")
        return TypeName(name, tuple(parameters))

    # Expressions: OR, AND, NOT, comparison, then arithmetic by level.

    def expression(self) -> Expr:
        """Read any expression, a condition included."""
        left = self._and()
        while self.take("OR"):
            left = Binary("OR", left, self._and())
        return left

    def _and(self) -> Expr:
        left = self._not()
        while self.take("AND"):
            left = Binary("AND", left, self._not())
        return left

    def _not(self) -> Expr:
        if self.take("NOT"):
            return Unary("NOT", self._not())
        return self._predicate()

    def _predicate(self) -> Expr:
        left = self._arithmetic(_COMPARING)
        while True:
            if self.token.kind == "operator" and self.token.text in _COMPARE:
                operator = _COMPARE[self.next().text]
                if self.at("ALL", "(") or self.at("ANY", "("):
                    raise unsupported("comparisons with ALL or ANY")
                left = Binary(operator, left, self._arithmetic(_COMPARING))
                continue
            if self.take("IS"):
                negated = self.take("NOT")
                self.need("NULL")
                left = IsNull(left, negated)
                continue
            negated = self.at("NOT") and self.ahead().upper in ("IN", "LIKE", "BETWEEN")
            if negated:
                self.next()
            if self.take("BETWEEN"):
                low = self._arithmetic(_COMPARING)
                self.need("AND")
                left = Between(left, low, self._arithmetic(_COMPARING), negated)
            elif self.take("LIKE"):
                pattern = self._arithmetic(_COMPARING)
                left = Like(left, pattern, self._arithmetic(_COMPARING) if self.take("ESCAPE") else None, negated)
            elif self.take("IN"):
                left = self._in(left, negated)
            else:
                return left

    def _in(self, left: Expr, negated: bool) -> In:
        self.need("(")
        if self.at("SELECT") or self.at("WITH"):
            found = In(left, [], self.query(), negated)
        else:
            found = In(left, self.expressions(), None, negated)
        self.need(")")
        return found

    def expressions(self) -> list[Expr]:
        """Read expressions with commas between them."""
        found = [self.expression()]
        while self.take(","):
            found.append(self.expression())
        return found

    def _arithmetic(self, level: int) -> Expr:
        left = self._unary()
        while self.token.kind == "operator" and _LEVELS.get(self.token.text, 0) > level:
            operator = self.next().text
            left = Binary(operator, left, self._arithmetic(_LEVELS[operator]))
        return left

    def _unary(self) -> Expr:
        for operator in "-+~":
            if self.take(operator):
                operand = self._unary()
                if operator == "-" and isinstance(operand, Literal) and operand.kind == "number":
                    return Literal("number", operand.text[1:] if operand.text[0] == "-" else "-" + operand.text)
                return operand if operator == "+" else Unary(operator, operand)
        found = self._primary()
        while True:
            if self.take("COLLATE"):
                found = Collate(found, self.identifier())
            elif self.take("AT", "TIME", "ZONE"):
                found = Call(("at time zone",), [found, self._primary()])
            else:
                return found

    def _primary(self) -> Expr:
        token = self.token
        if token.kind in ("text", "national", "number", "hex"):
            self.next()
            return Literal(token.kind, token.text)
        if token.kind == "variable":
            self.next()
            return Variable(token.text.lower())
        if self.take("("):
            if self.at("SELECT") or self.at("WITH"):
                inner: Expr = Subquery(self.query())
            else:
                inner = self.expression()
            self.need(")")
            return inner
        if self.take("NULL"):
            return Literal("null", "")
        if self.take("CASE"):
            return self._case()
        if self.take("EXISTS"):
            self.need("(")
            query = self.query()
            self.need(")")
            return Exists(query)
        if token.upper in _CONVERSIONS and self.ahead().text == "(":
            return self._conversion()
        if token.upper in _NILADIC and self.ahead().text != "(":
            self.next()
            return Call((token.text,), [])
        if token.upper in ("LEFT", "RIGHT") and self.ahead().text == "(":
            self.next()
            return self._call((token.text,))
        if self.take("*"):
            return Star(())
        return self._named()

    def _named(self) -> Expr:
        parts = [self.identifier()]
        while self.take("."):
            if self.take("*"):
                return Star(tuple(parts))
            parts.append("" if self.at(".") else self.identifier())
        if self.at("("):
            return self._call(tuple(parts))
        return Column(tuple(parts))

    def _call(self, name: Name) -> Call:
        self.need("(")
        distinct = self.take("DISTINCT")
        args: list[Expr] = []
        if not self.at(")"):
            args = self.expressions()
        self.need(")")
        over = None
        if self.take("OVER"):
            self.need("(")
            partition = self.expressions() if self.take("PARTITION", "BY") else []
            order = self._order() if self.take("ORDER", "BY") else []
            self.need(")")
            over = Over(partition, order)
        return Call(name, args, distinct, over)

    def _conversion(self) -> Cast:
        word = self.next().upper
        self.need("(")
        if word.endswith("CAST"):
            operand = self.expression()
            self.need("AS")
            found = Cast(operand, self.type_name(), None, _CONVERSIONS[word])
        else:
            kind = self.type_name()
            self.need(",")
            operand = self.expression()
            style = self.expression() if self.take(",") else None
            found = Cast(operand, kind, style, _CONVERSIONS[word])
        self.need(")")
        return found

    def _case(self) -> Case:
        operand = None if self.at("WHEN") else self.expression()
        whens: list[tuple[Expr, Expr]] = []
        while self.take("WHEN"):
            condition = self.expression()
            self.need("THEN")
            whens.append((condition, self.expression()))
        otherwise = self.expression() if self.take("ELSE") else None
        self.need("END")
        return Case(operand, whens, otherwise)

    # Queries.

    def query(self) -> Query:
        """Read a query expression with WITH, set operators and ORDER BY."""
        ctes: list[tuple[str, list[str], Query]] = []
        if self.take("WITH"):
            while True:
                name = self.identifier()
                columns = self.names() if self.at("(") else []
                self.need("AS", "(")
                ctes.append((name, columns, self.query()))
                self.need(")")
                if not self.take(","):
                    break
        found = Query([self._term()], ctes=ctes)
        while self.at("UNION") or self.at("EXCEPT") or self.at("INTERSECT"):
            operator = self.next().upper
            found.operators.append(operator + (" ALL" if self.take("ALL") else ""))
            found.selects.append(self._term())
        if self.take("ORDER", "BY"):
            found.order = self._order()
            if self.take("OFFSET"):
                found.offset = self.expression()
                self._rows()
                if self.take("FETCH"):
                    self.next()
                    found.fetch = self.expression()
                    self._rows()
                    self.need("ONLY")
        if self.take("FOR"):
            raise unsupported("FOR XML, FOR JSON and FOR BROWSE")
        if self.take("OPTION"):
            self._skip_parentheses()
        return found

    def _rows(self) -> None:
        if not (self.take("ROWS") or self.take("ROW")):
            raise self.fail()

    def _skip_parentheses(self) -> None:
        self.need("(")
        depth = 1
        while depth:
            token = self.next()
            if token.kind == "end":
                raise self.fail()
            depth += (token.text == "(") - (token.text == ")") if token.kind == "operator" else 0

    def _term(self) -> Select | Query:
        if self.take("("):
            query = self.query()
            self.need(")")
            return query
        return self._select()

    def _order(self) -> list[Order]:
        found = []
        while True:
            expression = self.expression()
            descending = self.take("DESC") or (self.take("ASC") and False)
            found.append(Order(expression, descending))
            if not self.take(","):
                return found

    def top(self) -> Expr | None:
        """Read TOP n or TOP (n)."""
        if not self.take("TOP"):
            return None
        if self.take("("):
            found = self.expression()
            self.need(")")
        else:
            found = Literal("number", str(self.integer()))
        if self.at("PERCENT") or self.at("WITH", "TIES"):
            raise unsupported("TOP … PERCENT and WITH TIES")
        return found

    def _select(self) -> Select:
        self.need("SELECT")
        distinct = self.take("DISTINCT") or (self.take("ALL") and False)
        top = self.top()
        items = self.items()
        found = Select(items, distinct=distinct, top=top)
        if self.take("INTO"):
            found.into = self.name()
        if self.take("FROM"):
            found.source = self.sources()
        if self.take("WHERE"):
            found.where = self.expression()
        if self.take("GROUP", "BY"):
            found.group = self.expressions()
        if self.take("HAVING"):
            found.having = self.expression()
        return found

    def items(self) -> list[Item]:
        """Read the list of SELECT or OUTPUT."""
        found = [self._item()]
        while self.take(","):
            found.append(self._item())
        return found

    def _item(self) -> Item:
        if self.token.kind == "variable" and self.ahead().text == "=":
            variable = self.next().text.lower()
            self.need("=")
            return Item(self.expression(), None, variable)
        if self.ahead().text == "=" and self.token.kind in ("word", "quoted") and self.token.upper not in RESERVED:
            alias = self.identifier()
            self.need("=")
            return Item(self.expression(), alias)
        expression = self.expression()
        return Item(expression, self._alias(True))

    def _alias(self, texts: bool = False) -> str | None:
        explicit = self.take("AS")
        if texts and self.token.kind in ("text", "national"):
            return self.next().text
        if explicit or self.token.kind == "quoted":
            return self.identifier()
        if self.token.kind == "word" and self.token.upper not in RESERVED | NOT_ALIASES:
            return self.identifier()
        return None

    def sources(self) -> Source:
        """Read the sources behind FROM."""
        found = self._joined()
        while self.take(","):
            found = Join("cross", found, self._joined(), None)
        return found

    def _joined(self) -> Source:
        found = self._source()
        while True:
            kind = self._join_kind()
            if kind is None:
                return found
            right = self._source()
            on = None
            if kind in ("inner", "left", "right", "full"):
                self.need("ON")
                on = self.expression()
            found = Join(kind, found, right, on)

    def _join_kind(self) -> str | None:
        if self.take("CROSS", "JOIN"):
            return "cross"
        for word in ("CROSS", "OUTER"):
            if self.take(word, "APPLY"):
                return f"{word.lower()} apply"
        for word in ("INNER", "LEFT", "RIGHT", "FULL"):
            if self.at(word, "JOIN") or self.at(word, "OUTER", "JOIN"):
                self.next()
                self.take("OUTER")
                self.need("JOIN")
                return word.lower()
        return "inner" if self.take("JOIN") else None

    def _source(self) -> Source:
        if self.take("("):
            if self.take("VALUES"):
                rows = [self.row()]
                while self.take(","):
                    rows.append(self.row())
                self.need(")")
                alias, columns = self._table_alias()
                return ValuesSource(rows, alias or "", columns)
            if self.at("SELECT") or self.at("WITH") or self.at("("):
                query = self.query()
                self.need(")")
                alias, columns = self._table_alias()
                if alias is None:
                    raise self.fail()
                return Derived(query, alias, columns)
            inner = self._joined()
            self.need(")")
            return inner
        name = self.target()
        args: list[Expr] | None = None
        if self.at("(") and not self._hint_ahead():
            self.need("(")
            args = [] if self.at(")") else self.expressions()
            self.need(")")
        hints = self._hints()
        alias, columns = self._table_alias()
        return TableRef(name, args, alias, columns, hints or self._hints())

    def row(self) -> list[Expr]:
        """Read a row of VALUES: (a, b, …)."""
        self.need("(")
        found = self.expressions()
        self.need(")")
        return found

    def _hint_ahead(self) -> bool:
        return self.ahead().upper in HINTS and self.ahead(2).text == ")"

    def _hints(self) -> list[str]:
        if self.at("WITH", "("):
            self.next()
        elif not (self.at("(") and self._hint_ahead()):
            return []
        self.need("(")
        found = []
        while not self.take(")"):
            token = self.next()
            if token.kind == "end":
                raise self.fail()
            if token.kind == "word":
                if token.upper not in HINTS:
                    raise SqlError(321, f'"{token.text}" is not a recognized table hints option.', 15)
                found.append(token.upper)
        return found

    def _table_alias(self) -> tuple[str | None, list[str]]:
        alias = self._alias()
        if alias is not None and self.at("(") and not self._hint_ahead():
            return alias, self.names()
        return alias, []
