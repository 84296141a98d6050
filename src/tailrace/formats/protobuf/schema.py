"""Protobuf's schema of a logical type, as Confluent's converter makes it, and its text. Any process."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from urllib.parse import quote_plus

from tailrace.columns.logical import STRING, LogicalType
from tailrace.errors import ConversionError

# --- texts ------------------------------------------------------------------------------------------------------------

_VALUE_FIRST = ("precision", "scale")
_WRAPPERS = """syntax = "proto3";
package google.protobuf;

option java_package = "com.google.protobuf";
option java_outer_classname = "WrappersProto";
option java_multiple_files = true;
option go_package = "google.golang.org/protobuf/types/known/wrapperspb";
option cc_enable_arenas = true;
option objc_class_prefix = "GPB";
option csharp_namespace = "Google.Protobuf.WellKnownTypes";

"""


@dataclass(frozen=True, slots=True)
class FieldLine:
    """A field of a message in a schema; `parameters` are Connect's parameters of its type."""

    label: str
    type: str
    name: str
    number: int
    parameters: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class MessageType:
    """A message with its nested messages, in order."""

    name: str
    lines: list[FieldLine] = field(default_factory=list)
    inner: dict[str, tuple[LogicalType, MessageType]] = field(default_factory=dict)


def message_text(space: str, imports: Sequence[str], message: MessageType) -> str:
    """Return the file of one message in the package `space`."""
    text = 'syntax = "proto3";\n'
    if space:
        text += f"package {space};\n"
    if imports:
        text += "\n" + "".join(f'import "{place}";\n' for place in imports)
    return text + "\n" + _message(message)


def wrappers_text(names: Iterable[str]) -> str:
    """Return the file of Google's messages of one value."""
    return _WRAPPERS + "".join(
        f"message {name} {{\n  {name.removesuffix('Value').lower()} value = 1;\n}}\n" for name in names
    )


def _message(message: MessageType) -> str:
    text = f"message {message.name} {{"
    if message.lines:
        text += "\n" + "".join(_indented(_line(line)) for line in message.lines)
    if message.inner:
        text += "\n" + "".join(_indented(_message(inner)) for _, inner in message.inner.values())
    return text + "}\n"


def _line(line: FieldLine) -> str:
    label = f"{line.label} " if line.label else ""
    options = ""
    if line.parameters:
        pairs = ",\n".join(_pair(name, text) for name, text in line.parameters)
        options = " [(confluent.field_meta) = {\n" + _indented("params: [\n" + _indented(pairs) + "]") + "}]"
    return f"{label}{line.type} {line.name} = {line.number}{options};\n"


def _pair(name: str, text: str) -> str:
    parts = [f'key: "{name}"', f'value: "{text}"']
    if name in _VALUE_FIRST:
        parts.reverse()
    return "{\n" + _indented(",\n".join(parts)) + "}"


def _indented(text: str) -> str:
    """Return the lines of a text indented by two spaces, empty ones too."""
    return "".join(f"  {line}\n" for line in text.rstrip("\n").split("\n"))


# --- schemas ----------------------------------------------------------------------------------------------------------


DECIMAL = "org.apache.kafka.connect.data.Decimal"
DATE = "org.apache.kafka.connect.data.Date"
TIME = "org.apache.kafka.connect.data.Time"
TIMESTAMP = "org.apache.kafka.connect.data.Timestamp"
_MESSAGES = {
    DECIMAL: ("confluent.type.Decimal", "confluent/type/decimal.proto"),
    DATE: ("google.type.Date", "google/type/date.proto"),
    TIME: ("google.type.TimeOfDay", "google/type/timeofday.proto"),
    TIMESTAMP: ("google.protobuf.Timestamp", "google/protobuf/timestamp.proto"),
}
_SCALARS = {
    "int8": ("int32", "Int32Value"),
    "int16": ("int32", "Int32Value"),
    "int32": ("int32", "Int32Value"),
    "int64": ("int64", "Int64Value"),
    "float": ("float", "FloatValue"),
    "double": ("double", "DoubleValue"),
    "boolean": ("bool", "BoolValue"),
    "string": ("string", "StringValue"),
    "bytes": ("bytes", "BytesValue"),
}
WRAPPERS = ("DoubleValue", "FloatValue", "Int64Value", "UInt64Value", "Int32Value", "UInt32Value", "BoolValue",
            "StringValue", "BytesValue")  # fmt: skip
"""The messages of google/protobuf/wrappers.proto in their order."""
_UNNAMED = "ConnectDefault"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SCRUBBED = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class ProtobufRules:
    """The converter's options about messages.

    `scrubs`: illegal names are replaced (`scrub.invalid.names`). `optionals`: fields that may be null are `optional`
    (`optional.for.nullables`). `wrappers`: such fields are messages with a value (`wrapper.for.nullables`).
    """

    scrubs: bool = False
    optionals: bool = False
    wrappers: bool = False


@dataclass(frozen=True, slots=True)
class File:
    """A registered schema: its text, the full name of the records' message, and that message's index in the file."""

    text: str
    name: str
    place: int


def file_of(schema: LogicalType, rules: ProtobufRules) -> File:
    """Return the schema of records of a type. Raises ConversionError if Protobuf has none."""
    if schema.connect in _SCALARS:
        if schema.name in _MESSAGES:
            raise _refused(f"a key or value that is a {schema.name} alone")
        wrapper = _SCALARS[schema.connect][1]
        return File(wrappers_text(WRAPPERS), f"google.protobuf.{wrapper}", WRAPPERS.index(wrapper))
    if schema.connect != "struct":
        raise _refused(f"a key or value that is a {schema.connect} alone")
    maker = _Maker(rules)
    space, _, short = maker.named(schema.name).rpartition(".")
    message = maker.message(maker.allowed(short), schema)
    text = message_text(space, maker.imports, message)
    return File(text, f"{space}.{message.name}" if space else message.name, 0)


def is_wrapped(kind: LogicalType, rules: ProtobufRules) -> bool:
    """Return True if the values of a field are messages with a value."""
    return rules.wrappers and kind.optional and kind.connect in _SCALARS and kind.name not in _MESSAGES


def is_message(kind: LogicalType) -> bool:
    """Return True if the values of a plain type are messages, by its semantic name."""
    return kind.name in _MESSAGES


@dataclass(slots=True)
class _Maker:
    """Builds the messages of one schema. Structs and maps without a name are numbered."""

    rules: ProtobufRules
    imports: list[str] = field(default_factory=list)
    _unnamed: int = 0

    def named(self, name: str | None) -> str:
        if name:
            return name
        self._unnamed += 1
        return f"{_UNNAMED}{self._unnamed}"

    def allowed(self, name: str) -> str:
        """Return a name for messages and fields: scrubbed, or checked."""
        if self.rules.scrubs:
            return scrubbed(name)
        if not _NAME.fullmatch(name):
            raise ConversionError(
                f"{name} is not a name that Protobuf allows.",
                "Set scrub.invalid.names of the converter, or schema.name.adjustment.mode and "
                "field.name.adjustment.mode of the connector to avro.",
            )
        return name

    def message(self, name: str, schema: LogicalType) -> MessageType:
        made = MessageType(name)
        for number, part in enumerate(schema.fields, 1):
            made.lines.append(self._line(made, schema, part.type, self.allowed(part.name), number))
        names = [line.name for line in made.lines]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise _refused(f"two fields with the name {twice} in one message")
        return made

    def _line(self, made: MessageType, own: LogicalType, kind: LogicalType, name: str, number: int) -> FieldLine:
        label = ""
        if kind.connect == "array":
            assert kind.items is not None
            label, kind = "repeated", kind.items
            if kind.connect in ("array", "map"):
                raise _refused(f"the list {name}, whose items are lists or maps")
        elif kind.connect == "map":
            label = "repeated"
        elif self.rules.optionals and kind.optional:
            label = "optional"
        if kind.connect == "struct":
            return FieldLine(label, self._struct(made, own, kind, name), name, number)
        if kind.connect == "map":
            return FieldLine(label, self._map(made, kind), name, number)
        if kind.name in _MESSAGES:
            found, place = _MESSAGES[kind.name]
            self._import(place)
            return FieldLine(label, found, name, number, _decimal(kind) if kind.name == DECIMAL else ())
        plain, wrapper = _SCALARS[kind.connect]
        parameters = (("connect.type", kind.connect),) if kind.connect in ("int8", "int16") else ()
        if is_wrapped(kind, self.rules):
            self._import("google/protobuf/wrappers.proto")
            return FieldLine(label, f"google.protobuf.{wrapper}", name, number, parameters)
        return FieldLine(label, plain, name, number, parameters)

    def _struct(self, made: MessageType, own: LogicalType, kind: LogicalType, name: str) -> str:
        """Return the name of a struct's message, which is nested in the message that has the field."""
        short = self.allowed(self.named(kind.name).rpartition(".")[2])
        if short == name:
            short += "Message"
        found = own if short == made.name else made.inner[short][0] if short in made.inner else None
        if found is None:
            made.inner[short] = kind, self.message(short, kind)
        elif found.fields != kind.fields:
            raise _refused(f"two structs with different fields that are both called {short} in one message")
        return short

    def _map(self, made: MessageType, kind: LogicalType) -> str:
        assert kind.items is not None
        short = self.allowed(self.named(kind.name).rpartition(".")[2])
        if "_" in short:
            short = "".join(word.capitalize() for word in short.split("_"))
        short += "Entry"
        if short in made.inner:
            raise _refused(f"two maps that are both called {short} in one message")
        entry = MessageType(short)
        for number, (name, part) in enumerate((("key", kind.keys or STRING), ("value", kind.items)), 1):
            line = self._line(entry, kind, part, name, number)
            label = "" if line.label == "optional" else line.label
            entry.lines.append(FieldLine(label, line.type, name, number))
        made.inner[short] = kind, entry
        return short

    def _import(self, place: str) -> None:
        if place not in self.imports:
            self.imports.append(place)


def scrubbed(name: str) -> str:
    """Return a name with illegal characters replaced, as Confluent does: URL escapes, with `_` for their signs."""
    if _SCRUBBED.fullmatch(name):
        return name
    escaped = quote_plus(name, safe="*").replace("~", "%7E")
    if escaped[:1].isdigit() or escaped[:1] == "_":
        escaped = "x" + escaped
    return "".join(char if char.isalnum() or char == "_" else "_" for char in escaped)


def digits(kind: LogicalType) -> int:
    """Return a decimal's scale."""
    return int(dict(kind.parameters)["scale"])


def _decimal(kind: LogicalType) -> tuple[tuple[str, str], ...]:
    given = dict(kind.parameters)
    known = (("precision", given.get("connect.decimal.precision")), ("scale", given.get("scale")))
    return tuple((name, text) for name, text in known if text is not None)


def _refused(what: str) -> ConversionError:
    return ConversionError(
        f"Protobuf cannot hold {what}.",
        "Leave the column out (column.exclude.list), change it by a transform, or use another converter.",
    )
