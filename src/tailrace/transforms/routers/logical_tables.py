"""ByLogicalTableRouter: routes the records of several tables to one topic, as records of one table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tailrace.columns.adjustment import adjusted
from tailrace.columns.logical import STRING
from tailrace.config.expressions import compile_groups
from tailrace.config.naming import substituted
from tailrace.errors import ConfigError
from tailrace.records.layout import ComputedColumn, Constant, Node, RecordLayout, Struct
from tailrace.records.nodes import ENVELOPE, is_envelope
from tailrace.records.transform import RefusedRecord, Rewritten, Shared, VaryingLayout
from tailrace.transforms.option_reader import OptionReader

_MODES = ("none", "avro", "avro_unicode")


@dataclass(frozen=True, slots=True)
class ByLogicalTableRouter:
    """A records.transform.Transform. `field` is the name of the field added to the key, "" for none."""

    regex: str
    replacement: str
    field: str
    field_regex: str
    field_replacement: str
    adjustment: str
    notices: tuple[str, ...] = ()

    def route(self, topic: str) -> str:
        return substituted(compile_groups(self.regex), self.replacement, topic) or topic

    def shared(self, record: RecordLayout) -> Shared:
        """See records.transform.behind_delete."""
        same = isinstance(record.topic, str) and not substituted(
            compile_groups(self.regex), self.replacement, record.topic
        )
        return record, same

    def rewrite(self, record: RecordLayout) -> Rewritten:
        if not isinstance(record.topic, str):
            return VaryingLayout(record.topic, lambda topic: self.rewrite(replace(record, topic=topic)))
        topic = substituted(compile_groups(self.regex), self.replacement, record.topic)
        if not topic:
            return record
        prefix = adjusted(topic, self.adjustment, dots=True)
        key = None if record.key is None else self._key(record.key, record.topic, prefix)
        value = record.value
        if is_envelope(record) and isinstance(value, Struct):
            for image in ("before", "after"):
                row = value.part(image)
                value = value if row is None else value.with_part(image, _renamed(row, prefix + ".Value"))
            value = replace(value, name=prefix + ENVELOPE)
        return replace(record, topic=topic, key=key, value=value)

    def _key(self, key: Node, topic: str, prefix: str) -> Node:
        if not isinstance(key, Struct):
            raise RefusedRecord("ByLogicalTableRouter finds no struct in the key")
        if self.field:
            name = substituted(compile_groups(self.field_regex), self.field_replacement, topic)
            key = key.with_part(self.field, Constant(topic if name is None else name, STRING))
        return replace(key, name=prefix + ".Key")


def _renamed(row: Node, name: str) -> Node:
    """Return the row with its schema renamed."""
    match row:
        case Struct():
            return replace(row, name=name)
        case Constant() | ComputedColumn():
            return replace(row, type=replace(row.type, name=name))
    raise RefusedRecord("ByLogicalTableRouter finds no rows in the event")


def by_logical_table_router(options: Mapping[str, str]) -> ByLogicalTableRouter:
    """Make the transform from its options. Raises ConfigError."""
    given = OptionReader(options)
    regex, replacement = given.substitution("topic.regex", "topic.replacement", None)
    if given.has("key.field.regex") != given.has("key.field.replacement"):
        raise ConfigError(
            "key.field.regex and key.field.replacement need each other.", "Give both of them, or neither."
        )
    field_regex, field_replacement = given.substitution("key.field.regex", "key.field.replacement", (".*", "$0"))
    unique = given.boolean("key.enforce.uniqueness", True)
    field = given.text("key.field.name", "__dbz__physicalTableIdentifier")
    made = ByLogicalTableRouter(
        regex=regex,
        replacement=replacement,
        field=field if unique else "",
        field_regex=field_regex,
        field_replacement=field_replacement,
        adjustment=given.word("schema.name.adjustment.mode", "none", _MODES),
        notices=given.idle({"logical.table.cache.size": "layouts are kept for each table"}),
    )
    given.done()
    return made
