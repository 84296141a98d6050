"""ValueRules: the options of these connectors for the form of values. Values only."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tailrace.connectors.binlog.values.converters import Converter, converters

if TYPE_CHECKING:
    from tailrace.events.event_settings import EventSettings


@dataclass(frozen=True, slots=True)
class ValueRules:
    """- `wraps`: BIGINT UNSIGNED is an int64, else a decimal (bigint.unsigned.handling.mode).
    - `wraps_copies`: it is also an int64 in copies, because the option is set; there larger values cannot be converted.
    - `adjusts_years`: years below 100 are read as 1970 to 2069 (enable.time.adjuster).
    - `adjusts_copies`: this also holds for copies, because the option is set.
    - `converters`: the converters that the configuration names.
    - `zero_dates`: the value for dates without a month or a day: `null`, `epoch` or `error`; "": as in Debezium in
      events, null in copies."""

    wraps: bool = True
    wraps_copies: bool = False
    adjusts_years: bool = True
    converters: tuple[Converter, ...] = ()
    zero_dates: str = ""
    adjusts_copies: bool = False


def rules_of_options(values: Mapping[str, Any], given: Collection[str]) -> ValueRules:
    """Return the rules of a configuration without faults. `given` are the names of the options that are set."""
    wraps = values[_UNSIGNED] == "long"
    return ValueRules(
        wraps,
        wraps and _UNSIGNED in given,
        values[_ADJUSTER],
        converters(values),
        values["on.zero.date"] or "",
        values[_ADJUSTER] and _ADJUSTER in given,
    )


_ADJUSTER = "enable.time.adjuster"
_UNSIGNED = "bigint.unsigned.handling.mode"
_DEFAULT = ValueRules()


def rules(settings: EventSettings) -> ValueRules:
    """Return the rules of event settings."""
    found = settings.own
    return found if isinstance(found, ValueRules) else _DEFAULT


def zero_dates(settings: EventSettings) -> str:
    """Return the value for dates without a month or a day: `null`, `epoch` or `error`; "" for Debezium's behaviour."""
    return rules(settings).zero_dates or ("null" if settings.copies else "")


def adjusts_years(settings: EventSettings) -> bool:
    """Return True if years below 100 are read as 1970 to 2069. For copies this is not the default."""
    known = rules(settings)
    return known.adjusts_copies if settings.copies else known.adjusts_years
