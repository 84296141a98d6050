"""Definitions of tables as statements give them: what the catalog, the log's DDL and records of schema changes share.

Values only: hashable, picklable, with a form for the checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from tailrace.connectors.binlog.schema.charsets import canonical

Name = tuple[str, str]
"""A table's name: database and table."""


class Default(NamedTuple):
    """A column's default as it is written.

    `kind` is `text`, `number`, `hex`, `bits`, `word` (TRUE), `now`, `expression` or `null`. `text` is what stands
    between quotes, as it is written, of a text, the digits of hex and bits, else the words.
    """

    kind: str
    text: str
    value: str = ""


UNKNOWN, IMPLICIT, NOTHING = Default("unknown", ""), Default("implicit", ""), Default("null", "NULL")
"""Values of `ColumnDefinition.older`: one that is not known, the zero that the server gives where it may not be null,
and null."""


@dataclass(frozen=True, slots=True)
class ColumnDefinition:
    """A column of a table.

    - `words`: the words of its type, as they are written, in capitals: `INT UNSIGNED`, `NATIONAL VARCHAR`, `ENUM`.
    - `length`, `scale`: the numbers behind the type; None if it has none.
    - `labels`: those of ENUM and SET; `literals` the same as SQL literals.
    - `charset`: of texts, resolved from column, table or database; None for other types.
    - `updated`: it has ON UPDATE; `generated`: its value is computed; `compressed`: MariaDB stores it compressed.
    - `period`: `start` or `end` of a system-versioned row, `from` or `until` of an application's period.
    - `expression`: that of a generated column, as it is written last in a statement; "" if not known.
    - `number`: identifies the column in its table; it survives renames and is never used again. 0 if not known.
    - `older`: the value in rows that are older than the column.

    The last three are not compared: the server writes expressions in its own way.
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
        """The first word of its type."""
        return self.words.partition(" ")[0]

    @property
    def unsigned(self) -> bool:
        """True for UNSIGNED, also by ZEROFILL or SERIAL."""
        return any(word in ("UNSIGNED", "ZEROFILL", "SERIAL") for word in self.words.split())

    def type_text(self) -> str:
        """Return the type as `Column.type_name` has it: lower case, with length and scale, and its character set."""
        words = self.words.lower().split()
        signs = [word for word in words if word in _SIGNS]
        # numbers stand behind the names and before the signs
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
    """A unique index: its columns in order; `plain` is False if a part of it is an expression."""

    name: str
    columns: tuple[str, ...]
    plain: bool = True


@dataclass(frozen=True, slots=True)
class TableDefinition:
    """A table: its columns in order, the columns of the primary key, the unique indexes, and what is told of it.

    `versioned`: MariaDB keeps former rows in it (WITH SYSTEM VERSIONING). `hidden`: columns of its rows in the log that
    no definition shows, behind the others.
    `number` identifies the table among all that had its name, and survives renames; `highest` is the largest number
    that a column of it has had. `gone` has names and numbers of columns that are gone, while copies that know columns
    by their names may still have them. The three are no part of what a statement says, and are not compared.
    """

    database: str
    name: str
    columns: tuple[ColumnDefinition, ...]
    primary: tuple[str, ...] = ()
    unique: tuple[Index, ...] = ()
    charset: str | None = None
    comment: str | None = None
    versioned: bool = False
    hidden: int = 0
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
        """Return the columns of the primary key; else of the first unique index that allows no null; else none."""
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
            self.database, self.name, self.charset, self.comment, int(self.versioned), self.hidden, list(self.primary),
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
            bool(versioned), hidden, number, highest, tuple((name, place) for name, place in (gone[0] if gone else ())),
        )  # fmt: skip
