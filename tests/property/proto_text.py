"""A reader of Protobuf schemas as text for google's library: the part of the language that converters write."""

from __future__ import annotations

import re
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2, wrappers_pb2

_FIELD = re.compile(r"(?:(optional|repeated) )?([\w.]+) (\w+) = ([0-9]+)(?: \[.*\])?")
_FOREIGN = ("google.", "confluent.")
_KNOWN = {
    "google/type/date.proto": """syntax = "proto3"; package google.type;
        message Date { int32 year = 1; int32 month = 2; int32 day = 3; }""",
    "google/type/timeofday.proto": """syntax = "proto3"; package google.type;
        message TimeOfDay { int32 hours = 1; int32 minutes = 2; int32 seconds = 3; int32 nanos = 4; }""",
    "confluent/type/decimal.proto": """syntax = "proto3"; package confluent.type;
        message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }""",
}
_BUILT_IN = {"google/protobuf/timestamp.proto": timestamp_pb2, "google/protobuf/wrappers.proto": wrappers_pb2}


def message_class(text: str, name: str) -> Any:
    """Return the class of the messages with this full name in a schema."""
    pool = descriptor_pool.DescriptorPool()
    file = _file("records.proto", text)
    for place in file.dependency:
        if place in _BUILT_IN:
            pool.AddSerializedFile(_BUILT_IN[place].DESCRIPTOR.serialized_pb)
        else:
            pool.Add(_file(place, _KNOWN[place]))
    if file.package == "google.protobuf":
        file.name = "google/protobuf/wrappers.proto"
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def _file(name: str, text: str) -> Any:
    file = descriptor_pb2.FileDescriptorProto(name=name, syntax="proto3")
    words = " ".join(text.split())
    statements = re.split(r"(;|\{|\})(?=(?:[^\[\]]|\[[^\]]*\])*$)", _without_options(words))
    messages: list[Any] = []
    for statement, end in zip(map(str.strip, statements[::2]), [*statements[1::2], ""], strict=True):
        if end == "{":
            keyword, message = statement.split()
            assert keyword == "message"
            made = messages[-1].nested_type if messages else file.message_type
            messages.append(made.add(name=message))
        elif end == "}":
            assert not statement
            messages.pop()
        elif statement.startswith("package "):
            file.package = statement.removeprefix("package ")
        elif statement.startswith("import "):
            file.dependency.append(statement.removeprefix("import ").strip('"'))
        elif statement and not statement.startswith(("syntax ", "option ")):
            _add(messages[-1], statement)
    return file


def _without_options(text: str) -> str:
    """Return the text without options in brackets, which may hold braces and brackets too."""
    kept, depth = "", 0
    for char in text:
        depth += char == "["
        kept += "" if depth else char
        depth -= char == "]"
    return kept


def _add(message: Any, statement: str) -> None:
    found = _FIELD.fullmatch(statement.strip())
    assert found is not None, statement
    label, kind, name, number = found.groups()
    field = message.field.add(name=name, number=int(number))
    field.label = field.LABEL_REPEATED if label == "repeated" else field.LABEL_OPTIONAL
    if hasattr(field, f"TYPE_{kind.upper()}"):
        field.type = getattr(field, f"TYPE_{kind.upper()}")
    else:
        field.type = field.TYPE_MESSAGE
        field.type_name = f".{kind}" if kind.startswith(_FOREIGN) else kind
    if label == "optional":
        field.proto3_optional = True
        field.oneof_index = len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{name}")
