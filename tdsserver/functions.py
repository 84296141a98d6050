"""Built-in functions that need neither the catalog nor the session."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable

from tdsserver import values
from tdsserver.bound import Bound, comparison, constant, convert, implicit, united
from tdsserver.errors import SqlError, unsupported
from tdsserver.scope import ExpressionBinder, Scope
from tdsserver.sqltype import (
    BIGINT,
    DATETIME2,
    DATETIMEOFFSET,
    INT,
    MAX,
    PAGES,
    UNIQUEIDENTIFIER,
    USER_TYPE_ID,
    UTF8,
    SqlType,
    make,
    nvarchar,
    varbinary,
)
from tdsserver.syntax import Column, Expr

AGGREGATES = frozenset({"count", "count_big", "min", "max", "sum", "avg", "string_agg"})
TEXT = nvarchar(MAX)
UNITS = {
    "nanosecond": 1,
    "microsecond": 10,
    "millisecond": 10_000,
    "second": 10_000_000,
    "minute": 600_000_000,
    "hour": 36_000_000_000,
    "day": values.DAY,
    "week": 7 * values.DAY,
}
PARTS = {
    "yy": "year",
    "yyyy": "year",
    "qq": "quarter",
    "q": "quarter",
    "mm": "month",
    "m": "month",
    "dy": "dayofyear",
    "y": "dayofyear",
    "dd": "day",
    "d": "day",
    "wk": "week",
    "ww": "week",
    "dw": "weekday",
    "hh": "hour",
    "mi": "minute",
    "n": "minute",
    "ss": "second",
    "s": "second",
    "ms": "millisecond",
    "mcs": "microsecond",
    "ns": "nanosecond",
    "tz": "tzoffset",
}


def part_of(node: Expr) -> str:
    """Return the date part that the first argument of DATEADD and similar functions names."""
    if not isinstance(node, Column) or len(node.parts) != 1:
        raise SqlError(1023, "Invalid parameter 1 specified for datepart.", 15)
    name = node.parts[0].lower()
    return PARTS.get(name, name)


def _text(sql: str) -> Bound:
    return Bound(sql, TEXT)


def _as_text(value: Bound) -> str:
    return implicit(value, TEXT)


def _isnull(binder: ExpressionBinder, args: list[Expr], scope: Scope) -> Bound:
    first, second = (binder.scalar(arg, scope) for arg in args)
    kind = first.type or second.kind
    return Bound(f"coalesce({implicit(first, kind)}, {implicit(second, kind)})", kind)


def _coalesce(binder: ExpressionBinder, args: list[Expr], scope: Scope) -> Bound:
    parts = [binder.scalar(arg, scope) for arg in args]
    kind = united(parts)
    return Bound(f"coalesce({', '.join(implicit(part, kind) for part in parts)})", kind)


def _nullif(binder: ExpressionBinder, args: list[Expr], scope: Scope) -> Bound:
    first, second = (binder.scalar(arg, scope) for arg in args)
    same = comparison("=", first, second, binder.catalog.collation)
    return Bound(f"(CASE WHEN {same} THEN NULL ELSE {first.sql} END)", first.type)


def _iif(binder: ExpressionBinder, args: list[Expr], scope: Scope) -> Bound:
    return binder.chosen(
        [binder.condition(args[0], scope)], [binder.scalar(args[1], scope)], binder.scalar(args[2], scope)
    )


def _dateadd(binder: ExpressionBinder, args: list[Expr], scope: Scope) -> Bound:
    part = part_of(args[0])
    count = convert(binder.scalar(args[1], scope), BIGINT)
    moment = binder.scalar(args[2], scope)
    if moment.kind.is_text:
        moment = Bound(convert(moment, SqlType("datetime")), SqlType("datetime"))
    kind = moment.kind
    if part in ("year", "quarter", "month"):
        months = {"year": 12, "quarter": 3, "month": 1}[part]
        text = f"tds_addmonths(CAST({moment.sql} AS VARCHAR), {count} * {months}, '{kind}')"
        return Bound(f"CAST({text} AS {kind.storage})", kind)
    if part in ("dayofyear", "weekday"):
        part = "day"
    if part not in UNITS:
        raise SqlError(155, f"'{part}' is not a recognized dateadd option.", 15)
    unit = UNITS[part]
    if kind.name == "date":
        return Bound(f"({moment.sql} + {count} * {unit} // {values.DAY})", kind)
    if kind.name == "datetimeoffset":
        return Bound(f"({moment.sql} + {count}::HUGEINT * {unit} * {values.OFFSET_BASE})", kind)
    sql = f"({moment.sql} + {count} * {unit})"
    return Bound(convert(Bound(sql, DATETIME2), kind) if kind.name == "datetime" else sql, kind)


def _datediff(binder: ExpressionBinder, args: list[Expr], scope: Scope, kind: SqlType = INT) -> Bound:
    part = part_of(args[0])
    start, end = (convert(Bound(_moment(binder, arg, scope), DATETIMEOFFSET), DATETIME2) for arg in args[1:])
    if part in ("year", "quarter", "month"):
        return Bound(f"CAST(tds_months('{part}', {start}, {end}) AS {kind.storage})", kind)
    unit = UNITS["day" if part in ("dayofyear", "weekday") else part]
    return Bound(f"CAST(({end}) // {unit} - ({start}) // {unit} AS {kind.storage})", kind)


def _moment(binder: ExpressionBinder, node: Expr, scope: Scope) -> str:
    return convert(binder.scalar(node, scope), DATETIMEOFFSET)


def _datediff_big(binder: ExpressionBinder, args: list[Expr], scope: Scope) -> Bound:
    return _datediff(binder, args, scope, BIGINT)


def _datepart(binder: ExpressionBinder, args: list[Expr], scope: Scope) -> Bound:
    part = part_of(args[0])
    return Bound(f"CAST(tds_part('{part}', {_moment(binder, args[1], scope)}) AS INTEGER)", INT)


def _single_part(part: str) -> Callable[[ExpressionBinder, list[Expr], Scope], Bound]:
    def found(binder: ExpressionBinder, args: list[Expr], scope: Scope) -> Bound:
        return _datepart(binder, [Column((part,)), *args], scope)

    return found


def _switchoffset(binder: ExpressionBinder, args: list[Expr], scope: Scope) -> Bound:
    value = _moment(binder, args[0], scope)
    minutes = _minutes(binder.scalar(args[1], scope))
    return Bound(
        f"(({value}) // {values.OFFSET_BASE} * {values.OFFSET_BASE} + {minutes} + {values.OFFSET_ZERO})", DATETIMEOFFSET
    )


def _todatetimeoffset(binder: ExpressionBinder, args: list[Expr], scope: Scope) -> Bound:
    value = binder.scalar(args[0], scope)
    local = convert(value, DATETIME2)
    minutes = _minutes(binder.scalar(args[1], scope))
    sql = f"((({local})::HUGEINT - {minutes} * 600000000) * {values.OFFSET_BASE} + {minutes} + {values.OFFSET_ZERO})"
    return Bound(sql, DATETIMEOFFSET)


def _at_time_zone(binder: ExpressionBinder, args: list[Expr], scope: Scope) -> Bound:
    value, zone = (binder.scalar(arg, scope) for arg in args)
    if str(zone.constant).upper() != "UTC":
        raise unsupported("AT TIME ZONE with any zone but UTC")
    kind = SqlType("datetimeoffset", scale=3 if value.kind.name == "datetime" else value.kind.scale)
    if value.kind.name == "datetimeoffset":
        sql = f"(({value.sql}) // {values.OFFSET_BASE} * {values.OFFSET_BASE} + {values.OFFSET_ZERO})"
        return Bound(sql, kind)
    return Bound(convert(value, kind), kind)


def _minutes(value: Bound) -> str:
    if value.kind.is_text:
        return f"tds_zone({value.sql})"
    return convert(value, INT)


def _at_most(binder: ExpressionBinder, args: list[Expr], scope: Scope, word: str) -> Bound:
    text = binder.scalar(args[0], scope)
    count = convert(binder.scalar(args[1], scope), BIGINT)
    return Bound(f"{word}({_as_text(text)}, {count})", _like_text(text))


def _like_text(value: Bound) -> SqlType:
    return value.kind if value.kind.is_text and value.kind.name not in ("char", "nchar") else TEXT


SPECIAL: dict[str, Callable[[ExpressionBinder, list[Expr], Scope], Bound]] = {
    "isnull": _isnull,
    "coalesce": _coalesce,
    "nullif": _nullif,
    "iif": _iif,
    "dateadd": _dateadd,
    "datediff": _datediff,
    "datediff_big": _datediff_big,
    "datepart": _datepart,
    "year": _single_part("year"),
    "month": _single_part("month"),
    "day": _single_part("day"),
    "switchoffset": _switchoffset,
    "todatetimeoffset": _todatetimeoffset,
    "at time zone": _at_time_zone,
    "left": lambda binder, args, scope: _at_most(binder, args, scope, "left"),
    "right": lambda binder, args, scope: _at_most(binder, args, scope, "right"),
}


def _len(args: list[Bound]) -> Bound:
    if args[0].kind.is_binary:
        return Bound(f"CAST(octet_length({args[0].sql}) AS INTEGER)", INT)
    return Bound(f"CAST(length(rtrim({_as_text(args[0])}, ' ')) AS INTEGER)", INT)


def _datalength(args: list[Bound]) -> Bound:
    value = args[0]
    if value.kind.is_text:
        double = 2 if value.kind.name.startswith("n") or value.kind.name == "sysname" else 1
        return Bound(f"CAST(length({value.sql}) * {double} AS INTEGER)", INT)
    if value.kind.is_binary:
        return Bound(f"CAST(octet_length({value.sql}) AS INTEGER)", INT)
    return Bound(f"(CASE WHEN {value.sql} IS NULL THEN NULL ELSE {value.kind.max_length} END)", INT)


def _one(template: str) -> Callable[[list[Bound]], Bound]:
    def found(args: list[Bound]) -> Bound:
        return Bound(template.format(_as_text(args[0])), _like_text(args[0]))

    return found


def _substring(args: list[Bound]) -> Bound:
    value, start, length = args
    if value.kind.is_binary:
        # DuckDB slices blobs by positions that begin with 1.
        begin, size = convert(start, BIGINT), convert(length, BIGINT)
        return Bound(f"array_slice({value.sql}, {begin}, {begin} + {size} - 1)", varbinary(MAX))
    return Bound(f"substr({_as_text(value)}, {convert(start, BIGINT)}, {convert(length, BIGINT)})", _like_text(value))


def _concat(args: list[Bound]) -> Bound:
    return _text("concat(" + ", ".join(convert(arg, TEXT) for arg in args) + ")")


def _hashbytes(args: list[Bound]) -> Bound:
    algorithm = str(args[0].constant).lower().replace("sha2_", "sha")
    if algorithm not in hashlib.algorithms_available:
        raise unsupported(f"HASHBYTES with {algorithm}")
    raw = args[1].sql if args[1].kind.is_binary else convert(args[1], varbinary(MAX))
    return Bound(f"from_hex(tds_hash('{algorithm}', hex({raw})))", varbinary(64))


def _numeric(name: str) -> Callable[[list[Bound]], Bound]:
    def found(args: list[Bound]) -> Bound:
        return Bound(f"{name}({args[0].sql})::{args[0].kind.storage}", args[0].kind)

    return found


def _charindex(args: list[Bound]) -> Bound:
    return Bound(f"CAST(instr(lower({_as_text(args[1])}), lower({_as_text(args[0])})) AS INTEGER)", INT)


def _newid(args: list[Bound]) -> Bound:
    return Bound("from_hex(tds_newid())", UNIQUEIDENTIFIER)


def _round(args: list[Bound]) -> Bound:
    return Bound(f"round({args[0].sql}, {convert(args[1], INT)})::{args[0].kind.storage}", args[0].kind)


def _replicate(args: list[Bound]) -> Bound:
    return Bound(f"repeat({_as_text(args[0])}, {convert(args[1], BIGINT)})", _like_text(args[0]))


def _type_name(args: list[Bound]) -> Bound:
    found = {number: name for name, number in USER_TYPE_ID.items()}
    if not args[0].is_constant:
        cases = " ".join(f"WHEN {number} THEN '{name}'" for number, name in found.items())
        return Bound(f"(CASE {args[0].sql} {cases} END)", make("sysname"))
    return constant(found.get(int(str(args[0].constant))), make("sysname"))


def _collation_property(args: list[Bound]) -> Bound:
    name, wanted = args
    if str(wanted.constant).casefold() != "codepage":
        raise unsupported(f"the property {wanted.constant} of collations")
    pages = [("%\\_utf8", UTF8), *((f"{word}%", page) for word, (page, _) in PAGES.items())]
    found = " ".join(f"WHEN lower({name.sql}) LIKE '{pattern}' ESCAPE '\\' THEN {page}" for pattern, page in pages)
    return Bound(f"(CASE WHEN {name.sql} IS NULL THEN NULL {found} ELSE 1252 END)", INT)


PLAIN: dict[str, Callable[[list[Bound]], Bound]] = {
    "collationproperty": _collation_property,
    "len": _len,
    "datalength": _datalength,
    "upper": _one("upper({0})"),
    "lower": _one("lower({0})"),
    "ltrim": _one("ltrim({0}, ' ')"),
    "rtrim": _one("rtrim({0}, ' ')"),
    "trim": _one("trim({0}, ' ')"),
    "reverse": _one("reverse({0})"),
    "quotename": _one("('[' || replace({0}, ']', ']]') || ']')"),
    "replace": lambda args: Bound(f"replace({', '.join(map(_as_text, args))})", _like_text(args[0])),
    "substring": _substring,
    "concat": _concat,
    "charindex": _charindex,
    "replicate": _replicate,
    "space": lambda args: _text(f"repeat(' ', {convert(args[0], BIGINT)})"),
    "char": lambda args: _text(f"chr({convert(args[0], INT)})"),
    "nchar": lambda args: _text(f"chr({convert(args[0], INT)})"),
    "abs": _numeric("abs"),
    "floor": _numeric("floor"),
    "ceiling": _numeric("ceil"),
    "sign": _numeric("sign"),
    "round": _round,
    "hashbytes": _hashbytes,
    "newid": _newid,
    "newsequentialid": _newid,
    "type_name": _type_name,
}


def new_guid() -> str:
    """Return a fresh uniqueidentifier, as the hexadecimal digits of its storage form."""
    return values.guid_bytes(uuid.uuid4()).hex()
