"""Conditions in Groovy and JavaScript give the results of the languages' own engines, or are refused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tailrace.columns import Column
from tailrace.errors import TransformError
from tests.servers import script_engines
from tests.servers.jars import Unavailable
from tests.servers.script_engines import Answer
from tests.unit.events.changes import Change, table
from tests.unit.transforms.chains import faults, rows

KINDS = {
    "id": "int",
    "n": "int",
    "big": "long",
    "part": "double",
    "price": "decimal",
    "name": "text",
    "live": "boolean",
}
DATA = table(
    "data",
    [
        Column("id", "int4", 23, nullable=False), Column("n", "int4", 23), Column("big", "int8", 20),
        Column("part", "float8", 701), Column("price", "numeric", 1700, 524_294), Column("name", "text", 25),
        Column("live", "bool", 16),
    ],
    "id",
)  # fmt: skip
ROWS: list[list[str | None]] = [
    ["1", "1", "10", "1.5", "12.34", "north-1", "t"],
    ["2", "2147483647", "9007199254740993", "NaN", "0.00", "", "f"],
    ["3", None, None, None, None, None, None],
    ["4", "0", "-9223372036854775808", "-0", "-1.50", "a.b.c$1 Straße İ \U0001f600 ", "t"],
    ["5", "-3", "2147483648", "Infinity", "100.00", "10", "f"],
    ["6", "10", "0", "10", "10.00", " ab\t", "t"],
]
UNWRAP = {"type": "ExtractNewRecordState", "delete.tombstone.handling.mode": "drop"}
LANGUAGES = {"groovy": "jsr223.groovy", "js": "jsr223.graal.js"}

NUMBERS = ("value.n", "value.big", "value.part", "value.price", "1", "1.5", "3000000000")
OPERANDS = (*NUMBERS, "value.name", "'10'", "null", "value.live")
ONES = (
    "!{}",
    "-{}",
    "{} ? 'y' : 'n'",
    "'x' + {}",
    "{} + 'x'",
    "{} && value.live",
    "{} || value.live",
    "value.live && {}",
)
METHODS = (
    "length()", "size()", "length", "isEmpty()", "toLowerCase()", "toUpperCase()", "trim()", "toString()",
    "contains('b')", "includes('b')", "startsWith('a')", "endsWith('1')", "equals('10')",
    "equalsIgnoreCase('NORTH-1')", "matches('a.*')", "matches('^north')", "replace('.', '')", "replace('b', '$&')",
    "replace('', 'x')", "substring(1)", "substring(2, 1)", "substring(-1)", "substring(1, 100)", "substring(3, -1)",
)  # fmt: skip
LITERALS = (
    r"'\101'", r"'\u0041'", r"'\x41'", r"'\0'", r"'\q'", r"'\''", r"'\v'", r"'\$'", "'a\nb'", "010", "0x10", "1e3",
    "9999999999", "99999999999999999999", "1f", "1L", "1.5d", "1g", "1.10", "1e21", "-0", "-0.0", "-2147483648",
    "-9223372036854775808",
)  # fmt: skip
OTHERS = (
    "value.n in [1, 0]", "value.big in [10L, 0]", "[1, 10].contains(value.n)", "[1, 10].includes(value.n)",
    "[10].contains(value.big)", "value.part in [10]", "value.name ==~ '[0-9]+'", "value.name ?: 'none'",
    '"${value.n}-x"', '"${value.part}-x"', '"${value.price}"', "(value.n > 0 ? 'a' : 'b') + 'c'", "1 == '1'",
    "null == false", "null == 0", "'' == 0", "'a' < 'B'", "'10' < 9", "null < 'a'", "null <= null", "true == 1",
    "true + 1", "null + 'a'", "2147483647 + 1", "2147483647L + 1", "9223372036854775807 + 1", "0.1 + 0.2",
    "0.1 + 0.2 == 0.3", "'' + 0.1", "'' + 1e21", "'' + 1e-7", "'' + 100.0", "7 % 0", "7.5 % 2", "-7 % 3", "-7.5 % 2",
    "value.part != value.part", "return 1 == 1;", "topic.replace('p', 'q')", "value.n > 0 > 0", "1 < 2 == true",
    "'a' + 1 + 2", "1 + 2 + 'a'", "value.name + value.name", "value.name < value.name",
)  # fmt: skip


def cases() -> Iterator[tuple[str, str]]:
    for language in LANGUAGES:
        signs = ["+", "-", "*", "%", "==", "!=", "<", "<=", ">", ">=", *(["===", "!=="] if language == "js" else [])]
        for sign, left, right in product(signs, OPERANDS, OPERANDS):
            yield language, f"{left} {sign} {right}"
        for form, operand in product(ONES, OPERANDS):
            yield language, form.format(operand)
        for target, method in product(("value.name", "'North-1'", "value.n"), METHODS):
            yield language, f"{target}.{method}"
        for literal in LITERALS:
            yield from ((language, literal), (language, f"'' + {literal}"), (language, f"{literal} == value.n"))
        yield from ((language, text) for text in OTHERS)


def asked(language: str, text: str, theirs: Sequence[Answer]) -> list[Answer | None]:
    """Return a condition's result for each row, in the form of the engine's answer; None if it is refused."""
    found: list[Answer | None] = [None] * len(ROWS)
    if faults(UNWRAP, _step("Filter", "condition", text, language)):
        return found
    places: dict[str, list[int]] = {}
    for place, (kind, value) in enumerate(theirs):
        number = kind == "number" and value not in ("NaN", "Infinity", "-Infinity")
        places.setdefault(value if number else kind if kind in ("text", "null") else "boolean", []).append(place)
    for way, chosen in places.items():
        _ask(language, text, way, chosen, found)
    return found


def _ask(language: str, text: str, way: str, places: Sequence[int], found: list[Answer | None]) -> None:
    try:
        for place, answer in zip(places, _told(language, text, way, places), strict=True):
            found[place] = answer
    except TransformError:
        for place in places if len(places) > 1 else ():
            _ask(language, text, way, [place], found)


def _told(language: str, text: str, way: str, places: Sequence[int]) -> list[Answer]:
    changes: list[Change] = [("c", None, ROWS[place]) for place in places]
    if way in ("text", "null"):
        step = _step("ContentBasedRouter", "topic.expression", text, language)
        topics = [row["topic"] for row in rows(UNWRAP, step, schema=DATA, changes=changes)]
        # A null leaves the topic unchanged.
        return [("null", "") if way == "null" and one == "s.public.data" else ("text", one) for one in topics]
    condition = text if way == "boolean" else f"({text}) == ({_literal(way, text, language)})"
    step = _step("Filter", "condition", condition, language)
    if faults(UNWRAP, step):
        raise TransformError("the engine's number is no literal here")
    kept = {row["value"]["id"] for row in rows(UNWRAP, step, schema=DATA, changes=changes)}
    answers = [int(str(ROWS[place][0])) in kept for place in places]
    if way == "boolean":
        return [("boolean", str(one).lower()) for one in answers]
    return [("number", way if one else "another one") for one in answers]


def _literal(number: str, text: str, language: str) -> str:
    is_decimal = "price" in text or "1.5" in text
    return f"{number}d" if language == "groovy" and ("." in number or "E" in number) and not is_decimal else number


def _step(kind: str, option: str, text: str, language: str) -> dict[str, Any]:
    return {"type": f"io.debezium.transforms.{kind}", "language": LANGUAGES[language], option: text}


@pytest.mark.full
def test_conditions_give_what_the_engines_give_or_are_refused(tmp_path: Path) -> None:
    every = list(cases())
    given = [
        {
            name: None if text is None else (kind, {"t": "true", "f": "false"}[text] if kind == "boolean" else text)
            for (name, kind), text in zip(KINDS.items(), row, strict=True)
        }
        for row in ROWS
    ]
    try:
        theirs = script_engines.answers(every, given, tmp_path)
    except Unavailable as reason:
        pytest.skip(str(reason))
    wrong, taken = [], 0
    for (language, text), wanted in zip(every, theirs, strict=True):
        for row, (own, answer) in enumerate(zip(asked(language, text, wanted), wanted, strict=True)):
            taken += own is not None
            # A literal does not distinguish zeros by sign.
            if own not in (None, answer) and not (answer[0] == "number" and answer[1] == "-0.0"):
                wrong.append(f"{language}: {text} of row {row + 1} is {own}, and {answer} there")
    assert wrong == []
    assert taken > len(every)
