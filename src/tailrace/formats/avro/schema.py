"""Avro schemas of logical types, as Confluent's and Apicurio's converters make them. Any process."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote_plus

from tailrace.columns.logical import ABSENT, STRING, Field, LogicalType
from tailrace.errors import ConversionError
from tailrace.values.json_text import dumps

_CONFLUENT = "io.confluent.connect.avro"
_TYPES = {
    "int8": "int",
    "int16": "int",
    "int32": "int",
    "int64": "long",
    "float": "float",
    "double": "double",
    "boolean": "boolean",
    "string": "string",
    "bytes": "bytes",
}
_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_PRECISION = "connect.decimal.precision"
_UNKNOWN_PRECISION = 64
_LOGICAL = {
    "org.apache.kafka.connect.data.Date": "date",
    "org.apache.kafka.connect.data.Time": "time-millis",
    "org.apache.kafka.connect.data.Timestamp": "timestamp-millis",
}


@dataclass(frozen=True, slots=True)
class AvroRules:
    """The converter's options about schemas.

    `properties`: they carry Connect's own properties (`connect.meta.data`). `scrubs`: illegal names are replaced
    (`scrub.invalid.names`). `optional_keys`: maps whose keys may be null are Avro maps (`allow.optional.map.keys`).
    `field_docs`: a field's `doc` is that of its schema (`discard.type.doc.default`).
    """

    properties: bool = True
    scrubs: bool = False
    optional_keys: bool = False
    field_docs: bool = False


def schema_text(schema: LogicalType, rules: AvroRules) -> str:
    """Return the schema as the text to register. Raises ConversionError if Avro has no such schema."""
    return dumps(_Maker(rules).of(schema, ""))


def full_name(schema: LogicalType, rules: AvroRules) -> str | None:
    """Return the record's full name; None if the schema is not a record."""
    if schema.connect != "struct":
        return None
    return _scrubbed(schema.name, rules) if schema.name is not None else f"{_CONFLUENT}.ConnectDefault"


def is_map(schema: LogicalType, rules: AvroRules) -> bool:
    """Return True if a map is an Avro map, whose keys are texts. Other maps are lists of records of key and value."""
    keys = schema.keys or STRING
    return keys.connect == "string" and (not keys.optional or rules.optional_keys)


def null_is_last(schema: LogicalType) -> bool:
    """Return True if null is the second branch of an optional schema's union: if there is a default."""
    return schema.default is not None and schema.default != ABSENT


@dataclass(slots=True)
class _Maker:
    """Builds the schema of one record: a named type is written out at its first use, and named afterwards."""

    rules: AvroRules
    _known: dict[str, tuple[Field, ...]] = field(default_factory=dict)
    _unnamed: list[tuple[tuple[Field, ...], str]] = field(default_factory=list)

    def of(self, schema: LogicalType, space: str) -> Any:
        """Return the schema within the namespace `space`."""
        made = self._plain(schema, space)
        if not schema.optional:
            return made
        return [made, "null"] if null_is_last(schema) else ["null", made]

    def _plain(self, schema: LogicalType, space: str) -> Any:
        match schema.connect:
            case "struct":
                return self._record(schema, space)
            case "array":
                assert schema.items is not None
                made: dict[str, Any] = {"type": "array", "items": self.of(schema.items, space)}
            case "map":
                made = self._map(schema, space)
            case connect:
                made = {"type": _TYPES[connect]}
        if schema.name == _DECIMAL:
            scale, precision = _digits(schema)
            made |= {"scale": scale, "precision": precision}
        made |= self._properties(schema)
        if schema.name == _DECIMAL and 0 <= scale <= precision:
            made["logicalType"] = "decimal"
        elif schema.name in _LOGICAL:
            made["logicalType"] = _LOGICAL[schema.name]
        return made["type"] if len(made) == 1 else made

    def _properties(self, schema: LogicalType) -> dict[str, Any]:
        """Return Connect's properties besides the type."""
        if not self.rules.properties:
            return {}
        made: dict[str, Any] = {}
        if schema.doc is not None:
            made["connect.doc"] = schema.doc
        if schema.version is not None:
            made["connect.version"] = schema.version
        if schema.parameters:
            made["connect.parameters"] = dict(schema.parameters)
        if null_is_last(schema):
            made["connect.default"] = self._default(schema, schema.default)
        if schema.name is not None:
            made["connect.name"] = schema.name
        if schema.connect in ("int8", "int16"):
            made["connect.type"] = schema.connect
        return made

    def _record(self, schema: LogicalType, space: str) -> Any:
        name, known = self._named(schema)
        own, _, short = name.rpartition(".")
        if known:
            return short if own == space else name
        made: dict[str, Any] = {"type": "record", "name": short}
        if own != space:
            made["namespace"] = own
        made["fields"] = [self._field(part, own) for part in schema.fields]
        return made | self._properties(schema)

    def _named(self, schema: LogicalType) -> tuple[str, bool]:
        """Return the full name of a struct, and whether it was written out before."""
        if schema.name is None:
            for fields, name in self._unnamed:
                if fields == schema.fields:
                    return name, True
            number = len(self._unnamed) + 1
            name = f"{_CONFLUENT}.ConnectDefault{number if number > 1 else ''}"
            self._unnamed.append((schema.fields, name))
            return name, False
        name = _scrubbed(schema.name, self.rules)
        if name not in self._known:
            self._known[name] = schema.fields
            return name, False
        if self._known[name] != schema.fields:
            raise ConversionError(
                f"Two structs of one record are called {name} and have different fields, which Avro does not allow.",
                "Give them different names, by transforms or by schema.name.adjustment.mode.",
            )
        return name, True

    def _field(self, part: Field, space: str) -> dict[str, Any]:
        made = {"name": _letters(part.name) if self.rules.scrubs else part.name, "type": self.of(part.type, space)}
        if self.rules.field_docs and part.type.doc is not None:
            made["doc"] = part.type.doc
        if null_is_last(part.type):
            made["default"] = self._default(part.type, part.type.default)
        elif part.type.optional:
            made["default"] = None
        return made

    def _map(self, schema: LogicalType, space: str) -> dict[str, Any]:
        assert schema.items is not None
        if is_map(schema, self.rules):
            return {"type": "map", "values": self.of(schema.items, space)}
        entry: dict[str, Any] = {"type": "record", "name": "MapEntry"}
        own = _CONFLUENT
        if schema.name is not None:
            own, _, entry["name"] = _scrubbed(schema.name, self.rules).rpartition(".")
        if own != space:
            entry["namespace"] = own
        parts = (Field("key", schema.keys or STRING), Field("value", schema.items))
        entry["fields"] = [self._field(part, own) for part in parts]
        if schema.name is not None:
            entry["connect.internal.type"] = "MapEntry"
        return {"type": "array", "items": entry}

    def _default(self, schema: LogicalType, value: Any) -> Any:
        """Return a default as Avro schemas write it: bytes as text of Latin-1 characters."""
        if value is None:
            return None
        if schema.connect == "bytes":
            return base64.b64decode(value).decode("latin-1")
        if schema.connect == "struct":
            return {
                (_letters(part.name) if self.rules.scrubs else part.name): self._default(part.type, value[part.name])
                for part in schema.fields
            }
        if schema.items is None:
            return value
        if schema.connect == "array":
            return [self._default(schema.items, item) for item in value]
        if is_map(schema, self.rules):
            return {key: self._default(schema.items, item) for key, item in dict(value).items()}
        keys = schema.keys or STRING
        return [[self._default(keys, key), self._default(schema.items, item)] for key, item in value]


def _digits(schema: LogicalType) -> tuple[int, int]:
    """Return a decimal's scale and precision."""
    given = dict(schema.parameters)
    return int(given["scale"]), int(given.get(_PRECISION, _UNKNOWN_PRECISION))


def _scrubbed(name: str, rules: AvroRules) -> str:
    if not rules.scrubs:
        return name
    return ".".join(map(_letters, name.split(".")))


def _letters(name: str) -> str:
    """Return a part of a name with illegal characters replaced, as Confluent does: URL escapes, with `_` for their
    signs."""
    if all(char.isascii() and (char.isalnum() or char == "_") for char in name) and not name[:1].isdigit():
        return name
    escaped = quote_plus(name, safe="*").replace("~", "%7E")
    if escaped[:1].isdigit():
        escaped = "x" + escaped
    return "".join(char if char.isalnum() or char == "_" else "_" for char in escaped)
