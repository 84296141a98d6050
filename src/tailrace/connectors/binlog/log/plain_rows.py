"""Decoder for single rows of the log in plain Python; its errors explain rows that the kernels refuse. Worker."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tailrace.connectors.binlog.log.forms import ColumnForm, RowForm, ValueKind
from tailrace.connectors.binlog.log.plain_values import value_text
from tailrace.connectors.binlog.log.position import RowsEventForm
from tailrace.connectors.binlog.schema.table_map import packed
from tailrace.errors import DecodeError

PARTIAL_JSON = 1
"""The bit, in the options before an after image, for JSON values that may be differences."""


class MissingValue(Enum):
    """A value that an image does not carry."""

    LACKING = 0


LACKING = MissingValue.LACKING
Value = bytes | None | MissingValue


@dataclass(frozen=True, slots=True)
class PlainRow:
    """The raw values of a row's images, by column; None for an image that the row does not have."""

    before: tuple[Value, ...] | None
    after: tuple[Value, ...] | None
    is_difference: tuple[bool, ...] = ()

    def texts(self, form: RowForm) -> tuple[list[Value] | None, list[Value] | None]:
        """Return the texts of both images. Raises DecodeError."""
        before = None if self.before is None else [_text(one, raw) for one, raw in zip(form, self.before, strict=True)]
        if self.after is None:
            return before, None
        after: list[Value] = []
        for place, (one, raw) in enumerate(zip(form, self.after, strict=True)):
            old = LACKING if self.before is None or before is None else self.before[place]
            if raw is LACKING and before is not None:
                # a value that the after image lacks has not changed
                after.append(before[place])
            elif self.is_difference and self.is_difference[place] and raw is not None:
                after.append(_updated(old, raw))
            else:
                after.append(_text(one, raw))
        return before, after


def _text(form: ColumnForm, raw: Value) -> Value:
    return value_text(form, raw) if isinstance(raw, bytes) else raw


def _updated(old: Value, differences: Value) -> Value:
    from tailrace.connectors.binlog.log.json_documents import updated_text

    if not isinstance(old, bytes) or not isinstance(differences, bytes):
        raise DecodeError("A JSON value is logged as a difference to a value that the row does not have.")
    return updated_text(old, differences).encode()


def parse_row(message: bytes, form: RowForm, image: RowsEventForm) -> PlainRow:
    """Return the raw values of a row. Raises DecodeError unless the message is one row of this form and image."""
    at, before, after = 0, None, None
    flags: tuple[bool, ...] = ()
    if image.before:
        before, at = _image(message, at, form, image.before)
    if image.after:
        if image.is_partial:
            flags, at = _differences(message, at, form, image)
        after, at = _image(message, at, form, image.after)
        if image.ends:
            after = None
    if at != len(message):
        raise DecodeError(f"A row of the log has {len(message)} bytes, and its values {at}.", at)
    return PlainRow(before, after, flags)


def _differences(message: bytes, at: int, form: RowForm, image: RowsEventForm) -> tuple[tuple[bool, ...], int]:
    """Return a flag for each value that is a difference, and the place after the options; no flags if none is."""
    try:
        options, at = packed(message, at)
    except IndexError:
        raise DecodeError("A row of the log ends within its options.", at) from None
    if not options & PARTIAL_JSON:
        return (), at
    documents = [place for place, one in enumerate(form) if one.kind is ValueKind.JSON]
    size = (len(documents) + 7) // 8
    bits = message[at : at + size]
    if len(bits) != size:
        raise DecodeError("A row of the log ends within its options.", at)
    flags = [False] * len(form)
    for number, place in enumerate(documents):
        flags[place] = bool(bits[number >> 3] >> (number & 7) & 1)
    return tuple(flags), at + size


def _image(message: bytes, at: int, form: RowForm, present: bytes) -> tuple[tuple[Value, ...], int]:
    count = sum(present)
    nulls = message[at : at + (count + 7) // 8]
    if len(nulls) != (count + 7) // 8:
        raise DecodeError("A row of the log ends within its null bits.", at)
    at += len(nulls)
    found: list[Value] = []
    number = 0
    for one, is_there in zip(form, present, strict=True):
        if not is_there:
            found.append(LACKING)
            continue
        is_null = nulls[number >> 3] >> (number & 7) & 1
        number += 1
        if is_null:
            found.append(None)
            continue
        length = one.width
        if length < 0:
            head = message[at : at - length]
            if len(head) != -length:
                raise DecodeError("A row of the log ends within the length of a value.", at)
            at -= length
            length = int.from_bytes(head, "little")
        value = message[at : at + length]
        if len(value) != length:
            raise DecodeError("A row of the log ends within a value.", at)
        found.append(value)
        at += length
    return tuple(found), at
