"""The forms in which Debezium writes BSON as JSON text, each a table of pieces of text. Planner and worker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tailrace.connectors.mongodb.values.fields import DB_POINTER, REGEX, TIMESTAMP, Bytes, Int64s
from tailrace.kernels.buffers import readonly
from tailrace.values.json_text import quoted

# --- escaped characters -----------------------------------------------------------------------------------------------

# Lengths, in base 36, of alternating runs of units: literal, escaped, literal, ...
_RUNS = """
0 w 2n x d 1 ea i 4 c e 5 7 1 1 1 h 34 4 1 3 3 5 4 7 1 1 1 k 1 68 7 4m 1 12 3 1d 2 3 1a 1 1 1 2 1 2 1 9 r 4 6 h
a b 1 2 y 1 a l g 1 2t 8 1 a 1 4 w 2 1 1 u t 2h b 1 e 17 b 4 4 o q f 1 p 5 1 1 b 1h l 1 i 1o 1i 3 1 i 1 7 a 2 d
1 f 4 8 2 2 2 m 1 7 1 1 3 4 3 1 g 1 d 2 1 3 4 o 7 6 4 2 2 m 1 7 1 2 1 2 1 2 v 4 1 1 7 a 2 3 1 1 e 9 1 3 1 m 1 7
1 2 1 5 3 1 i 1 f 2 4 c 7 1 b 8 2 2 2 m 1 7 1 2 1 5 3 1 u 2 1 3 4 i b 1 1 6 3 3 1 4 3 2 1 1 1 2 3 2 3 3 3 c m 1
l l a 8 1 3 1 n 1 g 3 1 q 3 5 2 4 a 7 a 3 9 1 3 1 n 1 a 1 5 3 1 w 1 1 2 4 a 1 2 h 9 1 3 1 15 2 1 g 2 4 3 1 a 4 q
5 i 3 o 1 9 1 1 2 7 v a 4 1 c 1c 1 2 b 7 9 d 11 2 1 1 1 5 1 o 1 1 1 a 1 2 9 1 2 5 b a 2 4 w o 2 r 1 1 1 1 1 4 2
8 1 10 o 1 2 5 1d 8 1 6 1 d 11 17 k n 4 4 3 1 3 2 7 3 4 d c 1 1 a 4 14 1 1 5 1 2 18 1 98 1 4 2 7 1 1 1 4 2 15 1
4 2 x 1 4 2 7 1 1 1 4 2 f 1 1l 1 4 2 1v 5 t 3 q 6 2e 2 6 2 il 3 2h 7 d 1 4 e i 3 2 9 i e d 1 3 f 1g w 3 1 5 3 a
6 a 6 b 5 a 6 z 1 1h 7 5 2 y 1 1 5 1y a v x 1 3 16 2 5 b 18 4 q 6 b 3 1l 7 1j 17 a 6 a 6 7 1 6 2f 1b h 7 4 r 9 9
6 u d 1k m 14 n f 3 17 6 b 7 17 2 b b 1 l 4 1 6 1 2 3 1 5 18 1r d 1 y 2t 7q 2 6 2 12 2 6 2 8 1 1 1 1 1 1 1 v 2
1h 1 f 1 e 2 6 1 j 2 3 1 9 1 b 5 o 7 1d g 1 3 b 1 f h w 1s 3w 4 if p b l 1ec 2 w 1 48 1 1b 1 s 2 35 3 2 5 19 1 1
5 1 2 1k 8 1 f n 9 7 1 7 1 7 1 7 1 7 1 7 1 7 1 7 x 1b 1 z 19 q 1 2h c 5y q c 4 5 1 10 6 1 5 5 1 4 1 2e 4 2 2 2l
3 1 5 17 1 2m 1 2c c 1b 1 lp9 3 l 1 vr 3 1j 9 14 6 7i 1 v k 1b 4 1 a 1 1 s 4 28 2 6 8 n 9 28 1 n 1 1j 2 9 16 3 2
8 1 3 1 4 1 n 5 4 4 a 6 1k a 1e q c o d 1 12 8 p o u 7 1b e d 2 a 4 7 2 o 1 15 n 3 1 8 4 a 2 k 1 a 3 1e 1 1 3 2
2 5 2 1 1 1 o 2 1 d 5 3 e 6 2 6 2 6 9 7 1 7 1 18 4 9 1 2 4 37 8 1 4 a 6 8mc c n 4 1d 6is a6 2 2y 12 7 c 5 5 1 1
o 1 5 1 1 1 2 1 2 1 3g h a5 g 1s 2 1i 14 e i a m z 1 j 1 4 4 5 1 3r 4 33 1 19 2 v 3 6 2 6 2 6 2 3 3 7 1 7 d 2 2
"""


def escaped_units() -> npt.NDArray[np.uint8]:
    """Return 65,536 bits, the lowest first: bit n is 1 if the UTF-16 unit n is escaped."""
    lengths = [int(word, 36) for word in _RUNS.split()]
    flags = np.repeat(np.arange(len(lengths)) % 2 == 1, lengths)
    return np.packbits(flags, bitorder="little")


# --- forms ------------------------------------------------------------------------------------------------------------


(
    ABSENT, OPEN, CLOSE, OPEN_ARRAY, CLOSE_ARRAY, QUOTE, COLON, SEPARATOR, NULL, TRUE, FALSE, UNDEFINED, MIN_KEY,
    MAX_KEY, DOUBLE, DOUBLE_END, ODD, ODD_END, INT, INT_END, LONG, LONG_END, DATE, DATE_END, TEXT_DATE, TEXT_DATE_END,
    OBJECT_ID, OBJECT_ID_END, BINARY, SUBTYPE, BINARY_END, UUID, UUID_END, REGEXP, OPTIONS, REGEXP_END, POINTER,
    POINTER_ID, POINTER_END, CODE, CODE_END, SCOPED, SCOPE, SCOPE_END, SYMBOL, SYMBOL_END, STAMP, STAMP_ORDER,
    STAMP_END, DECIMAL, DECIMAL_END, QUOTE_ESCAPE, BACKSLASH_ESCAPE, BACKSPACE_ESCAPE, TAB_ESCAPE, NEWLINE_ESCAPE,
    FEED_ESCAPE, RETURN_ESCAPE, UNICODE_ESCAPE,
) = range(59)  # fmt: skip

COPY, UNIT, LONGER, DROP = 0, 253, 254, 255
"""Actions for a byte of a text: copy it, escape it by number, decode the whole character, drop it. Other numbers are
the pieces that replace it."""

KEEP_UUID, OLD_UUID, NAME_UUID = 0, 1, 2
"""Handling of UUIDs: unchanged; subtype 4 becomes 3, in Java's old byte order; written as a UUID's text."""

MOST_LEVELS = 1024
"""Most levels of nested documents, the limit of Java's writer."""


class Compiled(NamedTuple):
    """A form for the kernels: its pieces one after another with their bounds, its tables and its switches.

    `actions` holds the action for each byte of a text. `escaped` has a bit for each UTF-16 unit that is written as a
    number. `refused` has a 1 for each BSON type that the form cannot write.
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
class JsonForm:
    """A form of JSON text. Types of BSON in `refused` cannot be written; Debezium's connector fails on them."""

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
        """Return the characters with a short escape, each with its piece."""
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

STRICT_1_1 = JsonForm("strict 1.1", _pieces(_STRICT), uuid=OLD_UUID)
"""`after`, `patch` and `filter` of format 1.1."""

KEY_1_1 = JsonForm(
    "key 1.1",
    _pieces(_old(_KEY_1_1)),
    uuid=NAME_UUID,
    signed_subtype=True,
    without_scope=True,
    raw=True,
    refused=frozenset((REGEX, DB_POINTER, TIMESTAMP)),
)
"""`_id` in keys of format 1.1, which has no text for regular expressions, pointers and timestamps."""

STRICT = JsonForm("strict", _pieces(_STRICT))
"""`after` and `before` of format 3."""

KEY = JsonForm("key", _pieces(_RELAXED), text_dates=True)
"""`_id` in keys of format 3: RELAXED without the spaces."""

RELAXED = JsonForm("relaxed", _pieces(_spaced(_RELAXED)), text_dates=True)
"""`updatedFields` of format 3."""

CANONICAL = JsonForm("canonical", _pieces(_CANONICAL))
"""EXTENDED, the canonical extended JSON of version 2, without spaces after commas."""

FORMS = (STRICT_1_1, KEY_1_1, STRICT, KEY, RELAXED, CANONICAL)
