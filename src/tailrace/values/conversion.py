"""Conversion: a type's schema, its plain conversion, and the family that converts whole columns."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from tailrace.columns.logical import LogicalType
from tailrace.kernels.buffers import Bytes
from tailrace.kernels.programs import Fragment
from tailrace.values.json_text import dumps
from tailrace.values.shapes import Shape
from tailrace.values.texts import LOST, NULL, VALUE, ShownValues, Texts, strings_fragment

_MOST_KNOWN = 100_000


class TypedColumn(NamedTuple):
    """The values of a column as an Arrow array, and the outcome of each row, as in `values.texts`.

    `outcome` is empty if every row has a value. The array has arbitrary values in rows without one.
    """

    values: pa.Array
    outcome: Bytes


@dataclass(frozen=True, slots=True)
class Family:
    """A conversion of whole columns of texts, by compiled kernels or by Arrow; this base class converts none.

    A family is immutable, and equal families convert alike. Both methods give the same values as the plain conversion.
    If they return None, the plain conversion is used.
    """

    def json(self, texts: Texts, shown: ShownValues) -> tuple[Fragment, int] | None:
        """Return the JSON of the texts, and how many could not be converted."""
        return None

    def arrow(self, texts: Texts, logical: LogicalType, of: pa.DataType) -> TypedColumn | None:
        """Return the values of the texts as an array of the type `of`, which is that of `logical`."""
        return None

    def way(self) -> Hashable:
        """Return a key that is equal for families that convert alike."""
        return self


BY_VALUE = Family()
"""The family of types that are too rare for a kernel."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """A type's schema, its plain conversion and its family; all conversions give the same values.

    `plain` takes the server's text and returns a value for `json_text.dumps`. It returns None if the type has no form
    for it, and raises ValueError if the text is malformed. `zero` replaces a default that only the server can compute.
    `missing` (None: `zero`) replaces a value of a NOT NULL column that the log did not carry. `unavailable` replaces an
    unchanged TOAST value; None if the type has no placeholder.
    """

    logical: LogicalType
    plain: Callable[[str], Any]
    family: Family = BY_VALUE
    zero: Any = None
    unavailable: Any = None
    missing: Any = None

    @property
    def by_value(self) -> bool:
        """True if values are converted plainly, one at a time."""
        return self.family == BY_VALUE

    def way(self) -> Hashable:
        """Return a key that is equal for conversions with equal results."""
        return self.plain if self.by_value else self.family.way()


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """A column as events show it: its index in the batch, its field name, its schema and conversion.

    `null` and `unavailable` are the JSON of a null and of an unchanged TOAST value in this column. A text that is not
    UTF-8 cannot be converted. `shape` is applied to the texts before a family's kernel; the plain conversion includes
    it.
    """

    index: int
    source_name: str
    name: str
    schema: LogicalType
    conversion: Conversion
    null: bytes
    unavailable: bytes
    shape: Shape | None = None


def fragment_of(conversion: Conversion, texts: Texts, shown: ShownValues) -> tuple[Fragment, int]:
    """Return the JSON of texts, converted by the conversion's family, and how many could not be converted."""
    return conversion.family.json(texts, shown) or _plainly(conversion, texts, shown)


def _plainly(conversion: Conversion, texts: Texts, shown: ShownValues) -> tuple[Fragment, int]:
    """Return the JSON of texts, converted one at a time, and how many failed; equal texts are converted once."""
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
    """Return the JSON of a value by the plain conversion: `null` if it has no form, None if it cannot be converted."""
    outcome, value = plain_value(conversion, text)
    if outcome == LOST:
        return None
    return null if outcome == NULL else dumps(value).encode()


def plain_value(conversion: Conversion, text: bytes) -> tuple[int, Any]:
    """Return the outcome of the plain conversion of one text (VALUE, NULL or LOST), and its value."""
    try:
        value = conversion.plain(text.decode())
    except (ValueError, KeyError, IndexError, ArithmeticError):
        return LOST, None
    return (NULL, None) if value is None else (VALUE, value)
