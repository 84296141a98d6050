"""MaskField: replaces the non-null values of fields with the zero of their type, or with another constant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.columns.logical import LogicalType
from tailrace.records.layout import ComputedColumn, Constant, Node, RecordLayout
from tailrace.records.transform import RefusedRecord, Rewritten
from tailrace.transforms.key_or_value import (
    KEY,
    VALUE,
    by_presence,
    computed_of,
    defaulted,
    defaults,
    is_missing,
    part,
    required_struct,
    with_part,
)
from tailrace.transforms.option_reader import OptionReader
from tailrace.values.arrow import arrow_array, arrow_value
from tailrace.values.binaries import base64_text
from tailrace.values.decimals import unscaled, unscaled_bytes
from tailrace.values.json_text import Verbatim, java_number

_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_ZERO: dict[str, Any] = {
    **dict.fromkeys(_BITS, 0),
    "boolean": False,
    "float": 0.0,
    "double": 0.0,
    "string": "",
    "array": [],
    "map": {},
}


@dataclass(frozen=True, slots=True)
class MaskField:
    """A tailrace.records.transform.Transform. Without `replacement`, the mask is the zero of the type."""

    which: str
    fields: frozenset[str]
    replacement: str | None
    defaults: bool

    def rewrite(self, record: RecordLayout) -> Rewritten:
        return by_presence(record, self.which, self._rewritten)

    def _rewritten(self, record: RecordLayout) -> Rewritten:
        if is_missing(part(record, self.which)):
            return record
        struct = required_struct(record, self.which, "MaskField")
        members = tuple(
            replace(member, node=self._masked(member.name, member.node)) if member.name in self.fields else member
            for member in defaulted(struct.members, self.defaults)
        )
        return with_part(record, self.which, replace(struct, members=members))

    def _masked(self, field: str, node: Node) -> Node:
        if is_missing(node):
            return node
        kind = node.type
        mask = Constant(self._mask(field, kind), kind)
        if not kind.optional:
            return mask
        made = computed_of(node, partial(_masked, mask), kind, self.defaults)
        # the mask of an instant is a text, but no instant
        return replace(made, shown=True) if isinstance(made, ComputedColumn) and kind.connect == "string" else made

    def _mask(self, field: str, kind: LogicalType) -> Any:
        """Return the mask in the JSON form of its type."""
        text = self.replacement
        if kind.name == _DECIMAL:
            return _decimal(field, kind, text)
        if text is None:
            if kind.connect not in _ZERO:
                raise RefusedRecord(f"MaskField cannot mask the field {field}, which is of the type {kind.connect}")
            return _ZERO[kind.connect]
        if kind.connect == "string":
            return text
        if kind.connect in _BITS and not _is_moment(kind):
            return _whole(field, kind, text)
        if kind.connect in ("float", "double"):
            return _floating(field, kind.connect == "float", text)
        raise RefusedRecord(
            f"MaskField cannot mask the field {field} with a text, for it is of the type {kind.connect}"
        )


def _is_moment(kind: LogicalType) -> bool:
    """Return True if Connect has the values as Java dates, which cannot be made from a replacement."""
    return (kind.name or "").startswith("org.apache.kafka.connect.data.")


def _decimal(field: str, kind: LogicalType, text: str | None) -> str:
    """Return the base64 form of a number in the column's scale."""
    scale = int(dict(kind.parameters)["scale"])
    try:
        number = Decimal(text or "0")
        whole = unscaled(number, scale)
    except (InvalidOperation, ValueError):
        raise RefusedRecord(f"MaskField cannot make a number of its replacement for the field {field}") from None
    if Decimal(whole).scaleb(-scale) != number:
        raise RefusedRecord(f"MaskField has a replacement with more decimal places than the field {field}")
    return base64_text(unscaled_bytes(whole))


def _whole(field: str, kind: LogicalType, text: str) -> int:
    """Return a number without its fraction and its upper bits, as Java makes it of a decimal."""
    bits = _BITS[kind.connect]
    try:
        whole = int(Decimal(text.strip()))
    except (InvalidOperation, ValueError, OverflowError):
        raise RefusedRecord(f"MaskField cannot make {kind.connect} of its replacement for the field {field}") from None
    return (whole + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


def _floating(field: str, single: bool, text: str) -> Verbatim:
    try:
        number = float(text)
    except ValueError:
        raise RefusedRecord(f"MaskField cannot make a number of its replacement for the field {field}") from None
    return Verbatim(java_number(str(np.float32(number)) if single else repr(number), single))


def _masked(mask: Constant, values: pa.Array) -> pa.Array:
    if mask.type.connect == "string":
        replacement = pa.array([mask.value], pa.string())
    else:
        replacement = arrow_array([arrow_value(mask.value, mask.type)], mask.type)
    rows = pc.if_else(values.is_valid(), pa.scalar(0, pa.int32()), pa.scalar(None, pa.int32()))
    return replacement.take(rows)


def _mask_field(which: str, options: Mapping[str, str]) -> MaskField:
    given = OptionReader(options)
    given.required("fields")
    found = MaskField(which, frozenset(given.names("fields")), given.text("replacement") or None, defaults(given))
    given.done()
    return found


of_key, of_value = partial(_mask_field, KEY), partial(_mask_field, VALUE)
"""Make the transform from its options, for keys and for values."""
