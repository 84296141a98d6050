"""Hypertables: the tables that others, their chunks, are parts of, as a catalog of the database has it. Pure data.

A transform that needs it has the attribute `asks`, a Catalogue, and the method `knowing`. The planner asks the catalog,
keeps what it said in the offset, and gives tasks the transform with it: a batch that is planned again has it as before.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Table = tuple[str, str]
"""A schema and a table."""


class Hypertable(NamedTuple):
    """A hypertable's schema and name, and those of the view that it holds the rows of; None where it has none."""

    schema: str
    table: str
    view_schema: str | None = None
    view: str | None = None


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Which schemas a transform looks for chunks in, and the log-in for the catalog: options and their values, which
    it does not show. A transform that knows the chunks already has no log-in."""

    schemas: tuple[str, ...]
    login: tuple[tuple[str, Any], ...] = field(default=(), repr=False)


class Hypertables:
    """The hypertables by their chunks. Immutable, hashable, picklable."""

    __slots__ = ("_hash", "of")

    def __init__(self, of: dict[Table, Hypertable]) -> None:
        self.of = of
        self._hash: int | None = None

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Hypertables) and self.of == other.of)

    def __hash__(self) -> int:
        # it is a part of settings, which are looked up for every segment
        if self._hash is None:
            self._hash = hash(frozenset(self.of.items()))
        return self._hash

    def __reduce__(self) -> tuple[type[Hypertables], tuple[dict[Table, Hypertable]]]:
        # hashes of texts are another process's own
        return Hypertables, (self.of,)

    def __repr__(self) -> str:
        return f"Hypertables({len(self.of)} chunks)"

    def to_json(self) -> list[Any]:
        """The chunks in order, each with its hypertable."""
        return [[*chunk, *found] for chunk, found in sorted(self.of.items())]

    @classmethod
    def from_json(cls, rows: Iterable[list[Any]]) -> Hypertables:
        """What `to_json` has given."""
        return cls({(schema, table): Hypertable(*found) for schema, table, *found in rows})


NO_HYPERTABLES = Hypertables({})
