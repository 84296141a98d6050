"""InsertField: adds fields with the record's topic, partition or timestamp, or with a constant text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.columns.logical import INT32, INT64, STRING, LogicalType, semantic
from tailrace.errors import ConfigError
from tailrace.records.layout import Constant, Member, Node, RecordLayout
from tailrace.records.transform import RefusedRecord, Rewritten
from tailrace.transforms.key_or_value import (
    KEY,
    VALUE,
    by_presence,
    computed_of,
    copied,
    defaulted,
    defaults,
    is_missing,
    part,
    required_struct,
    with_part,
)
from tailrace.transforms.option_reader import OptionReader

_TIME = semantic(INT64, "org.apache.kafka.connect.data.Timestamp")


@dataclass(frozen=True, slots=True)
class InsertedField:
    """A field to insert."""

    name: str
    optional: bool

    def of(self, node: Node | None, kind: LogicalType) -> Member:
        """Return the field with the values of `node`, null for None. Raises RefusedRecord for a null in a required
        field."""
        if node is None and not self.optional:
            raise RefusedRecord(f"InsertField has no value for the field {self.name}, which must have one")
        if node is None:
            return Member(self.name, Constant(None, kind.with_optional(True)))
        function = partial(_as_they_are, None if self.optional else self.name)
        return Member(self.name, computed_of(node, function, kind.with_optional(self.optional)))


def _as_they_are(required: str | None, values: pa.Array) -> pa.Array:
    if required is not None and values.null_count:
        row = pc.index(pc.is_null(values), True).as_py()
        raise RefusedRecord(f"InsertField has no value for the field {required}, which must have one", row)
    return values


@dataclass(frozen=True, slots=True)
class InsertField:
    """A tailrace.records.transform.Transform. `text` is the value of the field `static`."""

    which: str
    topic: InsertedField | None
    partition: InsertedField | None
    timestamp: InsertedField | None
    static: InsertedField | None
    text: str | None
    defaults: bool

    def rewrite(self, record: RecordLayout) -> Rewritten:
        return by_presence(record, self.which, self._rewritten)

    def _rewritten(self, record: RecordLayout) -> Rewritten:
        if is_missing(part(record, self.which)):
            return record
        struct = required_struct(record, self.which, "InsertField")
        topic = Constant(record.topic, STRING) if isinstance(record.topic, str) else record.topic
        static = None if self.text is None else Constant(self.text, STRING)
        found = (
            (self.topic, topic, STRING),
            (self.partition, record.partition, INT32),
            (self.timestamp, record.timestamp, _TIME),
            (self.static, static, STRING),
        )
        members = tuple(field.of(node, kind) for field, node, kind in found if field is not None)
        made = (*defaulted(struct.members, self.defaults), *members)
        return with_part(record, self.which, copied(struct, made, "InsertField"))


def _insert_field(which: str, options: Mapping[str, str]) -> InsertField:
    given = OptionReader(options)
    if given.has("offset.field"):
        raise ConfigError("offset.field is for sink connectors alone.")
    topic, partition, timestamp, static = (
        _inserted(given.text(f"{name}.field")) for name in ("topic", "partition", "timestamp", "static")
    )
    if topic is partition is timestamp is static is None:
        raise ConfigError("It inserts no field: give topic.field, partition.field, timestamp.field or static.field.")
    # an empty text is a value
    text = given.verbatim("static.value", "") if "static.value" in options else None
    if static is not None and text is None and not static.optional:
        raise ConfigError("static.field must have a value: give static.value.")
    found = InsertField(which, topic, partition, timestamp, static, text, defaults(given))
    given.done()
    return found


def _inserted(text: str) -> InsertedField | None:
    """Parse an option: a name, followed by `!` for a field that may not be null."""
    if not text:
        return None
    return InsertedField(text[:-1] if text[-1] in "?!" else text, not text.endswith("!"))


of_key, of_value = partial(_insert_field, KEY), partial(_insert_field, VALUE)
"""Make the transform from its options, for keys and for values."""
