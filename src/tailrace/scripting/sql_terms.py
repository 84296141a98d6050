"""Meaning of a condition in Spark SQL for the records of one layout. Worker.

Names are `value`, `key`, `topic`, `headers` and the fields of the value. There is no arithmetic, so the widths of
numbers do not matter: whole, decimal and floating numbers are compared as Spark compares them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import partial
from typing import Any

from tailrace.columns.logical import BOOLEAN as BOOLEAN_TYPE
from tailrace.columns.logical import STRING, LogicalType
from tailrace.config.expressions import compile_expression
from tailrace.records.layout import ComputedColumn, Constant, Node
from tailrace.records.nodes import opened, part_of
from tailrace.records.transform import RefusedRecord
from tailrace.scripting import sql_run
from tailrace.scripting.record_terms import (
    NULL,
    NUMBERS,
    OTHER,
    Headers,
    HeaderValue,
    KnownValue,
    StructTerm,
    Term,
    Terms,
    Value,
    kind_of,
)
from tailrace.scripting.script_run import BOOLEAN, DECIMAL, FLOATING, TEXT, WHOLE, Operation
from tailrace.scripting.script_syntax import ScriptTree

_TEXT_FUNCTIONS = ("lower", "upper", "length", "trim", "ltrim", "rtrim", "substring", "startswith", "endswith",
                   "contains")  # fmt: skip
_ASKING = ("startswith", "endswith", "contains")
Plain = KnownValue | Value


class SqlMeaning(Terms):
    """A condition in Spark SQL over the records of a layout; `where` names its option in messages."""

    def boolean(self, tree: ScriptTree) -> bool | ComputedColumn:
        """Return the condition's answer; unknown counts as not true. Raises RefusedRecord."""
        found = self._plain(tree)
        if kind_of(found) not in (BOOLEAN, NULL):
            raise RefusedRecord(f"{self._where} gives no boolean")
        if isinstance(found, KnownValue):
            return found.value is True
        return self.computed(Operation("is", BOOLEAN, "", (found.step,), True), BOOLEAN_TYPE)

    def text(self, tree: ScriptTree) -> str | ComputedColumn | None:
        """Return the text of an expression; None for null. Raises RefusedRecord."""
        found = self._plain(tree)
        if kind_of(found) not in (TEXT, NULL):
            raise RefusedRecord(f"{self._where} gives no text")
        if isinstance(found, KnownValue):
            return None if found.value is None else str(found.value)
        return self.computed(found.step, STRING.with_optional(True))

    def _function(self, step: Operation, kinds: tuple[LogicalType, ...]) -> Callable[..., Any]:
        return partial(sql_run.run, step, kinds, self._where)

    # --- parts of the record -------------------------------------------------------------------------------------

    def _plain(self, tree: ScriptTree) -> Plain:
        """Return a single value. Raises RefusedRecord for a whole part of the record."""
        found = self._term(tree)
        if isinstance(found, HeaderValue):
            found = self.of(found.node)
        if isinstance(found, KnownValue | Value):
            return found
        raise self.refuse("uses a whole part of the record as a value", tree)

    def _term(self, tree: ScriptTree) -> Term:
        match tree.kind:
            case "literal":
                return KnownValue(tree.literal)
            case "name":
                return self._named(tree)
            case "field":
                return self._field(self._term(tree.parts[0]), tree)
            case "not":
                return self._logic("not", (self._truth(tree.parts[0]),), tree)
            case "and" | "or":
                return self._both_or_either(tree)
            case "null":
                return self._null(tree)
            case "is":
                return self._made("is", BOOLEAN, (self._truth(tree.parts[0]),), tree, tree.literal)
            case "compare":
                return self._compare(tree.name, [self._plain(part) for part in tree.parts], tree)
            case "in":
                return self._in(tree)
            case "like" | "ilike":
                return self._like(tree)
            case "rlike":
                return self._rlike(tree)
            case "case":
                return self._case(tree)
        return self._call(tree)

    def _named(self, tree: ScriptTree) -> Term:
        record = self._record
        match tree.name.lower():
            case "topic":
                return KnownValue(record.topic) if isinstance(record.topic, str) else self.of(record.topic)
            case "header" | "headers":
                return Headers(record.headers)
            case "key":
                return KnownValue(None) if record.key is None else self.of(record.key)
            case "value":
                return KnownValue(None) if record.value is None else self.of(record.value)
        if record.value is None:
            return KnownValue(None)
        return self._part(opened(record.value), tree)

    def _field(self, target: Term, tree: ScriptTree) -> Term:
        match target:
            case KnownValue(None):
                return target
            case StructTerm():
                return self._part(target.node, tree)
            case Headers():
                return self.header(target, tree.name)
        raise self.refuse(f"takes {tree.name} of what has no fields", tree)

    def _part(self, node: Node, tree: ScriptTree) -> Term:
        """Return a field; its name is compared without case."""
        if isinstance(node, Constant) and node.value is None and not node.type.fields:
            return KnownValue(None)
        names = [field.name for field in node.type.fields if field.name.lower() == tree.name.lower()]
        if len(names) > 1:
            raise self.refuse(f"finds several fields {tree.name}", tree)
        found = part_of(node, names[0]) if names else None
        if found is None:
            raise self.refuse(f"finds no field {tree.name}", tree)
        return self.of(found)

    # --- logic ---------------------------------------------------------------------------------------------------

    def _truth(self, tree: ScriptTree) -> Plain:
        found = self._plain(tree)
        if kind_of(found) not in (BOOLEAN, NULL):
            raise self.refuse("needs a boolean", tree)
        return found

    def _both_or_either(self, tree: ScriptTree) -> Plain:
        """Return AND or OR. If one operand alone decides, the result is known whatever the others are."""
        found = [self._truth(part) for part in tree.parts]
        deciding = tree.kind == "or"
        if any(isinstance(operand, KnownValue) and operand.value is deciding for operand in found):
            return KnownValue(deciding)
        rest = [part for part in found if not (isinstance(part, KnownValue) and part.value is (not deciding))]
        if not rest:
            return KnownValue(not deciding)
        return rest[0] if len(rest) == 1 else self._logic(tree.kind, rest, tree)

    def _logic(self, kind: str, parts: Sequence[Plain], tree: ScriptTree) -> Plain:
        return self._made(kind, BOOLEAN, [self._as(part, BOOLEAN) for part in parts], tree)

    def _null(self, tree: ScriptTree) -> Plain:
        found = self._term(tree.parts[0])
        match found:
            case StructTerm():
                if isinstance(found.node, ComputedColumn):
                    return self._made("null", BOOLEAN, (self.input(found.node, OTHER),), tree)
                return KnownValue(False)
            case Headers():
                return KnownValue(False)
        plain = self._plain(tree.parts[0])
        if isinstance(plain, Value) and not plain.nullable:
            return KnownValue(False)
        return self._made("null", BOOLEAN, (plain,), tree)

    # --- comparison ----------------------------------------------------------------------------------------------

    def _compare(self, sign: str, pair: Sequence[Plain], tree: ScriptTree) -> Plain:
        of = self._common(pair, tree)
        if of == BOOLEAN and sign not in ("=", "!=", "<=>"):
            raise self.refuse(f"compares what has no order by {sign}", tree)
        by = BOOLEAN if of == NULL else of
        return self._made("compare", BOOLEAN, [self._as(part, of) for part in pair], tree, name=sign, by=by)

    def _in(self, tree: ScriptTree) -> Plain:
        first, *items = (self._plain(part) for part in tree.parts)
        of = self._common([first, *items], tree)
        if of in (TEXT, WHOLE) and isinstance(first, Value) and all(isinstance(item, KnownValue) for item in items):
            given = [item.value for item in items if isinstance(item, KnownValue)]
            return self._made("among", BOOLEAN, (self._as(first, of),), tree, given)
        pairs = [(self._as(first, of), self._as(item, of)) for item in items]
        by = BOOLEAN if of == NULL else of
        found = [self._made("compare", BOOLEAN, pair, tree, name="=", by=by) for pair in pairs]
        return found[0] if len(found) == 1 else self._logic("or", found, tree)

    def _like(self, tree: ScriptTree) -> Plain:
        first, pattern, *escape = (self._plain(part) for part in tree.parts)
        self._texts((first, pattern, *escape), tree)
        escaping = escape[0] if escape else KnownValue("\\")
        if not isinstance(pattern, KnownValue) or not isinstance(escaping, KnownValue):
            raise self.refuse("needs a constant pattern", tree)
        if pattern.value is None or escaping.value is None:
            return KnownValue(None)
        if len(escaping.value) != 1:
            raise self.refuse("needs one character behind ESCAPE", tree)
        text = self._as(first, TEXT)
        if tree.kind == "ilike":
            text = self._made("lower", TEXT, (text,), tree)
            pattern = KnownValue(pattern.value.lower())
        try:
            found = sql_run.like_expression(pattern.value, escaping.value)
        except ValueError as fault:
            raise self.refuse(str(fault), tree) from None
        return self._made("like", BOOLEAN, (text,), tree, found, by=TEXT)

    def _rlike(self, tree: ScriptTree) -> Plain:
        first, pattern = (self._plain(part) for part in tree.parts)
        self._texts((first, pattern), tree)
        if not isinstance(pattern, KnownValue):
            raise self.refuse("needs a constant pattern", tree)
        if pattern.value is None:
            return KnownValue(None)
        flags, rest = sql_run.flags_of(pattern.value)
        found = rf"{flags}[\s\S]*(?:{rest})[\s\S]*"
        try:
            compile_expression(pattern.value, ignore_case=False)
            compile_expression(found, ignore_case=False)
        except ValueError:
            raise self.refuse("has no regular expression that is understood", tree) from None
        return self._made("rlike", BOOLEAN, (self._as(first, TEXT),), tree, found, by=TEXT)

    # --- functions -----------------------------------------------------------------------------------------------

    def _case(self, tree: ScriptTree) -> Plain:
        whens = [self._truth(part) for part in tree.parts[:-1:2]]
        thens = [self._plain(part) for part in (*tree.parts[1::2], tree.parts[-1])]
        of = self._common(thens, tree)
        if of == NULL:
            return KnownValue(None)
        steps: list[Operation] = []
        for when, then in zip(whens, thens, strict=False):
            steps += [_step(when, BOOLEAN), _step(self._as(then, of), of)]
        steps.append(_step(self._as(thens[-1], of), of))
        return self._folded(Operation("case", of, "CASE", tuple(steps), at=tree.at), [*whens, *thens])

    def _call(self, tree: ScriptTree) -> Plain:
        found = [self._plain(part) for part in tree.parts]
        if tree.name == "coalesce":
            of = self._common(found, tree)
            return self._made("coalesce", of, [self._as(part, of) for part in found], tree)
        if tree.name == "concat":
            self._texts(found, tree)
            return self._made("concat", TEXT, [self._as(part, TEXT) for part in found], tree)
        assert tree.name in _TEXT_FUNCTIONS
        self._texts(found[:1], tree)
        text = self._as(found[0], TEXT)
        given = [part.value if isinstance(part, KnownValue) else ... for part in found[1:]]
        if ... in given:
            raise self.refuse(f"needs constants in {tree.name}", tree)
        if None in given:
            return KnownValue(None)
        if not all(isinstance(value, str if tree.name in _ASKING else int) for value in given):
            raise self.refuse(f"does not understand {tree.name} of such values", tree)
        of = BOOLEAN if tree.name in _ASKING else WHOLE if tree.name == "length" else TEXT
        literal = given[0] if tree.name in _ASKING else (*given, None)[:2] if given else None
        return self._made(tree.name, of, (text,), tree, literal, by=TEXT)

    # --- values --------------------------------------------------------------------------------------------------

    def _common(self, parts: Sequence[Plain], tree: ScriptTree) -> str:
        """Return the kind to which values are converted before they are compared. Raises RefusedRecord."""
        kinds = {kind_of(part) for part in parts} - {NULL}
        if len(kinds) <= 1 and OTHER not in kinds:
            return next(iter(kinds), NULL)
        if kinds <= {*NUMBERS}:
            return FLOATING if FLOATING in kinds else DECIMAL
        raise self.refuse("compares values of two kinds", tree)

    def _texts(self, parts: Sequence[Plain], tree: ScriptTree) -> None:
        if not {kind_of(part) for part in parts} <= {TEXT, NULL}:
            raise self.refuse(f"uses {tree.name} of what is no text", tree)

    def _as(self, value: Plain, of: str) -> Plain:
        """Return a value as another kind."""
        if of == NULL:
            return value
        if isinstance(value, KnownValue):
            found = value.value
            if found is not None and of == FLOATING:
                return KnownValue(float(found))
            return KnownValue(Decimal(found)) if found is not None and of == DECIMAL else value
        return Value(Operation("as", of, "", (value.step,)), value.nullable)

    def _made(
        self,
        kind: str,
        of: str,
        parts: Sequence[Plain],
        tree: ScriptTree,
        literal: Any = None,
        name: str = "",
        by: str = "",
    ) -> Plain:
        """Return an operation, or its value if it is known. `by` is its operands' kind, if it is not the result's."""
        steps = tuple(_step(part, by or of) for part in parts)
        return self._folded(Operation(kind, of, name, steps, literal, tree.at), parts)

    @staticmethod
    def _folded(step: Operation, parts: Sequence[Plain]) -> Plain:
        return KnownValue(sql_run.known(step)) if all(isinstance(part, KnownValue) for part in parts) else Value(step)


def _step(value: Plain, of: str) -> Operation:
    """Return a value as an operand; null gets the kind `of`."""
    if isinstance(value, Value):
        return value.step
    return Operation("literal", of if value.value is None else kind_of(value), literal=value.value)
