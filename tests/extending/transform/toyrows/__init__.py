"""Rows in the place of events: a transform in a package of its own.

A record's value is the row after the change, or before a delete, and what was done to it. `topic.suffix` follows every
topic. Only rows are delivered whose number in the field `field` is `least` or more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.columns.logical import BOOLEAN, STRING
from tailrace.errors import ConfigError
from tailrace.records.layout import Computed, Constant, RecordLayout, Struct
from tailrace.records.transform import with_topic


@dataclass(frozen=True)
class Rows:
    """See tailrace.records.transform.Transform."""

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
            # BEGIN, END, heartbeats
            return record
        number, keep = row.part(self.field), record.keep
        if number is not None:
            keep = Computed((number,), partial(at_least, self.least), BOOLEAN)
        value = replace(row, optional=False).with_part("__op", Constant(record.op, STRING))
        return replace(record, value=value, keep=keep)


def at_least(least: int, numbers: pa.Array) -> pa.Array:
    return pc.greater_equal(numbers, least)


def rows(options: Mapping[str, str]) -> Rows:
    """The transform with these options."""
    unknown = sorted(set(options) - {"topic.suffix", "field", "least"})
    if unknown:
        raise ConfigError(f"It has no option {unknown[0]}.", "It has topic.suffix, field and least.")
    return Rows(options.get("topic.suffix", ""), options.get("field", ""), int(options.get("least", "0")))
