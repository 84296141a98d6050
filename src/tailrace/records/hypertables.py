"""Hypertables: tables that consist of other tables, their chunks, as a database's catalog lists them. Pure data.

A transform that needs the catalog has the attribute `asks`, a Catalogue, and the method `knowing`. The planner reads
the catalog, stores the result in the offset, and gives it to the tasks' transforms: a batch that is planned again has
the same hypertables.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Table = tuple[str, str]
"""A schema and a table."""


class Hypertable(NamedTuple):
    """A hypertable's schema and name, and those of the view whose rows it holds; None without a view."""

    schema: str
    table: str
    view_schema: str | None = None
    view: str | None = None


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The schemas in which a transform looks for chunks, and the login for the catalog, as options that `repr` hides.

    A transform that knows the chunks already has no login.
    """

    schemas: tuple[str, ...]
    login: tuple[tuple[str, Any], ...] = field(default=(), repr=False)


class Hypertables:
    """The hypertable of each chunk. Immutable, hashable, picklable."""

    __slots__ = ("_hash", "of")

    def __init__(self, of: dict[Table, Hypertable]) -> None:
        self.of = of
        self._hash: int | None = None

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Hypertables) and self.of == other.of)

    def __hash__(self) -> int:
        # the object is part of settings, which are hashed for every segment
        if self._hash is None:
            self._hash = hash(frozenset(self.of.items()))
        return self._hash

    def __reduce__(self) -> tuple[type[Hypertables], tuple[dict[Table, Hypertable]]]:
        # hashes of texts differ between processes
        return Hypertables, (self.of,)

    def __repr__(self) -> str:
        return f"Hypertables({len(self.of)} chunks)"

    def to_json(self) -> list[Any]:
        """Return the chunks in order, each with its hypertable."""
        return [[*chunk, *found] for chunk, found in sorted(self.of.items())]

    @classmethod
    def from_json(cls, rows: Iterable[list[Any]]) -> Hypertables:
        """Return the hypertables that `to_json` has written."""
        return cls({(schema, table): Hypertable(*found) for schema, table, *found in rows})


NO_HYPERTABLES = Hypertables({})
