"""Definitions of tables, shared by the catalog, the log's DDL and records of schema changes. Any process.

Values only: hashable, picklable, with a JSON form for the checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from tailrace.connectors.binlog.schema.charsets import canonical

Name = tuple[str, str]
"""A table's name: database and table."""


class Default(NamedTuple):
    """A column's default.

    `kind` is `text`, `number`, `hex`, `bits`, `word` (TRUE), `now`, `expression` or `null`. `text` is the source text:
    of a text without its quotes, of hex and bits only the digits.
    """

    kind: str
    text: str
    value: str = ""


UNKNOWN, IMPLICIT, NOTHING = Default("unknown", ""), Default("implicit", ""), Default("null", "NULL")
"""Special values of `ColumnDefinition.older`: unknown; the server's zero for a column that is not nullable; null."""


@dataclass(frozen=True, slots=True)
class ColumnDefinition:
    """A column of a table.

    - `words`: the words of its type in the source text, in capitals: `INT UNSIGNED`, `NATIONAL VARCHAR`, `ENUM`.
    - `length`, `scale`: the numbers after the type; None if there are none.
    - `labels`: the labels of ENUM and SET; `literals`: the same as SQL literals.
    - `charset`: of texts, resolved from column, table or database; None for other types.
    - `updated`: the column has ON UPDATE; `generated`: its value is computed; `compressed`: MariaDB compresses it.
    - `period`: `start` or `end` of a system-versioned row, `from` or `until` of an application's period.
    - `expression`: the expression of a generated column in the latest statement; "" if unknown.
    - `number`: identifies the column in its table, also after renames; it is never used again. 0 if unknown.
    - `older`: the value in rows that are older than the column.

    Comparisons ignore the last three: the server reformats expressions, for example.
    """

    name: str
    words: str
    length: int | None = None
    scale: int | None = None
    labels: tuple[str, ...] = ()
    literals: tuple[str, ...] = ()
    charset: str | None = None
    nullable: bool = True
    default: Default | None = None
    automatic: bool = False
    updated: bool = False
    generated: bool = False
    compressed: bool = False
    comment: str | None = None
    period: str = ""
    expression: str = field(default="", compare=False)
    number: int = field(default=0, compare=False)
    older: Default = field(default=UNKNOWN, compare=False)

    @property
    def base(self) -> str:
        """The first word of the type."""
        return self.words.partition(" ")[0]

    @property
    def unsigned(self) -> bool:
        """True for UNSIGNED, also by ZEROFILL or SERIAL."""
        return any(word in ("UNSIGNED", "ZEROFILL", "SERIAL") for word in self.words.split())

    def type_text(self) -> str:
        """Return the type in the form of `Column.type_name`: in lower case, with length, scale and character set."""
        words = self.words.lower().split()
        signs = [word for word in words if word in _SIGNS]
        # numbers come after the names and before the signs
        words = [" ".join(word for word in words if word not in _SIGNS), *signs]
        if self.length is not None and not self.labels:
            words[0] += f"({self.length})" if self.scale is None else f"({self.length},{self.scale})"
        if self.compressed:
            words.append("compressed")
        if self.charset is not None:
            words.append(f"character set {canonical(self.charset)}")
        return " ".join(words)

    def to_json(self) -> list[Any]:
        flags = sum(
            bit << place
            for place, bit in enumerate(
                (not self.nullable, self.automatic, self.updated, self.generated, self.compressed)
            )
        )
        fields: list[Any] = [
            self.name, self.words, flags, self.length, self.scale, self.charset,
            None if self.default is None else list(self.default), self.comment,
            list(map(list, zip(self.labels, self.literals, strict=True))), self.period or None, self.number or None,
            None if self.older == UNKNOWN else list(self.older), self.expression or None,
        ]  # fmt: skip
        while len(fields) > 3 and (fields[-1] is None or fields[-1] == []):
            fields.pop()
        return fields

    @classmethod
    def from_json(cls, fields: list[Any]) -> ColumnDefinition:
        full = [*fields, *_EMPTY[len(fields) :]]
        name, words, flags, length, scale, charset, default, comment, labels, period, number, older, expression = full
        return cls(
            name, words, length, scale, tuple(one for one, _ in labels), tuple(one for _, one in labels), charset,
            not flags & 1, None if default is None else Default(*default), bool(flags & 2), bool(flags & 4),
            bool(flags & 8), bool(flags & 16), comment, period or "", expression or "",
            number or 0, UNKNOWN if older is None else Default(*older),
        )  # fmt: skip


_EMPTY: list[Any] = [None, None, 0, None, None, None, None, None, [], None, None, None, None]
_SIGNS = ("unsigned", "signed", "zerofill")


class Index(NamedTuple):
    """An index: its columns in order. `plain` is False if parts of it are expressions, `expressions` of them in its
    statement. All plain ones are unique."""

    name: str
    columns: tuple[str, ...]
    plain: bool = True
    expressions: int = 0


@dataclass(frozen=True, slots=True)
class TableDefinition:
    """A table: its columns in order, the columns of the primary key, the unique indexes, and its properties.

    - `versioned`: MariaDB keeps historical rows in it (WITH SYSTEM VERSIONING).
    - `hidden`: the columns that MySQL adds for the expressions of indexes, in the order of its rows in the log: the
      index, and the number of columns before it that the definition shows.
    - `number`: identifies the table, also after renames and among tables of the same name; 0 if unknown.
    - `highest`: the largest number that a column of the table has had.
    - `gone`: names and numbers of dropped columns, which copies may still have.

    Statements do not contain the last three, and comparisons ignore them.
    """

    database: str
    name: str
    columns: tuple[ColumnDefinition, ...]
    primary: tuple[str, ...] = ()
    unique: tuple[Index, ...] = ()
    charset: str | None = None
    comment: str | None = None
    versioned: bool = False
    hidden: tuple[tuple[str, int], ...] = ()
    number: int = field(default=0, compare=False)
    highest: int = field(default=0, compare=False)
    gone: tuple[tuple[str, int], ...] = field(default=(), compare=False)

    @property
    def id(self) -> Name:
        return self.database, self.name

    def index(self, name: str) -> int:
        """Return the place of the column called `name`, in any case of letters; -1 if there is none."""
        folded = name.casefold()
        return next((place for place, one in enumerate(self.columns) if one.name.casefold() == folded), -1)

    def key(self) -> tuple[str, ...]:
        """Return the columns of the primary key, else of the first unique index without nullable columns, else none."""
        if self.primary:
            return self.primary
        required = {column.name.casefold() for column in self.columns if not column.nullable}
        for index in self.unique:
            if index.plain and index.columns and all(name.casefold() in required for name in index.columns):
                return index.columns
        return ()

    def renamed(self, name: Name) -> TableDefinition:
        return replace(self, database=name[0], name=name[1])

    def to_json(self) -> list[Any]:
        return [
            self.database, self.name, self.charset, self.comment, int(self.versioned),
            list(map(list, self.hidden)) if self.hidden else 0, list(self.primary),
            [[index.name, list(index.columns), int(index.plain)] for index in self.unique],
            [column.to_json() for column in self.columns], self.number, self.highest,
            *([list(map(list, self.gone))] if self.gone else ()),
        ]  # fmt: skip

    @classmethod
    def from_json(cls, fields: list[Any]) -> TableDefinition:
        database, name, charset, comment, versioned, hidden, primary, unique, columns, number, highest, *gone = fields
        return cls(
            database, name, tuple(map(ColumnDefinition.from_json, columns)), tuple(primary),
            tuple(Index(index, tuple(names), bool(plain)) for index, names, plain in unique), charset, comment,
            bool(versioned), tuple((index, before) for index, before in hidden or ()), number, highest,
            tuple((name, place) for name, place in (gone[0] if gone else ())),
        )  # fmt: skip
