"""Scopes of names, and the interfaces between binders, built-in functions and the session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tdsserver.bound import Bound
from tdsserver.sqltype import SqlType
from tdsserver.syntax import Expr, Name


@dataclass(frozen=True, slots=True)
class Field:
    """A column that a source offers: its name, type, and DuckDB's name for it."""

    name: str
    type: SqlType
    sql: str


@dataclass(slots=True)
class Relation:
    """A source in FROM. `names`: the last parts by which columns may be qualified."""

    alias: str
    names: tuple[str, ...]
    fields: list[Field]


@dataclass(slots=True)
class Scope:
    """The relations in which a name is looked up, and the parent scope for names that they do not have."""

    relations: list[Relation] = field(default_factory=list)
    parent: Scope | None = None


@dataclass(frozen=True, slots=True)
class BoundQuery:
    """DuckDB SQL whose columns are called o1, o2, …, with the client's name and type of each column."""

    sql: str
    columns: list[tuple[str, SqlType]]


@dataclass(frozen=True, slots=True)
class Resolved:
    """A table as a source: DuckDB SQL to stand in FROM, its columns, and the sort keys of its clustered index."""

    sql: str
    fields: list[tuple[str, SqlType, str]]
    clustered: Sequence[tuple[str, bool]] = ()


class Catalog(Protocol):
    """The questions that a binder asks its session."""

    @property
    def collation(self) -> str:
        """The collation of the database."""

    def same(self, left: str, right: str) -> bool:
        """Return True if two identifiers are equal under the database's collation."""

    def table(self, name: Name) -> Resolved:
        """Return a table or view; raises SqlError 208."""

    def function(self, name: Name, args: list[Bound]) -> Resolved:
        """Return a function that returns a table; raises SqlError 208 or 313."""

    def scalar(self, name: Name, args: list[Bound]) -> Bound:
        """Return a function of the database or the session; raises SqlError 195 or 4121."""

    def variable(self, name: str) -> Bound:
        """Return a variable's value; raises SqlError 137."""


class ExpressionBinder(Protocol):
    """The part of a binder that built-in functions use."""

    @property
    def catalog(self) -> Catalog:
        """The catalog in which names are looked up."""

    def scalar(self, node: Expr, scope: Scope) -> Bound:
        """Return a value as DuckDB SQL."""

    def condition(self, node: Expr, scope: Scope) -> str:
        """Return a condition as DuckDB SQL."""

    def chosen(self, conditions: list[str], results: list[Bound], otherwise: Bound) -> Bound:
        """Return CASE WHEN … THEN … ELSE … END, of the results' common type."""
