"""Names in scope: the relations of a query, and what binding an expression asks of its surroundings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tdsserver.bound import Bound
from tdsserver.sqltype import SqlType
from tdsserver.syntax import Expr, Name


@dataclass(frozen=True, slots=True)
class Field:
    """One column that a source offers: its name, type, and DuckDB's name for it."""

    name: str
    type: SqlType
    sql: str


@dataclass(slots=True)
class Relation:
    """One source in FROM. `names`: the last parts by which columns may be qualified."""

    alias: str
    names: tuple[str, ...]
    fields: list[Field]


@dataclass(slots=True)
class Scope:
    """The relations that names are looked up in; then the parent's."""

    relations: list[Relation] = field(default_factory=list)
    parent: Scope | None = None


@dataclass(frozen=True, slots=True)
class BoundQuery:
    """DuckDB SQL whose columns are called o1, o2, …, and what they are for the client."""

    sql: str
    columns: list[tuple[str, SqlType]]


@dataclass(frozen=True, slots=True)
class Resolved:
    """A table as a source: DuckDB SQL to stand in FROM, its columns, and the sort keys of its clustered index."""

    sql: str
    fields: list[tuple[str, SqlType, str]]
    clustered: Sequence[tuple[str, bool]] = ()


class Catalog(Protocol):
    """What the binder asks of its session."""

    @property
    def collation(self) -> str:
        """The collation of the database."""

    def same(self, left: str, right: str) -> bool:
        """Whether two identifiers are the same under the database's collation."""

    def table(self, name: Name) -> Resolved:
        """A table or view; raises SqlError 208."""

    def function(self, name: Name, args: list[Bound]) -> Resolved:
        """A function that returns a table; raises SqlError 208 or 313."""

    def scalar(self, name: Name, args: list[Bound]) -> Bound:
        """A function of the database or the session; raises SqlError 195 or 4121."""

    def variable(self, name: str) -> Bound:
        """A variable's value; raises SqlError 137."""


class ExpressionBinder(Protocol):
    """What a built-in function asks of the binder that binds its arguments."""

    @property
    def catalog(self) -> Catalog:
        """The catalog in which names are looked up."""

    def scalar(self, node: Expr, scope: Scope) -> Bound:
        """Return a value as DuckDB SQL."""

    def condition(self, node: Expr, scope: Scope) -> str:
        """Return a condition as DuckDB SQL."""

    def chosen(self, conditions: list[str], results: list[Bound], otherwise: Bound) -> Bound:
        """Return CASE WHEN … THEN … ELSE … END, of the results' common type."""
