"""Arrays whose elements are not numbered from 1: lists do not show the bounds, so such values look like others.

Worker. A server writes bounds before an array's braces only if they are not from 1: `[2:3]={1,2}`.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.columns import ChangeBatch
from tailrace.errors import ConversionError
from tailrace.events.event_settings import EventSettings
from tailrace.events.table_plan import TablePlan
from tailrace.events.warnings import warn
from tailrace.values.conversion import ColumnPlan


def any_bounded(batch: ChangeBatch, plans: Sequence[TablePlan]) -> bool:
    """Return True if a batch has such a value in a column of one of the tables."""
    return any(_is_bounded(batch, column) for plan in plans for column in (*plan.columns, *plan.key))


def tell_bounds(batch: ChangeBatch, plan: TablePlan, settings: EventSettings) -> None:
    """Warn of the columns of a copy that have such values. Raises ConversionError for one of the key, unless rows are
    typed: two keys would become one."""
    keys = {column.index for column in plan.key} if settings.typed is None else set()
    for column in {column.index: column for column in (*plan.key, *plan.columns)}.values():
        if not _is_bounded(batch, column):
            continue
        what = f"olumn {column.source_name} of {plan.table} has arrays whose elements are not numbered from 1"
        remedy = f"Write them with bounds from 1, as {column.source_name}[:] gives them, or "
        if column.index in keys:
            raise ConversionError(
                f"The key c{what}, and a copy shows them as if they were.",
                f"{remedy}name other columns in message.key.columns.",
            )
        message = f"C{what}; copies show them as if they were. {remedy}leave the column out with column.exclude.list."
        warn(batch, str(plan.table), column.source_name, "bounds", message)


def _is_bounded(batch: ChangeBatch, column: ColumnPlan) -> bool:
    if column.schema.connect != "array" or column.schema.name is not None:
        return False
    images = (image.columns[column.index] for image in (batch.after, batch.before) if image is not None)
    return any(pc.any(pc.starts_with(texts.cast(pa.binary()), "[")).as_py() for texts in images if len(texts))
