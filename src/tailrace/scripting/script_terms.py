"""Meaning of a condition in Groovy or JavaScript for the records of a layout: a known value, or a column. Worker.

All that depends on the layout alone (the operation, the topic, the presence of a row before) is decided once, here.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np

from tailrace.columns.logical import BOOLEAN as BOOLEAN_TYPE
from tailrace.columns.logical import STRING, LogicalType
from tailrace.config.expressions import compile_expression
from tailrace.records.layout import ComputedColumn, Node, RecordLayout
from tailrace.records.nodes import part_of
from tailrace.records.transform import RefusedRecord
from tailrace.scripting import script_run
from tailrace.scripting.record_terms import (
    NULL,
    NUMBERS,
    OTHER,
    Headers,
    HeaderValue,
    KnownValue,
    Schema,
    StructTerm,
    Term,
    Terms,
    Value,
    kind_of,
)
from tailrace.scripting.script_run import BOOLEAN, CALLED, COMPARED, DECIMAL, FLOATING, MIXED, TEXT, WHOLE, Operation
from tailrace.scripting.script_syntax import JAVASCRIPT, LongLiteral, ScriptTree


class ScriptMeaning(Terms):
    """A condition in Groovy or JavaScript over the records of a layout; `where` names its option in messages."""

    def __init__(self, record: RecordLayout, language: str, where: str) -> None:
        super().__init__(record, where)
        self._is_javascript = language == JAVASCRIPT

    def boolean(self, tree: ScriptTree) -> bool | ComputedColumn:
        """Return the condition's answer. Raises RefusedRecord."""
        found = self._term(tree)
        if isinstance(found, KnownValue) and isinstance(found.value, bool):
            return found.value
        if not isinstance(found, Value) or found.step.of != BOOLEAN:
            raise RefusedRecord(f"{self._where} gives no boolean")
        return self.computed(Operation("result", BOOLEAN, "the result", (found.step,), at=tree.at), BOOLEAN_TYPE)

    def text(self, tree: ScriptTree) -> str | ComputedColumn | None:
        """Return the text of an expression; None for null. Raises RefusedRecord."""
        found = self._term(tree)
        if isinstance(found, KnownValue) and (found.value is None or isinstance(found.value, str)):
            return found.value
        if not isinstance(found, Value) or found.step.of not in (TEXT, NULL):
            raise RefusedRecord(f"{self._where} gives no text")
        return self.computed(found.step, STRING.with_optional(True))

    def _function(self, step: Operation, kinds: tuple[LogicalType, ...]) -> Callable[..., Any]:
        return partial(script_run.run, step, kinds, self._is_javascript, self._where)

    # --- parts of the record -------------------------------------------------------------------------------------

    def _term(self, tree: ScriptTree) -> Term:
        match tree.kind:
            case "literal":
                return KnownValue(tree.literal)
            case "list":
                return KnownValue([self._constant(part) for part in tree.parts])
            case "variable":
                return self._variable(tree.name)
            case "member" | "safe member":
                return self._member(tree)
            case "call" | "safe call":
                return self._call(tree)
            case "not":
                return self._made("not", BOOLEAN, "!", (self._operand(tree.parts[0], tree),), tree)
            case "minus":
                return self._count("minus", self._term(tree.parts[0]), KnownValue(0), tree)
            case "choice":
                return self._choice(tree.parts[0], tree.parts[1], tree.parts[2], tree)
            case "elvis":
                return self._choice(tree.parts[0], tree.parts[0], tree.parts[1], tree)
        return self._binary(tree)

    def _variable(self, name: str) -> Term:
        record = self._record
        if name == "topic":
            return KnownValue(record.topic) if isinstance(record.topic, str) else self.of(record.topic)
        if name in ("header", "headers"):
            return Headers(record.headers)
        node = record.key if name.startswith("key") else record.value
        if node is None:
            return KnownValue(None)
        return Schema(node.type) if name.endswith("Schema") else self.of(node)

    def _constant(self, tree: ScriptTree) -> Any:
        found = self._term(tree)
        if not isinstance(found, KnownValue):
            raise self.refuse("needs a constant", tree)
        return found.value

    def _member(self, tree: ScriptTree) -> Term:
        target, name = self._term(tree.parts[0]), self._constant(tree.parts[1])
        if isinstance(target, KnownValue) and target.value is None:
            if tree.kind.startswith("safe"):
                return target
            raise self.refuse(f"takes {name} of null", tree)
        match target:
            case StructTerm():
                return self._part(target.node, name, tree)
            case Headers():
                return self.header(target, name)
            case HeaderValue() if name == "value":
                return self.of(target.node)
            case HeaderValue() | Schema() if name in ("schema", "name", "version"):
                return self._of_schema(target, name, (), tree)
            case KnownValue() | Value() if name == "length" and kind_of(target) == TEXT and self._is_javascript:
                return self._made("call", WHOLE, name, (target,), tree, ())
        raise self.refuse(f"does not understand {name}", tree)

    def _part(self, node: Node, name: Any, tree: ScriptTree) -> Term:
        found = part_of(node, name) if isinstance(name, str) else None
        if found is None:
            raise self.refuse(f"finds no field {name}", tree)
        return self.of(found)

    # --- methods -------------------------------------------------------------------------------------------------

    def _unless_null(self, asked: KnownValue | Value, found: Term, otherwise: Any, tree: ScriptTree) -> Term:
        """Return the values of `found` where `asked` is not null, and `otherwise` where it is null."""
        if not isinstance(asked, Value) or not asked.nullable:
            return found
        null = self._made("null", BOOLEAN, "==", (asked,), tree)
        return self._made("choice", kind_of(found), "?:", (null, KnownValue(otherwise), found), tree)

    def _call(self, tree: ScriptTree) -> Term:
        target = self._term(tree.parts[0])
        found = self._called(target, tree)
        safe = tree.kind.startswith("safe") and isinstance(target, Value)
        return self._unless_null(self._column(target, tree), found, None, tree) if safe else found

    def _called(self, target: Term, tree: ScriptTree) -> Term:
        name = tree.name
        if isinstance(target, KnownValue) and target.value is None:
            if tree.kind.startswith("safe"):
                return target
            raise self.refuse(f"uses {name} of null", tree)
        if name in ("contains", "includes") and isinstance(target, KnownValue) and isinstance(target.value, list):
            return self._among(self._term(tree.parts[1]), target.value, tree)
        if name == "equals" and kind_of(target) == TEXT:
            return self._equal(target, self._term(tree.parts[1]), tree)
        arguments = tuple(self._constant(part) for part in tree.parts[1:])
        match target:
            case StructTerm() if name == "schema":
                return Schema(target.node.type)
            case StructTerm() if name.startswith("get"):
                return self._part(target.node, arguments[0], tree)
            case Headers() if name == "containsKey":
                return KnownValue(any(header.name == arguments[0] for header in target.found))
            case Headers() if name == "get":
                return self.header(target, arguments[0])
            case HeaderValue() if name == "value":
                return self.of(target.node)
            case HeaderValue() | Schema():
                return self._of_schema(target, name, arguments, tree)
            case KnownValue() if name == "size" and isinstance(target.value, list):
                return KnownValue(len(target.value))
            case KnownValue() | Value():
                return self._of_text(target, name, arguments, tree)
        raise self.refuse(f"does not understand {name}", tree)

    def _of_schema(self, target: HeaderValue | Schema, name: str, arguments: tuple[Any, ...], tree: ScriptTree) -> Term:
        if isinstance(target, HeaderValue):
            if name == "schema":
                return Schema(target.node.type)
            raise self.refuse(f"does not understand {name}", tree)
        match name:
            case "field" if not target.field:
                found = next((field for field in target.type.fields if field.name == arguments[0]), None)
                return KnownValue(None) if found is None else Schema(found.type, found.name)
            case "fields" if not target.field:
                return KnownValue([field.name for field in target.type.fields])
            case "name":
                return KnownValue(target.field or target.type.name)
            case "schema" if target.field:
                return Schema(target.type)
            case "version" if not target.field:
                return KnownValue(target.type.version)
            case "isOptional" if not target.field:
                return KnownValue(target.type.optional)
        raise self.refuse(f"does not understand {name}", tree)

    def _of_text(self, target: KnownValue | Value, name: str, arguments: tuple[Any, ...], tree: ScriptTree) -> Term:
        if name == "toString" and kind_of(target) in (TEXT, WHOLE, BOOLEAN):
            if self._is_javascript:
                return self._made("shown", TEXT, name, (target,), tree)
            # Groovy has a text of null too
            return self._made("join", TEXT, name, (target,), tree)
        if name in ("size", "length") and self._is_javascript:
            raise self.refuse(f"calls {name}, which a text of JavaScript has as length alone", tree)
        name = {"includes": "contains", "size": "length"}.get(name, name)
        takes = _is_place if name == "substring" else _is_text
        if kind_of(target) != TEXT or name not in CALLED or not all(map(takes, arguments)):
            raise self.refuse(f"does not understand {name}", tree)
        if name == "replace" and not self._is_javascript and not arguments[0]:
            # Java replaces it even between the two surrogates of a character
            raise self.refuse("replaces an empty text", tree)
        if name == "matches":
            try:
                compile_expression(arguments[0], ignore_case=False)
            except ValueError:
                raise self.refuse("has no regular expression", tree) from None
        if name == "length":
            of = WHOLE
        else:
            of = TEXT if name in ("toLowerCase", "toUpperCase", "trim", "substring", "replace") else BOOLEAN
        return self._made("call", of, name, (target,), tree, arguments)

    # --- operations ----------------------------------------------------------------------------------------------

    def _binary(self, tree: ScriptTree) -> Term:
        sign, (first, second) = tree.name, tree.parts
        if sign in ("&&", "||"):
            return self._logic(tree)
        left, right = self._term(first), self._term(second)
        if sign == "in":
            if not isinstance(right, KnownValue) or not isinstance(right.value, list):
                raise self.refuse("understands in before a list alone", tree)
            return self._among(left, right.value, tree)
        if sign == "==~":
            if not isinstance(right, KnownValue) or not isinstance(right.value, str):
                raise self.refuse("needs a constant", tree)
            # null matches nothing
            text = self._column(left, tree)
            return (
                KnownValue(False)
                if kind_of(text) == NULL
                else self._unless_null(text, self._of_text(text, "matches", (right.value,), tree), False, tree)
            )
        if sign == "==":
            return self._equal(left, right, tree)
        if sign == "!=":
            found = self._equal(left, right, tree)
            return self._made("not", BOOLEAN, "!", (found,), tree)
        if sign in COMPARED:
            pair = self._column(left, tree), self._column(right, tree)
            if not _alike(*map(kind_of, pair)) or {BOOLEAN, MIXED} & set(map(kind_of, pair)):
                raise self.refuse(f"compares what has no order by {sign}", tree)
            return self._made("compare", BOOLEAN, sign, pair, tree)
        if sign == "+" and TEXT in (kind_of(left), kind_of(right)):
            pair = self._column(left, tree), self._column(right, tree)
            if {OTHER, MIXED} & set(map(kind_of, pair)) or any(map(_has_exponent, pair)):
                raise self.refuse("joins what is no text", tree)
            if kind_of(left) == TEXT == kind_of(right) and self._is_javascript and self._may_be_null(*pair):
                # null and null are 0, and a text with null is another text
                raise self.refuse("joins two texts of which both may be null", tree)
            return self._made("join", TEXT, sign, pair, tree)
        return self._count(sign, left, right, tree)

    def _count(self, sign: str, left: Term, right: Term, tree: ScriptTree) -> Term:
        pair = self._column(left, tree), self._column(right, tree)
        kinds = [kind_of(operand) for operand in pair]
        if not set(kinds) <= {*NUMBERS, NULL}:
            raise self.refuse(f"counts with what is no number by {sign}", tree)
        if self._is_javascript:
            if DECIMAL in kinds:
                # in JavaScript decimals are objects of Java
                raise self.refuse(f"counts with a decimal by {sign}", tree)
            return self._made("count", FLOATING, sign, pair, tree)
        of = next((kind for kind in (FLOATING, DECIMAL) if kind in kinds), WHOLE)
        return self._made("count", of, sign, pair, tree)

    @staticmethod
    def _may_be_null(*pair: KnownValue | Value) -> bool:
        return all((value.value is None) if isinstance(value, KnownValue) else value.nullable for value in pair)

    def _logic(self, tree: ScriptTree) -> Term:
        kind = "both" if tree.name == "&&" else "either"
        first = self._operand(tree.parts[0], tree)
        if isinstance(first, KnownValue):
            if _truth(first.value) == (kind == "either"):
                return first if self._is_javascript else KnownValue(kind == "either")
            second = self._operand(tree.parts[1], tree)
            if self._is_javascript:
                return second
            return KnownValue(_truth(second.value)) if isinstance(second, KnownValue) else _as_boolean(second)
        second = self._guarded(tree.parts[1], BOOLEAN)
        if not self._is_javascript:
            return self._made(kind, BOOLEAN, tree.name, (first, second), tree)
        # JavaScript returns an operand itself; unless both are booleans, only its truth is kept
        of = BOOLEAN if kind_of(first) == BOOLEAN == kind_of(second) else MIXED
        return self._made(f"{kind} of values" if of == BOOLEAN else kind, of, tree.name, (first, second), tree)

    def _choice(self, condition: ScriptTree, yes: ScriptTree, no: ScriptTree, tree: ScriptTree) -> Term:
        first = self._operand(condition, tree)
        if isinstance(first, KnownValue):
            return self._term(yes if _truth(first.value) else no)
        pair = self._guarded(yes, NULL), self._guarded(no, NULL)
        kinds = {kind_of(operand) for operand in pair} - {NULL}
        if len(kinds) > 1 or {OTHER, MIXED} & kinds:
            raise self.refuse("gives values of two kinds", tree)
        return self._made("choice", next(iter(kinds), NULL), "?:", (first, *pair), tree)

    def _guarded(self, tree: ScriptTree, of: str) -> KnownValue | Value:
        """Return an operand that may not count; its error is raised only where it counts."""
        try:
            return self._operand(tree, tree) if of == BOOLEAN else self._column(self._term(tree), tree)
        except RefusedRecord as fault:
            return Value(Operation("refused", of, literal=fault.reason))

    def _operand(self, tree: ScriptTree, whole: ScriptTree) -> KnownValue | Value:
        """Return a value that counts as true or false."""
        found = self._term(tree)
        if not isinstance(found, KnownValue | Value):
            return KnownValue(True)
        if self._is_javascript and kind_of(found) == DECIMAL:
            # in JavaScript a decimal is an object of Java, which is always true
            raise self.refuse("takes a decimal for true or false", whole)
        return self._column(found, whole)

    def _column(self, term: Term, tree: ScriptTree) -> KnownValue | Value:
        if isinstance(term, KnownValue | Value) and not (isinstance(term, KnownValue) and isinstance(term.value, list)):
            return term
        raise self.refuse("uses a whole part of the record as a value", tree)

    def _among(self, left: Term, items: list[Any], tree: ScriptTree) -> Term:
        found = self._column(left, tree)
        if not all(self._is_item(item, found) for item in items):
            raise self.refuse("looks for a value in a list of others", tree)
        if isinstance(found, KnownValue):
            return KnownValue(found.value in items)
        return self._made("among", BOOLEAN, "in", (found,), tree, items)

    def _is_item(self, item: Any, found: KnownValue | Value) -> bool:
        """Return True if `item` can be compared with the value; in Groovy numbers must be of the same class of Java."""
        kind = kind_of(KnownValue(item))
        if self._is_javascript or kind not in NUMBERS:
            return item is not None and kind != DECIMAL and _alike(kind, kind_of(found)) and kind_of(found) != DECIMAL
        if isinstance(found, KnownValue):
            return kind != DECIMAL and type(item) is type(found.value)
        of = "double" if kind == FLOATING else "int64" if isinstance(item, LongLiteral) else "int32"
        return found.step.kind == "input" and kind != DECIMAL and found.step.name == of

    def _equal(self, left: Term, right: Term, tree: ScriptTree) -> Term:
        for first, other in ((left, right), (right, left)):
            if isinstance(first, KnownValue) and first.value is None:
                if isinstance(other, KnownValue):
                    return KnownValue(other.value is None)
                if not isinstance(other, Value) or not other.nullable:
                    return KnownValue(False)
                return self._made("null", BOOLEAN, "==", (other,), tree)
        pair = self._column(left, tree), self._column(right, tree)
        kinds = [kind_of(operand) for operand in pair]
        if not _alike(*kinds) or {OTHER, MIXED} & set(kinds):
            raise self.refuse("compares values of two kinds", tree)
        if self._is_javascript and DECIMAL in kinds and (tree.literal or kinds == [DECIMAL, DECIMAL]):
            # in JavaScript decimals are objects of Java, and two objects are never the same
            raise self.refuse(f"compares a decimal by {tree.name or 'equals'}", tree)
        return self._made("equal", BOOLEAN, "==", pair, tree)

    def _made(
        self,
        kind: str,
        of: str,
        name: str,
        parts: tuple[KnownValue | Value | Term, ...],
        tree: ScriptTree,
        literal: Any = None,
    ) -> KnownValue | Value:
        """Return an operation, or its value if it is known."""
        steps = []
        for part in parts:
            assert isinstance(part, KnownValue | Value)
            steps.append(
                Operation("literal", kind_of(part), literal=part.value) if isinstance(part, KnownValue) else part.step
            )
        if any(step.of == OTHER for step in steps) and kind != "null":
            raise self.refuse(f"does not understand {name} of such a value", tree)
        step = Operation(kind, of, name, tuple(steps), literal, tree.at)
        if all(isinstance(part, KnownValue) for part in parts):
            run = script_run.ScriptRun(self._is_javascript, self._where)
            return KnownValue(run.of(step, [], np.arange(1))[0].as_py())
        return Value(step)


def _alike(left: str, right: str) -> bool:
    return NULL in (left, right) or left == right or (left in NUMBERS and right in NUMBERS)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_place(value: Any) -> bool:
    """Return True for a whole number; in JavaScript all numbers are doubles."""
    return isinstance(value, int | float) and not isinstance(value, bool) and float(value).is_integer()


def _has_exponent(term: KnownValue | Value) -> bool:
    """Return True for a decimal that Java writes with an exponent."""
    return isinstance(term, KnownValue) and isinstance(term.value, Decimal) and "E" in str(term.value)


def _truth(value: Any) -> bool:
    return bool(value) and value == value  # noqa: PLR0124  (not of NaN)


def _as_boolean(value: Value) -> Value:
    return value if value.step.of == BOOLEAN else Value(Operation("truth", BOOLEAN, "&&", (value.step,)))
