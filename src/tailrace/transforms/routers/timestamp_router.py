"""TimestampRouter: puts the record's timestamp into its topic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.columns.logical import STRING
from tailrace.errors import ConfigError
from tailrace.formats.arrow import folded
from tailrace.records.layout import ComputedColumn, Constant, RecordLayout
from tailrace.records.transform import RefusedRecord, Rewritten
from tailrace.transforms.conversions.date_format import DateFormat
from tailrace.transforms.option_reader import OptionReader

_TOPIC, _TIMESTAMP = "${topic}", "${timestamp}"


@dataclass(frozen=True, slots=True)
class TimestampRouter:
    """A tailrace.records.transform.Transform."""

    topic_format: str
    timestamp_format: DateFormat

    def route(self, topic: str) -> str:
        # tables that share a topic at one timestamp share topics at all timestamps
        (found,) = _named(self, pa.array([topic]), pa.array([0])).to_pylist()
        return str(found)

    def rewrite(self, record: RecordLayout) -> Rewritten:
        if record.timestamp is None:
            raise RefusedRecord("TimestampRouter needs the time of the record, and it has none")
        topic = Constant(record.topic, STRING) if isinstance(record.topic, str) else record.topic
        made = ComputedColumn((topic, record.timestamp), partial(_named, self), STRING)
        if isinstance(topic, Constant) and isinstance(record.timestamp, Constant):
            found = folded(made)
            assert isinstance(found, Constant)
            return replace(record, topic=str(found.value))
        return replace(record, topic=made)


def _named(router: TimestampRouter, topics: pa.Array, times: pa.Array) -> pa.Array:
    missing = pc.index(pc.is_null(times), True).as_py()
    if missing >= 0:
        raise RefusedRecord("TimestampRouter needs the time of the record, and it has none", missing)
    shown = router.timestamp_format.written(times)
    parts: list[pa.Array | str] = []
    for place, text in enumerate(router.topic_format.split(_TOPIC)):
        parts += [topics] if place else []
        for inner, literal in enumerate(text.split(_TIMESTAMP)):
            parts += [shown] if inner else []
            parts.append(pa.repeat(literal, len(times)))
    return pc.binary_join_element_wise(*parts, "")


def timestamp_router(options: Mapping[str, str]) -> TimestampRouter:
    """Make the transform from its options. Raises ConfigError."""
    given = OptionReader(options)
    topic = given.text("topic.format", f"{_TOPIC}-{_TIMESTAMP}")
    try:
        form = DateFormat.of(given.text("timestamp.format", "yyyyMMdd"))
    except ValueError as fault:
        raise ConfigError(f"timestamp.format {fault}.") from None
    given.done()
    return TimestampRouter(topic, form)
