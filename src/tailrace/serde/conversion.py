"""How the text of a column becomes JSON: once in plain Python, once by a compiled kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from tailrace.columns.logical import LogicalType
from tailrace.serde.shapes import Shape


class Kernel(IntEnum):
    """The compiled conversions; what `argument` means to each is said with the kernel."""

    VERBATIM = 0
    STRING = 1
    BOOLEAN = 2
    DECIMAL = 3
    VARIABLE_DECIMAL = 4
    DECIMAL_TEXT = 5
    FLOATING = 6
    DATE = 7
    TIME = 8
    TIMESTAMP = 9
    ZONED_TIME = 10
    ZONED_TIMESTAMP = 11
    BINARY = 12
    INTERVAL = 13
    BITS = 14
    LIST = 15
    POINT = 16
    PLAIN = 17
    FINE_TIME = 18
    FINE_TIMESTAMP = 19
    OFFSET_TIMESTAMP = 20


class Prepare(IntEnum):
    """What happens to a text column before its kernel sees it."""

    NOTHING = 0
    DOUBLE = 1
    MONEY = 2
    MONEY_DOUBLE = 3


@dataclass(frozen=True, slots=True)
class Elements:
    """How a text lists the elements of a value, and how each of them is converted.

    The text stands between the brackets `opening` and `closing`, its elements between `delimiter`. In braces it is
    an array as the server writes it: bounds may precede it, elements may be quoted, NULL is a null. An array with a
    null cannot be converted unless `nulls`, nor can one of several dimensions, or one with such an element.
    """

    conversion: Conversion
    opening: str = "{"
    closing: str = "}"
    delimiter: str = ","
    nulls: bool = False


@dataclass(frozen=True, slots=True)
class Conversion:
    """A type's schema, its plain conversion and its kernel; both conversions give the same JSON.

    `plain` takes the server's text and gives a value for `json_text.dumps`: None where the type has no form for
    it, ValueError where the text is malformed. `zero` stands for a default that only the server can compute;
    `missing`, or `zero` where it is None, for a value that a NOT NULL column must have and the log did not carry;
    `unavailable` for an unchanged TOAST value, None where the type has no placeholder. `elements` are those of the
    kernels LIST, which makes a JSON array of them, and POINT, which takes two doubles.
    """

    logical: LogicalType
    plain: Callable[[str], Any]
    kernel: Kernel
    argument: int = 0
    prepare: Prepare = Prepare.NOTHING
    zero: Any = None
    unavailable: Any = None
    missing: Any = None
    elements: Elements | None = None


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """One column as events show it: its index in the batch, its field name, its schema and conversion.

    `null` and `unavailable` are the JSON of a null and of an unchanged TOAST value in this column. A text that is not
    UTF-8 cannot be converted. `shape` is applied to the texts before a kernel other than PLAIN sees them; the plain
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
