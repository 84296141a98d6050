"""Db2's types as in Debezium: each column's logical type, conversion, default and zero value.

Values are text in the forms of `connectors.changetables.dialect`; columns are described as in `declaration`.
"""

from __future__ import annotations

from collections.abc import Callable

from tailrace.columns import Column
from tailrace.columns.logical import STRING
from tailrace.connectors.db2.values import declared_types
from tailrace.connectors.db2.values.declaration import BYTES, TEXTS, precision_and_scale
from tailrace.connectors.db2.values.defaults import default_value
from tailrace.events import column_plans
from tailrace.events.captured_form import CapturedForm
from tailrace.events.column_plans import Types
from tailrace.events.event_settings import EventSettings
from tailrace.values.conversion import Conversion
from tailrace.values.strings import XML


def conversion(column: Column, settings: EventSettings) -> Conversion | None:
    """Return the conversion of a column's values; None for a type that Debezium does not know."""
    known = _TYPES.get(column.type_name)
    return None if known is None else known(column, settings)


def _decimal(column: Column, settings: EventSettings) -> Conversion:
    return column_plans.decimal(*precision_and_scale(column.modifier), settings)


def _decfloat(column: Column, settings: EventSettings) -> Conversion | None:
    # the 2.3 format does not have DECFLOAT
    return None if settings.legacy else column_plans.floating_decimal(settings)


def _text(column: Column, settings: EventSettings) -> Conversion:
    return column_plans.text(settings, XML if column.type_name == "XML" else STRING)


_TYPES: dict[str, Callable[[Column, EventSettings], Conversion | None]] = {
    "BOOLEAN": lambda column, settings: column_plans.boolean(),
    "SMALLINT": lambda column, settings: column_plans.integer(16),
    "INTEGER": lambda column, settings: column_plans.integer(32),
    "BIGINT": lambda column, settings: column_plans.integer(64),
    "DECIMAL": _decimal,
    "NUMERIC": _decimal,
    "DECFLOAT": _decfloat,
    "REAL": lambda column, settings: column_plans.floating(True),
    "DOUBLE": lambda column, settings: column_plans.floating(False),
    "FLOAT": lambda column, settings: column_plans.floating(False),
    "DATE": lambda column, settings: column_plans.date(settings),
    "TIME": lambda column, settings: column_plans.time(0, settings),
    "TIMESTAMP": lambda column, settings: column_plans.timestamp(column.modifier, settings),
    "TIMESTAMP WITH TIME ZONE": lambda column, settings: column_plans.offset_timestamp(column.modifier, settings),
    **dict.fromkeys(TEXTS, _text),
    **dict.fromkeys(BYTES, lambda column, settings: column_plans.binary(settings)),
}

TYPES = Types(conversion, default_value, lambda column: column.nullable, declared_types)

FORM = CapturedForm(TYPES, declared_types, serial=False)
"""Db2's own part of events: change_lsn and commit_lsn in source blocks, and its types."""
