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
    """One column at one schema version.

    `type_name` is the server's internal name (`int4`, `bpchar`, `_text` for an array, an enum's own name);
    `modifier` is the raw type modifier (-1 when there is none). `kind` says what
    `type_name` is: `base`, `enum`, `domain`, `composite`, `range`, `array` or `unknown`. `element` is an array's
    element type or a domain's base type, resolved to the bottom, with its own kind and labels; None otherwise.
    `comment` is what the database says of the column, None where it says nothing or nobody asks. `identity` says that
    the server numbers the rows by it (IDENTITY); schema changes show that. `fields` are the attributes of a composite.
    `number` is the column's own in its table: it keeps the number when it is renamed, and no other column ever gets it.
    0 where the log and the catalog do not tell. `filled` says that rows which are older than the column may have values
    there, though it has no default any more; `missing` is the text of the one value that they all have, None where
    nobody knows one.
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

    `columns` are those that the log delivers, in the table's order. `key` names the columns of the primary key in
    the key's own order or, without one, of a unique index over NOT NULL columns; empty when there is neither.
    `any_bytes` says that the database has no encoding, so that texts that are not UTF-8 are to be expected.
    `own` is what the key was before message.key.columns gave the table another, None where that did not.
    `replica_identity` is the server's letter (`d`, `n`, `f` or `i`), where it has one. `version` counts from 1 within
    one query.
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
        """The position of the column called `name`; raises KeyError when there is none."""
        for position, column in enumerate(self.columns):
            if column.name == name:
                return position
        raise KeyError(name)
