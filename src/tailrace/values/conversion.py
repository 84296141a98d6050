"""What is known of a type: its schema, its plain conversion, and the family that converts whole columns of it."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from tailrace.assembly.json_text import dumps
from tailrace.assembly.programs import Fragment
from tailrace.buffers import Bytes
from tailrace.columns.logical import LogicalType
from tailrace.values.shapes import Shape
from tailrace.values.texts import LOST, NULL, VALUE, Shown, Texts, strings_fragment

_MOST_KNOWN = 100_000


class Typed(NamedTuple):
    """The values of a column as an Arrow array, and what became of each row, as `values.texts` says.

    `outcome` is empty where every row has a value; what stands in the array where a row has none means nothing.
    """

    values: pa.Array
    outcome: Bytes


@dataclass(frozen=True, slots=True)
class Family:
    """How columns of texts are converted, by compiled kernels or by Arrow's own; this one leaves it to each value.

    A family is immutable, and two that are equal convert alike. Both conversions give what the plain one gives. They
    may give None: then the plain one does it all, as it does where there is no kernel.
    """

    def json(self, texts: Texts, shown: Shown) -> tuple[Fragment, int] | None:
        """The JSON of the texts, and how many could not be converted."""
        return None

    def arrow(self, texts: Texts, logical: LogicalType, of: pa.DataType) -> Typed | None:
        """The values of the texts as an array of the type `of`, which is that of `logical`."""
        return None

    def way(self) -> Hashable:
        """The same for families that convert alike."""
        return self


BY_VALUE = Family()
"""The family of types that are too rare for a kernel."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """A type's schema, its plain conversion and its family; all conversions give the same values.

    `plain` takes the server's text and gives a value for `json_text.dumps`: None where the type has no form for
    it, ValueError where the text is malformed. `zero` stands for a default that only the server can compute;
    `missing`, or `zero` where it is None, for a value that a NOT NULL column must have and the log did not carry;
    `unavailable` for an unchanged TOAST value, None where the type has no placeholder.
    """

    logical: LogicalType
    plain: Callable[[str], Any]
    family: Family = BY_VALUE
    zero: Any = None
    unavailable: Any = None
    missing: Any = None

    @property
    def by_value(self) -> bool:
        """Whether values are converted plainly, one at a time."""
        return self.family == BY_VALUE

    def way(self) -> Hashable:
        """The same for conversions that give the same of the same texts."""
        return self.plain if self.by_value else self.family.way()


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """One column as events show it: its index in the batch, its field name, its schema and conversion.

    `null` and `unavailable` are the JSON of a null and of an unchanged TOAST value in this column. A text that is not
    UTF-8 cannot be converted. `shape` is applied to the texts before a family's kernel sees them; the plain
    conversion has it in itself.
    """

    index: int
    source_name: str
    name: str
    schema: LogicalType
    conversion: Conversion
    null: bytes
    unavailable: bytes
    shape: Shape | None = None


def fragment_of(conversion: Conversion, texts: Texts, shown: Shown) -> tuple[Fragment, int]:
    """The JSON of texts by the conversion's family, and how many could not be converted."""
    return conversion.family.json(texts, shown) or _plainly(conversion, texts, shown)


def _plainly(conversion: Conversion, texts: Texts, shown: Shown) -> tuple[Fragment, int]:
    """As `fragment_of`, value by value; equal texts are converted once."""
    known: dict[bytes, bytes | None] = {}
    parts: list[bytes] = []
    literals = (shown.null, shown.unavailable)
    lost = 0
    states = texts.state.tolist() or [VALUE] * len(texts)
    for value, state in zip(texts.column.to_pylist(), states, strict=True):
        if state != VALUE:
            parts.append(literals[state - NULL])
            continue
        if value in known:
            text = known[value]
        else:
            text = plain_text(conversion, value, shown.null)
            if len(known) < _MOST_KNOWN:
                known[value] = text
        lost += text is None
        parts.append(shown.lost if text is None else text)
    return strings_fragment(parts), lost


def plain_text(conversion: Conversion, text: bytes, null: bytes) -> bytes | None:
    """The JSON of one value by the plain conversion, `null` where it has no form; None when it cannot be converted."""
    outcome, value = plain_value(conversion, text)
    if outcome == LOST:
        return None
    return null if outcome == NULL else dumps(value).encode()


def plain_value(conversion: Conversion, text: bytes) -> tuple[int, Any]:
    """What becomes of one text by the plain conversion (VALUE, NULL or LOST), and its value."""
    try:
        value = conversion.plain(text.decode())
    except (ValueError, KeyError, IndexError, ArithmeticError):
        return LOST, None
    return (NULL, None) if value is None else (VALUE, value)
