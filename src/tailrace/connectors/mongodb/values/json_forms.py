"""The forms in which Debezium writes BSON as JSON text: a table of pieces for each. Planner and worker.

A form is data: the texts around and between values. All forms share the decomposition of values, by the specification
of BSON 1.1, and the texts of doubles and decimals, as in Java. MongoDB's Java driver defines the modes: STRICT
(extended JSON 1), RELAXED and EXTENDED (extended JSON 2, relaxed and canonical), and the writer of keys that the driver
had up to version 3, `com.mongodb.util.JSON`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tailrace.connectors.mongodb.values.escapes import escaped_units
from tailrace.connectors.mongodb.values.fields import DB_POINTER, REGEX, TIMESTAMP, Bytes, Int64s
from tailrace.kernels.buffers import readonly
from tailrace.values.json_text import quoted

(
    ABSENT, OPEN, CLOSE, OPEN_ARRAY, CLOSE_ARRAY, QUOTE, COLON, SEPARATOR, NULL, TRUE, FALSE, UNDEFINED, MIN_KEY,
    MAX_KEY, DOUBLE, DOUBLE_END, ODD, ODD_END, INT, INT_END, LONG, LONG_END, DATE, DATE_END, TEXT_DATE, TEXT_DATE_END,
    OBJECT_ID, OBJECT_ID_END, BINARY, SUBTYPE, BINARY_END, UUID, UUID_END, REGEXP, OPTIONS, REGEXP_END, POINTER,
    POINTER_ID, POINTER_END, CODE, CODE_END, SCOPED, SCOPE, SCOPE_END, SYMBOL, SYMBOL_END, STAMP, STAMP_ORDER,
    STAMP_END, DECIMAL, DECIMAL_END, QUOTE_ESCAPE, BACKSLASH_ESCAPE, BACKSPACE_ESCAPE, TAB_ESCAPE, NEWLINE_ESCAPE,
    FEED_ESCAPE, RETURN_ESCAPE, UNICODE_ESCAPE,
) = range(59)  # fmt: skip

COPY, UNIT, LONGER, DROP = 0, 253, 254, 255
"""Actions for a byte of a text: copy it, escape it by number, look at the whole character, drop it. Other numbers are
pieces."""

KEEP_UUID, OLD_UUID, NAME_UUID = 0, 1, 2
"""Handling of UUIDs: unchanged; subtype 4 becomes 3, in Java's old byte order; written as a UUID's text."""

MOST_LEVELS = 1024
"""Most levels of nested documents, the limit of Java's writer."""


class Compiled(NamedTuple):
    """A form for the kernels: its pieces one after another with their bounds, its tables and its switches.

    `actions` holds the action for each byte of a text, `escaped` a bit for each UTF-16 unit that is written as a
    number, `refused` a 1 for each type of BSON that the form cannot write.
    """

    pieces: Bytes
    bounds: Int64s
    actions: Bytes
    escaped: Bytes
    refused: Bytes
    text_dates: bool
    uuid: int
    signed_subtype: bool
    without_scope: bool
    raw: bool
    within_string: bool
    """The text is within a JSON string, and is escaped once more."""


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """A form of JSON text. Types of BSON in `refused` cannot be written in it: they end Debezium's connector."""

    name: str
    pieces: tuple[str, ...]
    text_dates: bool = False
    uuid: int = KEEP_UUID
    signed_subtype: bool = False
    without_scope: bool = False
    raw: bool = False
    """Characters are literal, and control characters without a short escape are dropped."""
    refused: frozenset[int] = frozenset()

    def compiled(self, within_string: bool) -> Compiled:
        """Return the tables of the form. With `within_string` the text is in a JSON string and is escaped once more."""
        texts = [quoted(text)[1:-1] if within_string else text for text in self.pieces]
        # the text of a missing value is outside of the string
        texts[ABSENT] = self.pieces[ABSENT]
        encoded = [text.encode() for text in texts]
        bounds = np.cumsum([0, *map(len, encoded)]).astype(np.int64)
        actions = np.full(256, COPY, np.uint8)
        actions[:32] = DROP if self.raw else UNIT
        actions[127] = COPY if self.raw else UNIT
        actions[128:] = LONGER
        for character, piece in self.short_escapes().items():
            actions[ord(character)] = piece
        refused = np.zeros(256, np.uint8)
        refused[sorted(self.refused)] = 1
        escaped = np.zeros(8192, np.uint8) if self.raw else escaped_units()
        arrays: list[npt.NDArray[np.uint8]] = [
            np.frombuffer(b"".join(encoded) + b"\0", np.uint8).copy(), actions, escaped, refused
        ]  # fmt: skip
        pieces, actions, escaped, refused = (readonly(array) for array in arrays)
        return Compiled(
            pieces, readonly(bounds), actions, escaped, refused, self.text_dates, self.uuid, self.signed_subtype,
            self.without_scope, self.raw, within_string,
        )  # fmt: skip

    def short_escapes(self) -> dict[str, int]:
        """Return the characters that have a piece of their own."""
        found = {'"': QUOTE_ESCAPE, "\\": BACKSLASH_ESCAPE, "\b": BACKSPACE_ESCAPE, "\t": TAB_ESCAPE}
        found |= {"\n": NEWLINE_ESCAPE, "\r": RETURN_ESCAPE}
        return found if self.raw else found | {"\f": FEED_ESCAPE}


def _pieces(given: dict[int, str]) -> tuple[str, ...]:
    escapes = ('\\"', "\\\\", "\\b", "\\t", "\\n", "\\f", "\\r", "\\u")
    every = dict(zip(range(QUOTE_ESCAPE, UNICODE_ESCAPE + 1), escapes, strict=True))
    every |= {ABSENT: "null", OPEN: "{", CLOSE: "}", OPEN_ARRAY: "[", CLOSE_ARRAY: "]", QUOTE: '"', NULL: "null"}
    every |= {TRUE: "true", FALSE: "false", COLON: '": ', SEPARATOR: ","}
    every |= given
    return tuple(every.get(number, "") for number in range(UNICODE_ESCAPE + 1))


_WRAPPED = {
    UNDEFINED: '{"$undefined": true}', MIN_KEY: '{"$minKey": 1}', MAX_KEY: '{"$maxKey": 1}',
    OBJECT_ID: '{"$oid": "', OBJECT_ID_END: '"}', CODE: '{"$code": "', CODE_END: '"}', SCOPED: '{"$code": "',
    SCOPE: '","$scope": ', SCOPE_END: "}}", SYMBOL: '{"$symbol": "', SYMBOL_END: '"}',
    POINTER: '{"$ref": "', POINTER_ID: '","$id": {"$oid": "', POINTER_END: '"}}',
    STAMP: '{"$timestamp": {"t": ', STAMP_ORDER: ',"i": ', STAMP_END: "}}",
    DECIMAL: '{"$numberDecimal": "', DECIMAL_END: '"}',
}  # fmt: skip

_STRICT = _WRAPPED | {
    LONG: '{"$numberLong": "', LONG_END: '"}', DATE: '{"$date": ', DATE_END: "}",
    BINARY: '{"$binary": "', SUBTYPE: '","$type": "', BINARY_END: '"}',
    REGEXP: '{"$regex": "', OPTIONS: '","$options": "', REGEXP_END: '"}',
}  # fmt: skip

_RELAXED = _WRAPPED | {
    ODD: '{"$numberDouble": "', ODD_END: '"}',
    DATE: '{"$date": {"$numberLong": "', DATE_END: '"}}', TEXT_DATE: '{"$date": "', TEXT_DATE_END: '"}',
    BINARY: '{"$binary": {"base64": "', SUBTYPE: '","subType": "', BINARY_END: '"}}',
    REGEXP: '{"$regularExpression": {"pattern": "', OPTIONS: '","options": "', REGEXP_END: '"}}',
}  # fmt: skip

_CANONICAL = _RELAXED | {
    DOUBLE: '{"$numberDouble": "', DOUBLE_END: '"}', INT: '{"$numberInt": "', INT_END: '"}',
    LONG: '{"$numberLong": "', LONG_END: '"}',
    POINTER: '{"$dbPointer": {"$ref": "', POINTER_END: '"}}}',
}  # fmt: skip


def _spaced(pieces: dict[int, str]) -> dict[int, str]:
    """Return the pieces with a space after each comma."""
    return {number: text.replace(',"', ', "') for number, text in pieces.items()} | {SEPARATOR: ", "}


def _old(pieces: dict[int, str]) -> dict[int, str]:
    """Return the pieces of the driver's old writer: spaces around colons and commas, and after opening brackets."""
    found = {
        number: text.replace('": ', '" : ').replace(',"', ' , "').replace('{"', '{ "')
        for number, text in pieces.items()
    }  # fmt: skip
    return found | {OPEN: "{ ", OPEN_ARRAY: "[ ", COLON: '" : ', SEPARATOR: " , ", NULL: " null "}


_KEY_1_1 = _STRICT | {
    LONG: "", LONG_END: "", SUBTYPE: '","$type": ', BINARY_END: "}",
    UUID: '{"$uuid": "', UUID_END: '"}', SCOPED: '{"$code": "', SCOPE: '"', SCOPE_END: "}",
}  # fmt: skip

STRICT_1_1 = Form("strict 1.1", _pieces(_STRICT), uuid=OLD_UUID)
"""`after`, `patch` and `filter` of format 1.1."""

KEY_1_1 = Form(
    "key 1.1",
    _pieces(_old(_KEY_1_1)),
    uuid=NAME_UUID,
    signed_subtype=True,
    without_scope=True,
    raw=True,
    refused=frozenset((REGEX, DB_POINTER, TIMESTAMP)),
)
"""`_id` in keys of format 1.1, which has no text for regular expressions, pointers and timestamps."""

STRICT = Form("strict", _pieces(_STRICT))
"""`after` and `before` of format 3."""

KEY = Form("key", _pieces(_RELAXED), text_dates=True)
"""`_id` in keys of format 3: RELAXED without the spaces."""

RELAXED = Form("relaxed", _pieces(_spaced(_RELAXED)), text_dates=True)
"""`updatedFields` of format 3."""

CANONICAL = Form("canonical", _pieces(_CANONICAL))
"""EXTENDED, the canonical extended JSON of version 2, without spaces after commas."""

FORMS = (STRICT_1_1, KEY_1_1, STRICT, KEY, RELAXED, CANONICAL)
