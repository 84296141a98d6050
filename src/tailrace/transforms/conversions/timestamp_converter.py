"""TimestampConverter: converts timestamps to numbers, texts, or Connect's dates, times and timestamps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.columns.logical import INT32, INT64, STRING, LogicalType, semantic
from tailrace.errors import ConfigError
from tailrace.formats.casts import plain, raw_ms
from tailrace.records.layout import Constant, Node, RecordLayout
from tailrace.records.nodes import with_defaults
from tailrace.records.transform import RefusedRecord, Rewritten
from tailrace.transforms.conversions.date_format import DateFormat
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

_DATA = "org.apache.kafka.connect.data."
_OWN = frozenset({_DATA + name for name in ("Date", "Time", "Timestamp")})
_TARGETS: dict[str, LogicalType] = {
    "string": STRING,
    "unix": INT64,
    "date": semantic(INT32, _DATA + "Date"),
    "time": semantic(INT32, _DATA + "Time"),
    "timestamp": semantic(INT64, _DATA + "Timestamp"),
}
_UNITS = {"seconds": -1000, "milliseconds": 1, "microseconds": 1000, "nanoseconds": 1_000_000}
"""The number of units per millisecond; if negative, the number of milliseconds per unit."""

_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class TimestampConverter:
    """A tailrace.records.transform.Transform. Without a field it converts the whole key or value."""

    which: str
    field: str
    target: str
    form: DateFormat | None
    unit: int
    defaults: bool

    def rewrite(self, record: RecordLayout) -> Rewritten:
        return by_presence(record, self.which, self._rewritten)

    def _rewritten(self, record: RecordLayout) -> Rewritten:
        node = part(record, self.which)
        if node is None:
            return record
        if isinstance(node, Constant) and is_missing(node) and self.field:
            return with_part(record, self.which, self._null(node))
        if not self.field:
            found = with_defaults(node) if self.defaults else node
            return with_part(record, self.which, self._converted(found, f"the {self.which}"))
        struct = required_struct(record, self.which, "TimestampConverter")
        members = tuple(
            replace(member, node=self._converted(member.node, f"the field {self.field}"))
            if member.name == self.field
            else member
            for member in defaulted(struct.members, self.defaults)
        )
        return with_part(record, self.which, replace(struct, members=members))

    def _null(self, node: Constant) -> Constant:
        """Return a null row with the schema of rows that are converted."""
        kind = _TARGETS[self.target]
        fields = (
            replace(field, type=kind.with_optional(field.type.optional)) if field.name == self.field else field
            for field in node.type.fields
        )
        return replace(node, type=replace(node.type, fields=tuple(fields)))

    def _converted(self, node: Node, field: str) -> Node:
        source = node.type
        kind = _TARGETS[self.target].with_optional(source.optional)
        if isinstance(node, Constant) and node.value is None:
            return Constant(None, kind)
        if source.name not in _OWN and source.connect not in ("string", "int64"):
            raise RefusedRecord(f"TimestampConverter finds no moment in {field}, which is of the type {source.connect}")
        if source.name not in _OWN and source.connect == "string" and self.form is None:
            raise RefusedRecord(f"TimestampConverter needs the option format to read the text of {field}")
        unread = "" if self.form is None or source.connect != "string" else self.form.unread()
        if unread:
            raise RefusedRecord(f"TimestampConverter cannot read texts by the letter {unread} of format, as in {field}")
        return computed_of(node, partial(_converted, self, source, field), kind, self.defaults)


def _converted(converter: TimestampConverter, source: LogicalType, field: str, values: pa.Array) -> pa.Array:
    ms = _raw(converter, source, field, values)
    if converter.target == "string":
        assert converter.form is not None
        return converter.form.written(ms)
    valid = ms.is_null().to_numpy(zero_copy_only=False)
    numbers = pc.fill_null(ms, 0).to_numpy()
    match converter.target:
        case "unix":
            unit = converter.unit
            made = numbers * unit if unit > 0 else np.trunc(numbers / -unit).astype(np.int64)
            return pa.array(made, pa.int64(), mask=valid)
        case "date":
            return pa.array((numbers // _DAY_MS).astype(np.int32), pa.int32(), mask=valid).cast(pa.date32())
        case "time":
            return pa.array((numbers % _DAY_MS).astype(np.int32), pa.int32(), mask=valid).cast(pa.time32("ms"))
    return pa.array(numbers, pa.int64(), mask=valid).cast(pa.timestamp("ms"))


def _raw(converter: TimestampConverter, source: LogicalType, field: str, values: pa.Array) -> pa.Array:
    """Return the values in ms since 1970."""
    if source.name in _OWN:
        return raw_ms(values)
    values = plain(values)
    if pa.types.is_string(values.type):
        assert converter.form is not None
        made = converter.form.read(values)
        wrong = pc.and_(made.is_null(), values.is_valid())
        if pc.any(wrong).as_py():
            raise RefusedRecord(
                f"TimestampConverter finds no moment of the format in {field}", pc.index(wrong, True).as_py()
            )
        return made
    unit = converter.unit
    # towards zero, as Java converts units
    return pc.multiply(values, -unit) if unit < 0 else values if unit == 1 else pc.divide(values, unit)


def _timestamp_converter(which: str, options: Mapping[str, str]) -> TimestampConverter:
    given = OptionReader(options)
    field, target = given.text("field"), given.word("target.type", "", tuple(_TARGETS))
    pattern = given.text("format")
    unit = given.word("unix.precision", "milliseconds", tuple(_UNITS))
    if target == "string" and not pattern:
        raise ConfigError("target.type = string needs the option format.")
    try:
        form = DateFormat.of(pattern) if pattern else None
    except ValueError as fault:
        raise ConfigError(f"format {fault}.") from None
    found = TimestampConverter(which, field, target, form, _UNITS[unit], defaults(given))
    given.done()
    return found


of_key, of_value = partial(_timestamp_converter, KEY), partial(_timestamp_converter, VALUE)
"""Make the transform from its options, for keys and for values."""
