"""Binding of expressions and conditions to DuckDB SQL."""

from __future__ import annotations

import decimal

from tdsserver import functions
from tdsserver.bound import NULL, Bound, common, comparison, constant, convert, implicit, normal, united
from tdsserver.errors import SqlError, syntax
from tdsserver.scope import BoundQuery, Catalog, Scope
from tdsserver.sqltype import (
    BIGINT,
    FLOAT,
    INT,
    INTEGERS,
    MAX,
    NATIONAL,
    SqlType,
    case_sensitive,
    make,
    nvarchar,
    varbinary,
    varchar,
)
from tdsserver.syntax import (
    Between,
    Binary,
    Call,
    Case,
    Cast,
    Collate,
    Column,
    Exists,
    Expr,
    In,
    IsNull,
    Like,
    Literal,
    Order,
    Over,
    Query,
    Subquery,
    Unary,
    Variable,
)

_LOGICAL = frozenset({"AND", "OR", "=", "<>", "<", ">", "<=", ">="})
_WINDOWED = {
    "row_number": BIGINT,
    "rank": BIGINT,
    "dense_rank": BIGINT,
    "ntile": BIGINT,
}


class Expressions:
    """The part of a binder that needs no sources."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog

    def column(self, node: Column, scope: Scope) -> Bound:
        raise NotImplementedError

    def query(self, query: Query, parent: Scope | None = None, top_level: bool = False) -> BoundQuery:
        raise NotImplementedError

    def scalar(self, node: Expr, scope: Scope) -> Bound:
        """Return a value. Raises SqlError 102 on a condition: T-SQL cannot select truth values."""
        if isinstance(node, Literal):
            return literal(node)
        if isinstance(node, Column):
            return self.column(node, scope)
        if isinstance(node, Variable):
            return self.catalog.variable(node.name)
        if isinstance(node, Call):
            return self._call(node, scope)
        if isinstance(node, Unary) and node.operator != "NOT":
            operand = self.scalar(node.operand, scope)
            return Bound(f"({node.operator}({operand.sql}))", operand.type)
        if isinstance(node, Binary) and node.operator not in _LOGICAL:
            return self._binary(node.operator, self.scalar(node.left, scope), self.scalar(node.right, scope))
        if isinstance(node, Case):
            return self._case(node, scope)
        if isinstance(node, Cast):
            return self._cast(node, scope)
        if isinstance(node, Collate):
            operand = self.scalar(node.operand, scope)
            kind = operand.kind
            if not kind.is_text:
                raise SqlError(447, "Expression type is invalid for COLLATE clause.")
            return Bound(operand.sql, SqlType(kind.name, kind.length, collation=node.collation), operand.constant)
        if isinstance(node, Subquery):
            query = self.query(node.query, scope)
            if len(query.columns) != 1:
                raise SqlError(
                    116,
                    "Only one expression can be specified in the select list when the subquery is not introduced with"
                    " EXISTS.",
                )
            return Bound(f"({query.sql})", query.columns[0][1])
        raise syntax(type(node).__name__)

    def condition(self, node: Expr, scope: Scope) -> str:
        """Return a condition as DuckDB SQL; raises SqlError 4145 on a value."""
        if isinstance(node, Binary) and node.operator in ("AND", "OR"):
            return f"({self.condition(node.left, scope)} {node.operator} {self.condition(node.right, scope)})"
        if isinstance(node, Binary) and node.operator in _LOGICAL:
            left, right = self.scalar(node.left, scope), self.scalar(node.right, scope)
            return comparison(node.operator, left, right, self.catalog.collation)
        if isinstance(node, Unary) and node.operator == "NOT":
            return f"(NOT {self.condition(node.operand, scope)})"
        if isinstance(node, IsNull):
            return f"({self.scalar(node.operand, scope).sql} IS {'NOT ' if node.negated else ''}NULL)"
        if isinstance(node, Between):
            operand = self.scalar(node.operand, scope)
            low = comparison(">=", operand, self.scalar(node.low, scope), self.catalog.collation)
            high = comparison("<=", operand, self.scalar(node.high, scope), self.catalog.collation)
            return f"({'NOT ' if node.negated else ''}({low} AND {high}))"
        if isinstance(node, In):
            return self._in(node, scope)
        if isinstance(node, Like):
            return self._like(node, scope)
        if isinstance(node, Exists):
            return f"EXISTS ({self.query(node.query, scope).sql})"
        raise SqlError(
            4145, "An expression of non-boolean type specified in a context where a condition is expected.", 15
        )

    def _in(self, node: In, scope: Scope) -> str:
        operand = self.scalar(node.operand, scope)
        collation = self.catalog.collation
        if node.query is not None:
            query = self.query(node.query, scope)
            kind = query.columns[0][1]
            target = common(operand, Bound("", kind))
            left = normal(Bound(implicit(operand, target), target), collation)
            right = normal(Bound(implicit(Bound("q.o1", kind), target), target), collation)
            found = f"({left} IN (SELECT {right} FROM ({query.sql}) AS q))"
        else:
            parts = [comparison("=", operand, self.scalar(value, scope), collation) for value in node.values]
            found = f"({' OR '.join(parts)})"
        return f"(NOT {found})" if node.negated else found

    def _like(self, node: Like, scope: Scope) -> str:
        operand = self.scalar(node.operand, scope)
        text = nvarchar(MAX)
        left = implicit(operand, text)
        pattern = self.scalar(node.pattern, scope)
        escape = "NULL"
        if node.escape is not None:
            escape = self.scalar(node.escape, scope).sql
        sensitive = case_sensitive(operand.kind.collation or self.catalog.collation)
        found = f"tds_like({left}, {implicit(pattern, text)}, {escape}, {sensitive})"
        return f"(NOT {found})" if node.negated else found

    def _binary(self, operator: str, left: Bound, right: Bound) -> Bound:
        a, b = left.type, right.type
        texts = [kind for kind in (a, b) if kind is not None and kind.is_text]
        if operator == "+" and texts and all(kind is None or kind.is_text for kind in (a, b)):
            return concatenated([left, right])
        if operator == "+" and left.kind.is_binary and right.kind.is_binary:
            return Bound(f"({left.sql} || {right.sql})", varbinary(MAX))
        kind = common(left, right)
        if kind.name in ("datetime", "smalldatetime"):
            # SQL Server adds both sides as days since 1900; clients only add a number of days to a datetime.
            moment, other = (left, right) if left.kind.is_temporal else (right, left)
            if other.kind.is_number and operator in "+-":
                step = f"CAST(({other.sql}) * 864000000000 AS BIGINT)"
                return Bound(f"({moment.sql} {operator} {step})", moment.type)
        if not kind.is_number:
            raise SqlError(
                402,
                f"The data types {left.kind.name} and {right.kind.name} are incompatible in the {operator} operator.",
            )
        x, y = implicit(left, kind), implicit(right, kind)
        if kind.name in INTEGERS:
            if kind.name == "bit":
                kind = INT
            if kind.name == "tinyint":
                # DuckDB would overflow within the expression, T-SQL only in its result.
                x, y, kind = f"CAST({x} AS INTEGER)", f"CAST({y} AS INTEGER)", INT
            if operator == "/":
                return Bound(f"tds_divide({x}, {y})::{kind.storage}", kind)
            symbol = {"^": None}.get(operator, operator)
            return Bound(f"xor({x}, {y})" if symbol is None else f"({x} {symbol} {y})", kind)
        if kind.name in ("float", "real"):
            return Bound(f"({x} {operator} {y})", kind)
        return self._decimal(operator, left, right, kind)

    def _decimal(self, operator: str, left: Bound, right: Bound, kind: SqlType) -> Bound:
        scale = {"+": kind.catalog_scale, "-": kind.catalog_scale, "%": kind.catalog_scale}.get(operator)
        if operator == "*":
            scale = min(left.kind.catalog_scale + right.kind.catalog_scale, 10)
        found = SqlType("decimal", precision=38, scale=max(6, kind.catalog_scale) if scale is None else scale)
        text = f"tds_decimal('{operator}', CAST({left.sql} AS VARCHAR), CAST({right.sql} AS VARCHAR), {found.scale})"
        return Bound(f"CAST({text} AS {found.storage})", found)

    def _case(self, node: Case, scope: Scope) -> Bound:
        conditions = []
        for when, _ in node.whens:
            if node.operand is None:
                conditions.append(self.condition(when, scope))
            else:
                operand = self.scalar(node.operand, scope)
                conditions.append(comparison("=", operand, self.scalar(when, scope), self.catalog.collation))
        results = [self.scalar(then, scope) for _, then in node.whens]
        otherwise = NULL if node.otherwise is None else self.scalar(node.otherwise, scope)
        return self.chosen(conditions, results, otherwise)

    def chosen(self, conditions: list[str], results: list[Bound], otherwise: Bound) -> Bound:
        """Return CASE WHEN … THEN … ELSE … END, of the results' common type."""
        kind = united([*results, otherwise])
        parts = [f"WHEN {c} THEN {implicit(r, kind)}" for c, r in zip(conditions, results, strict=True)]
        return Bound(f"(CASE {' '.join(parts)} ELSE {implicit(otherwise, kind)} END)", kind)

    def _cast(self, node: Cast, scope: Scope) -> Bound:
        operand = self.scalar(node.operand, scope)
        parameters = list(node.type.parameters)
        if not parameters and node.type.name in ("varchar", "nvarchar", "char", "nchar", "binary", "varbinary"):
            parameters = [30]
        kind = make(node.type.name, parameters, operand.kind.collation if operand.kind.is_text else None)
        style = 0
        if node.style is not None:
            style = int(str(self.scalar(node.style, scope).constant))
        return Bound(convert(operand, kind, True, node.lenient, style), kind)

    def _call(self, node: Call, scope: Scope) -> Bound:
        name = node.name[-1].lower()
        if len(node.name) == 1:
            if node.over is not None or name in functions.AGGREGATES:
                return self._aggregate(node, name, scope)
            special = functions.SPECIAL.get(name)
            if special is not None:
                return special(self, node.args, scope)
        args = [self.scalar(arg, scope) for arg in node.args]
        if len(node.name) == 1 and name in functions.PLAIN:
            return functions.PLAIN[name](args)
        return self.catalog.scalar(node.name, args)

    def _aggregate(self, node: Call, name: str, scope: Scope) -> Bound:
        over = self._over(node.over, scope)
        if name in _WINDOWED:
            args = ", ".join(self.scalar(arg, scope).sql for arg in node.args)
            return Bound(f"{name}({args}){over}", _WINDOWED[name])
        if name in ("lag", "lead", "first_value", "last_value"):
            bound = [self.scalar(arg, scope) for arg in node.args]
            return Bound(f"{name}({', '.join(b.sql for b in bound)}){over}", bound[0].kind)
        if name not in functions.AGGREGATES:
            raise SqlError(195, f"'{node.name[-1]}' is not a recognized built-in function name.", 15)
        distinct = "DISTINCT " if node.distinct else ""
        if name in ("count", "count_big"):
            kind = INT if name == "count" else BIGINT
            what = (
                "*"
                if not isinstance(node.args[0], Expr) or _is_star(node.args[0])
                else distinct + self._key(self.scalar(node.args[0], scope))
            )
            return Bound(f"count({what}){over}", kind)
        value = self.scalar(node.args[0], scope)
        if name in ("min", "max"):
            if value.kind.is_text and not over:
                return Bound(f"arg_{name}({value.sql}, {self._key(value)})", value.kind)
            return Bound(f"{name}({value.sql}){over}", value.kind)
        if name == "string_agg":
            return Bound(f"string_agg({value.sql}, {self.scalar(node.args[1], scope).sql}){over}", nvarchar(MAX))
        if not value.kind.is_number:
            raise SqlError(8117, f"Operand data type {value.kind.name} is invalid for {name} operator.")
        kind = value.kind
        if kind.name in ("bit", "tinyint", "smallint"):
            kind = INT
        elif kind.name in ("decimal", "numeric"):
            kind = SqlType("decimal", precision=38, scale=kind.scale)
        elif kind.name == "real":
            kind = FLOAT
        found = f"{name}({distinct}{value.sql}){over}"
        if name == "avg" and kind.name in INTEGERS:
            found = f"trunc({found})"
        return Bound(f"CAST({found} AS {kind.storage})", kind)

    def _key(self, value: Bound) -> str:
        return normal(value, self.catalog.collation)

    def _over(self, over: Over | None, scope: Scope) -> str:
        if over is None:
            return ""
        parts = []
        if over.partition:
            parts.append("PARTITION BY " + ", ".join(self._key(self.scalar(node, scope)) for node in over.partition))
        if over.order:
            parts.append("ORDER BY " + ", ".join(self._order_key(order, scope) for order in over.order))
        return f" OVER ({' '.join(parts)})"

    def _order_key(self, order: Order, scope: Scope) -> str:
        node = order.expression
        if isinstance(node, Literal | Subquery):
            # ORDER BY (SELECT NULL): any order.
            return "1"
        how = "DESC NULLS LAST" if order.descending else "ASC NULLS FIRST"
        return f"{self._key(self.scalar(node, scope))} {how}"


def _is_star(node: Expr) -> bool:
    return type(node).__name__ == "Star"


def literal(node: Literal) -> Bound:
    """Return a literal with T-SQL's type for it ("Constants (Transact-SQL)")."""
    if node.kind == "null":
        return NULL
    if node.kind in ("text", "national"):
        kind = (nvarchar if node.kind == "national" else varchar)(max(1, len(node.text)))
        text = node.text if node.kind == "national" else node.text.encode("cp1252", "replace").decode("cp1252")
        return constant(text, kind)
    if node.kind == "hex":
        digits = node.text if len(node.text) % 2 == 0 else "0" + node.text
        raw = bytes.fromhex(digits)
        return constant(raw, varbinary(max(1, len(raw))))
    text = node.text
    if "e" in text.lower():
        return constant(float(text), FLOAT)
    number = decimal.Decimal(text)
    if "." not in text:
        if -(2**31) <= int(number) < 2**31:
            return constant(int(number), INT)
        number = decimal.Decimal(int(number))
    count = len(number.as_tuple().digits)
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int)
    scale = max(0, -exponent)
    precision = max(count, scale, 1)
    if precision > 38:
        raise SqlError(
            1007, f"The number '{text}' is out of the range for numeric representation (maximum precision 38).", 15
        )
    return constant(number, SqlType("numeric", precision=precision, scale=scale))


def concatenated(parts: list[Bound]) -> Bound:
    """Return the concatenation of texts; NULL if a text is NULL."""
    kinds = [part.kind for part in parts if part.type is not None]
    national = any(kind.name in NATIONAL for kind in kinds)
    lengths = [kind.length for kind in kinds]
    length = MAX if MAX in lengths or 0 in lengths else min(sum(lengths), 4000 if national else 8000)
    kind = SqlType("nvarchar" if national else "varchar", length, collation=kinds[0].collation)
    if any(part.type is None for part in parts):
        return constant(None, kind)
    if all(part.is_constant for part in parts):
        known = [part.constant for part in parts]
        return constant(None if None in known else "".join(map(str, known)), kind)
    return Bound(f"({' || '.join(part.sql for part in parts)})", kind)
