"""Conversions that databases with change tables share: which one a type has under the modes.

Values come as the text that `connectors.changetables.dialect` describes. A connector maps its types to these.
"""

from __future__ import annotations

from tailrace.columns.logical import STRING, LogicalType
from tailrace.events.settings import EventSettings
from tailrace.values import binaries, booleans, dates, decimals, floats, instants, integers, strings, times, timestamps
from tailrace.values.conversion import Conversion

integer = integers.integer
floating = floats.floating
boolean = booleans.boolean_type


def text(settings: EventSettings, schema: LogicalType = STRING) -> Conversion:
    """Text as it is; `schema` may give it a semantic name."""
    placeholder = None if settings.legacy else settings.placeholder.decode("utf-8", "replace")
    return strings.text(schema, unavailable=placeholder)


def decimal(precision: int, scale: int, settings: EventSettings) -> Conversion:
    """A number with a fixed scale, under decimal.handling.mode."""
    mode = settings.decimal_handling_mode
    if mode == "string":
        # The formats of 1.x have an exponent where Java's BigDecimal.toString has one.
        return decimals.as_scientific_text() if settings.generation < (2,) else strings.text()
    return decimals.as_double() if mode == "double" else decimals.fixed(scale, precision)


def floating_decimal(settings: EventSettings) -> Conversion:
    """A decimal number whose scale is its value's own, under decimal.handling.mode."""
    mode = settings.decimal_handling_mode
    if mode == "string":
        return decimals.floating_as_text()
    return decimals.floating_as_double() if mode == "double" else decimals.floating_variable()


def binary(settings: EventSettings) -> Conversion:
    """Bytes, or text of them, under binary.handling.mode."""
    mode = settings.binary_handling_mode
    unavailable = None
    if not settings.legacy:
        # Hexadecimal is text to consumers, and so is its placeholder.
        as_text = settings.placeholder.decode("utf-8", "replace")
        unavailable = as_text if mode == "hex" else binaries.binary_text(mode)(settings.placeholder)
    return binaries.binary(mode, unavailable)


def date(settings: EventSettings) -> Conversion:
    return dates.date(settings.time_precision_mode, strict=True)


def time(digits: int, settings: EventSettings) -> Conversion:
    """A time of day whose type has `digits` digits of the second's fraction."""
    return times.time(digits, settings.time_precision_mode, fine=True)


def timestamp(digits: int, settings: EventSettings) -> Conversion:
    """A timestamp without an offset whose type has `digits` digits of the second's fraction."""
    return timestamps.timestamp(digits, settings.time_precision_mode, fine=True)


def offset_timestamp(digits: int, settings: EventSettings) -> Conversion:
    """A timestamp with an offset from UTC: text at that offset, whatever time.precision.mode says of the others."""
    return instants.offset_timestamp(digits, settings.time_precision_mode)
