"""Warnings about a batch: logged once per process, and kept with the batch. Worker."""

from __future__ import annotations

import logging

from tailrace.columns import ChangeBatch, TableId
from tailrace.values.conversion import ColumnPlan
from tailrace.values.infinite import EARLIEST, LATEST

log = logging.getLogger("tailrace")
_warned: set[tuple[str, str, str]] = set()


def warn(batch: ChangeBatch, table: str, column: str, reason: str, message: str) -> None:
    """Log a warning once per process, table, column and reason, and add it to the batch."""
    batch.warnings.append(message)
    if (table, column, reason) not in _warned:
        _warned.add((table, column, reason))
        log.warning(message)


def left_out(table: TableId, column: str, kind: str) -> tuple[str, str]:
    """Return the sentence about a column whose type has no form in events, and the remedy."""
    return (
        f"Column {column} of {table} has the unknown type {kind} and is left out of the events.",
        "Set include.unknown.datatypes = true, if the connector has it, which shows its text as bytes, or let a column "
        "of another type have its values; column.exclude.list ends this warning.",
    )


def warn_of_unfit(batch: ChangeBatch, plan: ColumnPlan, count: int) -> None:
    """Warn that `count` values of a column do not fit its type in events."""
    table = str(batch.table.id)
    shown = "null" if plan.null == b"null" else "its default or zero"
    message = (
        f"{count} values of column {plan.source_name} of {table} do not fit its type in events and are {shown} there. "
        "Set event.converting.failure.handling.mode to fail to have an error with table, column and position."
    )
    warn(batch, table, plan.source_name, "lost", message)


def warn_of_infinite(batch: ChangeBatch, plan: ColumnPlan) -> None:
    """Warn that a column has infinite values, which a copy stores as two days at the ends of the calendar."""
    table = str(batch.table.id)
    message = (
        f"Column {plan.source_name} of {table} has infinite values, which are {LATEST} and {EARLIEST} in copies. "
        "If the column has these values too, set time.precision.mode to structured, which keeps them apart."
    )
    warn(batch, table, plan.source_name, "infinite", message)
