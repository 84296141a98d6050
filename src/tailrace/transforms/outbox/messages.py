"""DecodeLogicalDecodingMessageContent: turns a logical message with JSON content into the event of an inserted row.

So EventRouter needs no table: an application writes the row into the log instead of inserting it.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tailrace.columns.logical import STRING
from tailrace.records.layout import Constant, RecordLayout, Struct
from tailrace.records.nodes import ENVELOPE, op_of, opened, part_of
from tailrace.records.transform import RefusedRecord
from tailrace.transforms.option_reader import OptionReader
from tailrace.transforms.outbox.json_shapes import Shapes, UnclearJson, constant_of

_NAME = "DecodeLogicalDecodingMessageContent"


@dataclass(frozen=True, slots=True)
class DecodeLogicalDecodingMessageContent:
    """A records.transform.Transform. `includes_nulls` keeps fields that are null."""

    includes_nulls: bool

    def rewrite(self, record: RecordLayout) -> RecordLayout:
        value = record.value
        if not isinstance(value, Struct) or op_of(value) != "m":
            return record
        message = value.part("message")
        content = None if message is None else part_of(message, "content")
        if not isinstance(content, Constant) or content.type.connect != "bytes":
            raise RefusedRecord(f"{_NAME} needs the field message.content as bytes: set binary.handling.mode to bytes")
        text = _text(content.value)
        try:
            after = opened(constant_of(text, Shapes(self.includes_nulls).of_text(text)))
        except UnclearJson:
            raise RefusedRecord(f"{_NAME} finds no JSON object with one schema in the field message.content") from None
        event = value.without("message").with_part("op", Constant("c", STRING)).with_part("after", after)
        event = replace(event, name=f"{value.name}{ENVELOPE}", version=None)
        return replace(record, key=None, value=event)


def _text(content: str | None) -> str:
    try:
        return base64.b64decode(content or "").decode()
    except UnicodeDecodeError:
        raise RefusedRecord(f"{_NAME} finds no text in the field message.content") from None


def decode_logical_decoding_message_content(options: Mapping[str, str]) -> DecodeLogicalDecodingMessageContent:
    """Make the transform from its options. Raises ConfigError."""
    given = OptionReader(options)
    made = DecodeLogicalDecodingMessageContent(given.boolean("fields.null.include", False))
    given.done()
    return made
