"""Conversions that databases with change tables share: which schema a value has under the modes, and its kernel.

Values come as the text that `connectors.changetables.dialect` describes. A connector maps its types to these.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tailrace.columns import logical as lt
from tailrace.columns.logical import LogicalType
from tailrace.events.settings import EventSettings
from tailrace.serde import moments, scalar
from tailrace.serde.conversion import Conversion, Kernel, Prepare
from tailrace.serde.moments import ISO, MICRO, MILLI, NANO

_STRUCTURED = "structured"
_INTEGERS = {16: lt.INT16, 32: lt.INT32, 64: lt.INT64}


def integer(bits: int) -> Conversion:
    """An integer of 16, 32 or 64 bits."""
    return Conversion(_INTEGERS[bits], scalar.number, Kernel.VERBATIM, zero=0)


def boolean() -> Conversion:
    return Conversion(lt.BOOLEAN, scalar.boolean, Kernel.BOOLEAN, zero=False)


def floating(single: bool) -> Conversion:
    schema = lt.FLOAT if single else lt.DOUBLE
    return Conversion(schema, scalar.floating(single), Kernel.FLOATING, int(single), zero=0.0)


def text(settings: EventSettings, schema: LogicalType = lt.STRING) -> Conversion:
    """Text as it is; `schema` may give it a semantic name."""
    placeholder = None if settings.legacy else settings.placeholder.decode("utf-8", "replace")
    return Conversion(schema, scalar.string, Kernel.STRING, zero="", unavailable=placeholder)


def decimal(precision: int, scale: int, settings: EventSettings) -> Conversion:
    """A number with a fixed scale, under decimal.handling.mode."""
    mode = settings.decimal_handling_mode
    if mode == "string":
        # The forms of 1.x have an exponent where Java's BigDecimal.toString has one.
        if settings.generation < (2,):
            return Conversion(lt.STRING, scalar.decimal_scientific, Kernel.PLAIN, zero="")
        return Conversion(lt.STRING, scalar.string, Kernel.STRING, zero="")
    if mode == "double":
        return Conversion(lt.DOUBLE, scalar.decimal_double, Kernel.FLOATING, prepare=Prepare.DOUBLE, zero=0.0)
    return Conversion(lt.decimal(scale, precision), scalar.fixed_decimal(scale), Kernel.DECIMAL, scale, zero="AA==")


def floating_decimal(settings: EventSettings) -> Conversion:
    """A decimal number whose scale is its value's own, under decimal.handling.mode."""
    mode = settings.decimal_handling_mode
    if mode == "string":
        return Conversion(lt.STRING, scalar.decimal_float, Kernel.PLAIN, zero="")
    if mode == "double":
        return Conversion(lt.DOUBLE, scalar.decimal_double, Kernel.PLAIN, zero=0.0)
    zero = {"scale": 0, "value": "AA=="}
    return Conversion(lt.VARIABLE_DECIMAL, scalar.variable_decimal_float, Kernel.PLAIN, zero=zero)


def binary(settings: EventSettings) -> Conversion:
    """Bytes, or text of them, under binary.handling.mode."""
    mode = settings.binary_handling_mode
    shown = scalar.binary_text(mode)
    schema = lt.BYTES if mode == "bytes" else lt.STRING
    argument = {"base64-url-safe": 1, "hex": 2}.get(mode, 0)

    def convert(value: str) -> str:
        return shown(scalar.hexadecimal(value))

    unavailable = None
    if not settings.legacy:
        # Hexadecimal is text to consumers, and so is its placeholder.
        unavailable = settings.placeholder.decode("utf-8", "replace") if mode == "hex" else shown(settings.placeholder)
    return Conversion(schema, convert, Kernel.BINARY, argument, zero="", unavailable=unavailable)


def date(settings: EventSettings) -> Conversion:
    mode = settings.time_precision_mode
    if mode == _STRUCTURED:
        return _parts(lt.STRUCTURED_DATE, moments.date_parts, "1970-01-01")
    if mode == "isostring":
        return Conversion(lt.ISO_DATE, moments.iso_date, Kernel.DATE, 3, zero="1970-01-01Z")
    schema = lt.CONNECT_DATE if mode == "connect" else lt.DATE
    return Conversion(schema, moments.date_days, Kernel.DATE, 2, zero=0)


def time(digits: int, settings: EventSettings) -> Conversion:
    """A time of day whose type has `digits` digits of the second's fraction."""
    mode = settings.time_precision_mode
    if mode == _STRUCTURED:
        return _parts(lt.STRUCTURED_TIME, moments.clock_parts(digits), "00:00:00")
    unit = MICRO if mode == "adaptive_time_microseconds" else _unit(digits, mode)
    if unit == ISO:
        return Conversion(lt.ISO_TIME, moments.clock_in(unit), Kernel.FINE_TIME, unit, zero="00:00:00Z")
    schema = lt.CONNECT_TIME if mode == "connect" else (lt.TIME, lt.MICRO_TIME, lt.NANO_TIME)[unit]
    return Conversion(schema, moments.clock_in(unit), Kernel.FINE_TIME, unit, zero=0)


def timestamp(digits: int, settings: EventSettings) -> Conversion:
    """A timestamp without an offset whose type has `digits` digits of the second's fraction."""
    mode = settings.time_precision_mode
    if mode == _STRUCTURED:
        return _parts(lt.STRUCTURED_TIMESTAMP, moments.timestamp_parts(digits), "1970-01-01 00:00:00")
    unit = _unit(digits, mode)
    convert = moments.timestamp_in(unit)
    if unit == ISO:
        return Conversion(lt.ISO_TIMESTAMP, convert, Kernel.FINE_TIMESTAMP, unit, zero="1970-01-01T00:00:00Z")
    schemas = (lt.TIMESTAMP, lt.MICRO_TIMESTAMP, lt.NANO_TIMESTAMP)
    schema = lt.CONNECT_TIMESTAMP if mode == "connect" else schemas[unit]
    return Conversion(schema, convert, Kernel.FINE_TIMESTAMP, unit, zero=0)


def offset_timestamp(digits: int, settings: EventSettings) -> Conversion:
    """A timestamp with an offset from UTC: text at that offset, whatever time.precision.mode says of the others."""
    if settings.time_precision_mode == _STRUCTURED:
        convert = moments.offset_timestamp_parts(digits)
        return _parts(lt.STRUCTURED_ZONED_TIMESTAMP, convert, "1970-01-01 00:00:00 +00:00")
    zero = "1970-01-01T00:00:00Z"
    return Conversion(lt.ZONED_TIMESTAMP, moments.offset_timestamp, Kernel.OFFSET_TIMESTAMP, zero=zero)


def _unit(digits: int, mode: str) -> int:
    if mode == "isostring":
        return ISO
    if mode in ("microseconds", "nanoseconds"):
        return MICRO if mode == "microseconds" else NANO
    if mode == "connect" or digits <= 3:
        return MILLI
    return MICRO if digits <= 6 else NANO


def _parts(schema: LogicalType, convert: Callable[[str], dict[str, Any]], zero: str) -> Conversion:
    return Conversion(schema, convert, Kernel.PLAIN, zero=convert(zero))
