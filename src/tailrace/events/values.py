"""Conversions that databases with change tables share, chosen by the modes.

Values arrive as the text that `connectors.changetables.dialect` describes. A connector maps its types to these
conversions.
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
        # Consumers read hexadecimal digits as text, and so the placeholder is text too.
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
