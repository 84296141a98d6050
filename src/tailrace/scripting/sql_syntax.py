"""Syntax of conditions in Spark SQL: the supported part of the language, parsed into a tree.

Everything else is refused with its place. A library for all of SQL would be many times as large, would accept what
Spark refuses, and would know the places of few of its nodes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from tailrace.scripting.script_syntax import NotUnderstood, ScriptTree

FUNCTIONS: dict[str, tuple[str, int, int]] = {
    "lower": ("lower", 1, 1),
    "lcase": ("lower", 1, 1),
    "upper": ("upper", 1, 1),
    "ucase": ("upper", 1, 1),
    "length": ("length", 1, 1),
    "len": ("length", 1, 1),
    "char_length": ("length", 1, 1),
    "character_length": ("length", 1, 1),
    "trim": ("trim", 1, 1),
    "ltrim": ("ltrim", 1, 1),
    "rtrim": ("rtrim", 1, 1),
    "substring": ("substring", 2, 3),
    "substr": ("substring", 2, 3),
    "startswith": ("startswith", 2, 2),
    "endswith": ("endswith", 2, 2),
    "contains": ("contains", 2, 2),
    "concat": ("concat", 1, 100),
    "coalesce": ("coalesce", 1, 100),
    "ifnull": ("coalesce", 2, 2),
    "nvl": ("coalesce", 2, 2),
    "nullif": ("nullif", 2, 2),
    "if": ("if", 3, 3),
    "isnull": ("null", 1, 1),
    "isnotnull": ("not null", 1, 1),
}
"""For each function that is understood: its operation, and its least and greatest number of arguments."""

_TOKEN = re.compile(
    r"""\s*(?:(?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?:BD|[LlSsYyFfDd]|bd|Bd|bD)?(?![A-Za-z0-9_]))
    |(?P<raw>[rR](?:'[^']*'|"[^"]*"))
    |(?P<text>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
    |(?P<quoted>`(?:[^`]|``)*`)
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<comment>--[^\n]*|/\*(?!\+).*?\*/)
    |(?P<sign><=>|<>|!=|==|<=|>=|\|\||[-+=<>!.,()\[\]]))""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "0": "\0", "Z": "\x1a"}
_ESCAPED = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|([01][0-7]{2})|(.))|(''|\"\")", re.DOTALL)
_COMPARED = {"=": "=", "==": "=", "<=>": "<=>", "<>": "!=", "!=": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_RESERVED = frozenset(
    ("and", "or", "not", "is", "null", "in", "between", "like", "rlike", "regexp", "ilike", "case", "when", "then",
     "else", "end", "true", "false", "distinct", "from", "escape", "cast", "exists", "select", "interval")
)  # fmt: skip
_INTEGERS = {"l": 63, "s": 15, "y": 7}


def parse_sql(text: str) -> ScriptTree:
    """Return the tree of a condition. Raises NotUnderstood."""
    return _Parser(text).whole()


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = list(_tokens(text))
        self._place = 0

    def whole(self) -> ScriptTree:
        found = self._either()
        kind, text, at = self._tokens[self._place]
        if kind != "end":
            raise NotUnderstood(f"{text} is not understood", at)
        return found

    # --- tokens --------------------------------------------------------------------------------------------------

    @property
    def _at(self) -> int:
        return self._tokens[self._place][2]

    def _word(self, ahead: int = 0) -> str:
        """Return the next sign, or the next name in lower case."""
        kind, text, _ = self._tokens[min(self._place + ahead, len(self._tokens) - 1)]
        return text if kind == "sign" else text.lower() if kind == "name" else ""

    def _accept(self, *words: str) -> str:
        found = self._word()
        if found and found in words:
            self._place += 1
            return found
        return ""

    def _expect(self, word: str) -> None:
        if not self._accept(word):
            raise NotUnderstood(f"{word.upper()} is missing", self._at)

    # --- operations ----------------------------------------------------------------------------------------------

    def _either(self) -> ScriptTree:
        return self._joined_by("or", self._both)

    def _both(self) -> ScriptTree:
        return self._joined_by("and", self._not)

    def _joined_by(self, word: str, operand: Callable[[], ScriptTree]) -> ScriptTree:
        """Parse operands with this word between them; return them as one operation."""
        found, at = [operand()], self._at
        while self._accept(word):
            found.append(operand())
        return found[0] if len(found) == 1 else ScriptTree(word, at, word.upper(), tuple(found))

    def _not(self) -> ScriptTree:
        at = self._at
        if self._accept("not", "!"):
            return ScriptTree("not", at, "NOT", (self._not(),))
        return self._predicate(self._compared())

    def _predicate(self, left: ScriptTree) -> ScriptTree:
        at = self._at
        if self._accept("is"):
            return self._is(left, at)
        is_not = self._word() == "not" and self._word(1) in ("between", "in", "like", "ilike", "rlike", "regexp")
        self._place += is_not
        word = self._accept("between", "in", "like", "ilike", "rlike", "regexp")
        match word:
            case "":
                return left
            case "between":
                low = self._compared()
                self._expect("and")
                pair = (
                    ScriptTree("compare", at, ">=", (left, low)),
                    ScriptTree("compare", at, "<=", (left, self._compared())),
                )
                found = ScriptTree("and", at, "BETWEEN", pair)
            case "in":
                self._expect("(")
                found = ScriptTree("in", at, "IN", (left, *self._list()))
            case "like" | "ilike":
                if self._word() in ("all", "any", "some"):
                    raise NotUnderstood(f"{self._word().upper()} is not understood", self._at)
                parts = [left, self._compared()]
                if self._accept("escape"):
                    parts.append(self._compared())
                found = ScriptTree(word, at, word.upper(), tuple(parts))
            case _:
                found = ScriptTree("rlike", at, "RLIKE", (left, self._compared()))
        return ScriptTree("not", at, "NOT", (found,)) if is_not else found

    def _is(self, left: ScriptTree, at: int) -> ScriptTree:
        is_not = bool(self._accept("not"))
        word = self._accept("null", "true", "false", "unknown", "distinct")
        if not word:
            raise NotUnderstood("NULL is missing", self._at)
        if word == "distinct":
            self._expect("from")
            found = ScriptTree("compare", at, "<=>", (left, self._compared()))
            is_not = not is_not
        elif word in ("true", "false"):
            found = ScriptTree("is", at, f"IS {word.upper()}", (left,), word == "true")
        else:
            found = ScriptTree("null", at, "IS NULL", (left,))
        return ScriptTree("not", at, "NOT", (found,)) if is_not else found

    def _compared(self) -> ScriptTree:
        left = self._joined()
        while True:
            at = self._at
            sign = self._accept(*_COMPARED)
            if not sign:
                return left
            left = ScriptTree("compare", at, _COMPARED[sign], (left, self._joined()))

    def _joined(self) -> ScriptTree:
        left = self._signed()
        while True:
            at = self._at
            if not self._accept("||"):
                return left
            left = ScriptTree("call", at, "concat", (left, self._signed()))

    def _signed(self) -> ScriptTree:
        at = self._at
        if not self._accept("-"):
            return self._path(self._primary())
        # the least whole number is written with its sign
        kind, text, _ = self._tokens[self._place]
        if kind != "number":
            raise NotUnderstood("- is understood before a number alone", at)
        self._place += 1
        return ScriptTree("literal", at, literal=_number(f"-{text}", at))

    # --- values --------------------------------------------------------------------------------------------------

    def _path(self, tree: ScriptTree) -> ScriptTree:
        while True:
            at = self._at
            if self._accept("."):
                tree = ScriptTree("field", at, self._name(), (tree,))
            elif self._accept("["):
                kind, text, _ = self._tokens[self._place]
                if kind not in ("text", "raw"):
                    raise NotUnderstood("a name in quotes is missing", self._at)
                self._place += 1
                tree = ScriptTree("field", at, text, (tree,))
                self._expect("]")
            else:
                return tree

    def _name(self) -> str:
        kind, text, at = self._tokens[self._place]
        if kind not in ("name", "quoted"):
            raise NotUnderstood("a name is missing", at)
        self._place += 1
        return text

    def _primary(self) -> ScriptTree:
        kind, text, at = self._tokens[self._place]
        word = self._word()
        if kind in ("text", "raw"):
            self._place += 1
            while self._tokens[self._place][0] in ("text", "raw"):
                text += self._tokens[self._place][1]
                self._place += 1
            return ScriptTree("literal", at, literal=text)
        if kind == "number":
            self._place += 1
            return ScriptTree("literal", at, literal=_number(text, at))
        if kind == "quoted":
            return ScriptTree("name", at, self._name())
        if self._accept("("):
            found = self._either()
            self._expect(")")
            return found
        if self._accept("true", "false", "null"):
            return ScriptTree("literal", at, literal={"true": True, "false": False}.get(word))
        if self._accept("case"):
            return self._case(at)
        if kind != "name" or word in _RESERVED:
            what = "the end" if kind == "end" else text
            raise NotUnderstood(f"{what} is not understood", at)
        self._place += 1
        return self._call(word, at) if self._word() == "(" else ScriptTree("name", at, text)

    def _case(self, at: int) -> ScriptTree:
        of = None if self._word() == "when" else self._either()
        arms: list[ScriptTree] = []
        while self._accept("when"):
            when = self._either()
            self._expect("then")
            arms += [when if of is None else ScriptTree("compare", at, "=", (of, when)), self._either()]
        if not arms:
            raise NotUnderstood("WHEN is missing", self._at)
        arms.append(self._either() if self._accept("else") else ScriptTree("literal", at))
        self._expect("end")
        return ScriptTree("case", at, "CASE", tuple(arms))

    def _call(self, word: str, at: int) -> ScriptTree:
        if word not in FUNCTIONS:
            raise NotUnderstood(f"the function {word} is not understood", at)
        name, least, most = FUNCTIONS[word]
        self._expect("(")
        arguments = self._list()
        if not least <= len(arguments) <= most:
            raise NotUnderstood(f"{word} takes another number of arguments", at)
        match name:
            case "if":
                return ScriptTree("case", at, "IF", arguments)
            case "null":
                return ScriptTree("null", at, "IS NULL", arguments)
            case "not null":
                return ScriptTree("not", at, "NOT", (ScriptTree("null", at, "IS NULL", arguments),))
            case "nullif":
                same = ScriptTree("compare", at, "=", arguments)
                return ScriptTree("case", at, "NULLIF", (same, ScriptTree("literal", at), arguments[0]))
        return ScriptTree("call", at, name, arguments)

    def _list(self) -> tuple[ScriptTree, ...]:
        """Parse expressions up to the closing bracket."""
        found: list[ScriptTree] = []
        while True:
            found.append(self._either())
            if self._accept(")"):
                return tuple(found)
            self._expect(",")


def _tokens(text: str) -> list[tuple[str, str, int]]:
    found: list[tuple[str, str, int]] = []
    at = 0
    while text[at:].strip():
        token = _TOKEN.match(text, at)
        if token is None:
            at += len(text[at:]) - len(text[at:].lstrip())
            raise NotUnderstood(f"{text[at]} is not understood", at)
        kind = str(token.lastgroup)
        written, start = token[kind], token.start(kind)
        at = token.end()
        if kind == "comment":
            continue
        if kind == "text":
            written = _ESCAPED.sub(_unescaped, written[1:-1])
        elif kind == "raw":
            written = written[2:-1]
        elif kind == "quoted":
            written = written[1:-1].replace("``", "`")
        found.append((kind, written, start))
    return [*found, ("end", "", len(text))]


def _unescaped(found: re.Match[str]) -> str:
    four, eight, octal, char, quotes = found.groups()
    if quotes:
        return str(quotes[0])
    if four or eight:
        return chr(int(four or eight, 16))
    if octal:
        return chr(int(octal, 8))
    # `%` and `_` keep their backslash, for LIKE
    return f"\\{char}" if char in "%_" else _ESCAPES.get(char, char)


def _number(text: str, at: int) -> Any:
    """Return a number as Spark reads it: a float for an exponent or a suffix D or F, else an int or a Decimal."""
    suffix = text.lstrip("-.0123456789eE+").lower() if text[-1].isalpha() else ""
    digits = text[: len(text) - len(suffix)] if suffix else text
    if suffix in ("d", "f") or ("e" in digits.lower() and suffix != "bd"):
        return float(digits)
    if suffix == "bd" or "." in digits:
        return Decimal(digits)
    number = int(digits)
    bits = _INTEGERS.get(suffix, 63)
    if not -(1 << bits) <= number < 1 << bits:
        if suffix:
            raise NotUnderstood(f"{text} has more than {bits + 1} bits", at)
        return Decimal(number)
    return number
