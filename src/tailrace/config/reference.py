"""The reference page of a connector's options, written from the same table that parses them.

`python -m tailrace.config.reference docs/reference/postgres.md` renews the part of the page between its two marks;
with `--check` it only tells, by the exit code 1, that the page is out of date.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tailrace.config import connect, postgres, signals
from tailrace.config.config import REQUIRED
from tailrace.config.option import Kind, Option

BEGIN = "<!-- options: written by `python -m tailrace.config.reference`; do not edit -->"
END = "<!-- end of options -->"

AREAS: tuple[tuple[str, tuple[Option, ...]], ...] = (
    ("Names and topics", postgres.IDENTITY),
    ("Connection", postgres.CONNECTION),
    ("Slot and publication", postgres.SLOT),
    ("What is captured", postgres.FILTERS),
    ("Events", postgres.EVENTS),
    ("Snapshot", postgres.SNAPSHOT),
    ("Signals, incremental snapshots, notifications", signals.SIGNALS),
    ("Batches and retries", postgres.FLOW),
    ("tailrace's own", postgres.OWN),
    ("Kafka Connect", connect.CONNECT),
)
"""The areas of the PostgreSQL connector's table, in the order of the page."""

_FORMS = (Kind.LIST, Kind.EXPRESSIONS, Kind.STATEMENTS, Kind.LETTERS)
"""Kinds whose form the meaning of an option does not tell by itself."""


def page(areas: Sequence[tuple[str, tuple[Option, ...]]] = AREAS) -> str:
    """The part of the page between the marks: a table of what works for each area, then what does not."""
    return "\n".join(["", *_supported(areas), *_without_effect(areas), *_unsupported(areas)])


def renew(text: str) -> str:
    """The page `text` with its part between the marks renewed; raises ValueError where it has no marks."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page lacks the marks {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{page()}{END}{after}"


def _supported(areas: Sequence[tuple[str, tuple[Option, ...]]]) -> Iterator[str]:
    for title, options in areas:
        shown = [option for option in options if not option.unsupported and not option.notice]
        if shown:
            yield from (f"### {title}", "", "| option | default | meaning |", "|---|---|---|")
            yield from (f"| {_code(option.name)} | {_default(option)} | {_meaning(option)} |" for option in shown)
            yield ""


def _without_effect(areas: Sequence[tuple[str, tuple[Option, ...]]]) -> Iterator[str]:
    yield from ("### Accepted without effect", "", "A value other than the default is told in a warning.", "")
    yield from ("| option | why |", "|---|---|")
    for _, options in areas:
        yield from (f"| {_code(option.name)} | {_cell(option.notice)} |" for option in options if option.notice)
    yield ""


def _unsupported(areas: Sequence[tuple[str, tuple[Option, ...]]]) -> Iterator[str]:
    yield from ("### Not supported", "", "Any value but the default is an error that gives this reason.", "")
    yield from ("| option | default | why |", "|---|---|---|")
    for _, options in areas:
        for option in options:
            if option.unsupported and not option.notice:
                yield f"| {_code(option.name)} | {_default(option)} | {_cell(option.unsupported)} |"
    yield ""


def _default(option: Option) -> str:
    if option.name in REQUIRED["postgres"]:
        return "required"
    shown = _value(option.default)
    if option.default_1x is not None:
        shown += f"; {_value(option.default_1x)} in the format 1.7"
    return shown


def _value(value: Any) -> str:
    if value is None or value == "":
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, list | frozenset):
        return _code(",".join(sorted(value))) if value else "none"
    return _code(str(value))


def _meaning(option: Option) -> str:
    parts = [_cell(option.doc)]
    if option.choices and option.name != "connector.class":
        parts.append(f"One of {', '.join(_code(choice) for choice in option.choices)}.")
    elif option.kind in _FORMS:
        parts.append(f"{option.kind.value[0].upper()}{option.kind.value[1:]}.")
    if option.refused:
        parts.append(f"Not supported: {', '.join(_code(choice) for choice, _ in option.refused)}.")
    older = [*option.aliases, *option.deprecated_names]
    if older:
        parts.append(f"Also {', '.join(_code(name) for name in older)}.")
    return " ".join(parts)


def _code(text: str) -> str:
    return f"`{_cell(text)}`"


def _cell(text: str) -> str:
    """Text that does not end its cell."""
    return text.replace("|", "\\|")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tailrace.config.reference", description=__doc__)
    parser.add_argument("page", type=Path, nargs="?", default=Path("docs/reference/postgres.md"))
    parser.add_argument("--check", action="store_true", help="write nothing")
    arguments = parser.parse_args(argv)
    text = arguments.page.read_text("utf-8")
    fresh = renew(text)
    if arguments.check:
        return int(fresh != text)
    arguments.page.write_text(fresh, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
