"""The values of columns, a module for each family of types: schemas, plain conversions, and columns as JSON and Arrow.

A plain conversion takes the text of one value that is not NULL and gives its JSON form; it says what a value means.
None as a result means that the value is shown as null (a NaN); ValueError that the text is not one of the type's, or
that the logical type cannot hold the value. The conversions of whole columns give the same. A connector maps its types
to conversions; a type that no family here has is a conversion of its own, which another package may bring as well.
"""

from tailrace.values.arrow import arrow, arrow_type, arrow_type_of, typed
from tailrace.values.conversion import BY_VALUE, ColumnPlan, Conversion, Family, Typed

__all__ = ["BY_VALUE", "ColumnPlan", "Conversion", "Family", "Typed", "arrow", "arrow_type", "arrow_type_of", "typed"]
