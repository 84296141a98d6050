"""The options that shape columns, by names and values: lengths, digests, salts, keys. No I/O."""

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
# Java's standard names of message digests, and its aliases, with hashlib's names. hashlib lacks only MD2.
_DIGESTS = {
    "MD5": "md5", "SHA": "sha1", "SHA1": "sha1", "SHA-1": "sha1", "SHA-224": "sha224", "SHA-256": "sha256",
    "SHA-384": "sha384", "SHA-512": "sha512", "SHA-512/224": "sha512_224", "SHA-512/256": "sha512_256",
    "SHA3-224": "sha3_224", "SHA3-256": "sha3_256", "SHA3-384": "sha3_384", "SHA3-512": "sha3_512",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Treatment:
    """The effect of one option on the text of the columns that it lists.

    `kind` is `truncate`, `mask` or `hash`; `length` counts the characters that are kept or inserted. `digest` is
    hashlib's name; `version`, 1 or 2, is the form in which the text is digested. `columns` are expressions over
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
    """An entry of `message.key.columns`: the key columns of every table that `table` matches."""

    table: Expression
    columns: tuple[str, ...]


def without_salt(name: str) -> str:
    """Return the name of an option for display, with a salt in it hidden."""
    found = HASH.fullmatch(name)
    if found is None:
        # a misspelling before the salt does not expose it
        found = _NEARLY_HASH.match(name)
        return f"{name[: found.end()]}***" if found else name
    return f"{name[: found.start(3)]}***"


def treatment(name: str, expressions: list[str]) -> Treatment | None:
    """Return the effect of the option `name`; None for an option that shapes no text.

    Raises ValueError for an invalid length or digest; the message follows the option's name.
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
    """Return the treatments of all options in `values`, by precedence: the first that names a column applies.

    Cuts come before masks, masks before hashes, and version 1 before version 2; equals keep the order of the options.
    """
    found = [made for name, listed in values.items() if (made := treatment(name, listed)) is not None]
    ranks = ("truncate", "mask", "hash")
    return tuple(sorted(found, key=lambda made: (ranks.index(made.kind), made.version)))


def key_columns(text: str) -> tuple[KeyColumns, ...]:
    """Return the entries of `message.key.columns`. Raises ValueError; the message follows the option's name."""
    entries = []
    for part in filter(str.strip, text.split(";")):
        table, colon, listed = part.rpartition(":")
        columns = tuple(split_list(listed))
        if not colon or not table.strip() or not columns:
            raise ValueError(f"must list table:column,column separated by semicolons, not {part.strip()!r}")
        entries.append(KeyColumns(compile_expression(table.strip()), columns))
    return tuple(entries)


def faults(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield the faults of this module's options among the typed `values`."""
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
    """Return a list's expressions, compiled. `faults` has reported invalid ones before."""
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
