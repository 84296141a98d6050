"""The values of columns, one module per family of types: schemas, plain conversions, and columns as JSON and Arrow.

A plain conversion takes the text of one non-NULL value and returns its JSON form; it defines what a value means. None
as a result means that the value is shown as null (a NaN). ValueError means that the text is not valid for the type, or
that the logical type cannot hold the value. Conversions of whole columns give the same results. A connector maps its
types to conversions. A type without a family here has its own conversion, which another package may provide.
"""

from tailrace.values.arrow import arrow, arrow_type, arrow_type_of, typed
from tailrace.values.conversion import BY_VALUE, ColumnPlan, Conversion, Family, TypedColumn

__all__ = [
    "BY_VALUE",
    "ColumnPlan",
    "Conversion",
    "Family",
    "TypedColumn",
    "arrow",
    "arrow_type",
    "arrow_type_of",
    "typed",
]
