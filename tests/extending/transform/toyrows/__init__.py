"""A transform in a package of its own: replaces events with rows.

A record's value becomes the row after the change, or before a delete, with the operation in `__op`. `topic.suffix` is
appended to every topic. Rows whose number in the field `field` is below `least` are dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.columns.logical import BOOLEAN, STRING
from tailrace.errors import ConfigError
from tailrace.records.layout import ComputedColumn, Constant, RecordLayout, Struct
from tailrace.records.transform import with_topic


@dataclass(frozen=True)
class Rows:
    """A tailrace.records.transform.Transform."""

    suffix: str
    field: str
    least: int

    def route(self, topic: str) -> str:
        return topic + self.suffix

    def rewrite(self, record: RecordLayout) -> RecordLayout | None:
        if record.value is None:
            return None
        record = with_topic(record, self.route)
        if not isinstance(record.value, Struct):
            return record
        row = record.value.part("before" if record.op == "d" else "after")
        if not isinstance(row, Struct):
            # a BEGIN or END marker, or a heartbeat
            return record
        number, keep = row.part(self.field), record.keep
        if number is not None:
            keep = ComputedColumn((number,), partial(at_least, self.least), BOOLEAN)
        value = replace(row, optional=False).with_part("__op", Constant(record.op, STRING))
        return replace(record, value=value, keep=keep)


def at_least(least: int, numbers: pa.Array) -> pa.Array:
    return pc.greater_equal(numbers, least)


def rows(options: Mapping[str, str]) -> Rows:
    """Make the transform from its options. Raises ConfigError."""
    unknown = sorted(set(options) - {"topic.suffix", "field", "least"})
    if unknown:
        raise ConfigError(f"It has no option {unknown[0]}.", "It has topic.suffix, field and least.")
    return Rows(options.get("topic.suffix", ""), options.get("field", ""), int(options.get("least", "0")))
