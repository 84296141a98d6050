"""The declaration of a column of SQL Server, in the single number of `Column.modifier`. No I/O.

`Column.type_name` is the name of the system type in lower case (`nvarchar`, `decimal`, `hierarchyid`); alias types are
resolved, so `sysname` is `nvarchar`. `type_oid` is `sys.types.system_type_id`, `default` the definition of the default
constraint as the server stores it (`((0))`, `(N'x')`, `(getdate())`), `generated` is True for computed columns, and
`kind` is `base`. `modifier` is:

=====================================================  ================================================================
type                                                   modifier
=====================================================  ================================================================
decimal, numeric                                       precision << 16 | scale
time, datetime2, datetimeoffset                        digits of the second's fraction, 0 to 7
char, varchar, nchar, nvarchar                         length in characters (bytes of char and varchar); -1 for max
binary, varbinary                                      length in bytes; -1 for max
float                                                  53, or 24 where it is stored as real
any other                                              -1
=====================================================  ================================================================
"""

from __future__ import annotations

DECIMALS = frozenset(("decimal", "numeric"))
FRACTIONS = frozenset(("time", "datetime2", "datetimeoffset"))
WIDE = frozenset(("nchar", "nvarchar"))
"""Types of two bytes a character."""

SIZED = WIDE | frozenset(("char", "varchar", "binary", "varbinary"))
UNSIZED = -1


def modifier(type_name: str, max_length: int, precision: int, scale: int) -> int:
    """Return the modifier of a column, from `max_length` (in bytes), `precision` and `scale` of sys.columns."""
    if type_name in DECIMALS:
        return precision << 16 | scale
    if type_name in FRACTIONS:
        return scale
    if type_name in SIZED:
        return max_length // 2 if type_name in WIDE and max_length > 0 else max_length
    if type_name == "float":
        return precision
    return UNSIZED


def precision_and_scale(declared: int) -> tuple[int, int]:
    """Return precision and scale from the modifier of a decimal or numeric column."""
    return declared >> 16, declared & 0xFFFF
