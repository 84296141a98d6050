"""Dates, times and intervals as Debezium shows them under each time.precision.mode and interval.handling.mode."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tailrace.columns import Column
from tailrace.columns import logical as lt
from tailrace.columns.logical import LogicalType
from tailrace.connectors.postgres.values import plain, structured
from tailrace.events.settings import EventSettings
from tailrace.serde.conversion import Conversion, Kernel

STRUCTURED = "structured"


def time_digits(modifier: int) -> int:
    """The digits of a second's fraction in a time's or timestamp's modifier."""
    return modifier if 0 <= modifier <= 6 else 6


def date(column: Column, settings: EventSettings) -> Conversion:
    if settings.time_precision_mode == STRUCTURED:
        return _structured(lt.STRUCTURED_DATE, structured.date, "1970-01-01")
    if settings.time_precision_mode == "isostring":
        return Conversion(lt.ISO_DATE, plain.iso_date, Kernel.DATE, 1, zero="1970-01-01Z")
    schema = lt.CONNECT_DATE if settings.time_precision_mode == "connect" else lt.DATE
    return Conversion(schema, plain.date_days, Kernel.DATE, 0, zero=0)


def _structured(schema: LogicalType, convert: Callable[[str], dict[str, Any]], zero: str) -> Conversion:
    return Conversion(schema, convert, Kernel.PLAIN, zero=convert(zero))


# The argument of the time kernels: µs are divided by 1000, kept, multiplied by 1000, or shown as ISO text.
_MILLI, _MICRO, _NANO, _ISO = 0, 1, 2, 3
_FACTORS = {_MILLI: (1000, 1), _MICRO: (1, 1), _NANO: (1, 1000)}


def _unit(column: Column, mode: str, adaptive: bool) -> int:
    if mode == "isostring":
        return _ISO
    if mode == "nanoseconds":
        return _NANO
    if mode == "connect" or (adaptive and time_digits(column.modifier) <= 3):
        return _MILLI
    return _MICRO


def time(column: Column, settings: EventSettings) -> Conversion:
    mode = settings.time_precision_mode
    if mode == STRUCTURED:
        return _structured(lt.STRUCTURED_TIME, structured.time(time_digits(column.modifier)), "00:00:00")
    unit = _unit(column, mode, mode == "adaptive")
    if unit == _ISO:
        return Conversion(lt.ISO_TIME, plain.iso_time, Kernel.TIME, unit, zero="00:00:00Z")
    schema = lt.CONNECT_TIME if mode == "connect" else (lt.TIME, lt.MICRO_TIME, lt.NANO_TIME)[unit]
    return Conversion(schema, plain.time_in(*_FACTORS[unit]), Kernel.TIME, unit, zero=0)


def timestamp(column: Column, settings: EventSettings) -> Conversion:
    mode = settings.time_precision_mode
    if mode == STRUCTURED:
        convert = structured.timestamp(time_digits(column.modifier))
        return _structured(lt.STRUCTURED_TIMESTAMP, convert, "1970-01-01 00:00:00")
    unit = _unit(column, mode, mode.startswith("adaptive"))
    if unit == _ISO:
        return Conversion(lt.ISO_TIMESTAMP, plain.iso_timestamp, Kernel.TIMESTAMP, unit, zero="1970-01-01T00:00:00Z")
    schemas = (lt.TIMESTAMP, lt.MICRO_TIMESTAMP, lt.NANO_TIMESTAMP)
    schema = lt.CONNECT_TIMESTAMP if mode == "connect" else schemas[unit]
    return Conversion(schema, plain.timestamp_in(*_FACTORS[unit]), Kernel.TIMESTAMP, unit, zero=0)


def timestamptz(column: Column, settings: EventSettings) -> Conversion:
    if settings.time_precision_mode == STRUCTURED:
        instant = structured.zoned_timestamp(time_digits(column.modifier))
        known = _structured(lt.STRUCTURED_ZONED_TIMESTAMP, instant, "1970-01-01 00:00:00+00")
        return replace(known, missing={**known.zero, "zoneId": None})
    digits = None if settings.legacy else time_digits(column.modifier)
    convert = plain.zoned_timestamp(digits)
    zero = convert("1970-01-01 00:00:00+00")
    argument = -1 if digits is None else digits
    return Conversion(
        lt.ZONED_TIMESTAMP, convert, Kernel.ZONED_TIMESTAMP, argument, zero=zero, missing="1970-01-01T00:00:00Z"
    )


def timetz(column: Column, settings: EventSettings) -> Conversion:
    if settings.time_precision_mode == STRUCTURED:
        convert = structured.zoned_time(time_digits(column.modifier))
        return _structured(lt.STRUCTURED_ZONED_TIME, convert, "00:00:00+00")
    return Conversion(lt.ZONED_TIME, plain.zoned_time, Kernel.ZONED_TIME, zero="00:00:00Z")


def interval(column: Column, settings: EventSettings) -> Conversion:
    if settings.time_precision_mode == STRUCTURED:
        # The modifier's lower half is the precision, its upper half the fields that the type is limited to.
        convert = structured.duration(time_digits(column.modifier & 0xFFFF if column.modifier >= 0 else -1))
        return _structured(lt.STRUCTURED_DURATION, convert, "00:00:00")
    if settings.interval_handling_mode == "string":
        return Conversion(lt.INTERVAL, plain.interval_iso, Kernel.PLAIN, zero="P0Y0M0DT0H0M0S")
    return Conversion(lt.MICRO_DURATION, plain.interval_us, Kernel.INTERVAL, zero=0)
