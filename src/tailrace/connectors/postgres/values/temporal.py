"""Conversions of dates, times and intervals, by time.precision.mode and interval.handling.mode. No I/O."""

from __future__ import annotations

from tailrace.columns import Column
from tailrace.events.event_settings import EventSettings
from tailrace.values import dates, instants, intervals, times, timestamps
from tailrace.values.conversion import Conversion


def time_digits(modifier: int) -> int:
    """Return the digits of a second's fraction from the modifier of a time or timestamp."""
    return modifier if 0 <= modifier <= 6 else 6


def date(column: Column, settings: EventSettings) -> Conversion:
    return dates.date(settings.time_precision_mode, strict=False)


def time(column: Column, settings: EventSettings) -> Conversion:
    return times.time(time_digits(column.modifier), settings.time_precision_mode, fine=False)


def timetz(column: Column, settings: EventSettings) -> Conversion:
    return times.zoned_time(time_digits(column.modifier), settings.time_precision_mode)


def timestamp(column: Column, settings: EventSettings) -> Conversion:
    return timestamps.timestamp(time_digits(column.modifier), settings.time_precision_mode, fine=False)


def timestamptz(column: Column, settings: EventSettings) -> Conversion:
    digits = time_digits(column.modifier)
    return instants.instant(digits, settings.time_precision_mode, cut=not settings.legacy)


def interval(column: Column, settings: EventSettings) -> Conversion:
    # The modifier's lower half is the precision, its upper half the fields to which the type is limited.
    digits = time_digits(column.modifier & 0xFFFF if column.modifier >= 0 else -1)
    return intervals.interval(digits, settings.time_precision_mode, settings.interval_handling_mode)
