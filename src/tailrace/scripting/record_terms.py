"""Terms of conditions in all languages: the parts of a record, as known values or as columns. Worker."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from tailrace.columns.logical import LogicalType
from tailrace.records.layout import ComputedColumn, Constant, Header, Node, RecordLayout, Struct
from tailrace.records.nodes import as_shown, opened
from tailrace.records.transform import RefusedRecord
from tailrace.scripting.script_run import BOOLEAN, DECIMAL, FLOATING, TEXT, WHOLE, Operation
from tailrace.scripting.script_syntax import ScriptTree

OTHER, NULL = "other", "null"
NUMBERS = (WHOLE, FLOATING, DECIMAL)
_KINDS = {
    **dict.fromkeys(("int8", "int16", "int32", "int64"), WHOLE),
    **dict.fromkeys(("float", "double"), FLOATING),
    "boolean": BOOLEAN,
    "string": TEXT,
}
_DECIMAL, _VARIABLE = "org.apache.kafka.connect.data.Decimal", "io.debezium.data.VariableScaleDecimal"


@dataclass(frozen=True, slots=True)
class KnownValue:
    """A value that all records of the layout have."""

    value: Any


@dataclass(frozen=True, slots=True)
class Value:
    """A value that differs from record to record."""

    step: Operation
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class StructTerm:
    """A struct of the record."""

    node: Node


@dataclass(frozen=True, slots=True)
class Schema:
    """The schema of a part of the record, or a named field of that schema."""

    type: LogicalType
    field: str = ""


@dataclass(frozen=True, slots=True)
class Headers:
    """The record's headers."""

    found: tuple[Header, ...]


@dataclass(frozen=True, slots=True)
class HeaderValue:
    """The value of one header of a record."""

    node: Node


Term = KnownValue | Value | StructTerm | Schema | Headers | HeaderValue


class Terms(ABC):
    """The records of a layout as a condition sees them; `where` names its option in messages."""

    def __init__(self, record: RecordLayout, where: str) -> None:
        self._record, self._where = record, where
        self._inputs: list[Node] = []

    @abstractmethod
    def _function(self, step: Operation, kinds: tuple[LogicalType, ...]) -> Callable[..., Any]:
        """Return the function that computes a step over inputs of these types."""

    def computed(self, step: Operation, kind: LogicalType) -> ComputedColumn:
        """Return a column with the values of a step, of this type."""
        kinds = tuple(node.type for node in self._inputs)
        return ComputedColumn(tuple(map(as_shown, self._inputs)), self._function(step, kinds), kind)

    def refuse(self, what: str, tree: ScriptTree) -> RefusedRecord:
        """Return the error for a place of the condition."""
        return RefusedRecord(f"{self._where} {what} at character {tree.at + 1}")

    def of(self, node: Node) -> Term:
        """Return a part of the record."""
        node = opened(node)
        kind = node.type
        if isinstance(node, Constant) and (node.value is None or isinstance(node.value, bool | int)):
            return KnownValue(node.value)
        if isinstance(node, Constant) and kind.connect == "string":
            return KnownValue(node.value)
        if isinstance(node, Struct) or (kind.connect == "struct" and kind.name != _VARIABLE):
            return StructTerm(node)
        return self.input(node, DECIMAL if kind.name == _DECIMAL else _KINDS.get(kind.connect, OTHER))

    def input(self, node: Node, of: str) -> Value:
        """Return the values of a part of the record as an input."""
        place = next((at for at, known in enumerate(self._inputs) if known is node), len(self._inputs))
        if place == len(self._inputs):
            self._inputs.append(node)
        return Value(Operation("input", of, node.type.connect, literal=place), node.type.optional)

    @staticmethod
    def header(headers: Headers, name: Any) -> HeaderValue | KnownValue:
        """Return a header by its name; null if there is none."""
        found = [header.node for header in headers.found if header.name == name]
        return HeaderValue(found[-1]) if found else KnownValue(None)


def kind_of(term: Term) -> str:
    """Return the kind of a term's values."""
    if isinstance(term, Value):
        return term.step.of
    value = term.value if isinstance(term, KnownValue) else ...
    match value:
        case None:
            return NULL
        case bool():
            return BOOLEAN
        case int():
            return WHOLE
        case float():
            return FLOATING
        case Decimal():
            return DECIMAL
        case str():
            return TEXT
    return OTHER
