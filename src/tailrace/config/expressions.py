"""Regular expressions of Java, as options and signals hold them, matched with whole names. No I/O."""

from __future__ import annotations

import re
import re._constants as codes  # type: ignore[import-not-found]
import re._parser as parser  # type: ignore[import-not-found]
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

# --- expressions for an engine whose time grows with the text alone ---------------------------------------------------

_LAST = 0x10FFFF
_Ranges = list[tuple[int, int]]

_DIGIT: _Ranges = [(48, 57)]
_SPACE: _Ranges = [(9, 13), (32, 32)]
_WORD: _Ranges = [(48, 57), (65, 90), (95, 95), (97, 122)]
_PLACES = {
    codes.AT_BEGINNING: r"\A",
    codes.AT_BEGINNING_STRING: r"\A",
    # Python's `$` also matches before the last line's end, but nothing may follow it there in a match of the whole.
    codes.AT_END: r"\z",
    codes.AT_END_STRING: r"\z",
    codes.AT_BOUNDARY: r"\b",
    codes.AT_NON_BOUNDARY: r"\B",
}
_REPEATS = (codes.MAX_REPEAT, codes.MIN_REPEAT)
_UNNAMED = "a construct of its own"
_LACKING = {
    codes.ASSERT: "looks ahead or behind",
    codes.ASSERT_NOT: "looks ahead or behind",
    codes.GROUPREF: "refers back to a group",
    codes.GROUPREF_EXISTS: "refers back to a group",
    codes.ATOMIC_GROUP: "has an atomic group",
    codes.POSSESSIVE_REPEAT: "has a possessive quantifier",
}
# Above these limits a backtracking engine may take long: the number of ways through an expression, independent of the
# text's length, and the steps of one way.
_MOST_WAYS, _MOST_STEPS = 1000, 10_000


class NotLinear(ValueError):
    """An expression that no engine can match in linear time; the text follows its name in a sentence."""


class ExpressionTree:
    """A Python expression as its parser reads it, under the flags ASCII and optionally IGNORECASE.

    Raises ValueError for an invalid one.
    """

    def __init__(self, expression: str, *, ignore_case: bool) -> None:
        try:
            self._root = parser.parse(expression, re.ASCII | (re.IGNORECASE if ignore_case else 0))
        except (OverflowError, RecursionError) as fault:
            raise ValueError("it has too many repetitions or nested groups") from fault
        self._flags: int = self._root.state.flags

    @property
    def size(self) -> int:
        """The steps of the longest way through the expression, which measure RE2's time per character of a text."""
        return _size(self._root)

    @property
    def is_harmless(self) -> bool:
        """True if trying every way takes linear time, up to a bounded factor."""
        ways, loops = _ways(self._root)
        return ways <= _MOST_WAYS and (not loops or (loops == 1 and self.size <= _MOST_STEPS))

    def linear(self) -> str:
        """Return the expression in RE2's syntax, matching a whole text.

        Raises NotLinear if RE2 lacks a construct, or if the expression is too large for it.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        try:
            made = rf"\A(?:{_written(self._root, self._flags)})\z"
            # RE2 has its own limits for counts and for the size of its program
            pc.match_substring_regex(pa.array([""]), made)
        except pa.ArrowInvalid:
            raise NotLinear("repeats more than a thousand times, or is too large") from None
        except RecursionError:
            raise NotLinear("is nested too deeply") from None
        return made


def matches(expression: str, texts: Sequence[str]) -> list[bool]:
    """Return, for each of `texts`, whether the result of `ExpressionTree.linear` matches it as a whole."""
    import pyarrow as pa
    import pyarrow.compute as pc

    encoded = pa.array([text.encode("utf-8", "replace") for text in texts], pa.binary()).cast(pa.large_string())
    return pc.match_substring_regex(encoded, expression).to_pylist()  # type: ignore[no-any-return]


def _ways(tree: Any) -> tuple[float, float]:
    """Return in how many ways a text may match, and the power by which that grows with the text's length."""
    ways, loops = 1.0, 0.0
    for code, value in tree:
        more, further = _ways_of(code, value)
        ways, loops = ways * more, loops + further
    return ways, loops


def _ways_of(code: Any, value: Any) -> tuple[float, float]:
    if code in (codes.LITERAL, codes.NOT_LITERAL, codes.ANY, codes.IN, codes.AT):
        return 1, 0
    if code is codes.SUBPATTERN:
        return _ways(value[3])
    if code is codes.BRANCH:
        branches = [_ways(branch) for branch in value[1]]
        return sum(ways for ways, _ in branches), max(loops for _, loops in branches)
    if code in _REPEATS:
        least, most, inner = int(value[0]), value[1], _ways(value[2])
        if inner == (1, 0):
            return (1, 1) if most is codes.MAXREPEAT else (int(most) - least + 1, 0)
        if least == most and least * inner[0] <= _MOST_WAYS:
            return min(inner[0], _MOST_WAYS + 1) ** min(least, 20), inner[1] * least
    # A repetition of something that has several ways itself, or that only Python's engine knows.
    return float("inf"), float("inf")


def _size(tree: Any) -> int:
    total = 0
    for code, value in tree:
        if code is codes.BRANCH:
            total += sum(_size(branch) + 1 for branch in value[1])
        elif code is codes.SUBPATTERN:
            total += _size(value[3])
        elif code in (*_REPEATS, codes.POSSESSIVE_REPEAT):
            least, most = int(value[0]), value[1]
            total += (_size(value[2]) + 1) * max(1, least + 1 if most is codes.MAXREPEAT else int(most))
        elif code is codes.IN:
            total += len(value)
        else:
            total += 1
    return total


def _written(tree: Any, flags: int) -> str:
    return "".join(_piece(code, value, flags) for code, value in tree)


def _piece(code: Any, value: Any, flags: int) -> str:
    if code in (codes.LITERAL, codes.NOT_LITERAL, codes.IN):
        items = value if code is codes.IN else [(codes.LITERAL, value)]
        negated = code is codes.NOT_LITERAL or (code is codes.IN and items[0][0] is codes.NEGATE)
        return _class(_folded([chars for item in items for chars in _ranges(*item)], flags), negated)
    if code is codes.ANY:
        return _class([] if flags & re.DOTALL else [(10, 10)], True)
    if code is codes.BRANCH:
        return f"(?:{'|'.join(_written(branch, flags) for branch in value[1])})"
    if code is codes.SUBPATTERN:
        _, added, removed, inner = value
        if added & re.UNICODE:
            raise NotLinear("asks for the classes of Unicode")
        return f"(?:{_written(inner, (flags | added) & ~removed)})"
    if code in _REPEATS:
        least, most, inner = value
        return f"(?:{_written(inner, flags)}){{{int(least)},{'' if most is codes.MAXREPEAT else int(most)}}}"
    if code is codes.AT and value in _PLACES:
        if flags & re.MULTILINE and value in (codes.AT_BEGINNING, codes.AT_END):
            return "(?m:^)" if value is codes.AT_BEGINNING else "(?m:$)"
        return _PLACES[value]
    raise NotLinear(_LACKING.get(code, f"has {_UNNAMED}"))


def _ranges(code: Any, value: Any) -> Iterator[tuple[int, int]]:
    """Yield the characters of one part of a class."""
    if code is codes.LITERAL:
        yield value, value
    elif code is codes.RANGE:
        yield value
    elif code is codes.CATEGORY:
        name = str(value)
        members = _DIGIT if name.endswith("DIGIT") else _SPACE if name.endswith("SPACE") else _WORD
        yield from _others(members) if "_NOT_" in name else members


def _folded(ranges: _Ranges, flags: int) -> _Ranges:
    """Return the ranges with the other case of every ASCII letter, if case is ignored."""
    found = list(ranges)
    if flags & re.IGNORECASE:
        for low, high in ranges:
            for first, last, step in ((65, 90, 32), (97, 122, -32)):
                if low <= last and high >= first:
                    found.append((max(low, first) + step, min(high, last) + step))
    return found


def _others(ranges: Iterable[tuple[int, int]]) -> _Ranges:
    """Return all characters outside the ranges."""
    found, at = [], 0
    for low, high in sorted(ranges):
        if low > at:
            found.append((at, low - 1))
        at = max(at, high + 1)
    return [*found, (at, _LAST)] if at <= _LAST else found


def _class(ranges: _Ranges, negated: bool) -> str:
    members = _others(ranges) if negated else ranges
    if not members:
        return rf"[^\x{{0}}-\x{{{_LAST:X}}}]"
    return "[" + "".join(rf"\x{{{low:X}}}-\x{{{high:X}}}" for low, high in members) + "]"


# --- expressions ------------------------------------------------------------------------------------------------------


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
        return matches(self._linear, [name])[0]

    def among(self, names: Sequence[str]) -> list[bool]:
        """Return, for each of `names`, whether the whole name matches."""
        if self._backtracking is not None:
            return [self._backtracking.fullmatch(name) is not None for name in names]
        return matches(self._linear, names)


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
    except NotLinear as fault:
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
    except NotLinear:
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
    except NotLinear:
        if not trusted:
            raise
        return Expression(expression, ignore_case, tree.size, compiled)


def _parsed(expression: str, ignore_case: bool) -> tuple[ExpressionTree, re.Pattern[str]]:
    translated = _translate(expression)
    try:
        with warnings.catch_warnings():
            # ignore Python's warnings of future syntax: Java's classes have the present meaning
            warnings.simplefilter("ignore", FutureWarning)
            tree = ExpressionTree(translated, ignore_case=ignore_case)
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
