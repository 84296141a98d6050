"""The rows of a query: the options `rows` and `row.columns`, and the rules about them. No I/O."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

TYPED = "typed"
GENERATION = "3"
"""The event format of typed rows, unless `event.format` is given."""


def is_typed(values: Mapping[str, Any]) -> bool:
    """Return True if rows are typed."""
    return bool(values["rows"] == TYPED)


def columns_of(values: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the column names of a query's rows, in order: those of row.columns, else all."""
    from tailrace.columns.row import COLUMNS

    return tuple(values["row.columns"] or COLUMNS)


def keeps_copies(values: Mapping[str, Any]) -> bool:
    """Return True if rows are for a table that must equal its source; False if they are only Debezium's events."""
    return is_typed(values) or bool(values["row.blocks"]) or bool(values["row.copy"])


def faults(values: Mapping[str, Any]) -> list[str]:
    """Return the faults of the options."""
    found = []
    named = values["row.columns"]
    if named is not None:
        fault = _columns(named, is_typed(values))
        found += [f"row.columns {fault}"] if fault else []
    if is_typed(values) and values["transforms"]:
        found.append("transforms = … is not supported with rows = typed: rewrite the columns in Spark")
    return found


def notices(values: Mapping[str, Any], given: Iterable[str]) -> list[str]:
    """Return the notices about options without effect on typed rows."""
    if is_typed(values) and "tombstones.on.delete" in given and values["tombstones.on.delete"]:
        return ["tombstones.on.delete has no effect: typed rows have no tombstones"]
    return []


def _columns(names: list[str], typed: bool) -> str:
    """Return the fault of a list of the row's columns; "" if none."""
    from tailrace.columns.row import COLUMNS, FURTHER
    from tailrace.columns.typed import TYPED_COLUMNS, UPDATE

    known = TYPED_COLUMNS if typed else COLUMNS
    for place, name in enumerate(names):
        if name not in known and name not in ((UPDATE,) if typed else FURTHER):
            close = difflib.get_close_matches(name.lower(), known, n=1)
            nearest = f"; the nearest is {close[0]}" if close else ""
            return f"names {name}, which is not a column of the rows{nearest}. They have {', '.join(known)}"
        if name in names[:place]:
            return f"names {name} twice"
    return "" if names else "names no column"
