"""Bound expressions, which are DuckDB SQL with a type of SQL Server, and the conversions between types.

The rules are those of "Data type conversion (Database Engine)" and "Data type precedence (Transact-SQL)".
"""

from __future__ import annotations

import decimal
import uuid
from dataclasses import dataclass

from tdsserver import values
from tdsserver.errors import SqlError, clash, no_implicit
from tdsserver.sqltype import (
    EXACT,
    FLOAT,
    INTEGERS,
    MAX,
    NATIONAL,
    SqlType,
    case_sensitive,
)

PRECEDENCE = {
    name: rank
    for rank, name in enumerate(
        [
            "sql_variant",
            "xml",
            "datetimeoffset",
            "datetime2",
            "datetime",
            "smalldatetime",
            "date",
            "time",
            "float",
            "real",
            "decimal",
            "numeric",
            "money",
            "smallmoney",
            "bigint",
            "int",
            "smallint",
            "tinyint",
            "bit",
            "ntext",
            "text",
            "image",
            "timestamp",
            "uniqueidentifier",
            "json",
            "sysname",
            "nvarchar",
            "nchar",
            "varchar",
            "char",
            "varbinary",
            "binary",
            "hierarchyid",
            "geometry",
            "geography",
        ]
    )
}
NO_CONSTANT = object()


@dataclass(frozen=True, slots=True)
class Bound:
    """`type` is None for a bare NULL. `constant` is the storage value, if it is known while the statement is bound."""

    sql: str
    type: SqlType | None
    constant: object = NO_CONSTANT

    @property
    def is_constant(self) -> bool:
        return self.constant is not NO_CONSTANT

    @property
    def kind(self) -> SqlType:
        """The type. A bare NULL is an int, as in SQL Server."""
        return self.type or SqlType("int")


NULL = Bound("NULL", None, None)


def constant(value: object, kind: SqlType) -> Bound:
    """Return a bound storage value."""
    return Bound(f"CAST({values.literal(value)} AS {kind.storage})", kind, value)


def common(left: Bound, right: Bound) -> SqlType:
    """Return the type to which SQL Server converts both values; raises SqlError 206 if there is none."""
    a, b = left.type, right.type
    if a is None or b is None:
        return a or b or SqlType("int")
    return common_type(a, b)


def common_type(a: SqlType, b: SqlType) -> SqlType:
    """Return the type of higher precedence, wide enough for both types."""
    if a == b:
        return a
    first, second = (a, b) if PRECEDENCE[a.name] <= PRECEDENCE[b.name] else (b, a)
    if first.name in ("decimal", "numeric") and second.is_number:
        return _wider(first, second)
    if first.is_text and second.is_text:
        length = MAX if MAX in (a.length, b.length) else max(a.length, b.length)
        name = "nvarchar" if a.name in NATIONAL or b.name in NATIONAL else "varchar"
        if first.name == second.name:
            name = first.name
        if name in ("xml", "ntext", "text"):
            return first
        return SqlType(name, length, collation=a.collation or b.collation)
    if first.is_binary and second.is_binary:
        length = MAX if MAX in (a.length, b.length) else max(a.length, b.length)
        return SqlType("varbinary", length)
    if first.name in ("datetime2", "datetimeoffset", "time") and first.name == second.name:
        return SqlType(first.name, scale=max(a.scale, b.scale))
    return first


def united(parts: list[Bound]) -> SqlType:
    """Return the common type of several values."""
    found = parts[0]
    for part in parts[1:]:
        found = Bound("", common(found, part)) if found.type is not None or part.type is not None else found
    return found.kind


def _wider(first: SqlType, second: SqlType) -> SqlType:
    width = {"bit": (1, 0), "tinyint": (3, 0), "smallint": (5, 0), "int": (10, 0), "bigint": (19, 0)}
    width |= {"money": (19, 4), "smallmoney": (10, 4)}
    p, s = width.get(second.name, (second.precision, second.scale))
    scale = max(first.scale, s)
    whole = max(first.precision - first.scale, p - s)
    precision = min(38, whole + scale)
    return SqlType("decimal", precision=precision, scale=min(scale, max(0, 38 - whole)) if precision == 38 else scale)


def implicit(value: Bound, target: SqlType) -> str:
    """Return DuckDB SQL of an implicit conversion to `target`; raises SqlError 206 or 257."""
    return convert(value, target, explicit=False)


def convert(value: Bound, target: SqlType, explicit: bool = True, lenient: bool = False, style: int = 0) -> str:
    """Return DuckDB SQL of a conversion to `target`. With `lenient` a failed conversion gives NULL (TRY_CAST)."""
    source = value.type
    if source is None:
        return f"CAST(NULL AS {target.storage})"
    if value.is_constant and value.constant is not None:
        try:
            return values.literal_as(convert_value(value.constant, source, target, explicit, style), target)
        except SqlError:
            if lenient:
                return f"CAST(NULL AS {target.storage})"
            raise
    check(source, target, explicit)
    if value.is_constant:
        return f"CAST(NULL AS {target.storage})"
    if source == target:
        return value.sql
    cast = "TRY_CAST" if lenient else "CAST"
    if source.is_text and target.is_text:
        return _cut(value.sql, target)
    if source.is_binary and target.is_binary:
        return f"tds_binary({value.sql}, {target.length if target.name in ('binary', 'varbinary') else MAX}," + (
            f" {target.name == 'binary'})"
        )
    if source.is_number and target.is_number:
        if target.name == "bit":
            return f"CAST(({value.sql}) <> 0 AS UTINYINT)"
        if target.name in INTEGERS and (source.name in ("float", "real", "decimal", "numeric")):
            return f"{cast}(trunc({value.sql}) AS {target.storage})"
        return f"{cast}({value.sql} AS {target.storage})"
    if source.is_temporal and target.is_temporal:
        return f"CAST(tds_temporal(CAST({value.sql} AS VARCHAR), '{source}', '{target}') AS {target.storage})"
    # Python converts the other types value by value: from text and to text.
    text = f"tds_convert(CAST({_carried(value.sql, source)} AS VARCHAR), '{source}', '{target}', {style}, {lenient})"
    if target.storage == "BLOB":
        return f"from_hex({text})"
    return f"{cast}({text} AS {target.storage})" if target.storage != "VARCHAR" else text


def _carried(sql: str, source: SqlType) -> str:
    return f"hex({sql})" if source.storage == "BLOB" else sql


def _cut(sql: str, target: SqlType) -> str:
    if target.name in ("char", "nchar"):
        return f"rpad(substr({sql}, 1, {target.length}), {target.length}, ' ')"
    if target.name in ("varchar", "nvarchar") and target.length != MAX:
        return f"substr({sql}, 1, {target.length})"
    return sql


def check(source: SqlType, target: SqlType, explicit: bool) -> None:
    """Raise SQL Server's error if its chart of conversions has no conversion, or only an explicit conversion."""
    if source.name == target.name:
        return
    if source.is_text and target.is_binary:
        if target.name in ("image", "timestamp", "varbinary", "binary") and explicit:
            return
        raise no_implicit(source.name, target.name)
    if source.is_binary and target.name in ("float", "real", "ntext", "text", "xml") and not explicit:
        raise clash(source.name, target.name)
    if target.is_binary and source.is_temporal and not explicit:
        raise no_implicit(source.name, target.name)
    if {source.name, target.name} == {"date", "time"}:
        raise clash(source.name, target.name)
    if source.name in ("money", "smallmoney") and target.is_text and not explicit:
        raise no_implicit(source.name, target.name)
    if source.is_number and target.is_temporal and target.name not in ("datetime", "smalldatetime"):
        raise clash(source.name, target.name)
    if source.is_temporal and target.is_number and (not explicit or source.name not in ("datetime", "smalldatetime")):
        raise no_implicit(source.name, target.name) if not explicit else clash(source.name, target.name)
    guid = "uniqueidentifier"
    other = target if source.name == guid else source
    if guid in (source.name, target.name) and not (other.is_text or other.is_binary):
        raise clash(source.name, target.name)


def convert_value(value: object, source: SqlType, target: SqlType, explicit: bool = True, style: int = 0) -> object:
    """Return a storage value in another type's storage form.

    Raises SqlError 206, 241, 245, 257, 8114, 8115 or 8169.
    """
    if value is None:
        return None
    check(source, target, explicit)
    if source.is_temporal:
        assert isinstance(value, int)
        if target.is_temporal:
            return values.convert_temporal(value, source, target)
        if target.is_text:
            return _text(values.temporal_text(value, source), target, explicit)
        if target.is_number:
            return _number(decimal.Decimal(value - values.EPOCH_1900 * values.DAY) / values.DAY, source, target)
    if source.storage == "BLOB":
        return _from_bytes(_bytes(value), source, target, explicit, style)
    if source.is_text:
        assert isinstance(value, str)
        return _from_text(value, source, target, explicit, style)
    number = decimal.Decimal(str(value))
    if target.is_number:
        return _number(number, source, target)
    if target.is_text:
        return _text(_number_text(value, source), target, explicit)
    if target.is_temporal:
        moment = int(number * values.DAY) + values.EPOCH_1900 * values.DAY
        return values.convert_temporal(moment, SqlType("datetime2", scale=7), target)
    if target.is_binary:
        width = {"tinyint": 1, "bit": 1, "smallint": 2, "int": 4, "bigint": 8}.get(source.name, 8)
        raw = (int(number) & ((1 << 8 * width) - 1)).to_bytes(width, "big")
        return _binary(raw, target, right=True)
    raise clash(source.name, target.name)


def _bytes(value: object) -> bytes:
    assert isinstance(value, bytes | bytearray | memoryview)
    return bytes(value)


def _number_text(value: object, source: SqlType) -> str:
    if source.name in ("float", "real"):
        assert isinstance(value, float)
        text = f"{value:.6g}" if source.name == "real" else f"{value:.15g}"
        return text
    if source.name in ("money", "smallmoney"):
        return f"{decimal.Decimal(str(value)):.2f}"
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    return str(value)


def _text(text: str, target: SqlType, explicit: bool) -> str:
    limit = target.length
    if target.name in ("char", "varchar", "nchar", "nvarchar", "sysname") and limit not in (MAX, 0):
        if len(text) > limit and not explicit:
            raise SqlError(8152, "String or binary data would be truncated.", 16, 30)
        text = text[:limit]
    return values.fit_text(text, target)


def _binary(raw: bytes, target: SqlType, right: bool = False) -> bytes:
    if target.name in ("binary", "timestamp"):
        width = 8 if target.name == "timestamp" else target.length
        return raw.rjust(width, b"\0")[-width:] if right else raw[:width].ljust(width, b"\0")
    if target.name == "varbinary" and target.length != MAX:
        return raw[: target.length]
    return raw


def _number(number: decimal.Decimal, source: SqlType, target: SqlType) -> object:
    name = target.name
    if name in ("float", "real"):
        return float(number)
    if name == "bit":
        return int(number != 0)
    if name in INTEGERS:
        limits = {"tinyint": (0, 255)} | {n: (-(2 ** (w - 1)), 2 ** (w - 1) - 1) for n, w in _WIDTHS.items()}
        whole = int(number)
        low, high = limits[name]
        if not low <= whole <= high:
            raise SqlError(8115, f"Arithmetic overflow error converting expression to data type {name}.", 16, 2)
        return whole
    assert name in EXACT
    scale = target.scale if name in ("decimal", "numeric") else 4
    precision = {"money": 19, "smallmoney": 10}.get(name, target.precision)
    with decimal.localcontext(prec=80, rounding=decimal.ROUND_HALF_UP):
        found = number.quantize(decimal.Decimal(1).scaleb(-scale))
    if len(found.as_tuple().digits) > precision:
        raise SqlError(8115, f"Arithmetic overflow error converting {source.name} to data type {name}.", 16, 8)
    return found


_WIDTHS = {"smallint": 16, "int": 32, "bigint": 64}


def _from_bytes(value: bytes, source: SqlType, target: SqlType, explicit: bool, style: int) -> object:
    if source.name == "uniqueidentifier":
        if target.is_text:
            return _text(str(values.guid(value)).upper(), target, explicit)
        return _binary(values.guid(value).bytes_le, target)
    if target.is_binary:
        return _binary(value, target)
    if target.name == "uniqueidentifier":
        return values.guid_bytes(uuid.UUID(bytes_le=value[:16].ljust(16, b"\0")))
    if target.is_text:
        if style in (1, 2):
            return _text(("0x" if style == 1 else "") + value.hex().upper(), target, explicit)
        national = target.name in NATIONAL
        text = value.decode("utf-16-le", "replace") if national else value.decode("cp1252", "replace")
        return _text(text, target, explicit)
    if target.name in INTEGERS:
        width = {"tinyint": 1, "bit": 1, "smallint": 2, "int": 4, "bigint": 8}[target.name]
        signed = target.name not in ("tinyint", "bit")
        found = int.from_bytes(value[-width:], "big", signed=signed and len(value) >= width)
        return int(found != 0) if target.name == "bit" else found
    raise clash(source.name, target.name)


def _from_text(value: str, source: SqlType, target: SqlType, explicit: bool, style: int) -> object:
    if target.is_text:
        return _text(value, target, explicit)
    if target.is_temporal:
        return values.temporal(value, target)
    if target.name == "uniqueidentifier":
        try:
            return values.guid_bytes(uuid.UUID(value.strip().strip("{}")))
        except ValueError as error:
            raise SqlError(
                8169, "Conversion failed when converting from a character string to uniqueidentifier."
            ) from error
    if target.is_binary:
        if style in (1, 2):
            digits = value[2:] if style == 1 and value[:2].lower() == "0x" else value
            try:
                return _binary(bytes.fromhex(digits), target)
            except ValueError as error:
                raise SqlError(8114, f"Error converting data type {source.name} to {target.name}.") from error
        national = source.name in NATIONAL
        return _binary(value.encode("utf-16-le") if national else value.encode("cp1252", "replace"), target)
    if target.name == "bit" and value.strip().lower() in ("true", "false"):
        return int(value.strip().lower() == "true")
    text = value.strip() or "0"
    if target.name in ("money", "smallmoney"):
        text = text.replace("$", "").replace(",", "")
    try:
        number = decimal.Decimal(text)
    except decimal.InvalidOperation:
        number = decimal.Decimal("nan")
    whole = number.is_finite() and number == number.to_integral_value()
    if (target.name in INTEGERS and not whole) or not number.is_finite():
        if target.name in INTEGERS:
            raise SqlError(
                245, f"Conversion failed when converting the {source.name} value '{value}' to data type {target.name}."
            )
        raise SqlError(8114, f"Error converting data type {source.name} to {target.name}.")
    return _number(number, source, target)


def normal(value: Bound, collation: str | None = None) -> str:
    """Return the SQL by which values are compared and sorted.

    Text has no trailing spaces there, and no case if its collation ignores case.
    """
    kind = value.type
    if kind is not None and kind.is_text:
        text = f"rtrim({value.sql}, ' ')"
        return text if case_sensitive(kind.collation or collation) else f"lower({text})"
    if kind is not None and kind.name == "datetimeoffset":
        return f"(({value.sql}) // {values.OFFSET_BASE})"
    return value.sql


def comparison(operator: str, left: Bound, right: Bound, collation: str | None) -> str:
    """Return DuckDB SQL of `left operator right`."""
    kinds = (left.type, right.type)
    for one, other in (kinds, kinds[::-1]):
        if one is not None and other is not None and one.is_text and other.is_binary:
            raise no_implicit(one.name, other.name)
    kind = common(left, right)
    if FLOAT.name in (left.kind.name, right.kind.name):
        kind = FLOAT
    if kind.is_text:
        kind = SqlType("nvarchar", MAX, collation=kind.collation)
    elif kind.is_binary:
        kind = SqlType("varbinary", MAX)
    a = normal(Bound(implicit(left, kind), kind), collation)
    b = normal(Bound(implicit(right, kind), kind), collation)
    return f"({a} {operator} {b})"
