"""What the options that shape columns say, in their names and values: lengths, digests, salts, keys. No I/O."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tailrace.config.expressions import Expression, compile_expression
from tailrace.config.option import split_list

COLUMN_LISTS = ("column.include.list", "column.exclude.list")
ANNOTATIONS = ("column.propagate.source.type", "datatype.propagate.source.type")

_TRUNCATE = re.compile(r"column\.truncate\.to\.(\d+)\.chars", re.IGNORECASE)
_MASK = re.compile(r"column\.mask\.with\.(\d+)\.chars", re.IGNORECASE)
HASH = re.compile(r"column\.mask\.hash\.(v2\.)?([^.]+)\.with\.salt\.(.+)", re.IGNORECASE | re.DOTALL)
_NEARLY_HASH = re.compile(r"column\.mask\.(?:with\.)?hash\.|column\.mask\.(?=.*salt)", re.IGNORECASE)
_LONGEST = 10_000_000
# Java's standard names of message digests, and its aliases, as hashlib calls them. MD2 is the one that it lacks.
_DIGESTS = {
    "MD5": "md5", "SHA": "sha1", "SHA1": "sha1", "SHA-1": "sha1", "SHA-224": "sha224", "SHA-256": "sha256",
    "SHA-384": "sha384", "SHA-512": "sha512", "SHA-512/224": "sha512_224", "SHA-512/256": "sha512_256",
    "SHA3-224": "sha3_224", "SHA3-256": "sha3_256", "SHA3-384": "sha3_384", "SHA3-512": "sha3_512",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Treatment:
    """What one option does to the text of the columns that it lists.

    `kind` is `truncate`, `mask` or `hash`; `length` counts the characters that are left or put; `digest` is
    hashlib's name and `version` 1 or 2, the two ways to feed it. `columns` are expressions over
    schema.table.column.
    """

    kind: str
    columns: tuple[Expression, ...]
    length: int = 0
    digest: str = ""
    salt: str = field(default="", repr=False)
    version: int = 1


@dataclass(frozen=True, slots=True)
class KeyColumns:
    """One entry of `message.key.columns`: the columns of the key of every table that `table` matches."""

    table: Expression
    columns: tuple[str, ...]


def without_salt(name: str) -> str:
    """The name of an option as it may be shown: a salt in it is hidden."""
    found = HASH.fullmatch(name)
    if found is None:
        # a slip before the salt leaves the salt where it is
        found = _NEARLY_HASH.match(name)
        return f"{name[: found.end()]}***" if found else name
    return f"{name[: found.start(3)]}***"


def treatment(name: str, expressions: list[str]) -> Treatment | None:
    """What the option `name` does; None for an option that shapes no text.

    Raises ValueError, in words that follow the option's name, for a length or digest that is none.
    """
    if found := _TRUNCATE.fullmatch(name):
        length = _length(found[1])
        if length == 0:
            raise ValueError("must leave at least one character; column.mask.with.0.chars empties a column")
        return Treatment("truncate", _compiled(expressions), length)
    if found := _MASK.fullmatch(name):
        return Treatment("mask", _compiled(expressions), _length(found[1]))
    if found := HASH.fullmatch(name):
        digest = _digest(found[2])
        return Treatment("hash", _compiled(expressions), digest=digest, salt=found[3], version=2 if found[1] else 1)
    return None


def treatments(values: Mapping[str, Any]) -> tuple[Treatment, ...]:
    """Those of all options in `values`, in the order in which they count: the first that names a column decides.

    Cuts come before masks, and these before hashes of version 1 and 2; among equals the order is that of the options.
    """
    found = [made for name, listed in values.items() if (made := treatment(name, listed)) is not None]
    ranks = ("truncate", "mask", "hash")
    return tuple(sorted(found, key=lambda made: (ranks.index(made.kind), made.version)))


def key_columns(text: str) -> tuple[KeyColumns, ...]:
    """The entries of `message.key.columns`; raises ValueError in words that follow the option's name."""
    entries = []
    for part in filter(str.strip, text.split(";")):
        table, colon, listed = part.rpartition(":")
        columns = tuple(split_list(listed))
        if not colon or not table.strip() or not columns:
            raise ValueError(f"must list table:column,column separated by semicolons, not {part.strip()!r}")
        entries.append(KeyColumns(compile_expression(table.strip()), columns))
    return tuple(entries)


def faults(values: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with the options of this module among the typed `values`."""
    include, exclude = COLUMN_LISTS
    if values.get(include) and values.get(exclude):
        yield f"{include} and {exclude} exclude each other: give one of them"
    for name in (*COLUMN_LISTS, *ANNOTATIONS):
        try:
            _compiled(values.get(name) or [])
        except ValueError as fault:
            yield f"{name}: {fault}"
    for name, listed in values.items():
        try:
            treatment(name, listed)
        except ValueError as fault:
            yield f"{without_salt(name)} {fault}"


def expressions(listed: list[str]) -> tuple[Expression, ...]:
    """A list's expressions, compiled; `faults` has named broken ones before."""
    return _compiled(listed)


def _compiled(listed: list[str]) -> tuple[Expression, ...]:
    return tuple(map(compile_expression, listed))


def _length(digits: str) -> int:
    length = int(digits)
    if length > _LONGEST:
        raise ValueError(f"must not name more than {_LONGEST:,} characters")
    return length


def _digest(name: str) -> str:
    known = _DIGESTS.get(name.upper())
    if known is None:
        raise ValueError(f"names the digest {name}, which is not supported; known are {', '.join(_DIGESTS)}")
    try:
        hashlib.new(known, usedforsecurity=False)
    except ValueError:
        raise ValueError(f"names the digest {name}, which the installed OpenSSL lacks") from None
    return known
