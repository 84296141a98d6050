"""Conversion between Spark's columns and Iceberg's schemas, as the JSON of its library. Driver."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tailrace.errors import SinkError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

_PLAIN = {
    "tinyint": "int",
    "smallint": "int",
    "int": "int",
    "bigint": "long",
    "float": "float",
    "double": "double",
    "boolean": "boolean",
    "string": "string",
    "binary": "binary",
    "date": "date",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
}
_DECIMAL = re.compile(r"decimal\((?P<digits>\d+),(?P<scale>\d+)\)")
_BACK = {"int": "int", **{theirs: ours for ours, theirs in _PLAIN.items() if theirs != "int"}}


def schema_of(columns: Sequence[tuple[str, str]]) -> str:
    """Return the schema for columns with Spark's types. Raises SinkError for a type that Iceberg does not have."""
    ids = count(1)
    fields = [_field(name, _parsed(name, kind), ids) for name, kind in columns]
    return json.dumps({"type": "struct", "schema-id": 0, "fields": fields})


def held(kind: pa.DataType) -> pa.DataType:
    """Return the Arrow type that a table has for a column: integers have 32 or 64 bits."""
    if pa.types.is_int8(kind) or pa.types.is_int16(kind):
        return pa.int32()
    if pa.types.is_map(kind):
        return pa.map_(held(kind.key_type), kind.item_field.with_type(held(kind.item_type)))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(held(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct(
            [kind.field(place).with_type(held(kind.field(place).type)) for place in range(kind.num_fields)]
        )
    return kind


def columns_of(schema: str) -> dict[str, DataType]:
    """Return Spark's types of a schema's columns by name."""
    return {field["name"]: _back(field["type"]) for field in json.loads(schema)["fields"]}


def mapping_of(schema: str, known: str = "[]") -> str:
    """Return Iceberg's name mapping, the names of columns in files: `known` with the new columns of `schema`.

    A column's name in files never changes, even if the column is renamed, and no other column gets it, even if the
    column is dropped. Old and new files can therefore be read by names.
    """
    found = json.loads(known)
    numbers = {entry["field-id"] for entry in found}
    taken = {entry["names"][0].lower() for entry in found}
    for field in json.loads(schema)["fields"]:
        if field["id"] not in numbers:
            name = field["name"]
            while name.lower() in taken:
                name = f"{name}-{field['id']}"
            taken.add(name.lower())
            found.append(_mapped(field["id"], name, field["type"]))
    return json.dumps(found)


def stored_names(schema: str, mapping: str) -> dict[str, str]:
    """Return the names in files of a schema's columns, by their names in the schema."""
    stored = {entry["field-id"]: entry["names"][0] for entry in json.loads(mapping)}
    return {field["name"]: stored[field["id"]] for field in json.loads(schema)["fields"]}


def widens(old: str, new: str) -> bool:
    """Return True if Iceberg can widen a column from Spark's type `old` to `new`."""
    if (old, new) in (("int", "bigint"), ("float", "double")):
        return True
    was, wanted = _DECIMAL.fullmatch(old), _DECIMAL.fullmatch(new)
    if was is None or wanted is None:
        return False
    return was["scale"] == wanted["scale"] and int(was["digits"]) <= int(wanted["digits"])


def ids_of(schema: str) -> dict[str, int]:
    """Return the columns' ids by name; {} if a column is nested, because Spark cannot write the inner ids."""
    fields = json.loads(schema)["fields"]
    return {} if any(isinstance(field["type"], dict) for field in fields) else {f["name"]: f["id"] for f in fields}


def _mapped(number: int, name: str, kind: Any) -> dict[str, Any]:
    inner = [] if isinstance(kind, str) else [_mapped(*one) for one in _inner(kind)]
    return {"field-id": number, "names": [name]} | ({"fields": inner} if inner else {})


def _inner(kind: Mapping[str, Any]) -> list[tuple[int, str, Any]]:
    """Return id, name and type of the fields within a nested type."""
    if kind["type"] == "struct":
        return [(field["id"], field["name"], field["type"]) for field in kind["fields"]]
    parts = ("element",) if kind["type"] == "list" else ("key", "value")
    return [(kind[f"{part}-id"], part, kind[part]) for part in parts]


def _parsed(name: str, kind: str) -> DataType:
    from pyspark.errors import ParseException
    from pyspark.sql.types import DataType

    try:
        return DataType.fromDDL(kind)
    except ParseException:
        raise _unknown(name, kind) from None


def _unknown(name: str, kind: str) -> SinkError:
    return SinkError(
        f"The column {name} has the type {kind}, which is not supported in tables of Iceberg.",
        "Leave it out with column.exclude.list, or use debezium.sink.tables.format = delta.",
    )


def _field(name: str, kind: Any, ids: Iterator[int]) -> dict[str, Any]:
    return {"id": next(ids), "name": name, "required": False, "type": _forth(name, kind, ids)}


def _forth(name: str, kind: Any, ids: Iterator[int]) -> Any:
    from pyspark.sql.types import ArrayType, DecimalType, MapType, StructType

    if isinstance(kind, DecimalType):
        return f"decimal({kind.precision}, {kind.scale})"
    if isinstance(kind, StructType):
        return {"type": "struct", "fields": [_field(inner.name, inner.dataType, ids) for inner in kind.fields]}
    if isinstance(kind, ArrayType):
        element = {"element-id": next(ids), "element": _forth(name, kind.elementType, ids)}
        return {"type": "list", **element, "element-required": False}
    if isinstance(kind, MapType):
        key = {"key-id": next(ids), "key": _forth(name, kind.keyType, ids)}
        value = {"value-id": next(ids), "value": _forth(name, kind.valueType, ids)}
        return {"type": "map", **key, **value, "value-required": False}
    plain = _PLAIN.get(kind.simpleString())
    if plain is None:
        raise _unknown(name, kind.simpleString())
    return plain


def _back(kind: Any) -> DataType:
    from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

    if isinstance(kind, str):
        return DataType.fromDDL(kind if kind.startswith("decimal") else _BACK[kind])
    if kind["type"] == "struct":
        return StructType([StructField(field["name"], _back(field["type"])) for field in kind["fields"]])
    if kind["type"] == "list":
        return ArrayType(_back(kind["element"]))
    return MapType(_back(kind["key"]), _back(kind["value"]))
