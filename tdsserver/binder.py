"""Binding of queries: names are resolved, types are found, and the result is DuckDB SQL."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tdsserver import values
from tdsserver.bound import Bound, common_type, convert, normal
from tdsserver.errors import SqlError, unknown_column, unsupported
from tdsserver.expressions import Expressions
from tdsserver.functions import AGGREGATES
from tdsserver.scope import BoundQuery, Catalog, Field, Relation, Resolved, Scope
from tdsserver.sqltype import INT, SqlType
from tdsserver.syntax import (
    Call,
    Column,
    Derived,
    Expr,
    Item,
    Join,
    Literal,
    Order,
    Query,
    Select,
    Source,
    Star,
    TableRef,
    ValuesSource,
)


class Binder(Expressions):
    """Binds one statement. `catalog` is the session in its present database."""

    def __init__(self, catalog: Catalog) -> None:
        super().__init__(catalog)
        self._count = 0
        self._ctes: list[dict[str, tuple[list[str], Query]]] = []

    def alias(self) -> str:
        """Return a fresh name for a source."""
        self._count += 1
        return f"s{self._count}"

    def column(self, node: Column, scope: Scope) -> Bound:
        """Return the value of a column; raises SqlError 207, 209 or 4104."""
        *qualifier, name = node.parts
        at: Scope | None = scope
        while at is not None:
            relations = [r for r in at.relations if not qualifier or self._named(r, qualifier)]
            found = [f for r in relations for f in r.fields if self.catalog.same(f.name, name)]
            if len(found) > 1:
                raise SqlError(209, f"Ambiguous column name '{name}'.")
            if found:
                return Bound(found[0].sql, found[0].type)
            if relations and qualifier:
                raise unknown_column(name)
            at = at.parent
        if qualifier:
            raise SqlError(4104, f'The multi-part identifier "{".".join(node.parts)}" could not be bound.')
        raise unknown_column(name)

    def _named(self, relation: Relation, qualifier: list[str]) -> bool:
        names = relation.names[-len(qualifier) :]
        return len(names) == len(qualifier) and all(
            self.catalog.same(a, b) for a, b in zip(names, qualifier, strict=True)
        )

    # Queries.

    def query(self, query: Query, parent: Scope | None = None, top_level: bool = False) -> BoundQuery:
        """Return a query as DuckDB SQL. ORDER BY of a subquery needs TOP or OFFSET (error 1033)."""
        self._ctes.append({name.casefold(): (columns, inner) for name, columns, inner in query.ctes})
        try:
            if not query.operators and isinstance(query.selects[0], Select):
                select = query.selects[0]
                if query.order and not (top_level or select.top or query.offset):
                    raise SqlError(
                        1033,
                        "The ORDER BY clause is invalid in views, inline functions, derived tables, subqueries, and"
                        " common table expressions, unless TOP, OFFSET or FOR XML is also specified.",
                        15,
                    )
                return self._select(select, parent, query)
            return self._compound(query, parent)
        finally:
            self._ctes.pop()

    def _compound(self, query: Query, parent: Scope | None) -> BoundQuery:
        parts = [
            self.query(part, parent) if isinstance(part, Query) else self._select(part, parent, Query([part]))
            for part in query.selects
        ]
        columns = parts[0].columns
        for part in parts[1:]:
            if len(part.columns) != len(columns):
                raise SqlError(
                    205,
                    "All queries combined using a UNION, INTERSECT or EXCEPT operator must have an equal number of"
                    " expressions in their target lists.",
                )
            columns = [
                (name, common_type(kind, other)) for (name, kind), (_, other) in zip(columns, part.columns, strict=True)
            ]
        texts = []
        for part in parts:
            alias = self.alias()
            cells = [
                f"{convert(Bound(f'{alias}.o{n}', kind), target)} AS o{n}"
                for n, ((_, kind), (_, target)) in enumerate(zip(part.columns, columns, strict=True), 1)
            ]
            texts.append(f"(SELECT {', '.join(cells)} FROM ({part.sql}) AS {alias})")
        sql = texts[0]
        for operator, text in zip(query.operators, texts[1:], strict=True):
            sql = f"{sql} {operator} {text}"
        if query.order:
            alias = self.alias()
            relation = Relation(
                alias, (alias,), [Field(name, kind, f"{alias}.o{n}") for n, (name, kind) in enumerate(columns, 1)]
            )
            scope = Scope([relation], parent)
            keys = [self._ordered(self._output(order.expression, relation, scope), order) for order in query.order]
            sql = f"SELECT * FROM ({sql}) AS {alias} ORDER BY {', '.join(keys)}{self._limit(query, None, scope)}"
        return BoundQuery(sql, columns)

    def _output(self, node: Expr, relation: Relation, scope: Scope) -> Bound:
        if isinstance(node, Literal) and node.kind == "number":
            chosen = relation.fields[int(node.text) - 1]
            return Bound(chosen.sql, chosen.type)
        return self.scalar(node, scope)

    def _select(self, select: Select, parent: Scope | None, query: Query) -> BoundQuery:
        scope = Scope([], parent)
        clustered: list[str] = []
        source = ""
        if select.source is not None:
            source = " FROM " + self.source(select.source, scope, clustered)
        items = self._items(select.items, scope)
        columns = [(name, bound.kind) for name, bound in items]
        cells = [f"{self._typed(bound)} AS o{n}" for n, (_, bound) in enumerate(items, 1)]
        sql = f"SELECT {'DISTINCT ' if select.distinct else ''}{', '.join(cells)}{source}"
        if select.where is not None:
            sql += f" WHERE {self.condition(select.where, scope)}"
        if select.group:
            sql += " GROUP BY " + ", ".join(self.scalar(node, scope).sql for node in select.group)
        if select.having is not None:
            sql += f" HAVING {self.condition(select.having, scope)}"
        if query.order:
            keys = [self._ordered(self._sort_key(order.expression, items, scope), order) for order in query.order]
            sql += " ORDER BY " + ", ".join(keys)
        elif clustered and not (select.group or select.distinct or self._aggregates(select)):
            sql += " ORDER BY " + ", ".join(clustered)
        return BoundQuery(sql + self._limit(query, select.top, scope), columns)

    def _typed(self, bound: Bound) -> str:
        return bound.sql if bound.type is not None else "CAST(NULL AS INTEGER)"

    def _sort_key(self, node: Expr, items: list[tuple[str, Bound]], scope: Scope) -> Bound:
        if isinstance(node, Literal) and node.kind == "number":
            number = int(node.text)
            if not 1 <= number <= len(items):
                raise SqlError(
                    108,
                    f"The ORDER BY position number {number} is out of range of the number of items in the select list.",
                )
            return items[number - 1][1]
        if isinstance(node, Column) and len(node.parts) == 1:
            found = [bound for name, bound in items if self.catalog.same(name, node.parts[0])]
            if found:
                return found[0]
        return self.scalar(node, scope)

    def _ordered(self, bound: Bound, order: Order) -> str:
        return f"{normal(bound, self.catalog.collation)} {'DESC NULLS LAST' if order.descending else 'ASC NULLS FIRST'}"

    def _limit(self, query: Query, top: Expr | None, scope: Scope) -> str:
        sql = ""
        count = top if top is not None else query.fetch
        if count is not None:
            sql += f" LIMIT {self._count_of(count, scope)}"
        if query.offset is not None:
            sql += f" OFFSET {self._count_of(query.offset, scope)}"
        return sql

    def _count_of(self, node: Expr, scope: Scope) -> str:
        bound = self.scalar(node, Scope([], scope.parent))
        return f"({convert(bound, SqlType('bigint'))})"

    def _items(self, items: list[Item], scope: Scope) -> list[tuple[str, Bound]]:
        found: list[tuple[str, Bound]] = []
        for item in items:
            node = item.expression
            if isinstance(node, Star):
                relations = [r for r in scope.relations if not node.qualifier or self._named(r, list(node.qualifier))]
                if not relations:
                    raise SqlError(263, "Must specify table to select from.")
                found += [(f.name, Bound(f.sql, f.type)) for r in relations for f in r.fields]
                continue
            name = item.alias or (node.parts[-1] if isinstance(node, Column) else "")
            found.append((name, self.scalar(node, scope)))
        return found

    def items(self, items: list[Item], scope: Scope) -> list[tuple[str, Bound]]:
        """Return the names and values of a list such as OUTPUT's."""
        return self._items(items, scope)

    def _aggregates(self, select: Select) -> bool:
        def inside(node: object) -> bool:
            if isinstance(node, Call):
                return (node.over is None and node.name[-1].lower() in AGGREGATES) or any(map(inside, node.args))
            if isinstance(node, list | tuple):
                return any(map(inside, node))
            slots = getattr(node, "__slots__", ())
            return any(inside(getattr(node, slot)) for slot in slots if isinstance(node, Expr))

        return any(inside(item.expression) for item in select.items)

    # Sources.

    def source(self, node: Source, scope: Scope, clustered: list[str] | None = None) -> str:
        """Return a source of FROM as DuckDB SQL, and add its relations to `scope`."""
        if isinstance(node, Join):
            return self._join(node, scope)
        alias = self.alias()
        if isinstance(node, TableRef):
            sql, fields, names, keys = self._table(node, alias, scope)
            if clustered is not None:
                clustered += keys
        elif isinstance(node, Derived):
            query = self.query(node.query, scope.parent)
            sql = f"({query.sql})"
            fields = self._renamed(self._fields(query, alias), node.columns)
            names = (node.alias,)
        elif isinstance(node, ValuesSource):
            sql, fields = self._values(node, alias, scope)
            names = (node.alias,)
        else:
            raise unsupported("this kind of source")
        scope.relations.append(Relation(alias, names, fields))
        return f"{sql} AS {alias}"

    def _table(self, node: TableRef, alias: str, scope: Scope) -> tuple[str, list[Field], tuple[str, ...], list[str]]:
        if len(node.name) == 1 and node.args is None:
            for depth in range(len(self._ctes) - 1, -1, -1):
                found = self._ctes[depth].get(node.name[0].casefold())
                if found:
                    columns, inner = found
                    kept, self._ctes = self._ctes, [*self._ctes[:depth], self._before(depth, node.name[0])]
                    try:
                        query = self.query(inner)
                    finally:
                        self._ctes = kept
                    fields = self._renamed(self._fields(query, alias), columns)
                    return f"({query.sql})", fields, (node.alias or node.name[0],), []
        if node.args is None:
            table = self.catalog.table(node.name)
        else:
            table = self.catalog.function(node.name, [self.scalar(arg, scope) for arg in node.args])
        fields = [Field(name, kind, f'{alias}."{column}"') for name, kind, column in table.fields]
        by_name = {column: bound for (_, kind, column), bound in zip(table.fields, fields, strict=True)}
        keys = [
            self._ordered(Bound(by_name[column].sql, by_name[column].type), Order(Literal("null", ""), descending))
            for column, descending in table.clustered
        ]
        names = (node.alias,) if node.alias else node.name
        return table.sql, self._renamed(fields, node.columns), names, keys

    def _before(self, depth: int, name: str) -> dict[str, tuple[list[str], Query]]:
        """Return the expressions of a WITH before `name`, which are the only ones that it sees."""
        found = {}
        for key, value in self._ctes[depth].items():
            if key == name.casefold():
                break
            found[key] = value
        return found

    def _fields(self, query: BoundQuery, alias: str) -> list[Field]:
        return [Field(name, kind, f"{alias}.o{n}") for n, (name, kind) in enumerate(query.columns, 1)]

    def _renamed(self, fields: list[Field], names: list[str]) -> list[Field]:
        if not names:
            return fields
        if len(names) != len(fields):
            raise SqlError(8158, "The table has more or fewer columns than were specified in the column list.")
        return [Field(name, old.type, old.sql) for name, old in zip(names, fields, strict=True)]

    def _values(self, node: ValuesSource, alias: str, scope: Scope) -> tuple[str, list[Field]]:
        rows = [[self.scalar(cell, scope) for cell in row] for row in node.rows]
        kinds = [cell.type for cell in rows[0]]
        for row in rows[1:]:
            kinds = [
                a if b.type is None else b.type if a is None else common_type(a, b.type)
                for a, b in zip(kinds, row, strict=True)
            ]
        types = [kind or INT for kind in kinds]
        cells = [
            "(" + ", ".join(convert(cell, kind) for cell, kind in zip(row, types, strict=True)) + ")" for row in rows
        ]
        names = ", ".join(f"o{n}" for n in range(1, len(types) + 1))
        fields = [
            Field(name, kind, f"{alias}.o{n}")
            for n, (name, kind) in enumerate(zip(node.columns, types, strict=True), 1)
        ]
        return f"(SELECT * FROM (VALUES {', '.join(cells)}) AS v({names}))", fields

    def _join(self, node: Join, scope: Scope) -> str:
        left = self.source(node.left, scope)
        if node.kind.endswith("apply"):
            # The right side of APPLY sees the sources to its left.
            inner = Scope([], Scope(list(scope.relations), scope.parent))
            right = self._lateral(node.right, inner)
            scope.relations += inner.relations
            how = "CROSS JOIN LATERAL" if node.kind.startswith("cross") else "LEFT JOIN LATERAL"
            return f"({left} {how} {right}{'' if node.kind.startswith('cross') else ' ON true'})"
        right = self.source(node.right, scope)
        if node.on is None:
            return f"({left} CROSS JOIN {right})"
        return f"({left} {node.kind.upper()} JOIN {right} ON {self.condition(node.on, scope)})"

    def _lateral(self, node: Source, scope: Scope) -> str:
        if isinstance(node, Derived):
            alias = self.alias()
            query = self.query(node.query, scope.parent)
            scope.relations.append(
                Relation(alias, (node.alias,), self._renamed(self._fields(query, alias), node.columns))
            )
            return f"({query.sql}) AS {alias}"
        return self.source(node, scope)


def rows_as_source(
    columns: list[tuple[str, SqlType]], rows: Sequence[Sequence[object]], name: Callable[[int], str] = lambda n: f"o{n}"
) -> Resolved:
    """Return rows in storage form as a source."""
    fields = [(column, kind, name(n)) for n, (column, kind) in enumerate(columns, 1)]
    if not rows:
        cells = ", ".join(f"CAST(NULL AS {kind.storage}) AS {name(n)}" for n, (_, kind) in enumerate(columns, 1))
        return Resolved(f"(SELECT {cells} WHERE false)", fields)
    lines = [
        "(" + ", ".join(values.literal_as(v, k) for v, (_, k) in zip(row, columns, strict=True)) + ")"
        if number == 0
        else "(" + ", ".join(values.literal(v) for v in row) + ")"
        for number, row in enumerate(rows)
    ]
    names = ", ".join(name(n) for n in range(1, len(columns) + 1))
    return Resolved(f"(SELECT * FROM (VALUES {', '.join(lines)}) AS v({names}))", fields)
