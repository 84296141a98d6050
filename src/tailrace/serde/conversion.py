"""How a column is shown, under the names that events know."""

from __future__ import annotations

from tailrace.values.conversion import ColumnPlan, Conversion

__all__ = ["ColumnPlan", "Conversion"]
