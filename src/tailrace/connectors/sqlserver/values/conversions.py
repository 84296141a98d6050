"""SQL Server's types as in Debezium: each column's logical type, conversion, default and zero value.

Values are text in the forms of `connectors.changetables.dialect`; columns are described as in `declaration`. Types that
are not in the table below (`sql_variant`, other CLR types) are left out of events.
"""

from __future__ import annotations

from collections.abc import Callable

from tailrace.columns import Column
from tailrace.connectors.sqlserver.values import declared_types
from tailrace.connectors.sqlserver.values.declaration import precision_and_scale
from tailrace.connectors.sqlserver.values.defaults import default_value
from tailrace.events import column_plans
from tailrace.events.captured_form import CapturedForm
from tailrace.events.column_plans import Types
from tailrace.events.event_settings import EventSettings
from tailrace.values.conversion import Conversion


def conversion(column: Column, settings: EventSettings) -> Conversion | None:
    """Return the conversion of a column's values; None for a type that Debezium does not know."""
    known = _TYPES.get(column.type_name)
    return None if known is None else known(column, settings)


def _decimal(column: Column, settings: EventSettings) -> Conversion:
    return column_plans.decimal(*precision_and_scale(column.modifier), settings)


def _text(column: Column, settings: EventSettings) -> Conversion:
    return column_plans.text(settings)


def _binary(column: Column, settings: EventSettings) -> Conversion:
    return column_plans.binary(settings)


_TYPES: dict[str, Callable[[Column, EventSettings], Conversion]] = {
    "bit": lambda column, settings: column_plans.boolean(),
    # an unsigned byte needs 16 bits as a signed number
    "tinyint": lambda column, settings: column_plans.integer(16),
    "smallint": lambda column, settings: column_plans.integer(16),
    "int": lambda column, settings: column_plans.integer(32),
    "bigint": lambda column, settings: column_plans.integer(64),
    "decimal": _decimal,
    "numeric": _decimal,
    "money": lambda column, settings: column_plans.decimal(19, 4, settings),
    "smallmoney": lambda column, settings: column_plans.decimal(10, 4, settings),
    "float": lambda column, settings: column_plans.floating(False),
    "real": lambda column, settings: column_plans.floating(True),
    "date": lambda column, settings: column_plans.date(settings),
    "time": lambda column, settings: column_plans.time(column.modifier, settings),
    "datetime": lambda column, settings: column_plans.timestamp(3, settings),
    "smalldatetime": lambda column, settings: column_plans.timestamp(0, settings),
    "datetime2": lambda column, settings: column_plans.timestamp(column.modifier, settings),
    "datetimeoffset": lambda column, settings: column_plans.offset_timestamp(column.modifier, settings),
    **dict.fromkeys(("char", "varchar", "text", "nchar", "nvarchar", "ntext"), _text),
    # the JDBC driver reports xml as a long text, so Debezium gives it no semantic name
    **dict.fromkeys(("xml", "uniqueidentifier"), _text),
    **dict.fromkeys(("binary", "varbinary", "image", "timestamp", "rowversion"), _binary),
    # the bytes in which the server stores them
    **dict.fromkeys(("hierarchyid", "geometry", "geography"), _binary),
}

TYPES = Types(conversion, default_value, lambda column: column.nullable, declared_types)

FORM = CapturedForm(TYPES, declared_types, serial=True)
"""SQL Server's own part of events: change_lsn, commit_lsn and event_serial_no in source blocks, and its types."""
