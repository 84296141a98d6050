"""Syntax of conditions in Groovy and JavaScript: the supported part of both languages, parsed into a tree.

Everything else is refused with its place. The tree knows operations and names, but no record.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

GROOVY, JAVASCRIPT = "groovy", "javascript"
VARIABLES = ("value", "key", "valueSchema", "keySchema", "topic", "header", "headers")

METHODS = {
    "get": 1, "getString": 1, "getInt8": 1, "getInt16": 1, "getInt32": 1, "getInt64": 1, "getFloat32": 1,
    "getFloat64": 1, "getBoolean": 1, "getStruct": 1, "getWithoutDefault": 1, "field": 1, "fields": 0, "schema": 0,
    "name": 0, "version": 0, "isOptional": 0, "size": 0, "containsKey": 1, "value": 0, "matches": 1, "equals": 1,
    "equalsIgnoreCase": 1, "startsWith": 1, "endsWith": 1, "contains": 1, "includes": 1, "isEmpty": 0, "length": 0,
    "toLowerCase": 0, "toUpperCase": 0, "trim": 0, "toString": 0, "substring": (1, 2), "replace": 2,
}  # fmt: skip
"""The methods that are understood, with the number of their arguments."""

_TOKEN = re.compile(
    r"""\s*(?:(?P<number>[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?[LlGgIiDdFf]?)
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<text>'(?:[^'\\\n\r]|\\.)*'|"(?:[^"\\\n\r]|\\.)*")
    |(?P<sign>===|!==|==~|=~|==|!=|<=|>=|\&\&|\|\||\?\.|\?:|[-+*/%<>!?:.,()\[\];]))""",
    re.VERBOSE,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "\\": "\\", "'": "'", '"': '"'}
_OWN_ESCAPES = {GROOVY: {"$": "$"}, JAVASCRIPT: {"v": "\v", "0": "\0", "/": "/"}}
# codes of digits that every compiler reads alike; other digits match as a letter
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|([0-3]?[0-7]{1,2}(?![0-9]))|(.))", re.DOTALL)
_MOST_DIGITS = 38
_NOT_IN = {
    GROOVY: ("includes",),
    JAVASCRIPT: ("contains", "isEmpty", "equals", "equalsIgnoreCase", "matches"),
}
"""Methods that a language's texts do not have."""
_LEVELS = (
    ("||",),
    ("&&",),
    ("==", "!=", "===", "!==", "==~"),
    ("<", "<=", ">", ">=", "in"),
    ("+", "-"),
    ("*", "%"),
)
"""The operators of two operands, in order of precedence from the weakest."""


class NotUnderstood(ValueError):
    """A place of a condition that is not supported; `at` counts characters from 1."""

    def __init__(self, what: str, at: int) -> None:
        super().__init__(f"{what} at character {at + 1}")


class LongLiteral(int):
    """A whole number that Groovy reads with 64 bits, however small it is."""


@dataclass(frozen=True, slots=True)
class ScriptTree:
    """An operation. `kind` is its kind, `name` its operator, method, variable or field, `parts` are its operands."""

    kind: str
    at: int
    name: str = ""
    parts: tuple[ScriptTree, ...] = ()
    literal: Any = None


def parse(text: str, language: str) -> ScriptTree:
    """Return the tree of a condition. Raises NotUnderstood."""
    return _Parser(text, language).whole()


class _Parser:
    def __init__(self, text: str, language: str) -> None:
        self._language = language
        self._tokens = list(_tokens(text))
        self._place = 0

    def whole(self) -> ScriptTree:
        if self._language == GROOVY:
            self._accept("return")
        found = self._choice()
        self._accept(";")
        kind, text, at = self._tokens[self._place]
        if kind != "end":
            raise NotUnderstood(f"{text} is not understood", at)
        return found

    # --- tokens --------------------------------------------------------------------------------------------------

    @property
    def _at(self) -> int:
        return int(self._tokens[self._place][2])

    def _next(self) -> str:
        kind, text, _ = self._tokens[self._place]
        return text if kind in ("sign", "name") else ""

    def _accept(self, *texts: str) -> str:
        found = self._next()
        if found and found in texts:
            self._place += 1
            return found
        return ""

    def _expect(self, text: str) -> None:
        if not self._accept(text):
            raise NotUnderstood(f"{text} is missing", self._at)

    # --- operations ----------------------------------------------------------------------------------------------

    def _choice(self) -> ScriptTree:
        condition = self._level(0)
        at = self._at
        if self._language == GROOVY and self._accept("?:"):
            return ScriptTree("elvis", at, parts=(condition, self._choice()))
        if not self._accept("?"):
            return condition
        yes = self._choice()
        self._expect(":")
        return ScriptTree("choice", at, parts=(condition, yes, self._choice()))

    def _level(self, level: int) -> ScriptTree:
        if level == len(_LEVELS):
            return self._unary()
        left = self._level(level + 1)
        while True:
            at = self._at
            sign = self._accept(*_LEVELS[level])
            if not sign:
                return left
            if (sign in ("===", "!==")) != (self._language == JAVASCRIPT) and sign in ("===", "!==", "==~", "in"):
                raise NotUnderstood(f"{sign} is not understood in {self._language}", at)
            plain = {"===": "==", "!==": "!="}.get(sign, sign)
            left = ScriptTree("binary", at, plain, (left, self._level(level + 1)), plain != sign)

    def _unary(self) -> ScriptTree:
        at = self._at
        if self._accept("!"):
            return ScriptTree("not", at, parts=(self._unary(),))
        if self._accept("-"):
            kind, text, place = self._tokens[self._place]
            if kind == "number":
                self._place += 1
                return self._postfix(ScriptTree("literal", at, literal=self._number(text, place, negative=True)))
            return ScriptTree("minus", at, parts=(self._unary(),))
        return self._postfix(self._primary())

    def _postfix(self, tree: ScriptTree) -> ScriptTree:
        while True:
            at = self._at
            if self._accept("["):
                tree = ScriptTree("member", at, parts=(tree, self._choice()))
                self._expect("]")
                continue
            dot = self._accept(".", "?.")
            if not dot:
                return tree
            tree = self._member(tree, "safe " if dot == "?." else "", at)

    def _member(self, tree: ScriptTree, safe: str, at: int) -> ScriptTree:
        kind, name, place = self._tokens[self._place]
        if kind not in ("name", "text"):
            raise NotUnderstood("a name is missing", place)
        self._place += 1
        if not self._accept("("):
            return ScriptTree(safe + "member", at, parts=(tree, ScriptTree("literal", place, literal=name)))
        arguments: list[ScriptTree] = []
        while not self._accept(")"):
            if arguments:
                self._expect(",")
            arguments.append(self._choice())
        wanted = METHODS.get(name)
        if wanted is None:
            raise NotUnderstood(f"the method {name} is not understood", place)
        if name in _NOT_IN[self._language]:
            raise NotUnderstood(f"{self._language} has no method {name}", place)
        if len(arguments) not in (wanted if isinstance(wanted, tuple) else (wanted,)):
            raise NotUnderstood(f"the method {name} takes another number of arguments", place)
        return ScriptTree(safe + "call", at, name, (tree, *arguments))

    def _primary(self) -> ScriptTree:
        kind, text, at = self._tokens[self._place]
        self._place += 1
        if kind == "number":
            return ScriptTree("literal", at, literal=self._number(text, at))
        if kind == "text":
            return self._text(text, at)
        if kind == "name" and text in ("true", "false", "null"):
            return ScriptTree("literal", at, literal={"true": True, "false": False, "null": None}[text])
        if kind == "name" and text in VARIABLES:
            return ScriptTree("variable", at, text)
        if text == "(" and kind == "sign":
            found = self._choice()
            self._expect(")")
            return found
        if text == "[" and kind == "sign":
            items: list[ScriptTree] = []
            while not self._accept("]"):
                if items:
                    self._expect(",")
                items.append(self._choice())
            return ScriptTree("list", at, parts=tuple(items))
        raise NotUnderstood(f"{text or 'the end'} is not understood", at)

    def _number(self, text: str, at: int, *, negative: bool = False) -> Any:
        digits, suffix = (text[:-1], text[-1].lower()) if text[-1].isalpha() else (text, "")
        if len(digits) > 1 and digits[0] == "0" and digits[1] != ".":
            raise NotUnderstood("a number that begins with 0 is not understood", at)
        if suffix and (self._language == JAVASCRIPT or suffix in "fi" or (suffix == "g" and digits.isdigit())):
            raise NotUnderstood(f"{text} is not understood", at)
        if self._language == JAVASCRIPT or suffix == "d":
            return -float(digits) if negative else float(digits)
        if not digits.isdigit():
            value = -Decimal(digits) if negative else Decimal(digits)
            _, found, exponent = value.as_tuple()
            if len(found) + abs(int(exponent)) > _MOST_DIGITS:
                raise NotUnderstood(f"{text} has too many digits", at)
            return value
        whole = -int(digits) if negative else int(digits)
        if not -(1 << 63) <= whole < 1 << 63:
            raise NotUnderstood(f"{text} has more than 64 bits", at)
        return LongLiteral(whole) if suffix == "l" or not -(1 << 31) <= whole < 1 << 31 else whole

    def _text(self, text: str, at: int) -> ScriptTree:
        inner = text[1:-1]
        if text[0] == '"' and self._language == GROOVY and "$" in inner:
            return self._template(inner, at)
        return ScriptTree("literal", at, literal=self._unescaped(inner, at))

    def _unescaped(self, text: str, at: int) -> str:
        """Return the characters of a text, given what stands between its quotes. Raises NotUnderstood."""

        def char(found: re.Match[str]) -> str:
            code, byte, octal, letter = found.groups()
            if code or (byte and self._language == JAVASCRIPT):
                return chr(int(code or byte, 16))
            if octal:
                return chr(int(octal, 8))
            known = _ESCAPES | _OWN_ESCAPES[self._language]
            if letter in known:
                return known[letter]
            raise NotUnderstood(f"{found[0]} in a text is not understood", at)

        try:
            made = _ESCAPE.sub(char, text).encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeError:
            raise NotUnderstood("half a character in a text is not understood", at) from None
        return made

    def _template(self, inner: str, at: int) -> ScriptTree:
        """Return a text of Groovy with `${…}` in it as a concatenation."""
        found = ScriptTree("literal", at, literal="")
        for part in re.split(r"(\$\{[^}]*\})", inner):
            if part.startswith("${"):
                piece = parse(part[2:-1], GROOVY)
            elif "$" in part:
                raise NotUnderstood("$ in a text is understood only as part of ${…}", at)
            else:
                piece = ScriptTree("literal", at, literal=self._unescaped(part, at))
            found = ScriptTree("binary", at, "+", (found, piece))
        return found


def _tokens(text: str) -> Any:
    at = 0
    while at < len(text.rstrip()):
        found = _TOKEN.match(text, at)
        if found is None:
            at += len(text[at:]) - len(text[at:].lstrip())
            raise NotUnderstood(f"{text[at]} is not understood", at)
        kind = found.lastgroup
        assert kind is not None
        yield kind, found[kind], found.start(kind)
        at = found.end()
    yield "end", "", len(text)
