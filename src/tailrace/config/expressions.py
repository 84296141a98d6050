"""Expression: a Java regular expression from options or signals, matched with whole names. No I/O.

Anyone who may create a table chooses names, and anyone who may send a signal chooses expressions: no pair of them may
block the planner. An expression that Python's engine matches in linear time is left to it, since it is the fastest.
Others go to RE2. What RE2 lacks (lookaround, backreferences, possessive quantifiers) is accepted from the
configuration, which the operator writes, and never from a signal.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from tailrace.config import linear

LONGEST = 1000
"""The most characters of a signal's expression."""

_POSIX = {
    "alpha": "a-zA-Z", "digit": "0-9", "alnum": "a-zA-Z0-9", "upper": "a-zA-Z", "lower": "a-zA-Z",
    "xdigit": "0-9a-fA-F", "space": r" \t\n\x0b\f\r", "blank": r" \t", "ascii": r"\x00-\x7f",
    "cntrl": r"\x00-\x1f\x7f", "punct": r"!-/:-@\[-`{-~", "graph": "!-~", "print": " -~",
}  # fmt: skip
r"""Java's `\p{…}` classes over ASCII. The lists ignore case, so Upper and Lower are any letter."""


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression that matches whole names. Picklable; equal if text and case sensitivity are.

    `pattern` is the expression as written; `size` grows with the matching time per character of a name.
    """

    pattern: str
    ignore_case: bool
    size: int = field(compare=False)
    _backtracking: re.Pattern[str] | None = field(compare=False, repr=False)
    _linear: str = field(default="", compare=False, repr=False)

    @property
    def backtracking(self) -> str | None:
        """The expression in Python's syntax; None if RE2 matches it."""
        return None if self._backtracking is None else self._backtracking.pattern

    def fullmatch(self, name: str) -> bool:
        """Return True if the whole of `name` matches."""
        if self._backtracking is not None:
            return self._backtracking.fullmatch(name) is not None
        return linear.matches(self._linear, [name])[0]

    def among(self, names: Sequence[str]) -> list[bool]:
        """Return, for each of `names`, whether the whole name matches."""
        if self._backtracking is not None:
            return [self._backtracking.fullmatch(name) is not None for name in names]
        return linear.matches(self._linear, names)


def compile_expression(expression: str, *, ignore_case: bool = True) -> Expression:
    r"""Return a compiled expression of the configuration.

    Case folding and `\w`, `\d`, `\s` cover only ASCII, as in Java by default. Raises ValueError with the reason for an
    invalid expression and for the few constructs that Python lacks.
    """
    return _compiled(expression, ignore_case, trusted=True)


def signal_expression(expression: str) -> Expression:
    """Return a compiled expression of a signal, which is case-sensitive and must match in linear time.

    Raises ValueError; the message contains nothing of the expression, and follows its name.
    """
    if len(expression) > LONGEST:
        raise ValueError(f"has more than {LONGEST} characters")
    try:
        return _compiled(expression, False, trusted=False)
    except linear.NotLinear as fault:
        raise ValueError(f"{fault}, which is not accepted from signals") from None
    except ValueError:
        raise ValueError("is not a regular expression, or has an unsupported construct") from None


@lru_cache(256)
def compile_groups(expression: str) -> re.Pattern[str]:
    """Return a case-sensitive expression of the configuration as Python's, for groups of names.

    Raises ValueError as `compile_expression` does.
    """
    _, compiled = _parsed(expression, False)
    return compiled


@lru_cache(256)
def linear_expression(expression: str) -> str | None:
    """Return a case-sensitive expression of the configuration in RE2's syntax, matching a whole text.

    None if RE2 lacks a construct. Raises ValueError as `compile_expression` does.
    """
    tree, _ = _parsed(expression, False)
    try:
        return tree.linear()
    except linear.NotLinear:
        return None


def literal(name: str) -> Expression:
    """Return the expression that only `name` matches."""
    return Expression(name, False, len(name), re.compile(re.escape(name)))


@lru_cache(1024)
def _compiled(expression: str, ignore_case: bool, *, trusted: bool) -> Expression:
    tree, compiled = _parsed(expression, ignore_case)
    if tree.is_harmless:
        return Expression(expression, ignore_case, tree.size, compiled)
    try:
        return Expression(expression, ignore_case, tree.size, None, tree.linear())
    except linear.NotLinear:
        if not trusted:
            raise
        return Expression(expression, ignore_case, tree.size, compiled)


def _parsed(expression: str, ignore_case: bool) -> tuple[linear.Tree, re.Pattern[str]]:
    translated = _translate(expression)
    try:
        with warnings.catch_warnings():
            # ignore Python's warnings of future syntax: Java's classes have the present meaning
            warnings.simplefilter("ignore", FutureWarning)
            tree = linear.Tree(translated, ignore_case=ignore_case)
            return tree, re.compile(translated, re.ASCII | (re.IGNORECASE if ignore_case else 0))
    except (re.error, ValueError, OverflowError, RecursionError) as fault:
        raise ValueError(f"{expression!r} is not a regular expression: {fault}") from None


def _translate(expression: str) -> str:
    """Return the expression with Java's own syntax rewritten."""
    out: list[str] = []
    at, depth = 0, 0
    while at < len(expression):
        char = expression[at]
        if char == "\\":
            piece, at = _escape(expression, at, depth > 0)
            out.append(piece)
            continue
        if char == "[":
            if depth:
                raise ValueError(f"{expression!r} has a class within a class, which is not supported: write one class")
            depth += 1
            out.append(char)
            at += 1
            continue
        if char == "]" and depth:
            depth -= 1
        elif depth and expression.startswith("&&", at):
            raise ValueError(f"{expression!r} intersects classes with &&, which is not supported: write one class")
        elif not depth and expression.startswith("(?<", at) and expression[at + 3 : at + 4] not in ("=", "!"):
            out.append("(?P<")
            at += 3
            continue
        out.append(char)
        at += 1
    return "".join(out)


def _escape(expression: str, at: int, in_class: bool) -> tuple[str, int]:
    """Return the rewritten escape that starts at `at`, and where the text goes on."""
    if at + 1 == len(expression):
        raise ValueError(f"{expression!r} ends with a lone backslash")
    letter = expression[at + 1]
    if letter == "Q":
        end = expression.find("\\E", at)
        end = len(expression) if end < 0 else end
        return re.escape(expression[at + 2 : end]), min(end + 2, len(expression))
    if letter in "pP":
        found = re.match(r"\{(?:Is|java)?(\w+)\}", expression[at + 2 :])
        name = found.group(1).lower() if found else ""
        if name not in _POSIX or (in_class and letter == "P"):
            raise ValueError(f"{expression!r} uses \\{letter} with a class that is not supported: list its characters")
        members = _POSIX[name]
        whole = members if in_class else f"[{'^' if letter == 'P' else ''}{members}]"
        return whole, at + 2 + len(found.group(0) if found else "")
    if letter == "x" and expression[at + 2 : at + 3] == "{":
        found = re.match(r"\{([0-9a-fA-F]{1,6})\}", expression[at + 2 :])
        if found is None:
            raise ValueError(f"{expression!r} has a broken \\x{{…}}")
        return re.escape(chr(int(found.group(1), 16))), at + 2 + len(found.group(0))
    if letter == "k" and expression[at + 2 : at + 3] == "<":
        end = expression.find(">", at)
        if end < 0:
            raise ValueError(f"{expression!r} has a broken \\k<…>")
        return f"(?P={expression[at + 3 : end]})", end + 1
    simple = {"z": r"\Z", "e": r"\x1b", "h": r"[ \t\xa0]", "R": r"(?:\r\n|[\n\x0b\f\r\x85])"}
    if letter in simple and not in_class:
        return simple[letter], at + 2
    if letter in "EGXNcHVR":
        raise ValueError(f"{expression!r} uses \\{letter}, which is not supported")
    return expression[at : at + 2], at + 2
