"""SetSchemaMetadata: sets name and version of the schema of the key or the value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from tailrace.records.layout import RecordLayout, Struct
from tailrace.records.nodes import opened, with_type
from tailrace.records.transform import Rewritten
from tailrace.transforms.key_or_value import KEY, VALUE, defaults, part, with_part
from tailrace.transforms.option_reader import OptionReader


@dataclass(frozen=True, slots=True)
class SetSchemaMetadata:
    """A tailrace.records.transform.Transform. An empty `name`, or None as `version`, changes nothing."""

    which: str
    name: str
    version: int | None

    def rewrite(self, record: RecordLayout) -> Rewritten:
        node = part(record, self.which)
        if node is None:
            return record
        node = opened(node)
        name = self.name or node.type.name
        version = node.type.version if self.version is None else self.version
        if isinstance(node, Struct):
            return with_part(record, self.which, replace(node, name=name, version=version))
        return with_part(record, self.which, with_type(node, replace(node.type, name=name, version=version)))


def _set_schema_metadata(which: str, options: Mapping[str, str]) -> SetSchemaMetadata:
    given = OptionReader(options)
    version = given.integer("schema.version", None, least=-(2**31)) if given.has("schema.version") else None
    found = SetSchemaMetadata(which, given.text("schema.name"), version)
    defaults(given)
    given.done()
    return found


of_key, of_value = partial(_set_schema_metadata, KEY), partial(_set_schema_metadata, VALUE)
"""Make the transform from its options, for keys and for values."""
