"""Protobuf schemas as text, laid out as Confluent's converter registers them. Any process.

The layout matters: a registry gives different texts different ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tailrace.columns.logical import LogicalType

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
class Line:
    """A field of a message in a schema; `parameters` are Connect's parameters of its type."""

    label: str
    type: str
    name: str
    number: int
    parameters: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class Message:
    """A message with its nested messages, in order."""

    name: str
    lines: list[Line] = field(default_factory=list)
    inner: dict[str, tuple[LogicalType, Message]] = field(default_factory=dict)


def message_text(space: str, imports: Sequence[str], message: Message) -> str:
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


def _message(message: Message) -> str:
    text = f"message {message.name} {{"
    if message.lines:
        text += "\n" + "".join(_indented(_line(line)) for line in message.lines)
    if message.inner:
        text += "\n" + "".join(_indented(_message(inner)) for _, inner in message.inner.values())
    return text + "}\n"


def _line(line: Line) -> str:
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
