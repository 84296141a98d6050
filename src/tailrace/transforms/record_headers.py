"""InsertHeader, HeaderFrom and DropHeaders: transforms of headers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from tailrace.errors import ConfigError
from tailrace.records.layout import Constant, Header, RecordLayout
from tailrace.records.transform import Rewritten
from tailrace.transforms.given import OptionReader
from tailrace.transforms.literals import literal
from tailrace.transforms.nodes import with_defaults, with_headers
from tailrace.transforms.parts import (
    KEY,
    VALUE,
    copied,
    defaulted,
    defaults,
    required_field,
    required_struct,
    with_part,
)


@dataclass(frozen=True, slots=True)
class InsertHeader:
    """A tailrace.records.transform.Transform that adds a header with a constant value."""

    header: str
    text: str

    def rewrite(self, record: RecordLayout) -> Rewritten:
        return with_headers(record, Header(self.header, literal(self.text)))


@dataclass(frozen=True, slots=True)
class HeaderFrom:
    """A tailrace.records.transform.Transform that copies or moves fields of the key or the value into headers."""

    which: str
    fields: tuple[str, ...]
    headers: tuple[str, ...]
    moves: bool
    defaults: bool

    def rewrite(self, record: RecordLayout) -> Rewritten:
        struct = required_struct(record, self.which, "HeaderFrom")
        found = []
        for field, header in zip(self.fields, self.headers, strict=True):
            node = required_field(struct, self.which, field, "HeaderFrom")
            found.append(Header(header, with_defaults(node) if self.defaults else node))
        if self.moves:
            left = tuple(member for member in struct.members if member.name not in self.fields)
            rest = copied(struct, defaulted(left, self.defaults), "HeaderFrom")
            record = with_part(record, self.which, rest)
        return with_headers(record, *found)


@dataclass(frozen=True, slots=True)
class DropHeaders:
    """A tailrace.records.transform.Transform that removes headers."""

    headers: frozenset[str]

    def rewrite(self, record: RecordLayout) -> Rewritten:
        return replace(record, headers=tuple(one for one in record.headers if one.name not in self.headers))


def insert_header(options: Mapping[str, str]) -> InsertHeader:
    """Make InsertHeader from its options. Raises ConfigError."""
    given = OptionReader(options)
    # an empty text is a valid value
    text = given.verbatim("value.literal", "") if "value.literal" in options else given.required("value.literal")
    found = InsertHeader(given.required("header"), text)
    given.done()
    try:
        made = literal(found.text)
    except ValueError as fault:
        raise ConfigError(f"value.literal {fault}.") from None
    assert isinstance(made, Constant)
    return found


def _header_from(which: str, options: Mapping[str, str]) -> HeaderFrom:
    given = OptionReader(options)
    given.required("fields")
    given.required("headers")
    fields, headers = given.names("fields"), given.names("headers")
    moves = given.word("operation", "", ("move", "copy")) == "move"
    if len(fields) != len(headers):
        raise ConfigError("fields and headers must have the same number of names.")
    found = HeaderFrom(which, fields, headers, moves, defaults(given))
    given.done()
    return found


header_from_key, header_from_value = partial(_header_from, KEY), partial(_header_from, VALUE)
"""Make HeaderFrom from its options, for keys and for values."""


def drop_headers(options: Mapping[str, str]) -> DropHeaders:
    """Make DropHeaders from its options. Raises ConfigError."""
    given = OptionReader(options)
    given.required("headers")
    found = DropHeaders(frozenset(given.names("headers")))
    given.done()
    return found
