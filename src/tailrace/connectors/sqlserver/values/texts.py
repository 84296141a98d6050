"""Values of SQL Server as text: expressions to select columns, and the conversion of fetched columns. Worker, planner.

The driver fetches Arrow. Values that Arrow's types hold exactly are selected unchanged and cast here, a column at a
time. Others (the seventh digit of a second, the offset of datetimeoffset, plain digits of small decimals) are turned
into text by the server, in the styles of "CAST and CONVERT (Transact-SQL)". The texts have the forms of
`tailrace.connectors.changetables.dialect`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.columns import Column
from tailrace.connectors.sqlserver.values.declaration import precision_and_scale
from tailrace.errors import ConversionError
from tailrace.kernels.buffers import text_buffers

# Arrow writes a decimal with an exponent if its first digit is more than six places after the point.
_PLAIN_SCALE = 6

_CONVERTED = {
    # ODBC canonical, with all digits of the type: style 121; datetime has three digits
    "datetime": "convert(varchar(23), {0}, 121)",
    "datetime2": "convert(varchar(27), {0}, 121)",
    "datetimeoffset": "convert(varchar(34), {0}, 121)",
    "time": "convert(varchar(16), {0}, 121)",
    "smalldatetime": "convert(varchar(19), {0}, 120)",
    "money": "convert(decimal(19, 4), {0})",
    "smallmoney": "convert(decimal(10, 4), {0})",
    "text": "convert(varchar(max), {0})",
    "ntext": "convert(nvarchar(max), {0})",
    "image": "convert(varbinary(max), {0})",
    "xml": "convert(nvarchar(max), {0})",
    "json": "convert(nvarchar(max), {0})",
    "vector": "convert(nvarchar(max), {0})",
    "sql_variant": "convert(nvarchar(4000), {0})",
    "timestamp": "convert(binary(8), {0})",
    "hierarchyid": "convert(varbinary(892), {0})",
    "geometry": "convert(varbinary(max), {0})",
    "geography": "convert(varbinary(max), {0})",
}
_AS_IT_IS = frozenset(
    ("bigint", "int", "smallint", "tinyint", "bit", "float", "real", "date", "char", "varchar", "nchar", "nvarchar",
     "binary", "varbinary", "uniqueidentifier")
)  # fmt: skip
_STYLES = {"datetime": 121, "datetime2": 121, "datetimeoffset": 121, "time": 121, "smalldatetime": 120, "date": 23}


def quoted(*names: str) -> str:
    """Return names in brackets, with dots between them ("Database identifiers", delimited)."""
    return ".".join("[" + name.replace("]", "]]") + "]" for name in names)


def selected(column: Column, of: str = "") -> str:
    """Return the expression that selects a column for `texts`, of the table or alias `of` if given."""
    name = f"{of}.{quoted(column.name)}" if of else quoted(column.name)
    kind = column.type_name
    if kind in ("decimal", "numeric"):
        _, scale = precision_and_scale(column.modifier)
        return name if scale <= _PLAIN_SCALE else f"convert(varchar(41), {name})"
    if kind in _AS_IT_IS:
        return name
    return _CONVERTED.get(kind, "convert(nvarchar(max), {0})").format(name)


def declared(column: Column) -> str:
    """Return the type of a column in a statement."""
    kind, modifier = column.type_name, column.modifier
    if kind in ("decimal", "numeric"):
        precision, scale = precision_and_scale(modifier)
        return f"{kind}({precision}, {scale})"
    if kind in ("time", "datetime2", "datetimeoffset"):
        return f"{kind}({modifier})"
    if kind in ("char", "varchar", "nchar", "nvarchar", "binary", "varbinary"):
        return f"{kind}({modifier if modifier > 0 else 'max'})"
    if kind == "timestamp":
        return "binary(8)"
    return kind


def parameter(column: Column, collation: str = "") -> str:
    """Return the expression that turns a parameter, `bound` to it, into a value of the column's type.

    The parameter's text is converted by the code page of `collation`, "" for the database's.
    """
    style = _STYLES.get(column.type_name)
    value = f"? collate {collation}" if collation else "?"
    return f"convert({declared(column)}, {value}{'' if style is None else f', {style}'})"


def bound(column: Column, text: str) -> str | bytes | int:
    """Return the value for the parameter from a value's text."""
    if column.type_name == "bit":
        return int(text == "t")
    if text.startswith("\\x") and column.type_name in ("binary", "varbinary", "timestamp", "image", "hierarchyid"):
        return bytes.fromhex(text[2:])
    return text


def texts(values: pa.Array) -> pa.Array:
    """Return an array of the driver as `binary` text; nulls stay.

    Raises ConversionError for an Arrow type that the expressions above never yield.
    """
    kind = values.type
    if pa.types.is_boolean(kind):
        made = pc.if_else(values, pa.scalar(b"t"), pa.scalar(b"f"))
    elif pa.types.is_large_string(kind) or pa.types.is_string(kind):
        made = values
    elif pa.types.is_large_binary(kind) or pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return hexadecimal(values)
    elif _is_plain(kind):
        made = pc.cast(values, pa.string())
    elif pa.types.is_null(kind):
        made = values
    else:
        raise ConversionError(f"A column of Arrow's type {kind} has no text.", "Leave it out: column.exclude.list.")
    return pc.cast(made, pa.binary())


def _is_plain(kind: pa.DataType) -> bool:
    """Return True if Arrow's own text of a type has the required form."""
    if pa.types.is_decimal(kind):
        return bool(kind.scale <= _PLAIN_SCALE)
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_date32(kind))


_DIGITS = np.frombuffer("".join(f"{byte:02x}" for byte in range(256)).encode(), np.uint16)
r"""The two hexadecimal digits of each byte, as one number in memory order."""


def hexadecimal(values: pa.Array) -> pa.Array:
    r"""Return bytes as `\x` and lower-case hexadecimal digits."""
    values = pc.cast(values, pa.large_binary())
    offsets = np.frombuffer(values.buffers()[1], np.int64)[values.offset : values.offset + len(values) + 1]
    data = values.buffers()[2]
    low, high = int(offsets[0]), int(offsets[-1])
    raw = np.frombuffer(data, np.uint8)[low:high] if data is not None and high > low else np.zeros(0, np.uint8)
    # A prefix has the width of one byte's digits, so each value is shifted by one unit for every value before it.
    starts = offsets - low + np.arange(len(values) + 1)
    out = np.empty(high - low + len(values), np.uint16)
    at = np.arange(high - low) + np.repeat(np.arange(1, len(values) + 1), np.diff(offsets))
    out[at] = _DIGITS[raw]
    out[starts[:-1]] = np.frombuffer(b"\\x", np.uint16)[0]
    made = pa.Array.from_buffers(
        pa.large_binary(), len(values), [None, pa.py_buffer(np.ascontiguousarray(starts * 2)), pa.py_buffer(out)]
    )
    if values.null_count:
        made = pc.if_else(pc.is_valid(values), made, pa.scalar(None, pa.large_binary()))
    return pc.cast(made, pa.binary())


def positions(values: pa.Array) -> pa.Array:
    """Return the driver's LSNs as `binary`."""
    return pc.cast(values, pa.binary())


def has_bit(masks: pa.Array, number: int) -> npt.NDArray[np.bool_]:
    """Return a mask of the __$update_mask values that have the bit of column `number`.

    The first column is the last byte's lowest bit.
    """
    data, bounds = text_buffers(pc.fill_null(masks.cast(pa.binary()), b""))
    places = bounds[1:] - 1 - number // 8
    inside = places >= bounds[:-1]
    found: npt.NDArray[np.bool_] = np.zeros(len(masks), np.bool_)
    found[inside] = data[places[inside]] >> number % 8 & 1
    return found
