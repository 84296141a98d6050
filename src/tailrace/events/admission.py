"""Admission: gives each table the key of its events, and checks the table before events are made. Planner.

Names lose characters when they become names of topics, schemas and fields. Two tables that share a topic cause a
warning. Two columns of a table that share a field are an error, since one would hide the other.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

import pyarrow as pa

from tailrace.columns import Column, TableId, TableSchema
from tailrace.columns.blocks import EVERY
from tailrace.errors import ConfigError
from tailrace.events import names
from tailrace.events.column_plans import unmasked
from tailrace.events.event_settings import EventSettings
from tailrace.events.mapping import SourceForm
from tailrace.values.arrow import arrow_type_of
from tailrace.values.conversion import ColumnPlan
from tailrace.values.shapes import ByteTruncation, Digest, Mask, Truncation

log = logging.getLogger("tailrace")


class Admission:
    """Checks tables, each against the names of all tables before. Called by the planner and by its reader's thread.

    Each warning is logged once, and kept in `warnings`.
    """

    def __init__(self, settings: EventSettings, form: SourceForm) -> None:
        self._settings = settings
        self._form = form
        self._topics: dict[str, TableId] = {}
        self._prefixes: dict[str, TableId] = {}
        self.warnings: list[str] = []

    def admit(self, table: TableSchema) -> TableSchema:
        """Return the table with the key of its events.

        Raises ConfigError if message.key.columns names a column that the table does not have, if two of its columns
        share a field name, or if two keys of the table would become one in a copy.
        """
        keyed = self._settings.shaping.keyed(table)
        self._report_tables(table.id)
        self._check_fields(keyed)
        for level, text, remedy in doubts(keyed, self._settings, self._form):
            if level == "error":
                raise ConfigError(text, remedy)
            self._warn(f"{text[0].lower()}{text[1:].rstrip('.')}; remedy: {remedy}")
        for column in unmasked(keyed, self._settings, self._form):
            self._warn(
                f"column {column} of {table.id} is to be masked, but its type is not a text type, so its values are "
                "shown unmasked; leave it out with column.exclude.list"
            )
        return keyed

    def _report_tables(self, table: TableId) -> None:
        settings = self._settings
        topic = names.own_topic(settings, table)
        first = self._topics.setdefault(topic, table)
        if first != table:
            # tables are admitted in the order in which sessions happen to read them
            both = " and ".join(sorted((str(first), str(table))))
            self._warn(f"the tables {both} share the topic {topic}")
            return
        prefix = names.schema_prefix(settings, table)
        first = self._prefixes.setdefault(prefix, table)
        if first != table:
            self._warn(f"the schemas of the tables {first} and {table} share the name {prefix}")

    def _check_fields(self, table: TableSchema) -> None:
        """Raise ConfigError if columns share a field; warn if fields differ only in case, since some consumers ignore
        case."""
        for plans in (self._form.columns(table, self._settings)[0], self._form.key(table, self._settings)):
            fields: dict[str, str] = {}
            folded: dict[str, str] = {}
            for plan in plans:
                first = fields.setdefault(plan.name, plan.source_name)
                if first != plan.source_name:
                    raise ConfigError(
                        f"The columns {first} and {plan.source_name} of {table.id} both become the field {plan.name}.",
                        "Set field.name.adjustment.mode=avro_unicode, which keeps names apart, or leave one of them "
                        "out with column.exclude.list.",
                    )
                alike = folded.setdefault(plan.name.lower(), plan.source_name)
                if alike != plan.source_name:
                    self._warn(
                        f"the columns {alike} and {plan.source_name} of {table.id} differ only in case: both are shown,"
                        " and a consumer that ignores case sees one"
                    )

    def _warn(self, message: str) -> None:
        if message not in self.warnings:
            self.warnings.append(message)
            log.warning(message)


def doubts(
    table: TableSchema, settings: EventSettings, form: SourceForm
) -> Iterator[tuple[Literal["error", "warning"], str, str]]:
    """Yield a level, a sentence and a remedy for each loss of values in a copy of a keyed table.

    Keys that may become equal are an error; for typed rows, which may be kept without a key, a warning. All other
    columns whose types lose a part of the values share a warning. Losses that an option asks for are not reported.
    """
    if not settings.copies:
        return
    columns = form.columns(table, settings)[0]
    # options shape the columns of values, never the key of an event, and a copy has the columns of values
    is_of_values = bool(settings.blocks) or settings.typed is not None
    key = form.key(table, settings)
    known = {plan.source_name for plan in key}
    for name in table.key:
        if name not in known:
            kind = table.columns[table.index(name)].type_name
            yield (
                # a table of every change needs no key, and one of versions refuses this one
                "error" if settings.copy or settings.blocks not in ("", EVERY) else "warning",
                f"Two keys of {table.id} may become one in a copy: its column {name} has the type {kind}, which has no "
                "form in events, and is left out.",
                "Name other key columns in message.key.columns, or leave the table out; include.unknown.datatypes = "
                "true, if the connector has it, shows the type's text as bytes.",
            )
    keyed = columns if is_of_values else key
    for plan in (plan for plan in keyed if plan.source_name in table.key):
        column = table.columns[table.index(plan.source_name)]
        why = _merging(plan, column, settings)
        if why:
            yield (
                "error" if settings.typed is None else "warning",
                f"Two keys of {table.id} may become one in a copy: its column {column.name} {why[0]}.",
                why[1],
            )
    empty = [name for name in table.key if table.columns[table.index(name)].nullable]
    # tables end the run with an error of their own, and typed rows show the null
    if empty and settings.copy:
        yield (
            "warning",
            f"A row of {table.id} ends the run of a copy if it has null in {', '.join(empty)}: it has no key then.",
            "Give the table a primary key, or name columns that are never null in message.key.columns.",
        )
    lossy = [
        (plan.source_name, *why)
        for plan in columns
        if plan.source_name not in table.key
        and plan.shape is None
        and (why := _blurring(plan, table.columns[table.index(plan.source_name)], settings))
    ]
    if lossy:
        several = "; ".join(f"its column {name} {why}" for name, why, _ in lossy)
        remedy = " ".join(dict.fromkeys(remedy for _, _, remedy in lossy))
        yield "warning", f"A copy of {table.id} shows some values alike that differ: {several}.", remedy
    unsent = form.unsent(table)
    unseen = [
        plan.source_name
        for plan in columns
        if plan.conversion.unavailable is None and plan.source_name in unsent and plan.source_name not in table.key
    ]
    # blocks and typed rows tell a value that the log lacks from a null
    if unseen and settings.copy:
        yield (
            "warning",
            f"A copy of {table.id} gets null, or zero where null is not allowed, for a large value in "
            f"{', '.join(unseen)} when an update leaves it as it is: the log lacks the value, and events have no "
            "placeholder for it.",
            "Give the table REPLICA IDENTITY FULL, or leave the columns out with column.exclude.list.",
        )


_DECIMALS = frozenset(("numeric", "decimal", "dec", "fixed", "number", "money", "smallmoney", "decfloat"))
_DIGITS = {"timestamp": 6, "time": 6, "datetime2": 7, "datetimeoffset": 7, "timestamp with time zone": 6, "datetime": 0}
"""Digits of a second's fraction, by type, where the declaration of a column gives no number."""
_WRITTEN = re.compile(r"([a-z0-9 ]*[a-z0-9])\((\d+)[^)]*\).*")
"""A type with its length in its name."""
_SAFE_DIGEST = 16
"""From this number of hexadecimal digits on, different keys are assumed to have different digests."""


def _merging(plan: ColumnPlan, column: Column, settings: EventSettings) -> tuple[str, str] | None:
    """Return why two values of a key column may become equal, as the rest of a sentence, and the remedy; or None."""
    if isinstance(plan.shape, Truncation | ByteTruncation | Mask):
        return (
            "is cut or masked",
            "Take the column out of column.truncate.* and column.mask.with.*; a hash keeps keys apart.",
        )
    if isinstance(plan.shape, Digest) and plan.shape.length < _SAFE_DIGEST:
        return "is hashed, and the hash cut to a few characters", _OTHER_KEY
    column = _innermost(column)
    if settings.decimal_handling_mode == "double" and _kind(column) in _DECIMALS:
        return "is shown as a double", "Set decimal.handling.mode=precise or string."
    blurred = _blurring(plan, column, settings)
    if blurred is not None:
        why, remedy = blurred
        return why, _OTHER_KEY if remedy == _LEAVE_OUT else remedy
    lost = _lost_digits(plan, column)
    return None if lost is None else (lost, "Set time.precision.mode=adaptive.")


_OTHER_KEY = "Name other key columns in message.key.columns, or leave the table out."
_LEAVE_OUT = "Leave the columns out with column.exclude.list, or let a column of another type have the whole values."


def _blurring(plan: ColumnPlan, column: Column, settings: EventSettings) -> tuple[str, str] | None:
    """Return what a column's type loses of its values in a copy, as the rest of a sentence, and the remedy; or None."""
    column = _innermost(column)
    kind = _kind(column)
    if kind == "varbit":
        return "is a bit varying, of which leading zeros are not shown", _LEAVE_OUT
    if kind == "timetz":
        return "is a time with a zone, and is shown in UTC", _LEAVE_OUT
    if kind == "interval" and settings.interval_handling_mode == "numeric":
        return "is an interval, of which the microseconds are shown", "Set interval.handling.mode=string."
    # digits up to microseconds are lost by the option time.precision.mode alone
    lost = _lost_digits(plan, column) if _digits_of(column) > _MICRO else None
    return None if lost is None else (lost, _LEAVE_OUT)


def _innermost(column: Column) -> Column:
    """Return a column with the type of a domain's or an array's elements."""
    while column.kind in ("domain", "array") and column.element is not None:
        column = replace(column.element, modifier=max(column.modifier, column.element.modifier))
    return column


def _kind(column: Column) -> str:
    """Return the name of a column's type, without its length."""
    found = _WRITTEN.fullmatch(column.type_name.lower())
    return found[1] if found else column.type_name.lower()


def _digits_of(column: Column) -> int:
    """Return the number of digits of a second's fraction in a column's values."""
    kind = _kind(column)
    if kind not in _DIGITS:
        return 0
    found = _WRITTEN.fullmatch(column.type_name.lower())
    if found:
        return int(found[2])
    # Types without an oid have no fraction unless the declaration gives a number; nor has the type TIME.
    is_without = not column.type_oid or column.type_name == "TIME"
    return column.modifier if column.modifier >= 0 else 0 if is_without else _DIGITS[kind]


def _lost_digits(plan: ColumnPlan, column: Column) -> str | None:
    """Return which digits of a second a column loses in a copy, as the rest of a sentence; None if it loses none."""
    digits, shown = _digits_of(column), _shown_digits(arrow_type_of(plan.schema))
    return f"has {digits} digits of a second, of which {shown} are shown" if digits > shown else None


_MICRO = 6


def _shown_digits(kind: pa.DataType) -> int:
    """Return the digits of a second that a copy keeps: microseconds at most."""
    if pa.types.is_timestamp(kind) or pa.types.is_time(kind):
        return {"s": 0, "ms": 3}.get(kind.unit, _MICRO)
    return _MICRO
