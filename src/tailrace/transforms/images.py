"""Columns of rows, for transforms that change columns of some types in every row of a record. Pure, any process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tailrace.records.layout import Constant, Member, Node, RecordLayout, Struct
from tailrace.records.nodes import is_envelope, opened


def with_columns(record: RecordLayout, changed: Callable[[Node], Node]) -> RecordLayout:
    """Return the record with `changed` applied to each column of an event's images, or of a row that is the value."""
    value = record.value
    if not isinstance(value, Struct):
        return record
    if not is_envelope(record):
        return replace(record, value=_row(value, changed))
    for image in ("before", "after"):
        row = value.part(image)
        if row is not None:
            value = value.with_part(image, _row(row, changed))
    return replace(record, value=value)


def _row(row: Node, changed: Callable[[Node], Node]) -> Node:
    row = opened(row)
    if isinstance(row, Constant) and row.type.connect == "struct":
        # the schema of a null row changes as well
        members = tuple(Member(field.name, changed(Constant(None, field.type))) for field in row.type.fields)
        return replace(row, type=replace(row.type, fields=Struct(members).type.fields))
    if not isinstance(row, Struct):
        return row
    return replace(row, members=tuple(Member(member.name, changed(member.node)) for member in row.members))
