"""Column plans: how events show the columns of a table. Planner, workers.

A connector converts its types. The options about columns then cut, mask or hash values, and add types to schemas."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from tailrace.columns import Column, TableSchema
from tailrace.columns.logical import ABSENT, STRING, LogicalType
from tailrace.events.event_settings import EventSettings
from tailrace.events.mapping import SourceForm
from tailrace.events.names import field_name
from tailrace.values import binaries, booleans, dates, decimals, floats, instants, integers, strings, times, timestamps
from tailrace.values.binaries import Binaries
from tailrace.values.conversion import BY_VALUE, ColumnPlan, Conversion
from tailrace.values.json_text import dumps
from tailrace.values.shapes import ByteTruncation, Digest, Mask, Shape, Truncation
from tailrace.values.strings import STRINGS

# --- conversions of change tables -------------------------------------------------------------------------------------

integer = integers.integer
floating = floats.floating
boolean = booleans.boolean_type


def text(settings: EventSettings, schema: LogicalType = STRING) -> Conversion:
    """Return the conversion of unchanged text; `schema` may give it a semantic name."""
    placeholder = None if settings.legacy else settings.placeholder.decode("utf-8", "replace")
    return strings.text(schema, unavailable=placeholder)


def decimal(precision: int, scale: int, settings: EventSettings) -> Conversion:
    """Return the conversion of numbers with a fixed scale, under decimal.handling.mode."""
    mode = settings.decimal_handling_mode
    if mode == "string":
        # The formats of 1.x write an exponent if Java's BigDecimal.toString does.
        return decimals.as_scientific_text() if settings.generation < (2,) else strings.text()
    return decimals.as_double() if mode == "double" else decimals.fixed(scale, precision)


def floating_decimal(settings: EventSettings) -> Conversion:
    """Return the conversion of decimal numbers with a scale per value, under decimal.handling.mode."""
    mode = settings.decimal_handling_mode
    if mode == "string":
        return decimals.floating_as_text()
    return decimals.floating_as_double() if mode == "double" else decimals.floating_variable()


def binary(settings: EventSettings) -> Conversion:
    """Return the conversion of bytes, or of their text, under binary.handling.mode."""
    mode = settings.binary_handling_mode
    unavailable = None
    if not settings.legacy:
        # Consumers read hexadecimal digits as text, so the placeholder is text too.
        as_text = settings.placeholder.decode("utf-8", "replace")
        unavailable = as_text if mode == "hex" else binaries.binary_text(mode)(settings.placeholder)
    return binaries.binary(mode, unavailable)


def date(settings: EventSettings) -> Conversion:
    return dates.date(settings.time_precision_mode, strict=True)


def time(digits: int, settings: EventSettings) -> Conversion:
    """Return the conversion of times of day with `digits` digits of the second's fraction."""
    return times.time(digits, settings.time_precision_mode, fine=True)


def timestamp(digits: int, settings: EventSettings) -> Conversion:
    """Return the conversion of timestamps without an offset, with `digits` digits of the second's fraction."""
    return timestamps.timestamp(digits, settings.time_precision_mode, fine=True)


def offset_timestamp(digits: int, settings: EventSettings) -> Conversion:
    """Return the conversion of timestamps with an offset: always text at that offset, regardless of
    time.precision.mode."""
    return instants.offset_timestamp(digits, settings.time_precision_mode)


# --- plans ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Types:
    """A connector's functions of column types.

    `conversion` returns the conversion of a column's values, None for a type that events leave out. `default` returns
    the default's JSON form, ABSENT if the schema has none. `optional` returns True if the field may be null. `declared`
    gives the types as the driver reports them.
    """

    conversion: Callable[[Column, EventSettings], Conversion | None]
    default: Callable[[Column, Conversion, EventSettings], Any]
    optional: Callable[[Column], bool]
    declared: DeclaredTypes


def shown_columns(
    table: TableSchema, settings: EventSettings, types: Types
) -> tuple[tuple[ColumnPlan, ...], tuple[str, ...]]:
    """Return the columns of values, in the table's order, and the names of columns left out for an unknown type."""
    plans: list[ColumnPlan] = []
    unknown: list[str] = []
    for index, column in enumerate(table.columns):
        if not settings.shaping.shows(table.id, column.name):
            continue
        known = types.conversion(column, settings)
        if known is None:
            unknown.append(column.name)
        else:
            plan = _plan(index, column, known, settings, types)
            plans.append(shaped(plan, table, column, settings, types.declared))
    return tuple(plans), tuple(unknown)


def key_columns(table: TableSchema, settings: EventSettings, types: Types) -> tuple[ColumnPlan, ...]:
    """Return the columns of the key in the key's order. No option shapes them."""
    plans: list[ColumnPlan] = []
    for name in table.key:
        index = table.index(name)
        column = table.columns[index]
        known = types.conversion(column, settings)
        if known is not None:
            plans.append(_plan(index, column, known, settings, types))
    return tuple(plans)


def _plan(index: int, column: Column, known: Conversion, settings: EventSettings, types: Types) -> ColumnPlan:
    optional = types.optional(column)
    default = types.default(column, known, settings)
    if optional:
        shown = None if default == ABSENT or not settings.replace_null_with_default else default
    else:
        missing = known.zero if known.missing is None else known.missing
        shown = missing if default in (ABSENT, None) else default
    null = dumps(shown).encode()
    unavailable = null if known.unavailable is None else dumps(known.unavailable).encode()
    schema = known.logical.with_optional(optional).with_default(default)
    return ColumnPlan(index, column.name, field_name(settings, column.name), schema, known, null, unavailable)


# --- plans under the options about columns ----------------------------------------------------------------------------


TYPE = "__debezium.source.column.type"
"""The schema parameter with the name of a column's type."""


class DeclaredTypes(Protocol):
    """A column's type as the server's JDBC driver reports it, which Debezium follows. A module may implement this."""

    def is_text(self, column: Column) -> bool:
        """Return True if the column has a text type."""
        ...

    def length(self, column: Column) -> int:
        """Return the length of the column's type."""
        ...

    def parameters(self, column: Column, settings: EventSettings) -> tuple[tuple[str, str], ...]:
        """Return the schema parameters that name the column's type; TYPE is one of them."""
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
    plan: ColumnPlan, table: TableSchema, column: Column, settings: EventSettings, declared: DeclaredTypes
) -> ColumnPlan:
    """Return the plan with the first option for the column applied: a cut, a mask, a hash, or its type in schemas."""
    found = settings.shaping.treatment(table.id, column.name)
    if found is None:
        parameters = declared.parameters(column, settings)
        is_annotated = settings.shaping.annotates(table.id, column.name, dict(parameters)[TYPE])
        return _with_parameters(plan, parameters) if is_annotated else plan
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
        # the value that is shown instead of a missing one is shaped like any other
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
    """Return the columns that an option cannot mask as asked, since their values are no text: dates, numbers, JSON."""
    masks = [
        (column, settings.shaping.treatment(table.id, column.name))
        for column in table.columns
        if settings.shaping.shows(table.id, column.name)
    ]
    return [c.name for c, found in masks if found and found.kind != "truncate" and not form.is_text(c)]
