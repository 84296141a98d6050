"""Column plans with the options about columns applied: texts cut, masked or hashed, types in schemas. Planner, workers.

At most one option shapes a column: cuts come before masks, masks before hashes, hashes before types in schemas.
"""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Protocol

from tailrace.assembly.json_text import dumps
from tailrace.columns import Column, TableSchema
from tailrace.events.form import SourceForm
from tailrace.events.settings import EventSettings
from tailrace.values.binaries import Binaries
from tailrace.values.conversion import BY_VALUE, ColumnPlan
from tailrace.values.shapes import ByteTruncation, Digest, Mask, Shape, Truncation
from tailrace.values.strings import STRINGS


class Declared(Protocol):
    """A column's type as the server's JDBC driver reports it, which Debezium follows. A module may implement this."""

    def is_text(self, column: Column) -> bool:
        """Return True if the column has a text type."""
        ...

    def length(self, column: Column) -> int:
        """Return the length of the column's type."""
        ...

    def parameters(self, column: Column, settings: EventSettings) -> tuple[tuple[str, str], ...]:
        """Return the schema parameters that name the column's type."""
        ...


def declared_parameters(
    column: Column, settings: EventSettings, type_name: str, length: int, scale: int | None
) -> tuple[tuple[str, str], ...]:
    """Return the schema parameters that name a column's type; the older formats leave out the column's name."""
    found = {"type": type_name.upper(), "length": str(length)}
    if scale is not None:
        found["scale"] = str(scale)
    if not settings.legacy:
        found["name"] = column.name
    if settings.shaping.comments and column.comment is not None:
        found["comment"] = column.comment
    return tuple((f"__debezium.source.column.{name}", value) for name, value in found.items())


def shaped(
    plan: ColumnPlan, table: TableSchema, column: Column, settings: EventSettings, declared: Declared
) -> ColumnPlan:
    """Return the plan with the first option for the column applied: a cut, a mask, a hash, or its type in schemas."""
    found = settings.shaping.treatment(table.id, column.name)
    if found is None:
        if not settings.shaping.annotates(table.id, column):
            return plan
        return _with_parameters(plan, declared.parameters(column, settings))
    length = declared.length(column)
    if found.kind == "truncate":
        if length <= found.length:
            return plan
        plan = _with_parameters(plan, (("truncateLength", str(found.length)),))
        if isinstance(plan.conversion.family, Binaries) and plan.schema.connect == "bytes":
            # Debezium 1.x cuts only strings
            return plan if settings.generation < (2,) else _with_bytes_cut(plan, found.length)
        return _with_shape(plan, Truncation(found.length)) if plan.schema.connect == "string" else plan
    plan = _with_parameters(plan, (("masked", "true"),))
    if not declared.is_text(column):
        return plan
    if found.kind == "mask":
        return _with_shape(plan, Mask(found.length))
    return _with_shape(plan, Digest(found.digest, found.salt, found.version, length))


def _with_parameters(plan: ColumnPlan, parameters: tuple[tuple[str, str], ...]) -> ColumnPlan:
    return replace(plan, schema=replace(plan.schema, parameters=(*plan.schema.parameters, *parameters)))


def _with_shape(plan: ColumnPlan, shape: Shape) -> ColumnPlan:
    """Return the plan of a column that events show as a string, with that string shaped."""
    known = plan.conversion
    family = STRINGS if known.family == STRINGS else BY_VALUE

    def convert(text: str) -> str | None:
        value = known.plain(text)
        return None if value is None else _shape_text(shape, value)

    null, covered = plan.null, shape.null()
    if covered is not None:
        null = dumps(covered.decode()).encode()
    elif not plan.schema.optional:
        # the value for one that the log did not carry is shaped like any other
        null = dumps(_shape_text(shape, json.loads(null))).encode()
    unavailable = null if known.unavailable is None else dumps(_shape_text(shape, known.unavailable)).encode()
    changed = replace(known, plain=convert, family=family)
    return replace(plan, conversion=changed, null=null, unavailable=unavailable, shape=shape)


def _with_bytes_cut(plan: ColumnPlan, length: int) -> ColumnPlan:
    """Return the plan of a column that events show as bytes, cut to `length` bytes."""
    shape = ByteTruncation(length)
    known = plan.conversion

    def convert(text: str) -> object:
        return known.plain(shape.text(text.encode()).decode())

    unavailable = plan.unavailable
    if isinstance(known.unavailable, str):
        cut = base64.b64decode(known.unavailable)[:length]
        unavailable = dumps(base64.b64encode(cut).decode()).encode()
    return replace(plan, conversion=replace(known, plain=convert), unavailable=unavailable, shape=shape)


def _shape_text(shape: Shape, text: str) -> str:
    return shape.text(text.encode()).decode()


def unmasked(table: TableSchema, settings: EventSettings, form: SourceForm) -> list[str]:
    """Return the columns that an option masks without effect, since their values are not text: dates, numbers, JSON."""
    masks = [
        (column, settings.shaping.treatment(table.id, column.name))
        for column in table.columns
        if settings.shaping.shows(table.id, column.name)
    ]
    return [c.name for c, found in masks if found and found.kind != "truncate" and not form.is_text(c)]
