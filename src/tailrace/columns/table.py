"""Table schemas as a connector's catalog describes them. Values only: no I/O, picklable, hashable."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class TableId:
    """A captured table's full name; sorts in the order in which snapshots read tables."""

    database: str
    schema: str
    table: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"


@dataclass(frozen=True, slots=True)
class Column:
    """A column at one schema version.

    - `type_name`: the server's internal name (`int4`, `bpchar`, `_text` for an array, an enum's own name).
    - `modifier`: the raw type modifier, -1 without one.
    - `kind`: what `type_name` is: `base`, `enum`, `domain`, `composite`, `range`, `array` or `unknown`.
    - `element`: an array's element type or a domain's base type, fully resolved, with its own kind and labels; else
      None.
    - `comment`: the database's comment; None without one, or if it was not requested.
    - `identity`: the server numbers the rows by it (IDENTITY); schema changes show that.
    - `fields`: the attributes of a composite.
    - `number`: identifies the column in its table. It survives renames and is never reused. 0 if unknown.
    - `filled`: rows older than the column may have values there, although it no longer has a default.
    - `missing`: the value, as text, that all these older rows have; None if unknown.
    """

    name: str
    type_name: str
    type_oid: int
    modifier: int = -1
    nullable: bool = True
    default: str | None = None
    kind: str = "base"
    enum_labels: tuple[str, ...] = ()
    element: Column | None = None
    generated: bool = False
    comment: str | None = None
    identity: bool = False
    fields: tuple[Column, ...] = ()
    number: int = 0
    filled: bool = False
    missing: str | None = None


@dataclass(frozen=True, slots=True)
class TableSchema:
    """A table at one schema version.

    `columns` are those that the log delivers, in the table's order. `key` names the columns of the primary key in the
    key's own order or, without one, of a unique index over NOT NULL columns; else it is empty. `any_bytes`: the
    database has no encoding, so texts may not be UTF-8. `own` is the key that message.key.columns has replaced, None if
    it has not. `replica_identity` is the server's letter (`d`, `n`, `f` or `i`), if it has one. `version` counts from 1
    within one query.
    """

    id: TableId
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    replica_identity: str = "d"
    oid: int = 0
    version: int = 1
    any_bytes: bool = False
    own: tuple[str, ...] | None = None

    def index(self, name: str) -> int:
        """Return the position of the column called `name`. Raises KeyError if there is none."""
        for position, column in enumerate(self.columns):
            if column.name == name:
                return position
        raise KeyError(name)
